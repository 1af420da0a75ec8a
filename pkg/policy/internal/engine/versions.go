package engine

import (
	"slices"

	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// nextSlot follows the name of a policy in the slot of its next version. No name has it.
const nextSlot = "\x00next"

// slotted is a binding, or the next version of one, and its slot.
type slotted struct {
	binding.Binding

	slot string
}

// slots returns bindings and their next versions, each former one first.
func slots(bindings []binding.Binding) []slotted {
	out := make([]slotted, 0, len(bindings))
	for _, b := range bindings {
		out = append(out, slotted{b, b.Name})
		if b.Next != nil {
			out = append(out, slotted{b.Next.Binding, b.Name + nextSlot})
		}
	}
	return out
}

// pair makes the next versions of bindings known to these, where both are sorted by slot.
func pair(bound []*boundBinding) {
	for i, b := range bound {
		if b.Next != nil {
			b.next = bound[i+1]
			b.next.former = b
			b.route = b.Next.Route()
		}
	}
}

// updateRouting finds the members in which the next version has taken the place of the binding.
func (b *boundBinding) updateRouting(s *fleetview.View) {
	if b.next != nil {
		b.routing = b.route.Among(s)
	}
}

// inEffect reports whether the version is that of a member, or of keys where it is "".
func (b *boundBinding) inEffect(member string) bool {
	switch {
	case b.next != nil:
		return !b.routing.Has(member)
	case b.former != nil:
		return b.former.routing.Has(member)
	}
	return true
}

// publishedOf returns a version as it was published, nil where it was not.
func publishedOf(s *state.State, b *boundBinding) *state.Binding {
	if s == nil {
		return nil
	}
	if of := state.PartsOf(s).Binding(b.Name); of != nil {
		for v := range of.Versions() {
			if v.ID == b.id {
				return v
			}
		}
	}
	return nil
}

// shownOf returns what is published of a policy.
func (e *Engine) shownOf(name string) *state.Binding {
	if s := e.State(); s != nil {
		return state.PartsOf(s).Binding(name)
	}
	return nil
}

// publish returns the policies as they are now, each with its versions.
func publish(bound []*boundBinding) (out []*state.Binding) {
	for _, b := range bound {
		if b.former != nil {
			continue
		}
		one := b.freeze()
		if b.next != nil {
			one.Next, one.Routing = b.next.freeze(), b.routing
		}
		out = append(out, one)
	}
	return out
}

// switchVersions notes what is shown of another version than before, and since when that is there.
func (r *pass) switchVersions() {
	if r.before == nil {
		return
	}
	for _, b := range r.e.bindings {
		was := state.PartsOf(r.before).Binding(b.Name)
		if b.former != nil || was == nil || was.Next == nil && b.next == nil || b.showsAsBefore(was) {
			continue
		}
		for member := range r.places() {
			to := b
			if b.next != nil && b.routing.Has(member) {
				to = b.next
			}
			if from := was.In(member); from.ID != to.id {
				r.switchMember(from, to, member)
			}
		}
	}
}

func (b *boundBinding) showsAsBefore(was *state.Binding) bool {
	return was.Next != nil && b.next != nil && was.ID == b.id && was.Next.ID == b.next.id && was.Routing == b.routing
}

// places are the members before and after the pass, and "" for keys.
func (r *pass) places() map[string]bool {
	names := map[string]bool{"": true}
	for _, s := range []*fleetview.View{r.was, r.after} {
		for m := range s.Members() {
			names[m.Name] = true
		}
	}
	return names
}

// switchMember lets one version take the place of another for what is of a member.
func (r *pass) switchMember(from *state.Binding, to *boundBinding, member string) {
	for s, f := range from.Outcomes(member) {
		r.changes.touch(to.Name, s, f)
	}
	type found struct {
		at      verdict.Subject
		outcome *state.Outcome
	}
	var list []found
	for s, f := range to.Outcomes(member) {
		list = append(list, found{s, f})
	}
	for _, x := range list {
		_, shown := from.Get(x.at)
		next := x.outcome.Continued(x.at, shown, r.after.Revision())
		reads, _ := to.Get(x.at)
		to.Put(x.at, reads, next)
		to.frozen = nil
		to.addHeld(x.at, next.Size()-x.outcome.Size())
		r.changes.supersededBytes += x.outcome.Size()
		r.changes.touch(to.Name, x.at, next)
	}
}

// heldView returns the view of the engine that goes on as one of a package with the same rules: its own, or that of a
// version that has taken the package's place and is there no more.
func (e *Engine) heldView(set *module.Set, pkg *module.Package, name string, fits func(*view) bool) *view {
	fingerprint := set.Fingerprints()[pkg.Name]
	is := func(v *view) bool { return v != nil && e.fingerprints[v.Pkg.Name] == fingerprint && fits(v) }
	if old := e.view(pkg.Name, name); is(old) {
		return old
	}
	if e.set == nil {
		return nil
	}
	if next := e.set.Candidate(pkg.Name); next != "" && set.Package(next) == nil {
		if old := e.view(next, name); is(old) {
			return old
		}
	}
	return nil
}

// heldBinding returns the binding of the engine whose verdicts are those of another: of the same slot, or of a version
// that has taken the other's place.
func (e *Engine) heldBinding(b *boundBinding, views []*view, taken map[*boundBinding]bool) *boundBinding {
	from := []string{b.slot}
	if b.slot == b.Name {
		from = append(from, b.Name+nextSlot)
	}
	for _, slot := range from {
		if old := e.binding(slot); old != nil && !taken[old] && e.goesOnAs(old, b, views) {
			taken[old] = true
			return old
		}
	}
	return nil
}

// goesOnAs reports whether the verdicts of a binding of the engine are those of another.
func (e *Engine) goesOnAs(old, b *boundBinding, views []*view) bool {
	x, y := old.Binding, b.Binding
	x.Package, y.Package = old.pkg.Path(), b.pkg.Path()
	return old.fingerprint == b.fingerprint && x.Package == y.Package && samePackage(old.pkg, b.pkg) && sameBinding(x, y) &&
		slices.EqualFunc(viewsRead(old.pkg), viewsRead(b.pkg), func(was, is module.ViewRef) bool {
			v, w := findView(e.views, was.Package, was.View), findView(views, is.Package, is.View)
			return v != nil && w != nil && v.ID == w.ID
		})
}

// viewsRead are the views that verdicts of a package follow from, in the order in which its rules name them.
func viewsRead(p *module.Package) []module.ViewRef {
	refs := slices.Clone(p.Reads.Views)
	if p.Subject == module.ViewSubject {
		refs = append(refs, module.ViewRef{Package: p.Name, View: p.SubjectView})
	}
	for i := range p.Indexes {
		refs = append(refs, module.ViewRef{Package: p.Name, View: p.Indexes[i].Name})
	}
	return refs
}

// packagesUsed are the packages of bindings, and those whose views they read, directly or through others.
func packagesUsed(set *module.Set, bindings []slotted) map[string]bool {
	used := map[string]bool{}
	var use func(name string)
	use = func(name string) {
		p := set.Package(name)
		if p == nil || used[name] {
			return
		}
		used[name] = true
		for _, v := range p.Reads.Views {
			use(v.Package)
		}
	}
	for _, b := range bindings {
		use(b.Package)
	}
	return used
}
