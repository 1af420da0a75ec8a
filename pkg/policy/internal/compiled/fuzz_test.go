package compiled_test

import (
	"math/rand/v2"
	"testing"
)

// bytesSource are the choices of a generator as bytes, and random ones after them.
type bytesSource struct {
	bytes []byte
	rest  rand.Source
}

// Uint64 implements rand.Source.
func (s *bytesSource) Uint64() uint64 {
	if len(s.bytes) == 0 {
		return s.rest.Uint64()
	}
	b := uint64(s.bytes[0])
	s.bytes = s.bytes[1:]
	return b * 0x0101010101010101 // whichever bits are asked for
}

// FuzzCompiled compares compiled programs with topdown, for programs that the choices of the
// generator decide.
func FuzzCompiled(f *testing.F) {
	for i := range byte(8) {
		f.Add(uint64(i), []byte{i, 255 - i, 7 * i, 100, 3, i})
	}
	f.Fuzz(func(t *testing.T, seed uint64, choices []byte) {
		if len(choices) > 1<<10 {
			t.Skip()
		}
		p := generate(&bytesSource{choices, rand.NewPCG(seed, 1)})
		s := statistics{evaluations: int(seed % 6)}
		s.compare(t, "of these bytes", p)
	})
}
