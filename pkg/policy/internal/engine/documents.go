package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/instants"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/value"
)

// engineStore is the data of policies: what a transaction, which is an evaluation, may
// see of the engine's snapshot and views.
type engineStore struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported
}

var errNoTransactions = &storage.Error{Code: storage.InternalErr, Message: "evaluations are their own transactions"}

// NewTransaction implements storage.Store.
func (engineStore) NewTransaction(context.Context, ...storage.TransactionParams) (storage.Transaction, error) {
	return nil, errNoTransactions
}

// Commit implements storage.Store.
func (engineStore) Commit(context.Context, storage.Transaction) error { return errNoTransactions }

// Abort implements storage.Store.
func (engineStore) Abort(context.Context, storage.Transaction) {}

// Truncate implements storage.Store.
func (engineStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return errNoTransactions
}

// Read implements storage.Store.
func (engineStore) Read(_ context.Context, txn storage.Transaction, path storage.Path) (any, error) {
	ev, ok := txn.(*evaluation)
	if !ok {
		return nil, errNoTransactions
	}
	v, err := ev.Read(path)
	if err != nil {
		return nil, err
	}
	if !v.Defined() {
		return nil, fleetdoc.ErrNotFound
	}
	return v.AST(), nil
}

var errNoKey = errors.New("it cannot be read without a key")

// Read implements compiled.Data: it reads a path below data. An undefined value does not
// exist.
func (ev *evaluation) Read(path []string) (value.Value, error) {
	if ev.budget.Cancelled() {
		return value.Value{}, budget.ErrExceeded
	}
	if len(path) > 0 && ev.binding != nil && ev.binding.pkg.IsTemplate() {
		return ev.templateData(path)
	}
	if len(path) == 0 || path[0] != "fleet" {
		return value.Value{}, nil // There is no other base data; OPA looks for it when a rule is read by a prefix of its name.
	}
	if ev.binding == nil {
		return value.Value{}, fmt.Errorf("a view reads data.%s: it may read its object only", strings.Join(path, "."))
	}
	if len(path) < 2 {
		return value.Value{}, fmt.Errorf("data.fleet: %w", errNoKey)
	}
	var v value.Value
	var err error
	rest := path[2:]
	switch path[1] {
	case "views":
		v, rest, err = ev.views(rest)
	case "by_name":
		v, rest, err = ev.byName(rest)
	case "objects":
		v, rest, err = ev.objects(rest)
	case "members":
		v, rest, err = ev.members(rest)
	case "names":
		ev.record(readKey(readNames))
		v, err = ev.cached(documentKey{section: readNames}, func() (value.Value, error) { return ev.names(), nil })
	case "scopes":
		v, rest = ev.scopes(rest)
	case "passed":
		v, rest, err = ev.passed(rest)
	case "external":
		v, rest, err = ev.external(rest)
	}
	if err != nil || !v.Defined() {
		return value.Value{}, err
	}
	return v.Find(rest), nil
}

func (ev *evaluation) views(path []string) (value.Value, []string, error) {
	if len(path) < 2 {
		return value.Value{}, nil, fmt.Errorf("data.fleet.views: %w: name a package and a view", errNoKey)
	}
	v := ev.w.e.view(ev.binding.pkg.Reader(path[0]), path[1])
	if v == nil {
		return value.Value{}, nil, nil // Load refuses it
	}
	ev.reads.AddView(v.ID)
	if len(path) == 2 {
		ev.record(wholeViewKey(v))
		ev.askView(wholeViewKey(v), v)
		ev.wideReads++
		if v.OverLimit != "" {
			return value.Value{}, nil, errors.New(v.LimitMessage())
		}
		return ev.wholeView(v)
	}
	ev.record(viewKey(v, path[2]))
	ev.askView(viewKey(v, path[2]), v, path[2])
	if v.OverLimit != "" {
		return value.Value{}, nil, errors.New(v.LimitMessage())
	}
	doc, err := ev.cached(documentKey{section: readViewKey, a: v.Pkg.Name, b: path[1], c: path[2]}, func() (value.Value, error) {
		return ev.entries(v, path[2])
	})
	return doc, path[3:], err
}

// entries is the document of a key, nil when no entry is visible.
func (ev *evaluation) entries(v *view, key string) (value.Value, error) {
	var list []value.Value
	for e := range v.Entries(key) {
		if !ev.binding.visible.Has(e.Object.Ref.Member) {
			continue
		}
		if err := ev.charge(int64(len(e.Values))); err != nil {
			return value.Value{}, err
		}
		if ev.budget.Cancelled() {
			return value.Value{}, budget.ErrExceeded
		}
		var err error
		if list, err = appendEntry(nil, list, e); err != nil {
			return value.Value{}, err
		}
	}
	if list == nil {
		return value.Value{}, nil // The key does not exist.
	}
	return value.ArrayOf(list), nil
}

func (ev *evaluation) wholeView(v *view) (value.Value, []string, error) {
	t := fleetdoc.NewTree([]string{v.Pkg.Name, v.Def.Name})
	for k := range v.Keys() {
		doc, err := ev.entries(v, k)
		if err != nil {
			return value.Value{}, nil, err
		}
		if doc.Defined() {
			t.Put(doc, []string{v.Pkg.Name, v.Def.Name, k})
		}
	}
	if t.Empty() {
		return value.EmptyObject, nil, nil
	}
	return t.Value(), nil, nil
}

// kind parses a kind as policies write it; Load has refused malformed ones.
func (w *worker) kind(s string) (aggregate.Kind, string) {
	k, ok := w.kinds[s]
	if !ok {
		var err error
		if k, err = module.ParseKind(s); err != nil {
			k = module.KindRef{Kind: aggregate.Kind(s)}
		}
		if w.kinds == nil || len(w.kinds) > 1000 {
			w.kinds = map[string]module.KindRef{}
		}
		w.kinds[s] = k
	}
	return k.Kind, k.Version
}

// version returns the version of an apiVersion.
func version(apiVersion string) string {
	if _, v, ok := strings.Cut(apiVersion, "/"); ok {
		return v
	}
	return apiVersion
}

// document returns what the binding's package reads of an object: not more, or what others read
// of it would cost this evaluation, and make it fail.
func (ev *evaluation) document(o aggregate.Object, pin string) (value.Value, error) {
	if held := ev.w.e.fleet.APIVersion(o); pin != "" && pin != version(held) {
		return value.Value{}, fmt.Errorf("%s is stored at version %s, but the policy requires %s", o.Ref(), held, pin)
	}
	if ev.budget.Cancelled() {
		return value.Value{}, budget.ErrExceeded
	}
	var err error
	if ev.w.otherBody, err = o.AppendBody(ev.w.otherBody[:0]); err != nil {
		return value.Value{}, fmt.Errorf("%s: %w", o.Ref(), err)
	}
	if err := ev.charge(int64(len(ev.w.otherBody))); err != nil {
		return value.Value{}, err
	}
	body, err := ev.objectIn(o, ev.w.otherBody)
	if err != nil {
		return value.Value{}, fmt.Errorf("%s: %w", o.Ref(), err)
	}
	m := ev.binding.pkg.Reads.Fleet[module.KindRef{Kind: o.Ref().Kind, Version: pin}]
	if m == nil {
		m = mask.Whole() // static analysis missed the read
	}
	return value.DecodeCopy(body, m)
}

func (ev *evaluation) byName(path []string) (value.Value, []string, error) {
	if len(path) == 0 {
		return value.Value{}, nil, fmt.Errorf("data.fleet.by_name: %w: name a kind", errNoKey)
	}
	kind, pin := ev.w.kind(path[0])
	if len(path) >= 4 {
		v, err := ev.object(path[0], aggregate.Ref{Kind: kind, Member: path[3], Namespace: path[1], Name: path[2]}, pin)
		return v, path[4:], err
	}
	key := readKey(readNamed, append([]string{string(kind)}, path[1:]...)...)
	ev.record(key)
	ev.askNamed(key, kind, path[1:])
	ev.reads.AddAll(kind)
	if len(path) < 3 {
		ev.wideReads++
		q := aggregate.Query{Kind: kind}
		if len(path) > 1 {
			q.Namespace = path[1]
		}
		v, err := ev.list(q, pin, path, func(o aggregate.Object) []string { return []string{o.Namespace(), o.Name(), o.Member()} })
		return v, nil, err
	}
	doc, err := ev.cached(documentKey{section: readNamed, pkg: ev.binding.pkg, a: path[0], b: path[1], c: path[2]}, func() (value.Value, error) {
		t := fleetdoc.NewTree(nil)
		for _, o := range ev.w.named(kind, path[1], path[2]) {
			if !ev.binding.visible.Has(o.Member()) {
				continue
			}
			v, err := ev.document(o, pin)
			if err != nil {
				return value.Value{}, err
			}
			t.Put(v, []string{o.Member()})
		}
		if t.Empty() {
			return value.Value{}, nil // No member has the name.
		}
		return t.Value(), nil
	})
	return doc, path[3:], err
}

// recordScope records that one scope was read. A member that is not there may join, and
// be visible then.
func (ev *evaluation) recordScope(kind aggregate.Kind, member string) {
	switch {
	case !ev.binding.visible.Has(member) && ev.w.e.member(member).Name != "":
	case member == ev.member:
		ev.reads.AddOwn(kind)
	default:
		ev.reads.AddScope(member, kind)
	}
}

func (ev *evaluation) objects(path []string) (value.Value, []string, error) {
	if len(path) == 0 {
		return value.Value{}, nil, fmt.Errorf("data.fleet.objects: %w: name a kind", errNoKey)
	}
	kind, pin := ev.w.kind(path[0])
	if len(path) >= 4 {
		v, err := ev.object(path[0], aggregate.Ref{Kind: kind, Member: path[1], Namespace: path[2], Name: path[3]}, pin)
		return v, path[4:], err
	}
	key := readKey(readObject, append([]string{string(kind)}, path[1:]...)...)
	ev.record(key)
	if len(path) >= 2 {
		ev.recordScope(kind, path[1])
		ev.askScope(key, kind, path[1])
	} else {
		ev.reads.AddAll(kind)
		ev.askNamed(key, kind, nil)
	}
	ev.wideReads++
	q := aggregate.Query{Kind: kind}
	if len(path) > 1 {
		q.Members = path[1:2]
	}
	if len(path) > 2 {
		q.Namespace = path[2]
	}
	v, err := ev.list(q, pin, path, func(o aggregate.Object) []string { return []string{o.Member(), o.Namespace(), o.Name()} })
	return v, nil, err
}

// object is the document of one object, read through by_name or objects. as is its kind
// as the policy writes it.
func (ev *evaluation) object(as string, ref aggregate.Ref, pin string) (value.Value, error) {
	key := readKey(readObject, string(ref.Kind), ref.Member, ref.Namespace, ref.Name)
	ev.record(key)
	ev.recordScope(ref.Kind, ref.Member)
	ev.askScope(key, ref.Kind, ref.Member, ref.Namespace, ref.Name)
	o, ok := ev.w.e.fleet.Get(ref)
	if !ok || !ev.binding.visible.Has(ref.Member) {
		return value.Value{}, nil // It does not exist.
	}
	k := documentKey{section: readObject, pkg: ev.binding.pkg, a: as + "\x00" + ref.Member, b: ref.Namespace, c: ref.Name}
	return ev.cached(k, func() (value.Value, error) { return ev.document(o, pin) })
}

// list is the document of the objects below a path; q selects these and perhaps more.
func (ev *evaluation) list(q aggregate.Query, pin string, path []string, place func(aggregate.Object) []string) (value.Value, error) {
	list, err := ev.w.e.fleet.List(q)
	if err != nil {
		return value.Value{}, err
	}
	t := fleetdoc.NewTree(path)
	for o := range list {
		at := append([]string{path[0]}, place(o)...)
		if !ev.binding.visible.Has(o.Member()) || !hasPrefix(at, path) {
			continue
		}
		v, err := ev.document(o, pin)
		if err != nil {
			return value.Value{}, err
		}
		t.Put(v, at)
	}
	if t.Empty() {
		return value.Value{}, nil // There are none.
	}
	return t.Value(), nil
}

func hasPrefix(path, prefix []string) bool {
	for i, p := range prefix {
		if path[i] != p {
			return false
		}
	}
	return true
}

func (ev *evaluation) scopes(path []string) (value.Value, []string) {
	switch len(path) {
	case 0:
		ev.record(readKey(readAllScopes))
		ev.wideReads++
	case 1:
		ev.record(readKey(readScopes, path[0]))
	default:
		kind, _ := ev.w.kind(path[1])
		ev.record(readKey(readScope, path[0], string(kind)))
		info, ok := ev.w.e.fleet.Scope(path[0], kind)
		if !ok || !ev.binding.visible.Has(path[0]) {
			return value.Value{}, nil
		}
		return value.Text(info.Status.State.String()), path[2:]
	}
	t := fleetdoc.NewTree(path)
	for m := range ev.w.e.fleet.Members() {
		if len(path) > 0 && path[0] != m.Name || !ev.binding.visible.Has(m.Name) {
			continue
		}
		for info := range ev.w.e.fleet.Scopes(m.Name) {
			t.Put(value.Text(info.Status.State.String()), []string{m.Name, string(info.Kind)})
		}
	}
	return t.Value(), nil
}

// passed is data.fleet.passed[instant]. An instant that has passed goes on having passed, so that only others
// are recorded.
func (ev *evaluation) passed(path []string) (value.Value, []string, error) {
	if len(path) == 0 {
		return value.Value{}, nil, fmt.Errorf("data.fleet.passed: %w: name an instant", errNoKey)
	}
	at, err := fleetdoc.Instant(path[0])
	if err != nil {
		return value.Value{}, nil, err
	}
	c := &ev.w.e.clock
	if at > c.Now {
		ev.record(instants.Key(at))
		if at <= c.AsOf {
			ev.reads.AddDoubt()
		}
	}
	return fleetdoc.Passed(at, c.AsOf), path[1:], nil
}

// external is data.fleet.external[source][key]. Of a document that is an object its fields are read one by one.
func (ev *evaluation) external(path []string) (value.Value, []string, error) {
	if len(path) == 0 {
		return value.Value{}, nil, fmt.Errorf("data.fleet.external: %w: name a source", errNoKey)
	}
	docs, source := ev.w.e.external, path[0]
	if len(path) == 1 {
		ev.record(readKey(readSource, source))
		ev.reads.AddExternal(completeness.Document{Source: source, All: true})
		ev.wideReads++
		whole := docs.Whole(source)
		return whole.Value, nil, ev.charge(whole.Bytes)
	}
	key, doc := path[1], docs.Get(source, path[1])
	ev.record(readKey(readShape, source, key))
	read := completeness.Document{Source: source} // by which all that have read an absent key share what they have read
	if doc.Found {
		read.Key = key
	}
	ev.reads.AddExternal(read)
	switch {
	case !doc.Value.Defined():
		return value.Value{}, nil, nil // It does not exist.
	case len(path) > 2 && doc.Value.Kind() == value.Object:
		ev.record(readKey(readField, source, key, path[2]))
		field := doc.Value.Field(path[2])
		size, ok := field.Size(int(doc.Bytes))
		if !ok {
			size = int(doc.Bytes)
		}
		return field, path[3:], ev.charge(int64(size))
	}
	ev.record(readKey(readDocument, source, key))
	return doc.Value, path[2:], ev.charge(doc.Bytes)
}

func (ev *evaluation) charge(n int64) error {
	if ev.bytesRead += n; ev.bytesRead > ev.w.e.opts.Limits.Read {
		return fmt.Errorf("it reads more than %d bytes", ev.w.e.opts.Limits.Read)
	}
	return nil
}
