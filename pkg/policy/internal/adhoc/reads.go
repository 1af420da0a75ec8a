package adhoc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/value"
)

// Reads are what a query may read of members, whatever is in them.
type Reads struct {
	// Objects are those below objects and by_name, in order, each once.
	Objects []ObjectReads
	// Scopes are the states of scopes.
	Scopes []ScopeReads
	// Members are those whose documents or names are read; Anything is all of them, and also what is read of Views.
	Members         []string
	Anything, Views bool

	mask *mask.Mask
}

// ObjectReads are objects that a query may read. What is nil is any.
type ObjectReads struct {
	Kind, Member, Namespace, Name *string
}

// ScopeReads are scopes whose state a query may read. What is nil is any.
type ScopeReads struct {
	Member, Kind *string
}

// FindReads returns what a query may read. Its errors are those of Query that follow from the query alone.
func FindReads(query string) (*Reads, error) {
	body, _, err := compileQuery(query)
	if err != nil {
		return nil, err
	}
	r := &Reads{mask: readMask(body)}
	ast.WalkRefs(body, func(ref ast.Ref) bool {
		if ref[0].Equal(ast.DefaultRootDocument) && len(ref) >= 3 {
			r.add(ref)
		}
		return false
	})
	slices.SortFunc(r.Objects, func(a, b ObjectReads) int {
		return cmp.Or(compare(a.Kind, b.Kind), compare(a.Member, b.Member), compare(a.Namespace, b.Namespace), compare(a.Name, b.Name))
	})
	r.Objects = slices.CompactFunc(r.Objects, func(a, b ObjectReads) bool {
		return compare(a.Kind, b.Kind) == 0 && compare(a.Member, b.Member) == 0 && compare(a.Namespace, b.Namespace) == 0 && compare(a.Name, b.Name) == 0
	})
	return r, nil
}

func (r *Reads) add(ref ast.Ref) {
	section, _ := ref[2].Value.(ast.String) // compileQuery refuses anything else
	at := func(i int) *string {
		if i >= len(ref) {
			return nil
		}
		s, ok := ref[i].Value.(ast.String)
		if !ok {
			return nil
		}
		text := string(s)
		return &text
	}
	switch section {
	case "objects":
		r.Objects = append(r.Objects, ObjectReads{Kind: at(3), Member: at(4), Namespace: at(5), Name: at(6)})
	case "by_name":
		r.Objects = append(r.Objects, ObjectReads{Kind: at(3), Namespace: at(4), Name: at(5), Member: at(6)})
	case "scopes":
		r.Scopes = append(r.Scopes, ScopeReads{Member: at(3), Kind: at(4)})
	case "members":
		if m := at(3); m != nil {
			r.Members = append(r.Members, *m)
			return
		}
		r.Anything = true
	case "names", "views":
		r.Anything, r.Views = true, r.Views || section == "views"
	}
}

func compare(a, b *string) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

// Of returns the members that a query may read anything of, sorted; all where that may be any.
func (r *Reads) Of() (members []string, all bool) {
	if r.Anything {
		return nil, true
	}
	members = slices.Clone(r.Members)
	for _, o := range r.Objects {
		if o.Member == nil {
			return nil, true
		}
		members = append(members, *o.Member)
	}
	for _, s := range r.Scopes {
		if s.Member == nil {
			return nil, true
		}
		members = append(members, *s.Member)
	}
	slices.Sort(members)
	return slices.Compact(members), false
}

// Scope reports whether a query may read of a kind in a member: its objects, or no more than its state.
func (r *Reads) Scope(member string, kind aggregate.Kind) (objects, state bool) {
	for _, o := range r.Objects {
		if is(o.Member, member) && is(o.Kind, string(kind)) {
			return true, true
		}
	}
	for _, s := range r.Scopes {
		if is(s.Member, member) && is(s.Kind, string(kind)) {
			return false, true
		}
	}
	return false, false
}

// Object reports whether a query may read an object.
func (r *Reads) Object(ref aggregate.Ref) bool {
	return slices.ContainsFunc(r.Objects, func(o ObjectReads) bool {
		return is(o.Kind, string(ref.Kind)) && is(o.Member, ref.Member) && is(o.Namespace, ref.Namespace) && is(o.Name, ref.Name)
	})
}

// Points returns the objects of a scope that a query may read, where it names each of them.
func (r *Reads) Points(member string, kind aggregate.Kind) (refs []aggregate.Ref, named bool) {
	seen := map[aggregate.Ref]bool{}
	for _, o := range r.Objects {
		switch {
		case !is(o.Member, member) || !is(o.Kind, string(kind)):
			continue
		case o.Namespace == nil || o.Name == nil:
			return nil, false
		}
		ref := aggregate.Ref{Member: member, Kind: kind, Namespace: *o.Namespace, Name: *o.Name}
		if !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	return refs, true
}

// Kinds returns the kinds of which a query may read objects or states, sorted; all where that may be any.
func (r *Reads) Kinds() (kinds []aggregate.Kind, all bool) {
	var named []*string
	for _, o := range r.Objects {
		named = append(named, o.Kind)
	}
	for _, s := range r.Scopes {
		named = append(named, s.Kind)
	}
	for _, kind := range named {
		if kind == nil {
			return nil, true
		}
		kinds = append(kinds, aggregate.Kind(*kind))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), false
}

func is(want *string, value string) bool { return want == nil || *want == value }

// Projector returns what a query reads of objects. It belongs to one goroutine.
type Projector struct {
	reads *Reads
	body  []byte
	arena value.Arena
}

// Projector returns a Projector.
func (r *Reads) Projector() *Projector { return &Projector{reads: r} }

// Project returns JSON with what the query reads of an object, in which it finds all that it finds in the object. It is
// valid until the next call.
func (p *Projector) Project(o aggregate.Object) (text []byte, err error) {
	if p.body, err = o.AppendBody(p.body[:0]); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Ref(), err)
	}
	if p.reads.mask.All {
		return p.body, nil
	}
	p.arena.Reset()
	v, err := value.Decode(&p.arena, p.body, p.reads.mask)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Ref(), err)
	}
	return v.JSON()
}
