package policy

import (
	"fmt"

	"federator.dev/federator/pkg/policy/internal/module"
)

const (
	edgeBytes      = 48 // about what one read takes that is remembered
	violationBytes = 120
)

// size is about how many bytes a finding takes.
func (f *found) size() int64 {
	if f == nil {
		return 0
	}
	n := len(f.err)
	for i := range f.violations {
		n += f.violations[i].Size()
	}
	return int64(n)
}

// Size is about how many bytes a violation takes, in memory or as JSON.
func (v *Violation) Size() int {
	n := violationBytes + len(v.Msg) + len(v.Details) + len(v.Exempt)
	if r := v.Remedy; r != nil {
		n += violationBytes + len(r.Object) + len(r.Patch)
	}
	return n
}

func errFull(limit int64) string {
	return fmt.Sprintf("the binding's violations and what its evaluations read take more than %d bytes in sum", limit)
}

// hold counts what a subject's verdict takes more, or less.
func (b *bound) hold(s Subject, more int64) {
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
func (b *bound) refuses(s Subject, cost, limit int64) bool {
	if b.sum+cost <= limit || b.sum+cost <= 2*limit && b.sums[s.Ref.Member]+cost <= limit/16 {
		return false
	}
	if b.refused == nil {
		b.refused = map[Subject]int64{}
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
