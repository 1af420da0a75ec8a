package compiled

import (
	"hash/maphash"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// parts are those of a comprehension of any kind.
type parts struct {
	kind  value.Kind
	terms []*ast.Term // its element, or its key and value
	body  ast.Body
}

func partsOf(t *ast.Term) parts {
	switch c := t.Value.(type) {
	case *ast.ArrayComprehension:
		return parts{value.Array, []*ast.Term{c.Term}, c.Body}
	case *ast.SetComprehension:
		return parts{value.Set, []*ast.Term{c.Term}, c.Body}
	case *ast.ObjectComprehension:
		return parts{value.Object, []*ast.Term{c.Key, c.Value}, c.Body}
	}
	return parts{}
}

// comprehension compiles a comprehension: with an index where OPA has one, so that one that
// is evaluated in a loop is evaluated once.
func (s *scope) comprehension(t *ast.Term) expr {
	c := partsOf(t)
	if index := s.ast.ComprehensionIndex(t); index != nil {
		if keys, ok := s.all(len(index.Keys), func(i int) *ast.Term { return index.Keys[i] }); ok {
			return s.indexed(c, index.Keys, keys)
		}
	}
	n := s.nested()
	body := n.body(c.body)
	run := body(n.collector(c.terms))
	kind := c.kind
	return func(m *Machine, fr frame) value.Value {
		base := len(m.collect)
		x := value.Value{}
		if run(m, fr) != halt {
			x = m.collection(kind, m.collect[base:])
		}
		m.collect = m.collect[:base]
		return x
	}
}

func kindOf(t *ast.Term) value.Kind { return partsOf(t).kind }

// collector collects the values of terms.
func (s *scope) collector(terms []*ast.Term) code {
	list, ok := s.plugging().all(len(terms), func(i int) *ast.Term { return terms[i] })
	if !ok {
		s.unsupported(terms[0].Location, "a comprehension whose head is not bound")
	}
	if len(list) == 1 {
		f := list[0]
		return func(m *Machine, fr frame) signal {
			v := f(m, fr)
			if !v.Defined() {
				return m.none()
			}
			m.collect = append(m.collect, v)
			return more
		}
	}
	return func(m *Machine, fr frame) signal {
		at := len(m.collect)
		for _, f := range list {
			v := f(m, fr)
			if !v.Defined() {
				m.collect = m.collect[:at]
				return m.none()
			}
			m.collect = append(m.collect, v)
		}
		return more
	}
}

// collection builds a collection of what was collected.
func (m *Machine) collection(kind value.Kind, collected []value.Value) value.Value {
	switch kind {
	case value.Array:
		return m.arena.Array(collected...)
	case value.Set:
		return m.arena.Set(collected)
	}
	v, ok := m.arena.ObjectOfLast(collected) // as topdown does: 1 and 1.0 are equal
	if !ok {
		m.err = errConflict
		return value.Value{}
	}
	return v
}

// comprehensionCache has the collections of an indexed comprehension by their keys.
type comprehensionCache struct {
	built  bool
	groups map[uint64][]group
}

type group struct {
	keys  []value.Value
	value value.Value
}

// indexed compiles a comprehension that is evaluated once for all values of the variables
// that it has in common with where it is.
func (s *scope) indexed(c parts, vars []*ast.Term, keys []expr) expr {
	id := s.program.caches
	s.program.caches++
	f := &function{}
	n := &scope{compiler: s.compiler, function: f, rule: s.rule, location: s.location, vars: map[ast.Var]int{}}
	body := n.body(c.body)
	run := body(n.collector(append(append([]*ast.Term{}, vars...), c.terms...)))
	width := len(vars) + len(c.terms)
	return func(m *Machine, fr frame) value.Value {
		cache := &m.caches[id]
		if !cache.built {
			if !m.buildCache(cache, c.kind, len(vars), width, f.slots, run) {
				return value.Value{}
			}
		}
		at := len(m.args)
		for _, key := range keys {
			m.args = append(m.args, key(m, fr))
		}
		x := cache.find(m.args[at:])
		m.args = m.args[:at]
		if !x.Defined() {
			return m.collection(c.kind, nil)
		}
		return x
	}
}

// buildCache evaluates an indexed comprehension.
func (m *Machine) buildCache(cache *comprehensionCache, kind value.Kind, keys, width, slots int, run code) bool {
	base := len(m.collect)
	fr := m.push(slots)
	c := run(m, fr)
	m.pop(slots)
	collected := m.collect[base:]
	m.collect = m.collect[:base]
	if c == halt {
		return false
	}
	type members struct {
		keys  []value.Value
		elems []value.Value
	}
	lists := map[uint64][]*members{}
	for ; len(collected) > 0; collected = collected[width:] {
		if m.tick() {
			return false
		}
		h := hashAll(collected[:keys])
		var of *members
		for _, g := range lists[h] {
			if equalAll(g.keys, collected[:keys]) {
				of = g
			}
		}
		if of == nil {
			of = &members{keys: m.arena.Array(collected[:keys]...).Elems()}
			lists[h] = append(lists[h], of)
		}
		of.elems = append(of.elems, collected[keys:width]...)
	}
	cache.groups = make(map[uint64][]group, len(lists))
	for h, list := range lists {
		for _, of := range list {
			v := m.collection(kind, of.elems)
			if m.err != nil {
				return false
			}
			cache.groups[h] = append(cache.groups[h], group{of.keys, v})
		}
	}
	cache.built = true
	return true
}

func (c *comprehensionCache) find(keys []value.Value) value.Value {
	for _, g := range c.groups[hashAll(keys)] {
		if equalAll(g.keys, keys) {
			return g.value
		}
	}
	return value.Value{}
}

func equalAll(a, b []value.Value) bool {
	for i := range a {
		if !value.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

var hashSeed = maphash.MakeSeed()

// hashAll returns a hash of keys, which is the same for equal ones.
func hashAll(keys []value.Value) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, k := range keys {
		addHash(&h, k)
	}
	return h.Sum64()
}

func addHash(h *maphash.Hash, v value.Value) {
	var elems []value.Value
	switch v.Kind() {
	case value.String:
		_, _ = h.WriteString(v.Str())
	case value.Boolean:
		_ = h.WriteByte(byte(v.Int()))
	case value.Integer:
		maphash.WriteComparable(h, float64(v.Int()))
	case value.Number: // 1.0 equals 1
		f, _ := ast.Number(v.Str()).Float64()
		maphash.WriteComparable(h, f+0) // -0 is 0
	case value.Array, value.Set:
		elems = v.Elems()
	case value.Object:
		elems = v.Pairs()
	}
	for _, x := range elems {
		addHash(h, x)
	}
	_ = h.WriteByte(0)
}
