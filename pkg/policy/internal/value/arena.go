package value

import "slices"

// Arena is memory for the elements of collections, which is used again after Reset. The
// zero Arena is empty. A nil Arena allocates what lives on.
type Arena struct {
	chunk []Value // its length is what is used
	old   int     // elements of chunks that are full
	stack []Value // of what is being built
}

const (
	minChunk = 64
	maxChunk = 8192
	maxIdle  = 1024
)

// Reset forgets all values that were built in the arena: these must not be used any more.
func (a *Arena) Reset() {
	if a.old > 0 && cap(a.chunk) < maxChunk { // one chunk of what it took
		a.chunk = make([]Value, 0, min(maxChunk, a.old+cap(a.chunk)))
	}
	clear(a.chunk)
	a.chunk, a.old = a.chunk[:0], 0
	if cap(a.stack) > maxChunk {
		a.stack = nil
	}
}

// Release is Reset for an arena that is not used for some time: it keeps little memory.
func (a *Arena) Release() {
	if cap(a.chunk) > maxIdle || cap(a.stack) > maxIdle {
		*a = Arena{}
		return
	}
	a.old = 0
	a.Reset()
	clear(a.stack[:cap(a.stack)])
}

// Alloc returns n elements to be written.
func (a *Arena) Alloc(n int) []Value {
	if a == nil || n > maxChunk/4 {
		return make([]Value, n)
	}
	if cap(a.chunk)-len(a.chunk) < n {
		a.old += len(a.chunk)
		a.chunk = make([]Value, 0, max(n, min(maxChunk, max(minChunk, 2*cap(a.chunk)))))
	}
	at := len(a.chunk)
	a.chunk = a.chunk[:at+n]
	return a.chunk[at : at+n : at+n]
}

// keep copies what is at the end of a stack.
func (a *Arena) keep(elems []Value) []Value {
	if len(elems) == 0 {
		return nil
	}
	kept := a.Alloc(len(elems))
	copy(kept, elems)
	return kept
}

// Array returns the array of elements, which it copies.
func (a *Arena) Array(elems ...Value) Value { return ArrayOf(a.keep(elems)) }

// Set returns the set of elements, which it sorts in place and copies.
func (a *Arena) Set(elems []Value) Value {
	return SetOf(a.keep(sortSet(elems)))
}

func sortSet(elems []Value) []Value {
	if len(elems) < 2 {
		return elems
	}
	sorted := true
	for i := 1; i < len(elems); i++ {
		if Compare(elems[i-1], elems[i]) >= 0 {
			sorted = false
			break
		}
	}
	if sorted {
		return elems
	}
	slices.SortStableFunc(elems, Compare)
	return slices.CompactFunc(elems, Equal)
}

// Object returns the object of keys and values in turn, which it sorts in place and
// copies. ok is false if one key has two values. Of equal ones it has the first.
func (a *Arena) Object(pairs []Value) (v Value, ok bool) {
	pairs, ok = sortPairs(pairs, false)
	return ObjectOf(a.keep(pairs)), ok
}

// ObjectOfLast is Object, but that it has the last of equal values.
func (a *Arena) ObjectOfLast(pairs []Value) (v Value, ok bool) {
	pairs, ok = sortPairs(pairs, true)
	return ObjectOf(a.keep(pairs)), ok
}

func sortPairs(pairs []Value, last bool) (sorted []Value, ok bool) {
	n := len(pairs) / 2
	inOrder := true
	for i := 1; i < n; i++ {
		if Compare(pairs[2*i-2], pairs[2*i]) >= 0 {
			inOrder = false
			break
		}
	}
	if inOrder {
		return pairs, true
	}
	list := make([][2]Value, n)
	for i := range list {
		list[i] = [2]Value{pairs[2*i], pairs[2*i+1]}
	}
	slices.SortStableFunc(list, func(x, y [2]Value) int { return Compare(x[0], y[0]) })
	out := 0
	for i := range list {
		if i > 0 && Equal(list[i][0], pairs[out-2]) {
			if !Equal(list[i][1], pairs[out-1]) {
				return nil, false
			}
			if last {
				pairs[out-1] = list[i][1]
			}
			continue
		}
		pairs[out], pairs[out+1] = list[i][0], list[i][1]
		out += 2
	}
	return pairs[:out], true
}

// Single returns the object of one field.
func (a *Arena) Single(name string, v Value) Value {
	pair := a.Alloc(2)
	pair[0], pair[1] = Text(name), v
	return ObjectOf(pair)
}
