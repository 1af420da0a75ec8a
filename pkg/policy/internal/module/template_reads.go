package module

import (
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// namespaceKind is the kind of review.namespaceObject.
const namespaceKind = aggregate.Kind("Namespace")

// templateData evaluates a reference of a template into data: its own rules, libraries and
// data.inventory.
func (s ruleScope) templateData(r ast.Ref, loc *ast.Location) sources {
	if name(r[1]) != "inventory" {
		return s.ruleRef(r, loc)
	}
	for _, t := range r[2:] {
		if _, constant := t.Value.(ast.String); !constant {
			s.markAllWhole(s.term(t))
		}
	}
	if len(r) == 2 {
		out := sources{}
		for _, section := range []string{"cluster", "namespace"} {
			maps.Copy(out, s.inventory(section, nil, loc))
		}
		return sources{s.inventoryLevel("", 0, out): true}
	}
	out := sources{}
	section, constant := r[2].Value.(ast.String)
	for _, of := range []string{"cluster", "namespace"} {
		if !constant || string(section) == of {
			maps.Copy(out, s.inventory(of, r[3:], loc))
		}
	}
	return out
}

// inventory evaluates a path below data.inventory.cluster or data.inventory.namespace.
func (s ruleScope) inventory(section string, path []*ast.Term, loc *ast.Location) sources {
	levels := 3 // apiVersion, kind, name
	if section == "namespace" {
		levels = 4
	}
	apiVersion, kind := constantAt(path, levels-3), constantAt(path, levels-2)
	found := s.inventoryKinds(apiVersion, kind, loc)
	out := sources{}
	for _, k := range found {
		object := s.fleet[KindRef{Kind: k.Kind}]
		if object == nil {
			object = s.newPlace(nil, loc)
			s.fleet[KindRef{Kind: k.Kind}] = object
		}
		s.fleetReads.addInventory(s.analysis, k)
		out[object] = true
	}
	if len(path) >= levels {
		return s.steps(out, path[levels:], loc)
	}
	for missing := range levels - len(path) {
		out = sources{s.inventoryLevel(section+"\x00"+apiVersion+"\x00"+kind, missing+1, out): true}
	}
	return out
}

// constantAt returns a constant step of a path, "" for another or none.
func constantAt(path []*ast.Term, i int) string {
	if i < len(path) {
		if s, ok := path[i].Value.(ast.String); ok {
			return string(s)
		}
	}
	return ""
}

// inventoryLevel returns the source of a document of inventory whose members have the given
// sources.
func (s ruleScope) inventoryLevel(of string, height int, members sources) *source {
	key := struct {
		of     string
		height int
	}{of, height}
	n := s.made[key]
	if n == nil {
		n = &source{made: true, members: sources{}}
		s.made[key] = n
		s.changed = true
	}
	s.addMembers(n, members)
	return n
}

// inventoryKinds returns the kinds that a reference to data.inventory can reach, with the
// version that it names.
func (s ruleScope) inventoryKinds(apiVersion, kind string, loc *ast.Location) []KindRef {
	out := s.p.inventoryKinds(apiVersion, kind)
	for _, k := range out {
		if _, err := ParseKind(string(k.Kind)); err != nil {
			s.report.errorAt("kind", loc, "%v", err)
			return nil
		}
	}
	if len(out) == 0 {
		what := "kinds that it does not name"
		if kind != "" {
			what = kind + " of an apiVersion that it does not name"
		}
		s.report.errorAt("sync-data", loc, "data.inventory is read for %s: the template needs annotation metadata.gatekeeper.sh/requires-sync-data", what)
	}
	return out
}

// inventoryReads are the kinds of data.inventory, with the constant versions that are read.
type inventoryReads map[aggregate.Kind]map[string]bool

func (f *fleetReads) addInventory(a *analysis, k KindRef) {
	if f.inventory == nil {
		f.inventory = inventoryReads{}
	}
	if f.inventory[k.Kind] == nil {
		f.inventory[k.Kind] = map[string]bool{}
	}
	if !f.inventory[k.Kind][k.Version] {
		f.inventory[k.Kind][k.Version], a.changed = true, true
	}
}

// templateReads is what a template can read. Of input.review only object and
// namespaceObject are documents; name, namespace and version are read from the object, so
// that its mask says all that a verdict depends on.
func (a *analysis) templateReads() Reads {
	r := Reads{Object: a.object(), Fleet: make(map[KindRef]*mask.Mask, len(a.fleet))}
	review := a.input.below("review")
	if a.gaveUp {
		review = mask.Whole()
	}
	r.Review = review
	for field, path := range map[string][]string{"name": {"metadata", "name"}, "namespace": {"metadata", "namespace"}} {
		if review.Child(field) != nil {
			r.Object = mask.Union(r.Object, mask.Path(&mask.Mask{}, path...))
		}
	}
	if review.Child("kind").Child("version") != nil {
		r.Object = mask.Union(r.Object, mask.Path(&mask.Mask{}, "apiVersion"))
	}
	for k, n := range a.fleet {
		r.Fleet[k] = n.mask()
		if a.gaveUp {
			r.Fleet[k] = mask.Whole()
		}
	}
	if m := review.Child("namespaceObject"); m != nil {
		r.NamespaceObject = m
		r.Own = append(r.Own, KindRef{Kind: namespaceKind})
		r.Fleet[KindRef{Kind: namespaceKind}] = mask.Union(r.Fleet[KindRef{Kind: namespaceKind}], m)
	}
	for kind, versions := range a.fleetReads.inventory {
		k := InventoryKind{Kind: kind}
		for v := range versions {
			if v == "" {
				k.Versions = nil
				break
			}
			k.Versions = append(k.Versions, v)
		}
		slices.Sort(k.Versions)
		r.Inventory = append(r.Inventory, k)
		r.Own = append(r.Own, KindRef{Kind: kind})
	}
	slices.SortFunc(r.Inventory, func(x, y InventoryKind) int { return strings.Compare(string(x.Kind), string(y.Kind)) })
	r.Own = sortKinds(r.Own)
	return r
}

// requestFields are those of input.review that only a request has, sorted.
var requestFields = []string{
	"dryRun", "oldObject", "operation", "options", "requestKind", "requestResource", "requestSubResource", "resource", "subResource", "uid", "userInfo",
}

// ReadsOfRequest returns the fields of a review that a template may read and that do not
// follow from an object: only a request has them.
func (p *Package) ReadsOfRequest() []string {
	if p.CEL != nil {
		return p.CEL.RequestFields()
	}
	var out []string
	for _, field := range requestFields {
		if p.Reads.Review.Child(field) != nil {
			out = append(out, field)
		}
	}
	return out
}

// InventoryKind is a kind of data.inventory.
type InventoryKind struct {
	Kind     aggregate.Kind
	Versions []string // under which alone it is read; none: under any
}
