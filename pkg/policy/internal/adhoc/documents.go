package adhoc

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/limits"
)

// object returns an object that may be read.
func (s *store) object(o aggregate.Object) (ast.Value, error) {
	var err error
	if s.body, err = o.AppendBody(s.body[:0]); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Ref(), err)
	}
	if err := s.chargeRead(len(s.body)); err != nil {
		return nil, err
	}
	v, err := document.Value(s.body, s.mask)
	if err != nil || v == nil {
		return v, err
	}
	return v, s.chargeMemory(v)
}

// objects reads below objects[kind][member][namespace][name].
func (s *store) objects(ctx context.Context, path []string) (ast.Value, []string, error) {
	if len(path) >= 4 {
		ref := aggregate.Ref{Kind: aggregate.Kind(path[0]), Member: path[1], Namespace: path[2], Name: path[3]}
		o, ok := s.fleet.Get(ref)
		if !ok || !s.opts.Reader.MayReadObjects(ref.Member, ref.Kind, ref.Namespace) {
			return nil, path[4:], nil
		}
		v, err := s.object(o)
		return v, path[4:], err
	}
	t := newTree(path)
	for kind := range s.fleet.Kinds() {
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
		list, err := s.fleet.List(q)
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
	return t.Value(), nil, nil
}

// byName reads below by_name[kind][namespace][name], which has the member last.
func (s *store) byName(ctx context.Context, path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 3)])
	rest := path[min(len(path), 3):]
	if len(path) >= 3 {
		kind := aggregate.Kind(path[0])
		for o := range s.fleet.Named(kind, path[1], path[2]) {
			if len(rest) > 0 && o.Member() != rest[0] {
				continue
			}
			if err := s.put(ctx, t, o, path[0], path[1], path[2], o.Member()); err != nil {
				return nil, nil, err
			}
		}
		return t.Value(), rest, nil
	}
	for kind := range s.fleet.Kinds() {
		if len(path) > 0 && path[0] != string(kind) {
			continue
		}
		q := aggregate.Query{Kind: kind}
		if len(path) > 1 {
			q.Namespace = path[1]
		}
		list, err := s.fleet.List(q)
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
	return t.Value(), rest, nil
}

// put adds an object to a tree, if it may be read.
func (s *store) put(ctx context.Context, t *fleetdoc.Tree[ast.Value], o aggregate.Object, at ...string) error {
	if !s.opts.Reader.MayReadObjects(o.Member(), o.Ref().Kind, o.Namespace()) {
		return nil
	}
	if ctx.Err() != nil {
		return timeoutError{s.opts.Timeout}
	}
	v, err := s.object(o)
	if err != nil {
		return err
	}
	t.Put(v, at)
	return nil
}

func (s *store) visibleMembers() iter.Seq[aggregate.Member] {
	return func(yield func(aggregate.Member) bool) {
		for m := range s.fleet.Members() {
			if s.opts.Reader.MayReadMember(m.Name) && !yield(m) {
				return
			}
		}
	}
}

// names are the sorted names of members.
func (s *store) names() ast.Value {
	var names []*ast.Term
	for m := range s.visibleMembers() {
		names = append(names, ast.StringTerm(m.Name))
	}
	return ast.NewArray(names...)
}

// members reads below members[name].
func (s *store) members(path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 1)])
	for m := range s.visibleMembers() {
		if len(path) > 0 && path[0] != m.Name {
			continue
		}
		if !s.opts.Reader.MayReadClusters() {
			m.Cluster = m.Cluster.Plain()
		}
		if err := s.chargeRead(fleetdoc.Size(&m, fleetdoc.AllParts)); err != nil {
			return nil, nil, err
		}
		t.Put(fleetdoc.MemberDocument(&m, fleetdoc.AllParts).AST(), []string{m.Name})
	}
	return t.Value(), path[min(len(path), 1):], nil
}

// scopes reads below scopes[name][kind], which is the name of the scope's state.
func (s *store) scopes(path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 2)])
	for m := range s.visibleMembers() {
		if len(path) > 0 && path[0] != m.Name {
			continue
		}
		for info := range s.fleet.Scopes(m.Name) {
			if len(path) > 1 && path[1] != string(info.Kind) || !s.opts.Reader.MayReadScope(m.Name, info.Kind) {
				continue
			}
			if err := s.chargeRead(len(info.Kind)); err != nil {
				return nil, nil, err
			}
			t.Put(ast.String(info.Status.State.String()), []string{m.Name, string(info.Kind)})
		}
	}
	return t.Value(), path[min(len(path), 2):], nil
}

// passed reads below passed[instant]. There is no set of all instants.
func (s *store) passed(path []string) (ast.Value, []string, error) {
	if len(path) == 0 {
		return nil, nil, fmt.Errorf("%w: data.fleet.passed is read with a key, which is an instant", ErrQuery)
	}
	at, err := fleetdoc.Instant(path[0])
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	return fleetdoc.Passed(at, s.opts.AsOf.Unix()).AST(), path[1:], nil
}

// external reads below external[source][key]. What has a problem is as it was last known to be, as what is Stale.
func (s *store) external(path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 2)])
	for source := range s.opts.External.Sources() {
		if len(path) > 0 && path[0] != source || !s.opts.Reader.MayReadSource(source) {
			continue
		}
		keys, _ := s.opts.External.Keys(source)
		for _, key := range keys {
			if len(path) > 1 && path[1] != key {
				continue
			}
			doc := s.opts.External.Get(source, key)
			if s.documents == nil {
				s.documents = map[[2]string]bool{}
			}
			s.documents[[2]string{source, key}] = true
			if !doc.Value.Defined() {
				continue
			}
			if err := s.chargeRead(int(doc.Bytes)); err != nil {
				return nil, nil, err
			}
			v := doc.Value.AST()
			if err := s.chargeMemory(v); err != nil {
				return nil, nil, err
			}
			t.Put(v, []string{source, key})
		}
	}
	return t.Value(), path[min(len(path), 2):], nil
}

// readDocuments returns the external documents that were read.
func (s *store) readDocuments() (list []ReadDocument) {
	for at := range s.documents {
		d, _ := s.opts.External.Document(at[0], at[1])
		list = append(list, ReadDocument{
			Source: at[0], Key: at[1], Known: d.Problem == "", Problem: d.Problem, From: d.From, Digest: s.opts.External.DigestOf(at[0], at[1]),
		})
	}
	slices.SortFunc(list, func(a, b ReadDocument) int { return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Key, b.Key)) })
	return list
}

// views reads below views[package][view][key]. A key without an entry that may be
// read does not exist.
func (s *store) views(ctx context.Context, path []string) (ast.Value, []string, error) {
	t := newTree(path[:min(len(path), 3)])
	rest := path[min(len(path), 3):]
	if s.opts.Views == nil {
		return t.Value(), rest, nil
	}
	for pkg, view := range s.opts.Views.Names() {
		if len(path) > 0 && path[0] != pkg || len(path) > 1 && path[1] != view {
			continue
		}
		if len(path) > 2 {
			if err := s.putEntries(ctx, t, pkg, view, path[2]); err != nil {
				return nil, nil, err
			}
			continue
		}
		for key := range s.opts.Views.Keys(pkg, view) {
			if err := s.putEntries(ctx, t, pkg, view, key); err != nil {
				return nil, nil, err
			}
		}
	}
	return t.Value(), rest, nil
}

func (s *store) putEntries(ctx context.Context, t *fleetdoc.Tree[ast.Value], pkg, view, key string) error {
	if ctx.Err() != nil {
		return timeoutError{s.opts.Timeout}
	}
	var entries []*ast.Term
	for ref, value := range s.opts.Views.Entries(pkg, view, key) {
		if !s.opts.Reader.MayReadObjects(ref.Member, ref.Kind, ref.Namespace) {
			continue
		}
		n := len(ref.Member) + len(ref.Kind) + len(ref.Namespace) + len(ref.Name)
		size, ok := limits.Size(value, int(s.opts.MaxRead))
		if !ok {
			size = int(s.opts.MaxRead) + 1
		}
		if err := s.chargeRead(n + size); err != nil {
			return err
		}
		if err := s.chargeMemory(value); err != nil {
			return err
		}
		entries = append(entries, ast.ObjectTerm(
			ast.Item(ast.InternedTerm("ref"), fleetdoc.Ref(nil, &ref).Term()), ast.Item(ast.InternedTerm("value"), ast.NewTerm(value)),
		))
	}
	if len(entries) > 0 {
		t.Put(ast.NewArray(entries...), []string{pkg, view, key})
	}
	return nil
}
