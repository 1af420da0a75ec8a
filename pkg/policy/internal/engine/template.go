package engine

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

var reviewKeys = struct {
	review, uid, kind, resource, name, namespace, operation, userInfo, object, oldObject, options, namespaceObject,
	group, version *ast.Term
}{
	ast.StringTerm("review"), ast.StringTerm("uid"), ast.StringTerm("kind"), ast.StringTerm("resource"), ast.StringTerm("name"),
	ast.StringTerm("namespace"), ast.StringTerm("operation"), ast.StringTerm("userInfo"), ast.StringTerm("object"),
	ast.StringTerm("oldObject"), ast.StringTerm("options"), ast.StringTerm("namespaceObject"), ast.StringTerm("group"), ast.StringTerm("version"),
}

// noResource is what an audit says of the resource that a request is about.
var noResource = ast.ObjectTerm(
	ast.Item(ast.StringTerm("group"), ast.StringTerm("")), ast.Item(ast.StringTerm("version"), ast.StringTerm("")),
	ast.Item(ast.StringTerm("resource"), ast.StringTerm("")),
)

// review builds the input of a template.
func (w *worker) review(b *boundBinding, t *task, object *ast.Term) (*ast.Term, error) {
	namespace, err := w.namespaceObject(b, &t.subject.Ref)
	if err != nil {
		return nil, err
	}
	request := w.lastRequest.request
	if w.lastRequest.object == nil || w.lastRequest.object != object || w.lastRequest.namespace != namespace {
		request = newRequest(t, object, namespace)
		w.lastRequest = requestOf{object, namespace, request}
	}
	return ast.ObjectTerm(ast.Item(reviewKeys.review, request), ast.Item(inputKeys.parameters, b.sel.Params)), nil
}

// requestOf is the request for an object: the constraints on it share that.
type requestOf struct{ object, namespace, request *ast.Term }

// newRequest returns what a template sees of an object as Gatekeeper's audit has it: nobody
// asks, so that operation is empty and userInfo has nothing.
func newRequest(t *task, object, namespace *ast.Term) *ast.Term {
	ref := &t.subject.Ref
	kind, group := ref.Kind.Split()
	items := make([][2]*ast.Term, 0, 11)
	items = append(items,
		ast.Item(reviewKeys.uid, ast.InternedEmptyString),
		ast.Item(reviewKeys.kind, ast.ObjectTerm(
			ast.Item(reviewKeys.group, ast.StringTerm(group)), ast.Item(reviewKeys.kind, ast.StringTerm(kind)),
			ast.Item(reviewKeys.version, ast.StringTerm(version(t.object.APIVersion()))),
		)),
		ast.Item(reviewKeys.resource, noResource), ast.Item(reviewKeys.operation, ast.InternedEmptyString), ast.Item(reviewKeys.userInfo, ast.InternedEmptyObject),
		ast.Item(reviewKeys.oldObject, ast.InternedNullTerm), ast.Item(reviewKeys.options, ast.InternedNullTerm),
		ast.Item(reviewKeys.name, ast.StringTerm(ref.Name)),
	)
	if ref.Namespace != "" {
		items = append(items, ast.Item(reviewKeys.namespace, ast.StringTerm(ref.Namespace)))
	}
	if object != nil {
		items = append(items, ast.Item(reviewKeys.object, object))
	}
	return ast.ObjectTerm(append(items, ast.Item(reviewKeys.namespaceObject, namespace))...)
}

// namespaceObject is the Namespace of a subject as far as the template reads it. For what is in
// none, or in one that is not there, it is an empty object, as Gatekeeper's audit has it.
func (w *worker) namespaceObject(b *boundBinding, ref *aggregate.Ref) (*ast.Term, error) {
	m := b.pkg.Reads.NamespaceObject
	if m == nil || ref.Namespace == "" {
		return ast.InternedEmptyObject, nil
	}
	o, ok := w.readNamespace(ref)
	if !ok {
		return ast.InternedEmptyObject, nil
	}
	body, err := o.AppendBody(w.otherBody[:0])
	w.otherBody = body
	if err != nil {
		return nil, err
	}
	if err := w.evaluation.charge(int64(len(body))); err != nil {
		return nil, err
	}
	v, err := document.Value(body, m)
	if err != nil {
		return nil, err
	}
	return ast.NewTerm(v), nil
}

// readNamespace returns the Namespace of an object, and records that it was read.
func (w *worker) readNamespace(ref *aggregate.Ref) (aggregate.Object, bool) {
	of := aggregate.Ref{Member: w.evaluation.inventoryOf, Kind: namespaceKind, Name: ref.Namespace}
	w.evaluation.record(readKey(readObject, string(namespaceKind), of.Member, "", of.Name))
	w.evaluation.readsInventoryOf(namespaceKind)
	return w.e.snapshot.Get(of)
}

const namespaceKind = aggregate.Kind("Namespace")

// Unmatched begins what Gatekeeper says of an object of which it is not known whether a
// constraint selects it.
const Unmatched = "unable to match constraints: "

// selectsNamespace reports whether the constraint of a binding selects the Namespace of an
// object. One that is not there selects nothing; of manifests it is what is found.
func (w *worker) selectsNamespace(b *boundBinding, t *task) (selected bool, found []verdict.Violation) {
	if !b.sel.ReadsNamespace(t.object) {
		return true, nil
	}
	o, ok := w.readNamespace(&t.subject.Ref)
	switch {
	case ok:
		return b.sel.SelectsIn(o.Labels(), t.object), nil
	case !w.e.opts.Manifests || b.pkg.Admission != nil:
		return false, nil
	case t.subject.Ref.Namespace == "default":
		return b.sel.SelectsIn(nil, t.object), nil
	}
	return false, []verdict.Violation{{Msg: Unmatched + "error matching the requested object: " + t.subject.Ref.Name +
		" :failed to run Match criteria: namespace selector for namespace-scoped object but missing Namespace"}}
}

// inventoryPath is what is known of a path below data.inventory: "" is not known.
type inventoryPath struct {
	section, namespace, apiVersion, kind, name string
}

// noName is a step that is empty: no object has that name, as none has an empty one.
const noName = " "

// parseInventory reads a path below data.inventory as far as it goes, and returns the steps
// within an object.
func parseInventory(path []string) (p inventoryPath, rest []string) {
	steps := []*string{&p.section, &p.namespace, &p.apiVersion, &p.kind, &p.name}
	if len(path) > 0 && path[0] == "cluster" {
		steps = slices.Delete(steps, 1, 2)
	}
	for i, step := range path {
		if i == len(steps) {
			return p, path[i:]
		}
		*steps[i] = cmp.Or(step, noName)
	}
	return p, nil
}

// ofFleet reports whether data.inventory is of all visible members.
func (ev *evaluation) ofFleet() bool {
	return ev.binding.FleetInventory() && ev.w.e.opts.InventoryMember == ""
}

// readsInventoryOf records that a kind was read in the member that has the inventory.
func (ev *evaluation) readsInventoryOf(kind aggregate.Kind) {
	if ev.inventoryOf == ev.member {
		ev.reads.AddOwn(kind)
	} else {
		ev.reads.AddScope(ev.inventoryOf, kind)
	}
}

// inventory reads a path below data.inventory: objects of the subject's member, or of all
// visible ones where the constraint says so.
func (ev *evaluation) inventory(path []string) (ast.Value, error) {
	p, rest := parseInventory(path)
	t := fleetdoc.NewTree(path[:len(path)-len(rest)])
	if err := ev.inventoryTree(t, p); err != nil {
		return nil, err
	}
	return inventoryValue(t, path, rest)
}

func inventoryValue(t *fleetdoc.Tree, path, rest []string) (ast.Value, error) {
	if t.Empty() {
		if len(path) <= 1 {
			return ast.NewObject(), nil
		}
		return nil, nil
	}
	return fleetdoc.Find(t.Value(), rest), nil
}

// inventoryTree adds the objects that a path may reach.
func (ev *evaluation) inventoryTree(t *fleetdoc.Tree, p inventoryPath) error {
	if p.section != "" && p.section != "cluster" && p.section != "namespace" {
		return nil // It does not exist.
	}
	for k := range ev.inventoryKinds(p) {
		if err := ev.inventoryKind(t, k, p); err != nil {
			return err
		}
	}
	return nil
}

// inventoryKinds yields the kinds of the template's data.inventory that a path may reach.
func (ev *evaluation) inventoryKinds(p inventoryPath) iter.Seq[*module.InventoryKind] {
	return func(yield func(*module.InventoryKind) bool) {
		for i := range ev.binding.pkg.Reads.Inventory {
			k := &ev.binding.pkg.Reads.Inventory[i]
			kind, group := k.Kind.Split()
			if p.kind != "" && p.kind != kind || p.apiVersion != "" && groupOf(p.apiVersion) != group {
				continue
			}
			if !yield(k) {
				return
			}
		}
	}
}

func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
}

// inventoryKind adds the objects of one kind that a path may reach.
func (ev *evaluation) inventoryKind(t *fleetdoc.Tree, k *module.InventoryKind, p inventoryPath) error {
	if ev.ofFleet() {
		return ev.fleetInventory(t, k, p)
	}
	ev.readsInventoryOf(k.Kind)
	q := aggregate.Query{Kind: k.Kind, Members: []string{ev.inventoryOf}, Namespace: p.namespace, Name: p.name}
	key := []string{string(k.Kind), ev.inventoryOf}
	switch {
	case p.section == "cluster":
		key = append(key, "")
	case p.namespace != "":
		key = append(key, p.namespace)
	}
	if len(key) == 3 && p.name != "" {
		return ev.inventoryObject(t, k, p, append(key, p.name))
	}
	ev.record(readKey(readObject, key...))
	if p.namespace == "" {
		ev.wideReads++
	}
	list, err := ev.w.e.snapshot.List(q)
	if err != nil {
		return err
	}
	for o := range list {
		if err := ev.putInventory(t, k, p, o, ""); err != nil {
			return err
		}
	}
	return nil
}

// inventoryObject adds one object.
func (ev *evaluation) inventoryObject(t *fleetdoc.Tree, k *module.InventoryKind, p inventoryPath, key []string) error {
	ev.record(readKey(readObject, key...))
	o, ok := ev.w.e.snapshot.Get(aggregate.Ref{Kind: k.Kind, Member: key[1], Namespace: key[2], Name: key[3]})
	if !ok {
		return nil
	}
	return ev.putInventory(t, k, p, o, "")
}

// fleetInventory adds the objects of a kind in all visible members. Those of other members
// than the subject's are in namespaces, and have names if they are cluster-scoped, that
// begin with their member's: no two objects are merged, and none passes for the subject.
func (ev *evaluation) fleetInventory(t *fleetdoc.Tree, k *module.InventoryKind, p inventoryPath) error {
	ev.record(readKey(readObject, string(k.Kind)))
	ev.reads.AddAll(k.Kind)
	ev.wideReads++
	list, err := ev.w.e.snapshot.List(aggregate.Query{Kind: k.Kind})
	if err != nil {
		return err
	}
	for o := range list {
		if !ev.binding.visible.Has(o.Member()) {
			continue
		}
		prefix := ""
		if o.Member() != ev.member {
			prefix = o.Member() + "/"
		}
		if err := ev.putInventory(t, k, p, o, prefix); err != nil {
			return err
		}
	}
	return nil
}

// putInventory adds an object where Gatekeeper has it, if that is below the path.
func (ev *evaluation) putInventory(t *fleetdoc.Tree, k *module.InventoryKind, p inventoryPath, o aggregate.Object, prefix string) error {
	if err := ev.checkVersion(k, o); err != nil {
		return err
	}
	kind, _ := k.Kind.Split()
	at := []string{"cluster", o.APIVersion(), kind, prefix + o.Name()}
	if o.Namespace() != "" {
		at = []string{"namespace", prefix + o.Namespace(), o.APIVersion(), kind, o.Name()}
	}
	found, _ := parseInventory(at)
	for _, step := range [][2]string{
		{p.section, found.section}, {p.namespace, found.namespace}, {p.apiVersion, found.apiVersion}, {p.kind, found.kind}, {p.name, found.name},
	} {
		if step[0] != "" && step[0] != step[1] {
			return nil
		}
	}
	key := documentKey{section: readObject, pkg: ev.binding.pkg, a: string(k.Kind) + "\x00" + o.Member(), b: prefix + o.Namespace(), c: o.Name()}
	v, err := ev.cached(key, func() (ast.Value, error) { return ev.inventoryDocument(o, prefix) })
	if err == nil {
		t.Put(v, at)
	}
	return err
}

// checkVersion returns an error for an object that the template would never find: it reads
// the kind under constant versions, and the fleet holds another.
func (ev *evaluation) checkVersion(k *module.InventoryKind, o aggregate.Object) error {
	if held := version(o.APIVersion()); len(k.Versions) > 0 && !slices.Contains(k.Versions, held) {
		return fmt.Errorf("%s is held at version %s, but the template reads data.inventory for %s", k.Kind, held, strings.Join(k.Versions, ", "))
	}
	return nil
}

// inventoryDocument is what a template reads of an object. One of another member carries
// the member's name.
func (ev *evaluation) inventoryDocument(o aggregate.Object, prefix string) (ast.Value, error) {
	v, err := ev.document(o, "")
	if err != nil || prefix == "" {
		return v, err
	}
	ref := o.Ref()
	return withMember(v, &ref, prefix), nil
}

// withMember returns a document of another member's object: in its metadata, what names it
// among those of its kind begins with the member.
func withMember(v ast.Value, ref *aggregate.Ref, prefix string) ast.Value {
	field, value := "name", prefix+ref.Name
	if ref.Namespace != "" {
		field, value = "namespace", prefix+ref.Namespace
	}
	root, ok := v.(ast.Object)
	if !ok {
		return v
	}
	metadata, ok := termAt(root, "metadata").(ast.Object)
	if !ok || metadata.Get(ast.StringTerm(field)) == nil {
		return v // nothing that the template reads
	}
	return replaced(root, "metadata", replaced(metadata, field, ast.String(value)))
}

func termAt(o ast.Object, key string) ast.Value {
	if t := o.Get(ast.StringTerm(key)); t != nil {
		return t.Value
	}
	return nil
}

// replaced is a copy of an object with another value of a key.
func replaced(o ast.Object, key string, v ast.Value) ast.Object {
	out := ast.NewObject()
	o.Foreach(func(k, old *ast.Term) {
		if s, ok := k.Value.(ast.String); ok && string(s) == key {
			old = ast.NewTerm(v)
		}
		out.Insert(k, old)
	})
	return out
}
