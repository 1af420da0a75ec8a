package module

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// fleetReads are the documents of data.fleet that are read.
type fleetReads struct {
	views           map[ViewRef]bool
	byName, objects map[KindRef]bool
	scopes, names   bool
	members, time   bool
	external        map[string]bool // sources
	inventory       inventoryReads
}

func (f *fleetReads) init() {
	f.views, f.byName, f.objects, f.external = map[ViewRef]bool{}, map[KindRef]bool{}, map[KindRef]bool{}, map[string]bool{}
}

// data evaluates a reference into data.
func (s ruleScope) data(r ast.Ref, loc *ast.Location) sources {
	if len(r) < 2 || name(r[1]) == "" {
		s.report.errorAt("data", loc, "%s reads all of data as one value", r)
		return sources{}
	}
	if s.p.Template != nil {
		return s.templateData(r, loc)
	}
	if r[1].Value.Compare(ast.String("fleet")) != 0 {
		return s.ruleRef(r, loc)
	}
	if s.view {
		s.report.errorAt("view-reads", loc, "%s reads %s; a view sees input.ref and input.object only", s.what, clip(r.String()))
		return sources{}
	}
	section := ast.String("")
	if len(r) > 2 {
		section, _ = r[2].Value.(ast.String)
	}
	for _, t := range r[min(3, len(r)):] {
		if _, constant := t.Value.(ast.String); !constant {
			s.markAllWhole(s.term(t))
		}
	}
	switch section {
	case "objects", "by_name":
		return s.objects(r, loc, section == "objects")
	case "views":
		s.views(r, loc)
		return sources{}
	case "members":
		s.fleetReads.members = true
		if len(r) == 3 {
			return sources{s.membersDocument(): true}
		}
		return s.steps(sources{s.members: true}, r[4:], loc)
	case "scopes":
		s.fleetReads.scopes = true
		return sources{}
	case "names":
		s.fleetReads.names = true
		return sources{}
	case "passed":
		s.passed(r, loc)
		return sources{}
	case "external":
		s.external(r, loc)
		return sources{}
	}
	s.report.errorAt("data", loc, "%s: a policy reads views, by_name, objects, members, names, scopes, passed or external of data.fleet", clip(r.String()))
	return sources{}
}

// passed evaluates data.fleet.passed[instant]. There is no set of all instants that could be listed.
func (s ruleScope) passed(r ast.Ref, loc *ast.Location) {
	s.fleetReads.time = true
	if len(r) != 4 || s.unbound(r[3]) {
		s.report.errorAt("instant", loc, "%s: read data.fleet.passed of one instant, whose key is known", clip(r.String()))
		return
	}
	if key, constant := r[3].Value.(ast.String); constant {
		if _, err := fleetdoc.Instant(string(key)); err != nil {
			s.report.errorAt("instant", loc, "%v", err)
		}
	}
}

// sourceName is what PolicySources are named like.
var sourceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// external evaluates data.fleet.external[source][key]. Of whom a policy reads documents says who may read its verdicts.
func (s ruleScope) external(r ast.Ref, loc *ast.Location) {
	source, constant := ast.String(""), false
	if len(r) > 3 {
		source, constant = r[3].Value.(ast.String)
	}
	switch {
	case !constant:
		s.report.errorAt("external", loc, "%s: the source is not a constant string: read data.fleet.external[source][key]", clip(r.String()))
		return
	case !sourceName.MatchString(string(source)):
		s.report.errorAt("external", loc, "%s: %q is no name of a PolicySource", clip(r.String()), clip(string(source)))
		return
	}
	s.fleetReads.external[string(source)] = true
	if len(r) == 4 || s.unbound(r[4]) {
		s.wideReads.add(newFinding(SeverityWarning, "external-scan", loc, "every external document of source %s is read; name one", source))
	}
}

// membersDocument is the source of data.fleet.members.
func (s ruleScope) membersDocument() *source {
	n := s.made["members"]
	if n == nil {
		n = &source{made: true, members: sources{s.members: true}}
		s.made["members"] = n
		s.changed = true
	}
	return n
}

// objects evaluates data.fleet.objects[kind][member][namespace][name] and
// data.fleet.by_name[kind][namespace][name][member], or a prefix of them.
func (s ruleScope) objects(r ast.Ref, loc *ast.Location, byMember bool) sources {
	text, constant := ast.String(""), false
	if len(r) > 3 {
		text, constant = r[3].Value.(ast.String)
	}
	switch {
	case len(r) > 3 && !constant:
		s.report.errorAt("kind", loc, "%s: the kind is not a constant string", clip(r.String()))
		return sources{}
	case len(r) < 5:
		s.report.errorAt("data", loc, "%s reads the whole fleet as one value; step into it", clip(r.String()))
		return sources{}
	}
	k, err := ParseKind(string(text))
	if err != nil {
		s.report.errorAt("kind", loc, "%v", err)
		return sources{}
	}
	// reads is everything that was read.
	reads := s.fleetReads.byName
	if byMember {
		reads = s.fleetReads.objects
		if s.unbound(r[4]) {
			s.wideReads.add(newFinding(SeverityWarning, "unbound-member", loc, "%s is read of every member; by_name finds one name in all of them", text))
		}
	} else if s.unbound(r[4]) || len(r) < 6 || s.unbound(r[5]) {
		s.wideReads.add(newFinding(SeverityWarning, "unbound-name", loc, "%s of every name is read; bind namespace and name", text))
	}
	if !reads[k] {
		reads[k], s.changed = true, true
	}
	object := s.fleet[k]
	if object == nil {
		object = s.newPlace(nil, loc)
		s.fleet[k] = object
	}
	if len(r) >= 7 {
		return s.steps(sources{object: true}, r[7:], loc)
	}
	// A document of objects: as many levels as the reference leaves out.
	document := sources{object: true}
	for missing := range 7 - len(r) {
		document = sources{s.level(k, byMember, missing, document): true}
	}
	return document
}

// level returns the source of a document whose members have the given sources.
func (s ruleScope) level(k KindRef, byMember bool, height int, members sources) *source {
	key := struct {
		k        KindRef
		byMember bool
		height   int
	}{k, byMember, height}
	n := s.made[key]
	if n == nil {
		n = &source{made: true, members: sources{}}
		s.made[key] = n
		s.changed = true
	}
	s.addMembers(n, members)
	return n
}

// views evaluates data.fleet.views[package].view[key].
func (s ruleScope) views(r ast.Ref, loc *ast.Location) {
	if len(r) < 5 {
		s.report.errorAt("data", loc, "%s reads all views as one value; name a package and a view", clip(r.String()))
		return
	}
	pkg, ok1 := r[3].Value.(ast.String)
	view, ok2 := r[4].Value.(ast.String)
	if !ok1 || !ok2 {
		s.report.errorAt("view", loc, "%s: the package and the view are not constant strings", clip(r.String()))
		return
	}
	of := s.l.packages[string(pkg)]
	if of == nil || of.View(string(view)) == nil {
		s.report.errorAt("view", loc, "%s: package %s has no view %s", clip(r.String()), clip(string(pkg)), clip(string(view)))
		return
	}
	s.fleetReads.views[ViewRef{string(pkg), string(view)}] = true
	if len(r) == 5 || s.unbound(r[5]) {
		s.wideReads.add(newFinding(SeverityWarning, "view-scan", loc, "every key of view %s is read; look one up", view))
	}
}

// unbound reports whether a variable gets its values from references only.
func (s ruleScope) unbound(t *ast.Term) bool {
	v, ok := t.Value.(ast.Var)
	return ok && !s.assigned[variable{s.rule, v}]
}

// constantRef reports whether a rule's reference has constant steps only.
func constantRef(r ast.Ref) bool {
	for _, t := range r[1:] {
		if _, ok := t.Value.(ast.String); !ok {
			return false
		}
	}
	return true
}

// ruleRef evaluates a reference to rules of the package or of a library.
func (s ruleScope) ruleRef(r ast.Ref, loc *ast.Location) sources {
	p, rest := s.owner(r, loc)
	if p == nil {
		return sources{}
	}
	out, found := sources{}, false
	for _, rule := range p.byName[name(rest[0])] {
		shared, covers := overlap(rule.Head.Ref(), rest)
		if !shared || len(rule.Head.Args) > 0 {
			continue
		}
		found = true
		s.reach(rule)
		h := rule.Head
		switch {
		case !covers:
			s.markAllWhole(s.results[rule]) // a part of the tree of rules, as one value
		case h.RuleKind() == ast.MultiValue || len(rest) < len(h.Ref()) || !constantRef(h.Ref()):
			// Read whole where it was made.
		default:
			for n := range s.steps(s.results[rule], rest[len(h.Ref()):], loc) {
				out[n] = true
			}
		}
	}
	for _, t := range rest {
		if _, constant := t.Value.(ast.String); !constant {
			s.markAllWhole(s.term(t))
		}
	}
	if !found {
		s.report.errorAt("undefined", loc, "%s: the package has no such rule", clip(r.String()))
	}
	return out
}

// overlap reports whether a reference within a package reaches a rule, and whether it
// covers the rule's name.
func overlap(rule, rest ast.Ref) (shared, covers bool) {
	for i, t := range rule {
		if i > 0 {
			if _, ok := t.Value.(ast.String); !ok {
				return true, true // a key of the rule's, not of its name
			}
		}
		if i == len(rest) {
			return true, false
		}
		_, constant := rest[i].Value.(ast.String)
		if !constant {
			return i > 0, false
		}
		if name(t) != name(rest[i]) {
			return false, false
		}
	}
	return true, true
}

// object is what was read of input.object.
func (a *analysis) object() *mask.Mask {
	if a.gaveUp {
		return mask.Whole()
	}
	if a.p.Template != nil {
		return a.input.below("review").Child("object")
	}
	return a.input.below("object")
}

// reads is what was read at all.
func (a *analysis) reads() Reads {
	f := &a.fleetReads
	r := Reads{
		Object:  a.object(),
		Views:   slices.Collect(maps.Keys(f.views)),
		ByName:  sortKinds(slices.Collect(maps.Keys(f.byName))),
		Objects: sortKinds(slices.Collect(maps.Keys(f.objects))),
		Scopes:  f.scopes,
		Names:   f.names,
		Time:    f.time,

		External: slices.Sorted(maps.Keys(f.external)),
		Member:   a.input.below("member"),
		Ref:      a.input.below("ref"),
		Fleet:    make(map[KindRef]*mask.Mask, len(a.fleet)),
	}
	slices.SortFunc(r.Views, func(x, y ViewRef) int { return cmp.Or(cmp.Compare(x.Package, y.Package), cmp.Compare(x.View, y.View)) })
	if f.members {
		r.Members = a.members.mask()
	}
	for k, n := range a.fleet {
		r.Fleet[k] = n.mask()
	}
	if a.gaveUp {
		r.Member, r.Ref = mask.Whole(), mask.Whole()
		if f.members {
			r.Members = mask.Whole()
		}
		for k := range a.fleet {
			r.Fleet[k] = mask.Whole()
		}
	}
	return r
}
