package engine

import (
	"fmt"

	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

const edgeBytes = 48 // about what one read takes that is remembered

func errFull(limit int64) string {
	return fmt.Sprintf("the binding's violations and what its evaluations read take more than %d bytes in sum", limit)
}

// hold counts what a subject's verdict takes more, or less.
func (b *bound) hold(s verdict.Subject, more int64) {
	if more == 0 {
		return
	}
	b.sum += more
	if b.sums[s.Ref.Member] += more; b.sums[s.Ref.Member] <= 0 {
		delete(b.sums, s.Ref.Member)
	}
}

// refuses reports whether there is no room for a verdict, and remembers it. Members
// that hold little have as much again: one that holds much is no harm to them.
func (b *bound) refuses(s verdict.Subject, cost, limit int64) bool {
	if b.sum+cost <= limit || b.sum+cost <= 2*limit && b.sums[s.Ref.Member]+cost <= limit/16 {
		return false
	}
	if b.refused == nil {
		b.refused = map[verdict.Subject]int64{}
	}
	b.refused[s] = cost
	return true
}

// readmit marks subjects for whose verdicts there is room again.
func (r *round) readmit(b *bound) {
	room := r.e.opts.Limits.Binding/4*3 - b.sum
	for s, cost := range b.refused {
		if room -= cost; room < 0 {
			return
		}
		if b.pkg.Subject == module.ObjectSubject {
			r.mark(b, s.Ref)
		} else {
			r.markSubject(b, s)
		}
	}
}
