package engine

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

func isQuarantined(b *boundBinding, s verdict.Subject) bool {
	_, why := b.quarantined(s)
	return why != ""
}

// maxRetries is how often what overran the budget is evaluated again by itself.
const maxRetries = 3

// countRetry takes note of whether x overran the budget.
func countRetry[T comparable](overran map[T]int, x T, over bool) map[T]int {
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
func (b *boundBinding) blamed(s verdict.Subject) string {
	if b.pkg.Subject != module.ViewSubject {
		return s.Ref.Member
	}
	sizes, worst := map[string]int64{}, ""
	for e := range b.view.Entries(s.Key) {
		m := e.Object.Ref.Member
		if sizes[m] += e.Size(); worst == "" || sizes[m] > sizes[worst] {
			worst = m
		}
	}
	return worst
}

// quarantined is why an evaluation is held back, and the member for which; "" if it is not.
func (b *boundBinding) quarantined(s verdict.Subject) (member, why string) {
	if !b.scores.NonEmpty() {
		return "", ""
	}
	member = b.blamed(s)
	return member, b.scores.Reason(member)
}

// endQuarantines marks what quarantines have held back whose time is over. Contributions are
// evaluated at once.
func (r *pass) endQuarantines() error {
	now := r.e.opts.Clock()
	for _, v := range r.e.views {
		members := v.scores.Expire(now)
		if len(members) == 0 {
			continue
		}
		var list []aggregate.Object
		for ref := range v.Withheld(members) {
			if o, ok := r.after.Get(ref); ok {
				list = append(list, o)
			}
		}
		if err := r.fill(v, list); err != nil {
			return err
		}
	}
	for _, b := range r.e.bindings {
		members := b.scores.Expire(now)
		if len(members) == 0 {
			continue
		}
		for s := range b.Quarantined(members) {
			if b.pkg.Subject == module.ObjectSubject {
				r.markObject(b, s.Ref)
			} else {
				r.markSubject(b, s)
			}
		}
	}
	return nil
}
