package policy

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
)

// bound is a binding in an engine, with its verdicts. All but the counters belong
// to the engine's goroutine; workers read what evaluations need.
type bound struct {
	Binding

	id    uint32 // never used again
	pkg   *module.Package
	sel   *selection
	query query
	mask  *mask.Mask // of the object
	pins  map[aggregate.Kind]string
	alike bool   // see the function
	view  *view  // of a ViewSubject
	hash  string // of the package: what changes when the policy does

	selected, visible, tolerated members // of the engine's snapshot

	// A subject without a record is clean and of its kind's default class.
	defaults map[aggregate.Kind]*class
	records  *sorted[record]
	tallies  *sorted[*tally]   // by member; "" for keys of views
	owned    map[*tally]bool   // those that no state has yet
	overran  map[Subject]int   // those that overran the budget: how often
	frozen   *bindingState     // nil when the verdicts are newer
	sum      int64             // bytes of what was found and read
	sums     map[string]int64  // by member
	refused  map[Subject]int64 // subjects whose verdicts there was no room for: what they take

	*counters
}

// counters are how a binding's policy does. Workers count.
type counters struct {
	evaluations, nanoseconds, overruns, errors, wide, reads atomic.Int64

	score overruns
}

// members is a set of the members of a snapshot. Immutable.
type members struct {
	id    uint32 // the same for sets that are the same in every snapshot
	all   bool
	names map[string]bool
}

func (m *members) has(member string) bool { return m.all || m.names[member] }

func (m *memberSelection) of(s *aggregate.Snapshot, id uint32) members {
	if m.all() {
		return members{all: true}
	}
	names := map[string]bool{}
	for member := range s.Members() {
		if m.has(member) {
			names[member.Name] = true
		}
	}
	return members{id: id, names: names}
}

// look finds the members that the binding selects, sees and tolerates.
func (b *bound) look(s *aggregate.Snapshot) {
	b.selected = b.sel.members.of(s, b.id+1)
	b.visible = b.sel.visibility.of(s, b.id+1)
	b.tolerated = members{names: map[string]bool{}}
	if b.sel.tolerate != nil {
		b.tolerated = b.sel.tolerate.of(s, b.id+1)
	}
	b.frozen = nil
}

// record is what is known of a subject that has something to say, or of another
// class than others of its kind.
type record struct {
	subject Subject
	class   *class
	found   *found
}

func lessRecord(a, b record) bool { return a.subject.Compare(b.subject) < 0 }

// tally counts the verdicts of one member by class.
type tally struct {
	member  string
	classes []classTally
}

type classTally struct {
	class                           *class
	good, failed, violations, waved int // verdicts, failed ones apart; violations, exempt ones apart
}

func lessTally(a, b *tally) bool { return a.member < b.member }

func (b *bound) clear() {
	b.defaults = map[aggregate.Kind]*class{}
	b.records, b.tallies, b.owned = newSorted(lessRecord), newSorted(lessTally), map[*tally]bool{}
	b.frozen, b.overran = nil, nil
	b.sum, b.sums, b.refused = 0, map[string]int64{}, nil
}

// get returns what is known of a subject that has a verdict.
func (b *bound) get(s Subject) (*class, *found) {
	if r, ok := b.records.Get(record{subject: s}); ok {
		return r.class, r.found
	}
	return b.defaults[s.Ref.Kind], nil
}

// put takes note of a verdict.
func (b *bound) put(s Subject, c *class, f *found) {
	if f == nil && c == b.defaults[s.Ref.Kind] {
		b.records.Delete(record{subject: s})
		return
	}
	b.records.Set(record{subject: s, class: c, found: f})
}

// count adds n verdicts of a class, or takes them away.
func (b *bound) count(member string, c *class, f *found, n int) {
	b.frozen = nil
	t, ok := b.tallies.Get(&tally{member: member})
	if !ok || !b.owned[t] {
		fresh := &tally{member: member}
		if ok {
			fresh.classes = slices.Clone(t.classes)
		}
		t = fresh
		b.tallies.Set(t)
		b.owned[t] = true
	}
	i := slices.IndexFunc(t.classes, func(ct classTally) bool { return ct.class == c })
	if i < 0 {
		i = len(t.classes)
		t.classes = append(t.classes, classTally{class: c})
	}
	ct := &t.classes[i]
	switch {
	case f != nil && f.err != "":
		ct.failed += n
	default:
		ct.good += n
		if f != nil {
			for _, v := range f.violations {
				if v.Exempt != "" {
					ct.waved += n
				} else {
					ct.violations += n
				}
			}
		}
	}
	if c != nil {
		c.refs += n
	}
	if ct.good == 0 && ct.failed == 0 {
		t.classes = slices.Delete(t.classes, i, i+1)
	}
	if len(t.classes) == 0 {
		b.tallies.Delete(t)
		delete(b.owned, t)
	}
}

// matches reports whether an object is a subject.
func (b *bound) matches(selected *members, o aggregate.Object) bool {
	return !o.IsZero() && selected.has(o.Member()) && b.sel.object(o)
}

// counts reports whether an entry of the binding's view counts.
func (b *bound) counts(e entry, s *aggregate.Snapshot) bool {
	return b.sel.entry(e, s, &b.selected, &b.visible)
}

func (s *selection) entry(e entry, snapshot *aggregate.Snapshot, selected, visible *members) bool {
	ref := e.of.ref
	if !selected.has(ref.Member) || !visible.has(ref.Member) || !s.ref(ref.Kind, ref.Namespace) {
		return false
	}
	if s.labels == nil {
		return true
	}
	o, ok := snapshot.Get(ref)
	return ok && s.labels.Matches(labelList(o.Labels()))
}

// plan is what concerns the objects of one kind.
type plan struct {
	bounds []*bound   // that judge them
	keyed  []*bound   // that judge keys of views, with matching by labels
	views  []*view    // that they feed
	mask   *mask.Mask // what any of bounds reads of the object
	fleet  *mask.Mask // what is read of it through data.fleet
	read   *mask.Mask // what is read of it at all: by bounds, views and through data.fleet
}

func (e *Engine) planOf(kind aggregate.Kind) *plan {
	if p, ok := e.plans[kind]; ok {
		return p
	}
	p := &plan{}
	for _, b := range e.bounds {
		for k, m := range b.pkg.Reads.Fleet {
			if k.Kind == kind {
				p.fleet = mask.Union(p.fleet, m)
			}
		}
		switch {
		case !feeds(b.pkg, kind):
		case b.pkg.Subject == module.ObjectSubject:
			p.bounds = append(p.bounds, b)
			p.mask = mask.Union(p.mask, b.mask)
		case b.pkg.Subject == module.ViewSubject && b.sel.labels != nil:
			p.keyed = append(p.keyed, b)
		}
	}
	for _, v := range e.views {
		if feeds(v.pkg, kind) {
			p.views = append(p.views, v)
		}
	}
	p.read = mask.Union(p.mask, p.fleet)
	for _, v := range p.views {
		p.read = mask.Union(p.read, v.def.Mask)
	}
	e.plans[kind] = p
	return p
}

func (e *Engine) viewOf(pkg, name string) *view {
	i, ok := slices.BinarySearchFunc(e.views, [2]string{pkg, name}, func(v *view, at [2]string) int {
		return cmp.Or(strings.Compare(v.pkg.Name, at[0]), strings.Compare(v.def.Name, at[1]))
	})
	if !ok {
		return nil
	}
	return e.views[i]
}
