package simulation

import (
	"fmt"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// ceiling is what the source of all policies may do. The zero one allows everything.
type ceiling struct {
	number    int // counts its edits
	observe   bool
	butLast   bool // all members but the last
	perPolicy int  // upper bound of that limit, which must be set; 0: none
}

func (w *world) drawCeiling() ceiling {
	c := w.choices
	return ceiling{w.ceiling.number + 1, c.oneIn(4), c.oneIn(3), []int{0, 2, 3}[c.below(3)]}
}

// version is what it is called, "" where there is none.
func (c ceiling) version() string {
	if c == (ceiling{}) {
		return ""
	}
	return fmt.Sprintf("%+v", c)
}

// spec is the ceiling as the hub's controllers read it.
func (c ceiling) spec(w *world) *enforce.Ceiling {
	if c == (ceiling{}) {
		return nil
	}
	out := &enforce.Ceiling{Mode: policy.Enforce, Actions: []enforce.AllowedAction{{Verbs: []string{"patch", "apply"}, Kinds: []string{"*"}}}, Version: c.version()}
	if c.observe {
		out.Mode = policy.Observe
	}
	for _, m := range w.members {
		if c.allows(w, m.name) {
			out.Members.Names = append(out.Members.Names, m.name)
		}
	}
	if len(out.Members.Names) == 0 {
		out.Members.Names = []string{"fleet/none"}
	}
	if c.perPolicy > 0 {
		out.Limits.Policy, out.Limits.Window = remediate.Limit{Count: c.perPolicy}, openings[1].every
	}
	return out
}

func (c ceiling) allows(w *world, member string) bool {
	return !c.butLast || member != w.members[len(w.members)-1].name
}

// permits reports whether what is wanted of a policy may be written to a member.
func (c ceiling) permits(w *world, x *wish, member string) bool {
	return !c.observe && c.allows(w, member) && (c.perPolicy == 0 || x.perPolicy > 0 && x.perPolicy <= c.perPolicy)
}

// offerCeilings offers that people set another ceiling, and that processes learn that before they
// learn what follows from it.
func (w *world) offerCeilings(add func(int, string, func())) {
	add(2, "ceiling", func() {
		next := w.drawCeiling()
		w.want(func() { w.ceiling = next })
		w.note("people: ceiling %s", next.version())
	})
	for _, p := range w.processes {
		if p.ceiling != w.ceiling && !p.paused {
			add(10, "learn a ceiling", func() {
				w.mu.Lock()
				p.ceiling = w.ceiling
				w.mu.Unlock()
				w.note("%s learns of ceiling %s", p.name, p.ceiling.version())
			})
		}
	}
}

// ceilingOf is the version of the ceiling that the process knows of.
func (p *process) ceilingOf(string) string {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	return p.ceiling.version()
}

// Invariant 2, of ceilings: nothing is sent that exceeds the ceiling that the process could know
// of, whatever ceiling it was planned under.
type ceilingModel struct{}

func (ceilingModel) sent(w *world, p *process, x write) {
	if wish := p.told.policies[x.policy]; wish != nil && !p.ceiling.permits(w, wish, x.member) {
		w.fail("2 ceiling", "%s writes to %s for %s, which exceeds the ceiling %s: %v", p.name, x.target(), x.policy, p.ceiling.version(), wish)
	}
}
