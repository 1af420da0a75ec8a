package policy

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// State is the verdicts of all bindings on one snapshot. It is immutable; any number
// of goroutines may use it. Keeping it keeps the snapshot.
type State struct {
	// Snapshot is what the verdicts are of.
	Snapshot *aggregate.Snapshot
	// Synced is true from the first state on in which no scope that a policy reads
	// was Unknown or Syncing. Before, nothing counts as cleared.
	Synced bool
	// Retry is when the first quarantine ends: Apply, or Configure with what is
	// configured, takes up then what it holds back. Zero: there is none.
	Retry time.Time

	bindings []*bindingState // by name
	views    []*view         // frozen, by package, then name
	byID     map[uint32]*view
	gaps     *gaps
	prints   map[string]string // fingerprints of the packages
}

// bindingState is a bound, frozen.
type bindingState struct {
	Binding

	pkg                          *module.Package
	sel                          *selection
	view                         uint32 // of a ViewSubject
	selected, visible, tolerated members
	defaults                     map[aggregate.Kind]*class
	records                      *sorted[record]
	tallies                      *sorted[*tally]
	health                       Health
}

// freeze returns the binding as it is now.
func (b *bound) freeze() *bindingState {
	if b.frozen == nil {
		b.frozen = &bindingState{
			Binding: b.Binding, pkg: b.pkg, sel: b.sel, selected: b.selected, visible: b.visible, tolerated: b.tolerated,
			records: b.records.Copy(), tallies: b.tallies.Copy(), defaults: make(map[aggregate.Kind]*class, len(b.defaults)),
		}
		for kind, c := range b.defaults {
			b.frozen.defaults[kind] = c
		}
		if b.view != nil {
			b.frozen.view = b.view.id
		}
		clear(b.owned)
	}
	s := *b.frozen
	s.health = Health{
		Evaluations: b.evaluations.Load(), Nanoseconds: b.nanoseconds.Load(), Overruns: b.overruns.Load(),
		Errors: b.errors.Load(), Wide: b.wide.Load(),
	}
	s.health.Quarantines = b.score.quarantines()
	return &s
}

// Bindings yields the bindings with their packages' severities, by name.
func (s *State) Bindings() iter.Seq2[Binding, string] {
	return func(yield func(Binding, string) bool) {
		for _, b := range s.bindings {
			if !yield(b.Binding, b.pkg.Severity) {
				return
			}
		}
	}
}

func (s *State) binding(name string) *bindingState {
	i, ok := slices.BinarySearchFunc(s.bindings, name, func(b *bindingState, name string) int { return strings.Compare(b.Name, name) })
	if !ok {
		return nil
	}
	return s.bindings[i]
}

// Health returns how a binding's policy does; ok is false for one that is not there.
func (s *State) Health(binding string) (h Health, ok bool) {
	b := s.binding(binding)
	if b == nil {
		return Health{}, false
	}
	h = b.health
	for _, v := range s.views {
		if !looks(b.pkg, v) {
			continue
		}
		if h.Views == "" {
			h.Views = v.excess()
		}
		for g := range v.gaps() {
			if len(h.Failures) == MaxGaps {
				break
			}
			if b.visible.has(g.Member) && !b.tolerated.has(g.Member) {
				h.Failures = append(h.Failures, g)
			}
		}
	}
	return h, true
}

// looks reports whether a package has or reads a view.
func looks(p *module.Package, v *view) bool {
	return v.pkg.Name == p.Name || slices.Contains(p.Reads.Views, module.ViewRef{Package: v.pkg.Name, View: v.def.Name})
}

// Get returns the verdict of a binding on a subject; ok is false when the binding
// does not judge it.
func (s *State) Get(binding string, subject Subject) (v Verdict, ok bool) {
	b := s.binding(binding)
	if b == nil || !s.judges(b, subject) {
		return Verdict{}, false
	}
	c, f := b.get(subject)
	return s.verdict(b, subject, c, f), true
}

func (b *bindingState) get(subject Subject) (*class, *found) {
	if r, ok := b.records.Get(record{subject: subject}); ok {
		return r.class, r.found
	}
	return b.defaults[subject.Ref.Kind], nil
}

// judges reports whether a binding judges a subject.
func (s *State) judges(b *bindingState, subject Subject) bool {
	switch b.pkg.Subject {
	case module.MemberSubject:
		_, ok := s.Snapshot.Member(subject.Ref.Member)
		return ok && subject == Subject{Ref: aggregate.Ref{Member: subject.Ref.Member}} && b.selected.has(subject.Ref.Member)
	case module.ViewSubject:
		return subject.Ref == aggregate.Ref{} && b.keyExists(s, subject.Key)
	}
	o, ok := s.Snapshot.Get(subject.Ref)
	return ok && subject.Key == "" && feeds(b.pkg, subject.Ref.Kind) && b.selected.has(subject.Ref.Member) && b.sel.object(o)
}

// keyExists reports whether an entry of a key counts.
func (b *bindingState) keyExists(s *State, key string) bool {
	v := s.byID[b.view]
	if v == nil {
		return false
	}
	for e := range v.under(key) {
		if b.sel.entry(e, s.Snapshot, &b.selected, &b.visible) {
			return true
		}
	}
	return false
}

// verdict puts together what is known of a subject.
func (s *State) verdict(b *bindingState, subject Subject, c *class, f *found) Verdict {
	v := Verdict{Binding: b.Name, Subject: subject}
	var found []Gap
	v.State, v.Message = s.completeness(b, c, subject.Ref.Member, func(g Gap) bool {
		if !slices.Contains(found, g) {
			found = append(found, g)
		}
		return len(found) < MaxGaps
	})
	if f != nil {
		v.Revision = f.revision
	}
	switch {
	case v.State == Error:
	case f != nil && f.err != "":
		v.State, v.Message = Error, f.err
	default:
		v.Gaps = found
		if f != nil {
			v.Violations = f.violations
		}
	}
	return v
}

// completeness says what the scopes and views of a class make of its verdicts.
// gap is called for each incomplete scope until it returns false.
func (s *State) completeness(b *bindingState, c *class, member string, gap func(Gap) bool) (VerdictState, string) {
	if c == nil {
		return Known, ""
	}
	for _, id := range c.views {
		if why := s.byID[id].excess(); why != "" {
			return Error, why
		}
	}
	state, more := Known, true
	found := func(g Gap) {
		if more && !b.tolerated.has(g.Member) {
			state = Unknown
			more = gap(g)
		}
	}
	for _, kind := range c.own {
		if g, ok := s.gaps.at(kind, member); ok {
			found(g)
		}
	}
	for _, p := range c.points {
		if g, ok := s.gaps.at(p.kind, p.member); ok && b.visible.has(p.member) {
			found(g)
		}
	}
	wide := func(kind aggregate.Kind) {
		for _, g := range s.gaps.of(kind) {
			if !more {
				return
			}
			if b.visible.has(g.Member) {
				found(g)
			}
		}
	}
	for _, kind := range c.wide {
		wide(kind)
	}
	for _, id := range c.views {
		v := s.byID[id]
		if v.pkg.AnyKind {
			for _, kind := range s.gaps.kinds {
				wide(kind)
			}
		}
		for _, k := range v.pkg.Kinds {
			wide(k.Kind)
		}
		for g := range v.gaps() {
			if !more {
				break
			}
			if b.visible.has(g.Member) {
				found(g)
			}
		}
	}
	return state, ""
}

// Findings yields the verdicts of a binding that have violations or failed
// themselves, by member, kind, namespace and name, or by key. member "" means all.
// What makes all of a binding's verdicts Errors is in its Health, once.
func (s *State) Findings(binding, member string) iter.Seq[Verdict] {
	return func(yield func(Verdict) bool) {
		b := s.binding(binding)
		if b == nil {
			return
		}
		for r := range b.from(member) {
			if r.found != nil && !yield(s.verdict(b, r.subject, r.class, r.found)) {
				return
			}
		}
	}
}

func (b *bindingState) from(member string) iter.Seq[record] {
	return func(yield func(record) bool) {
		pivot := record{subject: Subject{Ref: aggregate.Ref{Member: member}}}
		b.records.Ascend(pivot, func(r record) bool {
			return (member == "" || r.subject.Ref.Member == member) && yield(r)
		})
	}
}

// Verdicts yields all verdicts of a binding, clean ones too, at the cost of looking
// at all subjects. member "" means all.
func (s *State) Verdicts(binding, member string) iter.Seq[Verdict] {
	return func(yield func(Verdict) bool) {
		b := s.binding(binding)
		if b == nil {
			return
		}
		for subject := range s.subjects(b, member) {
			c, f := b.get(subject)
			if !yield(s.verdict(b, subject, c, f)) {
				return
			}
		}
	}
}

func (s *State) subjects(b *bindingState, member string) iter.Seq[Subject] {
	return func(yield func(Subject) bool) {
		switch b.pkg.Subject {
		case module.MemberSubject:
			for m := range s.Snapshot.Members() {
				if (member == "" || m.Name == member) && b.selected.has(m.Name) && !yield(Subject{Ref: aggregate.Ref{Member: m.Name}}) {
					return
				}
			}
		case module.ViewSubject:
			v := s.byID[b.view]
			if v == nil || member != "" {
				return
			}
			for key := range v.keys() {
				if b.keyExists(s, key) && !yield(Subject{Key: key}) {
					return
				}
			}
		default:
			for kind := range kindsOf(b.pkg, s.Snapshot) {
				for o := range objects(s.Snapshot, kind, member) {
					if b.selected.has(o.Member()) && b.sel.object(o) && !yield(Subject{Ref: o.Ref()}) {
						return
					}
				}
			}
		}
	}
}

// kindsOf yields the kinds that a package names.
func kindsOf(pkg *module.Package, s *aggregate.Snapshot) iter.Seq[aggregate.Kind] {
	if pkg.AnyKind {
		return s.Kinds()
	}
	return func(yield func(aggregate.Kind) bool) {
		for _, k := range pkg.Kinds {
			if !yield(k.Kind) {
				return
			}
		}
	}
}

// objects yields the objects of a kind; member "" means all.
func objects(s *aggregate.Snapshot, kind aggregate.Kind, member string) iter.Seq[aggregate.Object] {
	q := aggregate.Query{Kind: kind}
	if member != "" {
		q.Members = []string{member}
	}
	list, err := s.List(q)
	if err != nil {
		panic("policy: a query without fields fails: " + err.Error())
	}
	return list
}

// About yields the verdicts on a subject, by binding.
func (s *State) About(subject Subject) iter.Seq[Verdict] {
	return func(yield func(Verdict) bool) {
		for _, b := range s.bindings {
			if v, ok := s.Get(b.Name, subject); ok && !yield(v) {
				return
			}
		}
	}
}

// Counts yields the verdicts of a binding by member, in order; "" are those on keys
// of views, which are of no member. It decodes nothing.
func (s *State) Counts(binding string) iter.Seq2[string, Counts] {
	return func(yield func(string, Counts) bool) {
		b := s.binding(binding)
		if b == nil {
			return
		}
		b.tallies.Scan(func(t *tally) bool {
			var c Counts
			for _, of := range t.classes {
				state, _ := s.completeness(b, of.class, t.member, func(Gap) bool { return false })
				one := Counts{Errors: of.failed, Violations: of.violations, Exempt: of.waved}
				switch state {
				case Known:
					one.Known = of.good
				case Unknown:
					one.Unknown = of.good
				case Error:
					one = Counts{Errors: of.good + of.failed}
				}
				c.add(one)
			}
			return yield(t.member, c)
		})
	}
}

// Total sums up the counts of a binding.
func (s *State) Total(binding string) Counts {
	var total Counts
	for _, c := range s.Counts(binding) {
		total.add(c)
	}
	return total
}

// Views returns the views of the state, for queries.
func (s *State) Views() Views { return stateViews{s} }

type stateViews struct{ s *State }

// Names implements Views.
func (v stateViews) Names() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, w := range v.s.views {
			if !yield(w.pkg.Name, w.def.Name) {
				return
			}
		}
	}
}

func (v stateViews) find(pkg, name string) *view {
	for _, w := range v.s.views {
		if w.pkg.Name == pkg && w.def.Name == name {
			return w
		}
	}
	return nil
}

// Keys implements Views.
func (v stateViews) Keys(pkg, name string) iter.Seq[string] {
	if w := v.find(pkg, name); w != nil {
		return w.keys()
	}
	return func(func(string) bool) {}
}

// Entries implements Views.
func (v stateViews) Entries(pkg, name, key string) iter.Seq2[aggregate.Ref, ast.Value] {
	return func(yield func(aggregate.Ref, ast.Value) bool) {
		w := v.find(pkg, name)
		if w == nil {
			return
		}
		for e := range w.under(key) {
			if e.values == "" { // the view is over its limit
				continue
			}
			values, err := e.parse()
			if err != nil {
				panic("policy: " + err.Error()) // the engine wrote it
			}
			for i := range values.Len() {
				if !yield(e.of.ref, values.Elem(i).Value) {
					return
				}
			}
		}
	}
}
