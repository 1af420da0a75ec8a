package compiled

import (
	"errors"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/policy/internal/value"
)

// variant is a partial rule compiled for references some of whose keys are known.
type variant struct {
	frame   int
	clauses []code
	memo    int // in keyed
	keys    int
}

// extent compiles a partial rule as a whole.
func (s *scope) extent(d *definition, pos int) expr {
	if d.extent != nil {
		return d.extent
	}
	v := s.variant(d, pos, pos+1, 0)
	build := d.builder(pos)
	d.extent = func(m *Machine, _ frame) value.Value {
		if memo := &m.memo[d.memo]; memo.known {
			return memo.value
		}
		x := v.solve(m, nil, build)
		if m.err == nil {
			m.memo[d.memo] = memoized{true, x}
		}
		return x
	}
	return d.extent
}

// keyed compiles a partial rule for a reference whose next element is bound: only what has
// that key is evaluated, as topdown does.
func (s *scope) keyed(d *definition, ref ast.Ref, pos int) expr {
	end := pos + 1
	for _, r := range d.ast.Rules {
		n := len(r.Ref())
		if r.Head.RuleKind() == ast.MultiValue {
			n++
		}
		end = max(end, min(n, len(ref)))
	}
	var mask uint64
	var keys []expr
	for i := pos + 1; i < end && i < pos+64; i++ {
		if s.stepIsBound(ref[i]) {
			mask |= 1 << (i - pos - 1)
			key, _ := s.ground(ref[i])
			keys = append(keys, key)
		}
	}
	v := s.variant(d, pos, end, mask)
	build := d.builder(pos)
	return func(m *Machine, fr frame) value.Value {
		at := len(m.args)
		for _, key := range keys {
			k := key(m, fr)
			if k.Kind() == value.Number {
				m.err = errNumberKey
				k = value.Value{}
			}
			if !k.Defined() {
				m.args = m.args[:at]
				return k
			}
			m.args = append(m.args, k)
		}
		if memo := &m.memo[d.memo]; memo.known {
			m.args = m.args[:at]
			return memo.value
		}
		args := m.args[at:]
		of := mark(args)
		x, known := m.keyed[v.memo].find(of, args)
		if !known {
			x = v.solve(m, args, build)
			if m.err == nil {
				m.keyed[v.memo].add(of, m.args[at:at+len(keys)], x)
			}
		}
		m.args = m.args[:at]
		return x
	}
}

// errNumberKey is the error of a key that equals others which are written otherwise: which of
// them topdown has depends on which it had first.
var errNumberKey = errors.New("a key is a number that is not an integer")

// variant compiles the rules of a definition for references whose elements from pos+1 to
// end-1 are known where mask has a bit.
func (s *scope) variant(d *definition, pos, end int, mask uint64) *variant {
	id := mask<<8 | uint64(end-pos)
	if v := d.variants[id]; v != nil {
		return v
	}
	v := &variant{memo: s.program.keyed}
	s.program.keyed++
	d.variants[id] = v
	slots := make([]int, end) // of the keys that are known
	for i := pos + 1; i < end; i++ {
		slots[i] = -1
		if mask&(1<<(i-pos-1)) != 0 {
			slots[i] = slotArgs + v.keys
			v.keys++
		}
	}
	for _, r := range d.ast.Rules {
		f := &function{slots: slotArgs + v.keys}
		v.clauses = append(v.clauses, s.inRule(r, f).partial(d, r, pos, slots))
		v.frame = max(v.frame, f.slots)
	}
	return v
}

// partial compiles one partial rule: code that collects what its solutions contribute.
func (s *scope) partial(d *definition, r *ast.Rule, pos int, keys []int) code {
	ref := r.Ref()
	multi := r.Head.RuleKind() == ast.MultiValue
	if multi && r.Head.Key == nil {
		s.unsupported(r.Location, "a partial set without an element")
	}
	var links []link
	for i := pos + 1; i < len(keys); i++ {
		if keys[i] < 0 {
			continue
		}
		switch {
		case i < len(ref):
			links = append(links, s.match(ref[i], keys[i]))
		case multi && i == len(ref):
			links = append(links, s.match(r.Head.Key, keys[i]))
		}
	}
	links = append(links, s.body(r.Body))
	leaf := r.Head.Value
	if multi {
		leaf = r.Head.Key
	}
	return chain(links)(s.contribution(d, ref[pos+1:], leaf, multi))
}

// contribution collects one solution: the element of a set, the key and the value of an
// object, or otherwise the path, the leaf and whether that is an element of a set.
func (s *scope) contribution(d *definition, path ast.Ref, leaf *ast.Term, multi bool) code {
	value1, ok := s.plugging().ground(leaf)
	if !ok {
		s.unsupported(leaf.Location, "a head that is not bound")
	}
	steps, ok := s.plugging().all(len(path), func(i int) *ast.Term { return path[i] })
	if !ok {
		s.unsupported(leaf.Location, "a head that is not bound")
	}
	shape := d.shape(len(s.rule.Ref()) - len(path) - 1)
	return func(m *Machine, fr frame) signal {
		v := value1(m, fr)
		if !v.Defined() {
			return m.none()
		}
		switch shape {
		case shapeSet:
			m.collect = append(m.collect, v)
			return more
		case shapeObject:
			k := steps[0](m, fr)
			if !k.Defined() {
				return m.none()
			}
			m.collect = append(m.collect, k, v)
			return more
		}
		keys := m.arena.Alloc(len(steps))
		if !compute(m, fr, steps, keys) {
			return m.none()
		}
		m.collect = append(m.collect, value.ArrayOf(keys), v, value.Bool(multi))
		return more
	}
}

// shape is what the contributions of a partial rule are.
type shape uint8

const (
	shapeSet    shape = iota // elements
	shapeObject              // keys and values
	shapeNested              // paths, leaves, and whether these are elements of sets
)

// shape returns the shape of a definition at the element pos of its rules' references.
func (d *definition) shape(pos int) shape {
	if d.ast.Kind == ast.MultiValue && d.ast.OnlyGroundRefs {
		for _, r := range d.ast.Rules {
			if len(r.Ref()) != pos+1 {
				return shapeNested
			}
		}
		return shapeSet
	}
	for _, r := range d.ast.Rules {
		if r.Head.RuleKind() == ast.MultiValue || len(r.Ref()) != pos+2 {
			return shapeNested
		}
	}
	return shapeObject
}

// builder returns what makes a value of contributions.
func (d *definition) builder(pos int) func(m *Machine, collected []value.Value) value.Value {
	switch d.shape(pos) {
	case shapeSet:
		return func(m *Machine, collected []value.Value) value.Value { return m.arena.Set(collected) }
	case shapeObject:
		return func(m *Machine, collected []value.Value) value.Value {
			v, ok := m.arena.Object(collected)
			if !ok {
				m.err = errConflict
				return value.Value{}
			}
			return v
		}
	}
	return func(m *Machine, collected []value.Value) value.Value {
		entries := make([]nestedEntry, 0, len(collected)/3)
		for i := 0; i < len(collected); i += 3 {
			entries = append(entries, nestedEntry{collected[i].Elems(), collected[i+1], collected[i+2].IsTrue()})
		}
		return m.nested(entries, 0)
	}
}

// solve evaluates all rules, and builds their value.
func (v *variant) solve(m *Machine, keys []value.Value, build func(*Machine, []value.Value) value.Value) value.Value {
	if m.tick() {
		return value.Value{}
	}
	base := len(m.collect)
	fr := m.push(v.frame)
	copy(fr[min(slotArgs, len(fr)):], keys)
	for _, run := range v.clauses {
		if run(m, fr) == halt {
			break
		}
	}
	m.pop(v.frame)
	x := value.Value{}
	if m.err == nil {
		x = build(m, m.collect[base:])
	}
	m.collect = m.collect[:base]
	return x
}

// nestedEntry is one contribution to a rule whose head has several keys.
type nestedEntry struct {
	path  []value.Value
	leaf  value.Value
	multi bool // leaf is an element of a set
}

// nested builds the object of entries, whose paths agree up to depth.
func (m *Machine) nested(entries []nestedEntry, depth int) value.Value {
	for i := range entries {
		if len(entries[i].path) <= depth {
			m.err = errConflict // one path is the beginning of another
			return value.Value{}
		}
	}
	slices.SortStableFunc(entries, func(a, b nestedEntry) int { return value.Compare(a.path[depth], b.path[depth]) })
	var pairs []value.Value
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && value.Equal(entries[n].path[depth], entries[0].path[depth]) {
			n++
		}
		v := m.leaf(entries[:n], depth)
		if m.err != nil {
			return value.Value{}
		}
		pairs = append(pairs, entries[0].path[depth], v)
		entries = entries[n:]
	}
	return value.ObjectOf(pairs)
}

// leaf builds the value under one key.
func (m *Machine) leaf(entries []nestedEntry, depth int) value.Value {
	first := &entries[0]
	if len(first.path) > depth+1 {
		return m.nested(entries, depth+1)
	}
	var elems []value.Value
	for i := range entries {
		e := &entries[i]
		if len(e.path) != depth+1 || e.multi != first.multi || !e.multi && !value.Equal(e.leaf, first.leaf) {
			m.err = errConflict
			return value.Value{}
		}
		elems = append(elems, e.leaf)
	}
	if !first.multi {
		return first.leaf
	}
	return m.arena.Set(elems)
}
