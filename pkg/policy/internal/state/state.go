// Package state is what the engine publishes: the verdicts of all bindings on one
// snapshot, immutable. Completeness is applied when a verdict is read: a scope that
// turns Stale turns the verdicts that read it Unknown without touching any of them.
package state

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/external"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/projection"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// State is the verdicts of all bindings on one snapshot. It is immutable; any number
// of goroutines may use it. Keeping it keeps the snapshot.
type State struct {
	// Snapshot is what the verdicts are of: what this process reads itself. What its peers have told is seen by
	// policies alone.
	Snapshot *aggregate.Snapshot
	// Synced is true from the first state in which no scope that a policy reads is
	// Unknown or Syncing. Before that, no violation counts as cleared. What only versions read that are in
	// effect nowhere, as one in shadow, is not waited for. Nor is any external document about to be read that policies read.
	Synced bool
	// AsOf is the time as of which the verdicts are, in whole seconds; from state to state it never falls.
	AsOf time.Time
	// Wake is the first instant after AsOf that verdicts depend on: the next Apply, Advance or Configure then
	// evaluates what read it. Zero: there is none.
	Wake time.Time
	// Retry is when the first quarantine ends: the next Apply or Advance, or Configure
	// without a change, then evaluates what it withheld. Zero: there is none.
	Retry time.Time

	parts Parts
}

// Parts are what a state is made of.
type Parts struct {
	Set          *module.Set
	Bindings     []*Binding      // by name
	Views        []*matview.View // frozen, by package, then name
	ByID         map[uint32]*matview.View
	Gaps         *completeness.Gaps
	Fingerprints map[string]string // by package
	Clock        int64             // the caller's, in seconds since 1970: before AsOf after a step back
	Fleet        *fleetview.View   // what policies see
	Owner        fleetview.KeyOwner
	Projections  *projection.Plan // what is read of objects in members that are not judged here
	External     *external.Documents
	Exports      bool // views have what State.Export needs
	// Wanted are the keys that verdicts have read of what others judge, and Held those of which this process has all.
	Wanted, Held *interest.Set
	// Takeovers are members, in order, that another process has judged until a moment ago: what their verdicts read of others is not
	// held yet. "" is for keys of views.
	Takeovers []string
}

// PartsOf returns what a state is made of.
func PartsOf(s *State) *Parts { return &s.parts }

// New returns a state.
func New(synced bool, retry time.Time, p Parts) *State {
	p.ByID = make(map[uint32]*matview.View, len(p.Views))
	for _, v := range p.Views {
		p.ByID[v.ID] = v
	}
	return &State{Snapshot: p.Fleet.Own(), Synced: synced, Retry: retry, parts: p}
}

// KeyOwner says which keys of views are judged in this process.
func (s *State) KeyOwner() fleetview.KeyOwner { return s.parts.Owner }

// Without returns a state without some bindings.
func Without(s *State, names map[string]bool) *State {
	out := *s
	out.parts.Bindings = slices.DeleteFunc(slices.Clone(s.parts.Bindings), func(b *Binding) bool { return names[b.Name] })
	return &out
}

// Bindings yields the bindings with their packages' severities, by name.
func (s *State) Bindings() iter.Seq2[binding.Binding, string] {
	return func(yield func(binding.Binding, string) bool) {
		for _, b := range s.parts.Bindings {
			if !yield(b.Binding, b.main().Described.Severity) {
				return
			}
		}
	}
}

func (s *Parts) Binding(name string) *Binding {
	i, ok := slices.BinarySearchFunc(s.Bindings, name, func(b *Binding, name string) int { return strings.Compare(b.Name, name) })
	if !ok {
		return nil
	}
	return s.Bindings[i]
}

// Health returns the health of a binding's policy; ok is false for an unknown binding. Of two versions its numbers are
// those of the former, until the next has taken its place everywhere, and what keeps verdicts from being Known is of
// all that is in effect; Compare has both.
func (s *State) Health(binding string) (h verdict.Health, ok bool) {
	b := s.parts.Binding(binding)
	if b == nil {
		return verdict.Health{}, false
	}
	h = s.health(b.main())
	if b.Next == nil {
		return h, true
	}
	h.Views, h.Failures, h.Quarantines = "", nil, nil
	for of := range b.inEffect() {
		one := s.health(of)
		h.Views = cmp.Or(h.Views, one.Views)
		for _, g := range one.Failures {
			if len(h.Failures) < verdict.MaxGaps && !slices.Contains(h.Failures, g) {
				h.Failures = append(h.Failures, g)
			}
		}
		for _, q := range one.Quarantines {
			if b.In(q.Member) == of { // the other goes on there
				h.Quarantines = append(h.Quarantines, q)
			}
		}
	}
	slices.SortFunc(h.Quarantines, func(x, y verdict.Quarantine) int { return cmp.Compare(x.Member, y.Member) })
	return h, true
}

func (s *State) health(b *Binding) verdict.Health {
	h := b.Health
	for _, v := range s.parts.Views {
		if !ReadsView(b.Pkg, v) {
			continue
		}
		if h.Views == "" {
			h.Views = v.LimitMessage()
		}
		for g := range v.Gaps() {
			if len(h.Failures) == verdict.MaxGaps {
				break
			}
			if b.Visible.Has(g.Member) && !b.Tolerated.Has(g.Member) {
				h.Failures = append(h.Failures, g)
			}
		}
	}
	return h
}

// Get returns the verdict of a binding on a subject; ok is false when it is not a
// subject of the binding.
func (s *State) Get(binding string, subject verdict.Subject) (v verdict.Verdict, ok bool) {
	b := s.parts.Binding(binding)
	if b == nil {
		return verdict.Verdict{}, false
	}
	if b = b.On(subject); !b.hasSubject(s, subject) {
		return verdict.Verdict{}, false
	}
	c, f := b.Get(subject)
	return b.Verdict(s, subject, c, f), true
}

// Set returns the policies that the state was evaluated with.
func (s *State) Set() *module.Set { return s.parts.Set }

// Package returns the loaded package of a binding, with what its constraint says of title,
// description and severity; nil for an unknown binding. Of two versions it is that of the former, until the next has
// taken its place everywhere: what is of one member, or of a key, is of PackageIn.
func (s *State) Package(binding string) *module.Package {
	if b := s.parts.Binding(binding); b != nil {
		return b.main().Described
	}
	return nil
}
