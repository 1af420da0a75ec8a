package selection

import (
	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// CompileFlat is Compile for objects that are served under flat keys: terms on fields match
// what is served.
func CompileFlat(labelSelector, fieldSelector string, kind aggregate.Kind, keys *flat.Keys) (*Selector, error) {
	sel := &Selector{kind: kind, keys: keys}
	if err := sel.compile(labelSelector, fieldSelector, sel.compileFlatField); err != nil {
		return nil, err
	}
	return sel, nil
}

// compileFlatField splits a term on a flat name into one on the name and one on the member,
// which indexes can answer. What is served at some fields depends on the rest of the object:
// terms on these are matched against the object as it is served.
func (sel *Selector) compileFlatField(q requirement) error {
	what := sel.keys.Field(q.path...)
	if entryField(q.path) != nil || memberField(q.path) != nil {
		if what == flat.Plain {
			return sel.compileField(q)
		}
		return sel.compileFlatKey(q)
	}
	t := sel.bodyTerm(q)
	what = sel.keys.Field(t.paths[0]...) // the term may use an alias of the field
	for _, path := range t.paths[1:] {
		if sel.keys.Field(path...) != what {
			what = flat.ByKind
		}
	}
	switch {
	case isOriginalKey(q.path), what == flat.ByKind, what != flat.Plain && t.absent != "":
		t.flat = true
		sel.terms = append(sel.terms, t)
		return nil
	case what == flat.Plain, q.value == "":
		sel.terms = append(sel.terms, t)
		return nil
	}
	var ok bool
	if t.member, t.value, ok = sel.splitFlatTerm(q); ok {
		sel.terms = append(sel.terms, t)
	}
	return nil
}

// isOriginalKey reports whether a path is of an annotation that only served objects have.
func isOriginalKey(path []string) bool {
	return len(path) == 3 && path[0] == "metadata" && path[1] == "annotations" &&
		(path[2] == api.OriginalNamespaceKey || path[2] == api.OriginalNameKey)
}

// compileFlatKey compiles terms on keys, which are indexed.
func (sel *Selector) compileFlatKey(q requirement) error {
	if q.value == "" {
		return sel.compileField(q)
	}
	member, name, ok := sel.splitFlatTerm(q)
	if !ok {
		return nil
	}
	of := entryField(q.path)
	if !q.negate {
		q.value = name
		return sel.compileField(q)
	}
	sel.entries = append(sel.entries, test[aggregate.Object]{value: name, negate: true, of: func(o aggregate.Object) string {
		if o.Member() != member {
			return ""
		}
		return of(o)
	}})
	return nil
}

// splitFlatTerm returns the member and the name of a term on a flat name. It records that
// only this member's objects can match or, where the name is not a flat name, that none can:
// then no term remains, and ok is false.
func (sel *Selector) splitFlatTerm(q requirement) (member, name string, ok bool) {
	member, name, ok = flat.Split(q.value)
	switch {
	case q.negate:
	case ok:
		sel.byName = append(sel.byName, test[aggregate.Member]{of: func(m aggregate.Member) string { return m.Name }, value: member})
	default:
		sel.contradicts = true
	}
	return member, name, ok
}
