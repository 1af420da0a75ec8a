package value

import "unsafe"

// Mark returns a number that equal values have in common, and most others have not. It looks at
// little of a value: it is not a hash.
func (v Value) Mark() uint64 { return v.mark(3) }

// spread is the odd part of the golden ratio: what it multiplies differs in its high bits.
const spread = 0x9e3779b97f4a7c15

func (v Value) mark(depth int) uint64 {
	h := uint64(v.order())*spread + 1
	switch v.kind {
	case Boolean:
		return h ^ uint64(v.n)
	case String:
		return (h ^ ends((*byte)(v.p), v.n)) * spread
	case Array, Object:
		h = (h ^ uint64(v.n)) * spread
		if v.n == 0 || depth == 0 {
			return h
		}
		list, first := v.Elems(), 0
		if v.kind == Object {
			list, first = v.Pairs(), 1
		}
		h = (h ^ list[first].mark(depth-1)) * spread
		return (h ^ list[len(list)-1].mark(depth-1)) * spread
	case Set:
		return h ^ uint64(v.n)
	}
	return h // numbers are equal that are written differently
}

// ends is made of up to eight bytes at each end of a text, and of its length.
func ends(p *byte, n int) uint64 {
	var first, last uint64
	for i, c := range unsafe.Slice(p, min(n, 8)) {
		first |= uint64(c) << (8 * i)
	}
	if n > 8 {
		for i, c := range unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), n-8)), 8) {
			last |= uint64(c) << (8 * i)
		}
	}
	return (first*spread ^ last) + uint64(n)
}
