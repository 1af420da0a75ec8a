package compiled

import (
	"errors"
	"fmt"

	"github.com/gobwas/glob"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"

	"federator.dev/federator/pkg/policy/internal/value"
)

// Data is what programs read below data other than rules.
type Data interface {
	// Read returns the document at a path below data, undefined if there is none. It is
	// asked once for each path of an evaluation, and never below a path that it has a
	// document for. It may keep the steps, but not the slice.
	Read(path []string) (value.Value, error)
}

// Input is what an evaluation is of.
type Input struct {
	Input  value.Value // undefined: there is none
	Data   Data
	Cancel topdown.Cancel
}

var (
	// ErrCancelled is the error of an evaluation that its Cancel ended.
	ErrCancelled = errors.New("cancelled")

	errConflict = errors.New("two values where one is allowed")
	errLimit    = errors.New("a limit is exceeded")
)

// signal says whether an evaluation goes on.
type signal uint8

const (
	more signal = iota // the next solution is wanted
	stop               // the search has found what it looked for
	halt               // the machine has an error
)

// frame holds the variables of one rule that is evaluated. What a frame had before is not
// cleared: every variable is written before it is read.
type frame = []value.Value

// code evaluates an expression of a body and all that follow it.
type code func(m *Machine, fr frame) signal

// expr computes a value, undefined for none.
type expr func(m *Machine, fr frame) value.Value

// Machine runs one program at a time, again and again. The zero Machine is ready.
type Machine struct {
	input   value.Value
	data    Data
	cancel  topdown.Cancel
	err     error
	arena   value.Arena
	slab    []value.Value // frames
	top     int
	collect []value.Value // of the collections that are being built
	memo    []memoized
	paths   []memoized // what paths below the input lead to
	keyed   []keyedMemo
	caches  []comprehensionCache
	reads   readCache
	bctx    topdown.BuiltinContext
	regexes patternCache[string, regex]
	globs   patternCache[globKey, *glob.Pattern] // nil: not valid
	args    []value.Value                        // of the calls of builtins: a stack
	yield   func(outs []value.Value) error
	outs    []value.Value
}

// memoized is the result of a rule, or of a path, in this evaluation.
type memoized struct {
	known bool
	value value.Value // undefined: it has none
}

// keyedMemo are the results of a partial rule for keys in this evaluation.
type keyedMemo struct {
	marks   []uint64 // of the keys of each result
	keys    []value.Value
	results []value.Value
}

// mark is that of keys.
func mark(keys []value.Value) uint64 {
	var h uint64
	for _, k := range keys {
		h = h*31 + k.Mark()
	}
	return h
}

// maxKeyed is how many results for keys are looked through.
const maxKeyed = 16

// Run evaluates a program and calls yield with the values of its variables for every
// solution, in topdown's order. The values live until the next Run. An error, whichever it
// is, means that topdown is to decide: it has the exact error, or a result after all. But one
// that is limits.ErrLimit, of a builtin of OPA's, is topdown's where that evaluates all
// rules: by its index it leaves out some, and ends with the first solution of others.
func (m *Machine) Run(p *Program, in Input, yield func(outs []value.Value) error) (err error) {
	m.input, m.data, m.cancel, m.err = in.Input, in.Data, in.Cancel, nil
	m.yield = yield
	m.arena.Reset()
	m.top, m.collect, m.args = 0, m.collect[:0], m.args[:0]
	m.memo, m.paths = reused(m.memo, p.memos), reused(m.paths, p.paths)
	m.resetKeyed(p.keyed)
	m.caches = reused(m.caches, p.caches)
	m.reads.reset()
	if m.bctx.Cache == nil || len(m.bctx.Cache) > 0 {
		m.bctx.Cache = builtins.Cache{}
	}
	m.bctx.Cancel = in.Cancel
	fr := m.push(p.frame)
	defer func() {
		m.data, m.cancel, m.yield, m.bctx.Cancel = nil, nil, nil, nil
		if r := recover(); r != nil {
			err = fmt.Errorf("compiled policy panicked: %v", r)
		}
	}()
	p.run(m, fr)
	return m.err // also one that an expression had whose value nobody asked for
}

// Release drops what an evaluation left behind, and the memory that a large one took.
func (m *Machine) Release() {
	m.arena.Release()
	m.input = value.Value{}
	for _, s := range []*[]value.Value{&m.slab, &m.collect, &m.args, &m.outs} {
		if clear((*s)[:cap(*s)]); cap(*s) > keptValues {
			*s = nil
		}
	}
	m.top = 0
	clear(m.memo[:cap(m.memo)])
	clear(m.paths[:cap(m.paths)])
	clear(m.caches[:cap(m.caches)])
	for i := range m.keyed {
		m.keyed[i] = keyedMemo{}
	}
	if m.reads.reset(); cap(m.reads.entries) > keptValues {
		m.reads = readCache{}
	}
	clear(m.reads.path[:cap(m.reads.path)])
}

// keptValues is how many values an idle machine has room for in each of its stacks.
const keptValues = 1024

// reused returns n zero elements, in the memory of s if they fit.
func reused[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// resetKeyed forgets the results for keys, and keeps their memory.
func (m *Machine) resetKeyed(n int) {
	for len(m.keyed) < n {
		m.keyed = append(m.keyed, keyedMemo{})
	}
	for i := range m.keyed[:n] {
		m.keyed[i].clear()
	}
}

// clear forgets all results.
func (k *keyedMemo) clear() { k.marks, k.keys, k.results = k.marks[:0], k.keys[:0], k.results[:0] }

// find returns the result for keys, whose mark it is given.
func (k *keyedMemo) find(mark uint64, keys []value.Value) (value.Value, bool) {
	n := len(keys)
	for i := range k.results {
		same := k.marks[i] == mark
		for j := 0; same && j < n; j++ {
			same = value.Equal(k.keys[i*n+j], keys[j])
		}
		if same {
			return k.results[i], true
		}
	}
	return value.Value{}, false
}

// add keeps the result for keys, while there is room.
func (k *keyedMemo) add(mark uint64, keys []value.Value, v value.Value) {
	if len(k.results) == maxKeyed {
		k.clear()
	}
	k.marks, k.keys, k.results = append(k.marks, mark), append(k.keys, keys...), append(k.results, v)
}

// push returns a frame of n variables.
func (m *Machine) push(n int) frame {
	if m.top+n > len(m.slab) {
		// Frames in use keep their memory: what is below top in the new slab stays unused.
		m.slab = make([]value.Value, max(256, 2*(m.top+n)))
	}
	m.top += n
	return m.slab[m.top-n : m.top : m.top]
}

func (m *Machine) pop(n int) { m.top -= n }

// tick is called in every loop and at every call.
func (m *Machine) tick() bool {
	if m.cancel != nil && m.cancel.Cancelled() {
		m.err = ErrCancelled
		return true
	}
	return false
}

// spent is tick after a step that may have taken long: it asks the clock, where Cancel can.
func (m *Machine) spent() bool {
	if c, ok := m.cancel.(interface{ Spent() bool }); ok && c.Spent() {
		m.err = ErrCancelled
		return true
	}
	return false
}

// fail ends an evaluation with an error.
func (m *Machine) fail(err error) signal {
	m.err = err
	return halt
}

// none goes on after an expression that has no value, because of an error or without one.
func (m *Machine) none() signal {
	if m.err != nil {
		return halt
	}
	return more
}
