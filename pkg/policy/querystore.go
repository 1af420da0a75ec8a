package policy

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/mask"
)

// queryStore is data of a query: what its Reader may read, made as it is read. It
// belongs to one evaluation.
type queryStore struct {
	storage.PolicyNotSupported
	storage.TriggersNotSupported
	storage.WritesNotSupported

	opts  QueryOptions
	mask  *mask.Mask // of objects
	read  int64      // bytes of JSON read so far
	held  int64      // bytes of memory that what was read, kept and answered takes, estimated from above
	known known      // what has been read, if comprehensions may keep it
	body  []byte
}

// queryTransaction is the only transaction there is: nothing is written.
type queryTransaction struct{}

func (queryTransaction) ID() uint64 { return 1 }

// NewTransaction implements storage.Store.
func (s *queryStore) NewTransaction(_ context.Context, params ...storage.TransactionParams) (storage.Transaction, error) {
	if slices.ContainsFunc(params, func(p storage.TransactionParams) bool { return p.Write }) {
		return nil, &storage.Error{Code: storage.WritesNotSupportedErr}
	}
	return queryTransaction{}, nil
}

// Commit implements storage.Store.
func (s *queryStore) Commit(context.Context, storage.Transaction) error { return nil }

// Abort implements storage.Store.
func (s *queryStore) Abort(context.Context, storage.Transaction) {}

// Truncate implements storage.Store.
func (s *queryStore) Truncate(context.Context, storage.Transaction, storage.TransactionParams, storage.Iterator) error {
	return &storage.Error{Code: storage.WritesNotSupportedErr}
}

var errNotFound = &storage.Error{Code: storage.NotFoundErr, Message: "document does not exist"}

// Read implements storage.Store. What may not be read does not exist.
func (s *queryStore) Read(ctx context.Context, _ storage.Transaction, path storage.Path) (any, error) {
	if len(path) < 2 || path[0] != "fleet" {
		return nil, errNotFound // compileQuery has refused whole documents
	}
	var v ast.Value
	var err error
	rest := path[2:]
	switch path[1] {
	case "objects":
		v, rest, err = s.objects(ctx, rest)
	case "by_name":
		v, rest, err = s.byName(ctx, rest)
	case "members":
		v, rest, err = s.members(rest)
	case "names":
		v = s.names()
	case "scopes":
		v, rest, err = s.scopes(rest)
	case "views":
		v, rest, err = s.views(ctx, rest)
	}
	if err != nil {
		return nil, err
	}
	if v = find(v, rest); v == nil {
		return nil, errNotFound
	}
	s.known.learn(ast.NewTerm(v))
	return v, nil
}

// find steps down a value, as far as a path goes.
func find(v ast.Value, path []string) ast.Value {
	for _, step := range path {
		var t *ast.Term
		switch x := v.(type) {
		case ast.Object:
			t = x.Get(ast.StringTerm(step))
		case *ast.Array:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < x.Len() {
				t = x.Elem(i)
			}
		}
		if t == nil {
			return nil
		}
		v = t.Value
	}
	return v
}

// charge counts what is read.
func (s *queryStore) charge(n int) error {
	if s.read += int64(n); s.read > s.opts.MaxRead {
		return fmt.Errorf("%w: it reads more than %d bytes", ErrQueryLimit, s.opts.MaxRead)
	}
	return nil
}

// object returns an object that may be read.
func (s *queryStore) object(o aggregate.Object) (ast.Value, error) {
	var err error
	if s.body, err = o.AppendBody(s.body[:0]); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Ref(), err)
	}
	if err := s.charge(len(s.body)); err != nil {
		return nil, err
	}
	v, err := document.Value(s.body, s.mask)
	if err != nil || v == nil {
		return v, err
	}
	return v, s.hold(v)
}

// objects reads below objects[kind][member][namespace][name].
func (s *queryStore) objects(ctx context.Context, path []string) (ast.Value, []string, error) {
	if len(path) >= 4 {
		ref := aggregate.Ref{Kind: aggregate.Kind(path[0]), Member: path[1], Namespace: path[2], Name: path[3]}
		o, ok := s.opts.Snapshot.Get(ref)
		if !ok || !s.opts.Reader.Objects(ref.Member, ref.Kind, ref.Namespace) {
			return nil, path[4:], nil
		}
		v, err := s.object(o)
		return v, path[4:], err
	}
	t := newTree(path)
	for kind := range s.opts.Snapshot.Kinds() {
		if len(path) > 0 && path[0] != string(kind) {
			continue
		}
		q := aggregate.Query{Kind: kind}
		if len(path) > 1 {
			q.Members = path[1:2]
		}
		if len(path) > 2 {
			q.Namespace = path[2]
		}
		list, err := s.opts.Snapshot.List(q)
		if err != nil {
			return nil, nil, err
		}
		for o := range list {
			if len(path) > 2 && o.Namespace() != path[2] {
				continue // "" is all namespaces to List
			}
			err := s.put(ctx, t, o, string(kind), o.Member(), o.Namespace(), o.Name())
			if err != nil {
				return nil, nil, err
			}
		}
	}
	return t.value(), nil, nil
}

// byName reads below by_name[kind][namespace][name], which has the member last.
func (s *queryStore) byName(ctx context.Context, path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 3)])
	rest := path[min(len(path), 3):]
	if len(path) >= 3 {
		kind := aggregate.Kind(path[0])
		for o := range s.opts.Snapshot.Named(kind, path[1], path[2]) {
			if len(rest) > 0 && o.Member() != rest[0] {
				continue
			}
			if err := s.put(ctx, t, o, path[0], path[1], path[2], o.Member()); err != nil {
				return nil, nil, err
			}
		}
		return t.value(), rest, nil
	}
	for kind := range s.opts.Snapshot.Kinds() {
		if len(path) > 0 && path[0] != string(kind) {
			continue
		}
		q := aggregate.Query{Kind: kind}
		if len(path) > 1 {
			q.Namespace = path[1]
		}
		list, err := s.opts.Snapshot.List(q)
		if err != nil {
			return nil, nil, err
		}
		for o := range list {
			if len(path) > 1 && o.Namespace() != path[1] {
				continue
			}
			if err := s.put(ctx, t, o, string(kind), o.Namespace(), o.Name(), o.Member()); err != nil {
				return nil, nil, err
			}
		}
	}
	return t.value(), rest, nil
}

// put adds an object at a place of a tree, if it may be read.
func (s *queryStore) put(ctx context.Context, t *tree, o aggregate.Object, at ...string) error {
	if !s.opts.Reader.Objects(o.Member(), o.Ref().Kind, o.Namespace()) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: it takes longer than %v", ErrQueryLimit, s.opts.Timeout)
	}
	v, err := s.object(o)
	if err != nil {
		return err
	}
	t.put(v, at)
	return nil
}

func (s *queryStore) visible() iter.Seq[aggregate.Member] {
	return func(yield func(aggregate.Member) bool) {
		for m := range s.opts.Snapshot.Members() {
			if s.opts.Reader.Member(m.Name) && !yield(m) {
				return
			}
		}
	}
}

// names is the sorted names of members.
func (s *queryStore) names() ast.Value {
	var names []*ast.Term
	for m := range s.visible() {
		names = append(names, ast.StringTerm(m.Name))
	}
	return ast.NewArray(names...)
}

// members reads below members[name].
func (s *queryStore) members(path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 1)])
	for m := range s.visible() {
		if len(path) > 0 && path[0] != m.Name {
			continue
		}
		labels := make([][2]*ast.Term, 0, len(m.Labels))
		n := len(m.Name)
		for _, l := range m.Labels {
			labels = append(labels, ast.Item(ast.StringTerm(l.Key), ast.StringTerm(l.Value)))
			n += len(l.Key) + len(l.Value)
		}
		apis := make([]*ast.Term, 0, len(m.APIs))
		for _, a := range m.APIs {
			apis = append(apis, ast.StringTerm(a))
			n += len(a)
		}
		if err := s.charge(n); err != nil {
			return nil, nil, err
		}
		t.put(ast.NewObject(
			ast.Item(ast.InternedTerm("apis"), ast.ArrayTerm(apis...)),
			ast.Item(ast.InternedTerm("labels"), ast.ObjectTerm(labels...)),
			ast.Item(ast.InternedTerm("version"), ast.StringTerm(m.Version)),
		), []string{m.Name})
	}
	return t.value(), path[min(len(path), 1):], nil
}

// scopes reads below scopes[name][kind], which is the state's name.
func (s *queryStore) scopes(path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 2)])
	for m := range s.visible() {
		if len(path) > 0 && path[0] != m.Name {
			continue
		}
		for info := range s.opts.Snapshot.Scopes(m.Name) {
			if len(path) > 1 && path[1] != string(info.Kind) || !s.opts.Reader.Scope(m.Name, info.Kind) {
				continue
			}
			if err := s.charge(len(info.Kind)); err != nil {
				return nil, nil, err
			}
			t.put(ast.String(info.Status.State.String()), []string{m.Name, string(info.Kind)})
		}
	}
	return t.value(), path[min(len(path), 2):], nil
}

// views reads below views[package][view][key]. A key without an entry that may be
// read does not exist.
func (s *queryStore) views(ctx context.Context, path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 3)])
	rest := path[min(len(path), 3):]
	if s.opts.Views == nil {
		return t.value(), rest, nil
	}
	for pkg, view := range s.opts.Views.Names() {
		if len(path) > 0 && path[0] != pkg || len(path) > 1 && path[1] != view {
			continue
		}
		if len(path) > 2 {
			if err := s.entries(ctx, t, pkg, view, path[2]); err != nil {
				return nil, nil, err
			}
			continue
		}
		for key := range s.opts.Views.Keys(pkg, view) {
			if err := s.entries(ctx, t, pkg, view, key); err != nil {
				return nil, nil, err
			}
		}
	}
	return t.value(), rest, nil
}

var refKeys = struct{ ref, value, member, kind, namespace, name *ast.Term }{
	ast.StringTerm("ref"), ast.StringTerm("value"),
	ast.StringTerm("member"), ast.StringTerm("kind"), ast.StringTerm("namespace"), ast.StringTerm("name"),
}

func (s *queryStore) entries(ctx context.Context, t *tree, pkg, view, key string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: it takes longer than %v", ErrQueryLimit, s.opts.Timeout)
	}
	var entries []*ast.Term
	for ref, value := range s.opts.Views.Entries(pkg, view, key) {
		if !s.opts.Reader.Objects(ref.Member, ref.Kind, ref.Namespace) {
			continue
		}
		n := len(ref.Member) + len(ref.Kind) + len(ref.Namespace) + len(ref.Name)
		size, ok := limits.Size(value, int(s.opts.MaxRead))
		if !ok {
			size = int(s.opts.MaxRead) + 1
		}
		if err := s.charge(n + size); err != nil {
			return err
		}
		if err := s.hold(value); err != nil {
			return err
		}
		entries = append(entries, ast.ObjectTerm(
			ast.Item(refKeys.ref, ast.ObjectTerm(
				ast.Item(refKeys.kind, ast.StringTerm(string(ref.Kind))),
				ast.Item(refKeys.member, ast.StringTerm(ref.Member)),
				ast.Item(refKeys.name, ast.StringTerm(ref.Name)),
				ast.Item(refKeys.namespace, ast.StringTerm(ref.Namespace)),
			)),
			ast.Item(refKeys.value, ast.NewTerm(value)),
		))
	}
	if len(entries) > 0 {
		t.put(ast.NewArray(entries...), []string{pkg, view, key})
	}
	return nil
}

// tree collects values below a path.
type tree struct {
	below []string // what the path has already stepped down
	root  *branch
}

type branch struct {
	leaf  ast.Value
	names []string // in the order they came
	under map[string]*branch
}

func newTree(below []string) *tree { return &tree{below: below} }

// put puts a value at a place, of which the tree's path is a beginning.
func (t *tree) put(v ast.Value, at []string) {
	if t.root == nil {
		t.root = &branch{}
	}
	b := t.root
	for _, name := range at[len(t.below):] {
		next := b.under[name]
		if next == nil {
			next = &branch{}
			if b.under == nil {
				b.under = map[string]*branch{}
			}
			b.under[name] = next
			b.names = append(b.names, name)
		}
		b = next
	}
	b.leaf = v
}

// value is what the tree holds: nil where there is nothing at its path, which is
// an empty object only at the top of a section.
func (t *tree) value() ast.Value {
	if t.root == nil {
		if len(t.below) == 0 {
			return ast.NewObject()
		}
		return nil
	}
	return t.root.value()
}

func (b *branch) value() ast.Value {
	if b.under == nil {
		return b.leaf
	}
	items := make([][2]*ast.Term, 0, len(b.names))
	for _, name := range b.names {
		items = append(items, ast.Item(ast.StringTerm(name), ast.NewTerm(b.under[name].value())))
	}
	return ast.NewObject(items...)
}
