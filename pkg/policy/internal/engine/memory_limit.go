package engine

import (
	"fmt"

	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

const readBytes = 48 // about what one remembered read takes

func bindingFull(limit int64) string {
	return fmt.Sprintf("the binding's violations and what its evaluations read take more than %d bytes in total", limit)
}

// addHeld adds to the bytes that a subject's verdict takes; more may be negative.
func (b *boundBinding) addHeld(s verdict.Subject, more int64) {
	if more == 0 {
		return
	}
	b.heldBytes += more
	if b.heldByMember[s.Ref.Member] += more; b.heldByMember[s.Ref.Member] <= 0 {
		delete(b.heldByMember, s.Ref.Member)
	}
}

// refuse reports whether there is no room for a verdict, and remembers it. Members that
// hold little get as much room again, so that one that holds much does not harm them.
func (b *boundBinding) refuse(s verdict.Subject, cost, limit int64) bool {
	if b.heldBytes+cost <= limit || b.heldBytes+cost <= 2*limit && b.heldByMember[s.Ref.Member]+cost <= limit/16 {
		return false
	}
	if b.refused == nil {
		b.refused = map[verdict.Subject]int64{}
	}
	b.refused[s] = cost
	return true
}

// markRefused marks refused subjects for whose verdicts there is room again.
func (r *pass) markRefused(b *boundBinding) {
	room := r.e.opts.Limits.Binding/4*3 - b.heldBytes
	for s, cost := range b.refused {
		if room -= cost; room < 0 {
			return
		}
		if b.pkg.Subject == module.ObjectSubject {
			r.markObject(b, s.Ref)
		} else {
			r.markSubject(b, s)
		}
	}
}
