package policy_test

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/module"
)

// preview checks that what is Known of the newest policies before a process has them is what they find.
func (s *sharded) preview(ctx context.Context, i int) error {
	p, to, v := s.processes[i], s.configs[s.newest], s.views[i]
	ref, _, err := p.reference(v.own, v.peers, v.told, s.knows(s.running[i], s.newest))
	if err != nil {
		return err
	}
	want, err := s.evaluate(ctx, ref, to, p.documents)
	if err != nil {
		return err
	}
	opts := policy.EngineOptions{Set: s.sets[to.set].set, Bindings: to.bindings, Parallelism: 1, Limits: s.limits}
	check := func(how string, got *policy.Verdict) error {
		if got == nil || got.State != policy.Known || to.tolerant(got.Binding) {
			return nil
		}
		s.seen.previews.Add(1)
		at := got.Binding + " | " + got.Subject.String()
		if textOf(*got) != want[at] {
			return fmt.Errorf("%w: process %d: %s of %s: %v, want %v", errDiffers, i, how, at, textOf(*got), want[at])
		}
		return nil
	}
	changes, err := policy.Compare(ctx, p.engine.State(), opts)
	if err != nil {
		return err
	}
	for b := range changes.After.Bindings() {
		for got := range changes.After.Verdicts(b.Name, "") {
			if err := check("comparison", &got); err != nil {
				return err
			}
		}
	}
	candidate, err := policy.NewPreview(p.engine.State(), opts)
	if err != nil {
		return err
	}
	return candidate.Run(ctx, policy.PreviewOptions{Found: func(_, after *policy.Verdict) error { return check("preview", after) }})
}

// evaluate returns what policies say of a snapshot.
func (s *sharded) evaluate(ctx context.Context, x *aggregate.Snapshot, c config, documents *policy.External) (map[string]textVerdict, error) {
	state, err := policy.Evaluate(ctx, policy.EngineOptions{Set: s.sets[c.set].set, Bindings: c.bindings, Parallelism: 1, Limits: s.limits, External: documents}, x)
	if err != nil {
		return nil, err
	}
	return verdictsOf(state, c), nil
}

func verdictsOf(state *policy.State, c config) map[string]textVerdict {
	out := map[string]textVerdict{}
	for _, b := range c.bindings {
		for v := range state.Verdicts(b.Name, "") {
			out[v.Binding+" | "+v.Subject.String()] = textOf(v)
		}
	}
	return out
}

// check holds what a process says to what policies say of all that it can know: it is never Known and wrong.
func (s *sharded) check(ctx context.Context, i int) error {
	p, v := s.processes[i], s.views[i]
	if p.engine.State() == nil {
		return nil
	}
	ref, whole, err := p.reference(v.own, v.peers, v.told, s.knows(s.running[i]))
	if err != nil {
		return err
	}
	state, err := policy.Evaluate(ctx, policy.EngineOptions{Set: s.sets[p.has.set].set, Bindings: p.has.bindings, Parallelism: 1, Limits: s.limits, External: p.documents}, ref)
	if err != nil {
		return err
	}
	want := map[string]textVerdict{} // of what the process judges
	for _, b := range p.has.bindings {
		subject := s.sets[p.has.set].set.Package(b.Package).Subject
		for w := range state.Verdicts(b.Name, "") {
			judges := p.owner.Owns(b.Name, w.Subject.Key)
			if subject != module.ViewSubject {
				m, reads := v.own.Member(w.Subject.Ref.Member)
				judges = reads && m.Role == aggregate.Judge
			}
			if judges {
				want[w.Binding+" | "+w.Subject.String()] = textOf(w)
			}
		}
	}
	if !whole {
		s.seen.others.Add(1)
	}
	if is := p.engine.State(); !is.Held().Covers(is.Wanted()) || p.lacksOfLost() {
		whole = false // members that a binding tolerates are among what it does not know
	}
	if whole && s.limits.View == 0 {
		if err := agree(p.engine.State(), p.has.bindings, want, p.reported); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
	}
	s.countWaiting(p)
	for at, got := range verdictsOf(p.engine.State(), p.has) {
		name, _, _ := strings.Cut(at, " | ")
		if got.state == policy.Known && got != want[at] && (whole || !p.has.tolerant(name)) {
			return fmt.Errorf("%w: process %d: %s is %v, want %v", errDiffers, i, at, got, want[at])
		}
	}
	return nil
}

// settle lets everything arrive.
func (s *sharded) settle(ctx context.Context) error {
	s.note("quiet")
	for member := range s.whole.members {
		judge := s.judge[member]
		for i, p := range s.processes {
			m, _ := s.whole.index.Snapshot().Member(member)
			role, reads := p.roles[member]
			var err error
			switch {
			case i == judge && !reads:
				err = p.read(s.whole, member, aggregate.Judge)
			case i == judge:
				err = p.setRole(member, aggregate.Judge)
			case reads && role == aggregate.Judge:
				err = p.setRole(member, aggregate.Standby)
			}
			if err == nil && i != judge && !reads {
				err = p.hear(m)
			}
			if err != nil {
				return err
			}
		}
	}
	for i, p := range s.processes {
		if p.engine.State() == nil {
			if err := s.pass(ctx, i, false); err != nil {
				return err
			}
		}
		if s.running[i] != s.newest {
			if err := s.reconfigure(ctx, i); err != nil {
				return err
			}
		}
		if err := s.read(ctx, i); err != nil {
			return err
		}
		p.owner = policy.KeyOwner{Self: p.id, Now: s.ids}
		if err := p.pass(i, s.processes, func() (*policy.Changes, error) { return p.engine.SetKeyOwner(ctx, p.owner) }); err != nil {
			return err
		}
	}
	for round := 0; ; round++ {
		more := false
		for i := range s.processes {
			if err := s.pass(ctx, i, false); err != nil {
				return err
			}
		}
		for i, p := range s.processes {
			for j, from := range s.processes {
				if i == j || round > 0 && p.links[j].empty() && !p.mayTellMore(j) {
					continue
				}
				more = true
				if err := p.deliver(j, from, func(m string) bool { return s.judge[m] == j }); err != nil {
					return err
				}
			}
		}
		for i, p := range s.processes {
			some, err := p.follow(ctx, func(do func() (*policy.Changes, error)) error { return p.pass(i, s.processes, do) }, s.views[i].peers)
			if err != nil {
				return err
			}
			more = more || some
		}
		if !more {
			return s.union(ctx)
		}
		if round > 40 {
			return fmt.Errorf("%w: it does not become quiet", errDiffers)
		}
	}
}

// union holds what all processes say together to what one says that has the fleet alone.
func (s *sharded) union(ctx context.Context) error {
	c := s.configs[s.newest]
	switch batch, some := s.at.Poll(); {
	case some:
		if _, err := s.engine.Apply(ctx, batch, nil); err != nil {
			return err
		}
	}
	if s.running[3] != s.newest {
		s.running[3] = s.newest
		if _, err := s.engine.Configure(ctx, s.sets[c.set].set, c.bindings); err != nil {
			return err
		}
	}
	want, got := verdictsOf(s.engine.State(), c), map[string]textVerdict{}
	for i, p := range s.processes {
		if err := p.settled(); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
		if err := s.check(ctx, i); err != nil {
			return err
		}
		for at, v := range verdictsOf(p.engine.State(), c) {
			if _, twice := got[at]; twice {
				return fmt.Errorf("%w: process %d is not the only one that judges %s", errDiffers, i, at)
			}
			got[at] = v
			switch {
			case strings.HasSuffix(at, "x"):
			case v.state == policy.Unknown:
				s.seen.unknown.Add(1)
			case v.violations != "":
				s.seen.found.Add(1)
			default:
				s.seen.known.Add(1)
			}
			if s.limits.View != 0 && want[at].state == policy.Error && v.state == policy.Unknown {
				got[at] = want[at] // what exceeds the limit of a view is not told
			}
		}
	}
	s.seen.quiet.Add(1)
	if !maps.Equal(got, want) {
		return fmt.Errorf("%w: the union:\n%s", errDiffers, difference(got, want))
	}
	return nil
}
