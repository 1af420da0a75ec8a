package engine

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// noResource is what an audit says of the resource that a request is about.
var noResource = value.ObjectOf([]value.Value{
	value.Text("group"), value.EmptyString, value.Text("resource"), value.EmptyString, value.Text("version"), value.EmptyString,
})

// review builds the input of a template.
func (w *worker) review(b *boundBinding, t *task, object value.Value) (value.Value, error) {
	namespace, err := w.namespaceObject(b, &t.subject.Ref)
	if err != nil {
		return value.Value{}, err
	}
	// Constraints on one object share the request.
	if last := &w.lastRequest; !last.request.Defined() || b.pkg.Reads.NamespaceObject != nil || last.ofNamespace {
		w.lastRequest = requestOf{newRequest(&w.objects, t, object, namespace), b.pkg.Reads.NamespaceObject != nil}
	}
	pairs := w.inputs.Alloc(4)
	pairs[0], pairs[1], pairs[2], pairs[3] = value.Text("parameters"), b.sel.Params, value.Text("review"), w.lastRequest.request
	return value.ObjectOf(pairs), nil
}

// requestOf is the request for the object that is decoded.
type requestOf struct {
	request     value.Value
	ofNamespace bool // it has what one template reads of the Namespace
}

// newRequest returns what a template sees of an object as Gatekeeper's audit has it: nobody
// asks, so that operation is empty and userInfo has nothing.
func newRequest(a *value.Arena, t *task, object, namespace value.Value) value.Value {
	ref := &t.subject.Ref
	name, group := ref.Kind.Split()
	kind := a.Alloc(6)
	kind[0], kind[1], kind[2], kind[3] = value.Text("group"), value.Text(group), value.Text("kind"), value.Text(name)
	kind[4], kind[5] = value.Text("version"), value.Text(version(t.object.APIVersion()))
	pairs := append(a.Alloc(22)[:0], value.Text("kind"), value.ObjectOf(kind), value.Text("name"), value.Text(ref.Name)) // keys in order
	if ref.Namespace != "" {
		pairs = append(pairs, value.Text("namespace"), value.Text(ref.Namespace))
	}
	pairs = append(pairs, value.Text("namespaceObject"), namespace)
	if object.Defined() {
		pairs = append(pairs, value.Text("object"), object)
	}
	return value.ObjectOf(append(pairs,
		value.Text("oldObject"), value.NullValue, value.Text("operation"), value.EmptyString, value.Text("options"), value.NullValue,
		value.Text("resource"), noResource, value.Text("uid"), value.EmptyString, value.Text("userInfo"), value.EmptyObject,
	))
}

// namespaceObject is the Namespace of a subject as far as the template reads it. For what is in
// none, or in one that is not there, it is an empty object, as Gatekeeper's audit has it.
func (w *worker) namespaceObject(b *boundBinding, ref *aggregate.Ref) (value.Value, error) {
	m := b.pkg.Reads.NamespaceObject
	if m == nil || ref.Namespace == "" {
		return value.EmptyObject, nil
	}
	o, ok := w.readNamespace(ref)
	if !ok {
		return value.EmptyObject, nil
	}
	body, err := o.AppendBody(w.otherBody[:0])
	w.otherBody = body
	if err != nil {
		return value.Value{}, err
	}
	if err := w.evaluation.charge(int64(len(body))); err != nil {
		return value.Value{}, err
	}
	return value.DecodeCopy(body, m)
}

// readNamespace returns the Namespace of an object, and records that it was read.
func (w *worker) readNamespace(ref *aggregate.Ref) (aggregate.Object, bool) {
	of := aggregate.Ref{Member: w.evaluation.inventoryOf, Kind: namespaceKind, Name: ref.Namespace}
	w.evaluation.record(readKey(readObject, string(namespaceKind), of.Member, "", of.Name))
	w.evaluation.readsInventoryOf(namespaceKind)
	return w.e.fleet.Get(of)
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

// tree collects documents.
type tree = fleetdoc.Tree[value.Value]

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
func (ev *evaluation) inventory(path []string) (value.Value, error) {
	p, rest := parseInventory(path)
	t := fleetdoc.NewTree(path[:len(path)-len(rest)])
	if err := ev.inventoryTree(t, p); err != nil {
		return value.Value{}, err
	}
	return inventoryValue(t, path, rest)
}

func inventoryValue(t *tree, path, rest []string) (value.Value, error) {
	if t.Empty() {
		if len(path) <= 1 {
			return value.EmptyObject, nil
		}
		return value.Value{}, nil
	}
	return t.Value().Find(rest), nil
}

// inventoryTree adds the objects that a path may reach.
func (ev *evaluation) inventoryTree(t *tree, p inventoryPath) error {
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
func (ev *evaluation) inventoryKind(t *tree, k *module.InventoryKind, p inventoryPath) error {
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
	list, err := ev.w.e.fleet.List(q)
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
func (ev *evaluation) inventoryObject(t *tree, k *module.InventoryKind, p inventoryPath, key []string) error {
	ev.record(readKey(readObject, key...))
	o, ok := ev.w.e.fleet.Get(aggregate.Ref{Kind: k.Kind, Member: key[1], Namespace: key[2], Name: key[3]})
	if !ok {
		return nil
	}
	return ev.putInventory(t, k, p, o, "")
}

// fleetInventory adds the objects of a kind in all visible members. Those of other members
// than the subject's are in namespaces, and have names if they are cluster-scoped, that
// begin with their member's: no two objects are merged, and none passes for the subject.
func (ev *evaluation) fleetInventory(t *tree, k *module.InventoryKind, p inventoryPath) error {
	ev.record(readKey(readObject, string(k.Kind)))
	ev.reads.AddAll(k.Kind)
	ev.askNamed(readKey(readObject, string(k.Kind)), k.Kind, nil)
	ev.wideReads++
	list, err := ev.w.e.fleet.List(aggregate.Query{Kind: k.Kind})
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
func (ev *evaluation) putInventory(t *tree, k *module.InventoryKind, p inventoryPath, o aggregate.Object, prefix string) error {
	if err := ev.checkVersion(k, o); err != nil {
		return err
	}
	kind, _ := k.Kind.Split()
	held := ev.w.e.fleet.APIVersion(o)
	at := []string{"cluster", held, kind, prefix + o.Name()}
	if o.Namespace() != "" {
		at = []string{"namespace", prefix + o.Namespace(), held, kind, o.Name()}
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
	v, err := ev.cached(key, func() (value.Value, error) { return ev.inventoryDocument(o, prefix) })
	if err == nil {
		t.Put(v, at)
	}
	return err
}

// checkVersion returns an error for an object that the template would never find: it reads
// the kind under constant versions, and the fleet holds another.
func (ev *evaluation) checkVersion(k *module.InventoryKind, o aggregate.Object) error {
	if held := version(ev.w.e.fleet.APIVersion(o)); len(k.Versions) > 0 && !slices.Contains(k.Versions, held) {
		return fmt.Errorf("%s is held at version %s, but the template reads data.inventory for %s", k.Kind, held, strings.Join(k.Versions, ", "))
	}
	return nil
}

// inventoryDocument is what a template reads of an object. One of another member carries
// the member's name.
func (ev *evaluation) inventoryDocument(o aggregate.Object, prefix string) (value.Value, error) {
	v, err := ev.document(o, "")
	if err != nil || prefix == "" {
		return v, err
	}
	ref := o.Ref()
	return withMember(v, &ref, prefix), nil
}

// withMember returns a document of another member's object: in its metadata, what names it
// among those of its kind begins with the member.
func withMember(v value.Value, ref *aggregate.Ref, prefix string) value.Value {
	field, text := "name", prefix+ref.Name
	if ref.Namespace != "" {
		field, text = "namespace", prefix+ref.Namespace
	}
	metadata := v.Field("metadata")
	if !metadata.Field(field).Defined() {
		return v // nothing that the template reads
	}
	return replaced(v, "metadata", replaced(metadata, field, value.Text(text)))
}

// replaced is a copy of an object with another value of a key.
func replaced(o value.Value, key string, v value.Value) value.Value {
	pairs := slices.Clone(o.Pairs())
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i].Kind() == value.String && pairs[i].Str() == key {
			pairs[i+1] = v
		}
	}
	return value.ObjectOf(pairs)
}
