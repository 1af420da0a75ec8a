package engine

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

func heldBack(b *bound, s verdict.Subject) bool {
	_, why := b.held(s)
	return why != ""
}

// maxTries is how often what overran the budget is evaluated again by itself.
const maxTries = 3

// tried takes note of whether x overran the budget.
func tried[T comparable](overran map[T]int, x T, over bool) map[T]int {
	if over {
		if overran == nil {
			overran = map[T]int{}
		}
		overran[x]++
		return overran
	}
	delete(overran, x)
	return overran
}

// blamed is the member of which an evaluation's waste is held against: the subject's,
// or the one that has contributed most to a key.
func (b *bound) blamed(s verdict.Subject) string {
	if b.pkg.Subject != module.ViewSubject {
		return s.Ref.Member
	}
	sizes, worst := map[string]int64{}, ""
	for e := range b.view.Under(s.Key) {
		m := e.Of.Ref.Member
		if sizes[m] += e.Size(); worst == "" || sizes[m] > sizes[worst] {
			worst = m
		}
	}
	return worst
}

// held is why an evaluation is held back, and the member for which; "" if it is not.
func (b *bound) held(s verdict.Subject) (member, why string) {
	if !b.score.Any() {
		return "", ""
	}
	member = b.blamed(s)
	return member, b.score.Held(member)
}

// release marks what quarantines have held back whose time is over. Contributions are
// evaluated at once.
func (r *round) release() error {
	now := r.e.opts.Clock()
	for _, v := range r.e.views {
		members := v.score.Due(now)
		if len(members) == 0 {
			continue
		}
		var list []aggregate.Object
		for ref := range v.HeldBack(members) {
			if o, ok := r.after.Get(ref); ok {
				list = append(list, o)
			}
		}
		if err := r.fill(v, list); err != nil {
			return err
		}
	}
	for _, b := range r.e.bounds {
		members := b.score.Due(now)
		if len(members) == 0 {
			continue
		}
		for s := range b.HeldBack(members) {
			if b.pkg.Subject == module.ObjectSubject {
				r.mark(b, s.Ref)
			} else {
				r.markSubject(b, s)
			}
		}
	}
	return nil
}
