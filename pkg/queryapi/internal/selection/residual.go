package selection

import (
	"bytes"
	"strconv"

	"federator.dev/federator/api"
	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

// residual is the part of a selection that is not in the query, and is matched one object at
// a time. It is immutable; nil matches everything.
type residual struct {
	entries    []test[aggregate.Object]
	terms      []bodyTerm
	paths      []slot
	values     []string // by slot
	substrings [][]byte // each is in every body that matches

	keys      *flat.Keys // under which objects are served; nil: their own
	flatTerms *residual  // of the terms on bodies as they are served; nil: none
}

func (r *residual) add(t bodyTerm) {
	if t.flat {
		t.flat = false
		shown := residual{}
		if r.flatTerms != nil {
			shown = *r.flatTerms
		}
		shown.add(t)
		r.flatTerms = &shown
		return
	}
	r.terms = append(r.terms, t)
	for _, p := range t.paths {
		r.paths = append(r.paths, slot{steps: p})
		r.values = append(r.values, t.value)
	}
	if !t.negate && t.value != t.absent && verbatim(t.value) {
		r.substrings = append(r.substrings, []byte(t.value))
	}
}

// Scratch is the space that a Match needs. Its zero value is ready; it belongs
// to one goroutine.
type Scratch struct {
	body     []byte
	flatBody []byte
	walk     walker

	values  []string
	seen    uint64 // slots with a value
	full    uint64 // slots with a value that is not ""
	matched uint64 // slots with the required value
	collect *[]string
}

// Shrink releases buffers for bodies above a size in bytes.
func (s *Scratch) Shrink(most int) {
	if cap(s.body) > most || cap(s.flatBody) > most {
		*s = Scratch{}
	}
}

// Body returns the object's canonical JSON, until the next use of the scratch.
func (s *Scratch) Body(o aggregate.Object) ([]byte, error) {
	var err error
	s.body, err = o.AppendBody(s.body[:0])
	return s.body, err
}

// Match reports whether an object matches. Its errors are those of decoding a
// body.
func (r *residual) Match(o aggregate.Object, scratch *Scratch) (bool, error) {
	if r == nil {
		return true, nil
	}
	if !allHold(r.entries, o) {
		return false, nil
	}
	if !r.needsBody() {
		return true, nil
	}
	body, err := scratch.Body(o)
	if err != nil || !r.matchBody(body, o.Member(), scratch) {
		return false, err
	}
	if r.flatTerms == nil {
		return true, nil
	}
	scratch.flatBody = r.keys.ForNamespace(o.Namespace()).Append(scratch.flatBody[:0], body, o.Member())
	return r.flatTerms.matchBody(scratch.flatBody, o.Member(), scratch), nil
}

// matchBody matches canonical JSON of an object of a member.
func (r *residual) matchBody(body []byte, member string, s *Scratch) bool {
	for _, n := range r.substrings {
		if !bytes.Contains(body, n) {
			return false
		}
	}
	s.values, s.seen, s.full, s.matched = r.values, 0, 0, 0
	s.walk = walker{Reader: canonjson.NewReader(body), paths: r.paths, found: s}
	s.walk.walk()
	at := 0
	for _, t := range r.terms {
		if holds := (t.member == "" || t.member == member) && s.holds(t, at); holds == t.negate {
			return false
		}
		at += len(t.paths)
	}
	return true
}

// visit records a value of a path.
func (s *Scratch) visit(path int, value []byte) {
	if s.collect != nil {
		*s.collect = append(*s.collect, string(text(value)))
		return
	}
	bit := uint64(1) << path
	s.seen |= bit
	t := text(value)
	if len(t) > 0 {
		s.full |= bit
	}
	if string(t) == s.values[path] {
		s.matched |= bit
	}
}

// holds reports whether a term whose paths start at a slot has its value.
func (s *Scratch) holds(t bodyTerm, at int) bool {
	if len(t.paths) == 1 {
		bit := uint64(1) << at
		if s.seen&bit != 0 {
			return s.matched&bit != 0
		}
		return t.value == t.absent
	}
	for i := range t.paths {
		if bit := uint64(1) << (at + i); s.full&bit != 0 {
			return s.matched&bit != 0
		}
	}
	return t.value == t.absent
}

// entryField returns the accessor of a field that is served from the index and not from the
// body.
func entryField(path []string) func(aggregate.Object) string {
	if len(path) < 2 || path[0] != "metadata" {
		return nil
	}
	if len(path) == 2 {
		switch path[1] {
		case "name":
			return aggregate.Object.Name
		case "namespace":
			return aggregate.Object.Namespace
		case "uid":
			return aggregate.Object.UID
		case "resourceVersion":
			return func(o aggregate.Object) string { return strconv.FormatUint(uint64(o.Revision()), 10) }
		}
		return nil
	}
	if len(path) == 3 && path[1] == "annotations" && path[2] == api.ResourceVersionKey {
		return aggregate.Object.ResourceVersion
	}
	return nil
}

// memberField is entryField for fields that depend on the object's member.
func memberField(path []string) func(aggregate.Member) string {
	if len(path) == 3 && path[0] == "metadata" && path[1] == "annotations" && path[2] == api.MemberKey {
		return func(m aggregate.Member) string { return m.Name }
	}
	return nil
}

// Field is a path whose values can be read. It is immutable.
type Field struct {
	paths  []slot
	absent string
	entry  func(aggregate.Object) string
	index  string // as a declared field, "" when it cannot be one
}

// CompileField parses the path of a field of a kind. Errors contain the position in the
// path.
func CompileField(path string, kind aggregate.Kind) (*Field, error) {
	steps, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	sel := &Selector{kind: kind}
	if err := sel.compileField(requirement{path: steps, negate: true}); err != nil {
		return nil, err
	}
	f := &Field{}
	switch {
	case len(sel.byName) > 0:
		f.entry = aggregate.Object.Member
	case len(sel.entries) > 0:
		f.entry = sel.entries[0].of
	default:
		t := sel.terms[0]
		f.absent = t.absent
		for _, p := range t.paths {
			f.paths = append(f.paths, slot{steps: p})
		}
		t.negate, t.value = false, "x"+t.absent
		f.index, _ = t.indexed()
	}
	return f, nil
}

// IndexedField returns the name of the index's field that holds the same values,
// "" when none can.
func (f *Field) IndexedField() string { return f.index }

// Append appends the object's values of the field, or that of an absent field if there are
// none.
func (f *Field) Append(dst []string, o aggregate.Object, scratch *Scratch) ([]string, error) {
	if f.entry != nil {
		return append(dst, f.entry(o)), nil
	}
	body, err := scratch.Body(o)
	if err != nil {
		return dst, err
	}
	from := len(dst)
	scratch.collect = &dst
	defer func() { scratch.collect = nil }()
	for _, p := range f.paths {
		scratch.walk = walker{Reader: canonjson.NewReader(body), paths: []slot{p}, found: scratch}
		scratch.walk.walk()
		for _, v := range dst[from:] {
			if v != "" || len(f.paths) == 1 {
				return dst, nil
			}
		}
		dst = dst[:from]
	}
	return append(dst, f.absent), nil
}

// Source returns where the values of the field are: in the index, where entry is not nil, or at paths of a body, of
// which the first with a value other than "" counts; and the value of an object without any.
func (f *Field) Source() (entry func(aggregate.Object) string, paths [][]string, absent string) {
	for _, p := range f.paths {
		paths = append(paths, p.steps)
	}
	return f.entry, paths, f.absent
}
