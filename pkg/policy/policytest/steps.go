package policytest

import (
	"math/rand/v2"

	"federator.dev/federator/pkg/aggregate"
)

// writer fills an index.
type writer struct {
	index  *aggregate.Index
	scopes map[*scope]*aggregate.Scope
}

func newWriter() (*writer, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	return &writer{index: index, scopes: map[*scope]*aggregate.Scope{}}, err
}

// step is one change of an index. It follows another step, if after is set.
type step struct {
	do    func() error
	after *step
}

func (w *writer) putMember(m aggregate.Member) func() error {
	return func() error { return w.index.PutMember(m) }
}

func (w *writer) openScope(s *scope) func() error {
	return func() error {
		opened, err := w.index.OpenScope(s.member, s.kind, s.version)
		if err != nil {
			return err
		}
		w.scopes[s] = opened
		return w.commit(s, func(x *aggregate.Scope) { x.SetStatus(aggregate.Status{State: aggregate.Syncing}) })
	}
}

func (w *writer) commit(s *scope, change func(*aggregate.Scope)) error {
	x := w.scopes[s]
	change(x)
	_, err := x.Commit()
	return err
}

func (w *writer) upsert(s *scope, rec *aggregate.Record) func() error {
	return func() error { return w.commit(s, func(x *aggregate.Scope) { x.Upsert(x.Item(rec)) }) }
}

func (w *writer) remove(s *scope, rec *aggregate.Record) func() error {
	return func() error {
		return w.commit(s, func(x *aggregate.Scope) { x.Delete(rec.Namespace, rec.Name) })
	}
}

func (w *writer) setState(s *scope) func() error {
	return func() error {
		return w.commit(s, func(x *aggregate.Scope) { x.SetStatus(aggregate.Status{State: s.state, Reason: "set by the fixture"}) })
	}
}

// steps are the changes that build the fleet, in order.
func (f *fleet) steps(w *writer) []*step {
	var out []*step
	for _, m := range f.members {
		out = append(out, &step{do: w.putMember(m)})
	}
	for i := range f.scopes {
		s := &f.scopes[i]
		out = append(out, &step{do: w.openScope(s)})
		for _, rec := range s.records {
			out = append(out, &step{do: w.upsert(s, rec)})
		}
		out = append(out, &step{do: w.setState(s)})
	}
	return out
}

// shuffledSteps are changes that end at the same fleet by another way: members get
// their labels after they joined, and some objects are deleted and created again.
func (f *fleet) shuffledSteps(w *writer, r *rand.Rand) []*step {
	var out []*step
	add := func(after *step, do func() error) *step {
		s := &step{do: do, after: after}
		out = append(out, s)
		return s
	}
	joined := map[string]*step{}
	for _, m := range f.members {
		joined[m.Name] = add(nil, w.putMember(aggregate.Member{Name: m.Name, UID: m.UID}))
		add(joined[m.Name], w.putMember(m))
	}
	for i := range f.scopes {
		s := &f.scopes[i]
		opened := add(joined[s.member], w.openScope(s))
		add(opened, w.setState(s))
		for _, rec := range s.records {
			last := add(opened, w.upsert(s, rec))
			if r.IntN(3) == 0 {
				add(add(last, w.remove(s, rec)), w.upsert(s, rec))
			}
		}
	}
	return out
}

// shuffle returns steps in a random order in which each follows its predecessor.
func shuffle(steps []*step, r *rand.Rand) []*step {
	next := map[*step][]*step{}
	for _, s := range steps {
		next[s.after] = append(next[s.after], s)
	}
	ready := next[nil]
	out := make([]*step, 0, len(steps))
	for len(ready) > 0 {
		i := r.IntN(len(ready))
		s := ready[i]
		ready[i] = ready[len(ready)-1]
		ready = append(ready[:len(ready)-1], next[s]...)
		out = append(out, s)
	}
	return out
}
