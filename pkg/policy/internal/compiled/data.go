package compiled

import (
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// data compiles the first elements of a reference below data: a rule and its keys, or the
// longest path of a document whose steps are bound.
func (s *scope) data(ref ast.Ref) (start, bool) {
	node := s.ast.RuleTree.Child(ref[0].Value)
	if node == nil {
		return s.document(ref)
	}
	for i := 1; i < len(ref); i++ {
		if _, ok := ref[i].Value.(ast.String); !ok {
			s.unsupported(ref[i].Location, "rules whose name is not constant")
		}
		child := node.Child(ref[i].Value)
		if child == nil {
			return s.document(ref)
		}
		if child.External != nil {
			s.unsupported(ref[i].Location, "rules from an external source")
		}
		if len(child.Values) > 0 {
			return s.virtual(child, ref, i)
		}
		node = child
	}
	return s.tree(node, ref)
}

// tree compiles a reference to all rules below a node of the rule tree, as one object. Where
// there are documents as well, topdown merges them.
func (s *scope) tree(node *ast.TreeNode, ref ast.Ref) (start, bool) {
	if len(ref) < 2 {
		s.unsupported(ref[0].Location, "all of data as a value")
	}
	path := make([]string, 0, len(ref)-1)
	for _, t := range ref[1:] {
		name, ok := t.Value.(ast.String)
		if !ok {
			s.unsupported(t.Location, "a package whose name is not a string")
		}
		path = append(path, string(name))
	}
	extent := s.rules(node, ref)
	return start{func(m *Machine, fr frame) value.Value {
		switch v := m.read(path); {
		case m.err != nil:
			return v
		case v.Defined():
			m.err = errMerge
			return value.Value{}
		}
		return extent(m, fr)
	}, nil}, true
}

var errMerge = errors.New("rules and documents have the same path")

// rules compiles the object of all rules below a node.
func (s *scope) rules(node *ast.TreeNode, ref ast.Ref) expr {
	var names []value.Value
	var values []expr
	for _, key := range node.Sorted { // in OPA's order
		child := node.Children[key]
		at := append(ref[:len(ref):len(ref)], ast.NewTerm(child.Key))
		name := value.Of(nil, child.Key)
		if child.Hide || child.External != nil || name.Kind() != value.String {
			s.unsupported(ref[0].Location, "a package with rules that are hidden")
		}
		var v expr
		if len(child.Values) > 0 {
			h, _ := s.virtual(child, at, len(at)-1)
			v = h.base
		} else {
			v = s.rules(child, at)
		}
		names, values = append(names, name), append(values, v)
	}
	return func(m *Machine, fr frame) value.Value {
		pairs := m.arena.Alloc(2 * len(values))[:0]
		for i, f := range values {
			v := f(m, fr)
			if m.err != nil {
				return value.Value{}
			}
			if v.Defined() {
				pairs = append(pairs, names[i], v)
			}
		}
		return value.ObjectOf(pairs)
	}
}

// isDocument reports whether a term refers to a document that no rule makes.
func (s *scope) isDocument(t *ast.Term) bool {
	ref, ok := t.Value.(ast.Ref)
	if !ok || !ref[0].Equal(ast.DefaultRootDocument) {
		return false
	}
	node := s.ast.RuleTree.Child(ref[0].Value)
	for i := 1; i < len(ref) && node != nil && len(node.Values) == 0; i++ {
		node = node.Child(ref[i].Value)
	}
	return node == nil
}

// document compiles a read of a document that no rule makes.
func (s *scope) document(ref ast.Ref) (start, bool) {
	n := 1
	for n < len(ref) && s.stepIsBound(ref[n]) {
		n++
	}
	steps := make([]expr, n-1)
	fixed := make([]string, n-1)
	for i := range steps {
		if name, ok := ref[i+1].Value.(ast.String); ok {
			fixed[i] = string(name)
			continue
		}
		steps[i], _ = s.ground(ref[i+1])
	}
	return start{func(m *Machine, fr frame) value.Value {
		path := m.reads.path[:0]
		m.reads.path = nil // a step may read, too
		defer func() { m.reads.path = path }()
		for i, f := range steps {
			if f == nil {
				path = append(path, fixed[i])
				continue
			}
			v := f(m, fr)
			switch v.Kind() {
			case value.String, value.Integer:
				path = append(path, strings.Clone(v.Str())) // it outlives the evaluation
			case value.Number: // 1.0 is an index of what was read already, but not of a document
				m.err = errPath
				return value.Value{}
			default: // no document has such a key
				return value.Value{}
			}
		}
		return m.read(path)
	}, ref[n:]}, true
}

var errPath = errors.New("a document's path has a key that is one in its text only")

// documentSteps compiles elements of a reference within a document, all of which are bound.
// What is not there by its key topdown looks for by the key's text: it decides that.
func (s *scope) documentSteps(base expr, rest ast.Ref) expr {
	for _, t := range rest {
		key, ok := s.ground(t)
		if !ok {
			s.unsupported(t.Location, "an element of a reference that is not bound")
		}
		from := base
		base = func(m *Machine, fr frame) value.Value {
			v := from(m, fr)
			if !v.IsCollection() {
				return value.Value{}
			}
			k := key(m, fr)
			if !k.Defined() {
				return value.Value{}
			}
			x := v.Get(k)
			if !x.Defined() && (k.Kind() == value.String || k.IsNumber()) && v.Find([]string{k.Str()}).Defined() {
				m.err = errPath
			}
			return x
		}
	}
	return base
}

// readCache holds the documents that this evaluation has read, as topdown's base cache does:
// what is below one of them is not read again.
type readCache struct {
	path    []string // of the read that is being made
	entries []readEntry
	index   map[uint64]int // from the hash of a path to its entry
	hash    maphash.Hash
}

type readEntry struct {
	path  []string
	value value.Value
}

func (c *readCache) reset() {
	clear(c.entries)
	c.entries = c.entries[:0]
	if len(c.index) > 1024 {
		c.index = nil
	}
	clear(c.index)
}

// find returns the longest-known document above or at a path.
func (c *readCache) find(path []string) (v value.Value, rest []string, ok bool) {
	if len(c.entries) == 0 {
		return value.Value{}, nil, false
	}
	if c.index == nil {
		for i := range c.entries {
			if e := &c.entries[i]; len(e.path) <= len(path) && slices.Equal(e.path, path[:len(e.path)]) {
				return e.value, path[len(e.path):], true
			}
		}
		return value.Value{}, nil, false
	}
	c.hash.Reset()
	for i, step := range path {
		_, _ = c.hash.WriteString(step)
		_ = c.hash.WriteByte(0)
		if at, known := c.index[c.hash.Sum64()]; known && slices.Equal(c.entries[at].path, path[:i+1]) {
			return c.entries[at].value, path[i+1:], true
		}
	}
	return value.Value{}, nil, false
}

// maxLinear is how many documents are looked through without an index.
const maxLinear = 8

func (c *readCache) add(path []string, v value.Value) {
	c.entries = append(c.entries, readEntry{slices.Clone(path), v})
	switch {
	case c.index != nil:
		c.put(len(c.entries) - 1)
	case len(c.entries) > maxLinear:
		c.index = map[uint64]int{}
		for i := range c.entries {
			c.put(i)
		}
	}
}

func (c *readCache) put(i int) {
	c.hash.Reset()
	for _, step := range c.entries[i].path {
		_, _ = c.hash.WriteString(step)
		_ = c.hash.WriteByte(0)
	}
	c.index[c.hash.Sum64()] = i
}

// read reads a document. What does not exist is read again each time, as topdown does.
func (m *Machine) read(path []string) value.Value {
	if m.tick() {
		return value.Value{}
	}
	v, rest, ok := m.reads.find(path)
	if !ok {
		if m.data == nil {
			return value.Value{}
		}
		var err error
		if v, err = m.data.Read(path); err != nil {
			m.err = err
			return value.Value{}
		}
		if v.Defined() {
			m.reads.add(path, v)
		}
		return v
	}
	return v.Find(rest)
}
