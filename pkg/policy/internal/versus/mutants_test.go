package versus

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"federator.dev/federator/test/seed"
)

// TestHandWritten_SaysWhatRegoSaysOfOddObjects compares objects that lack a field, or in which
// it is null or of another type.
func TestHandWritten_SaysWhatRegoSaysOfOddObjects(t *testing.T) {
	set, base := shipped(t), seed.Of(t)
	for i := range contests {
		c := &contests[i]
		t.Run(c.policy, func(t *testing.T) {
			s := c.setup(t, set)
			r := rand.New(rand.NewPCG(base, uint64(i)))
			s.objects = slices.DeleteFunc(s.objects, func(*object) bool { return r.IntN(4) > 0 })
			for _, o := range s.objects {
				for range 8 {
					spoil(r, o.fields)
				}
				o.seal(t)
			}
			for _, parameters := range s.given {
				s.compare(t, parameters)
			}
		})
	}
}

// spoil changes one field somewhere in an object, the deeper the likelier.
func spoil(r *rand.Rand, v any) {
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 {
			return
		}
		key := slices.Sorted(maps.Keys(x))[r.IntN(len(x))]
		if size(x[key]) > 0 && r.IntN(6) > 0 {
			spoil(r, x[key])
			return
		}
		odd := []any{nil, false, true, "", 0, 7, []any{}, map[string]any{}}
		if i := r.IntN(len(odd) + 1); i < len(odd) {
			x[key] = odd[i]
		} else {
			delete(x, key)
		}
	case []any:
		if len(x) == 0 {
			return
		}
		if i := r.IntN(len(x)); size(x[i]) > 0 {
			spoil(r, x[i])
		} else {
			x[i] = nil
		}
	}
}

// size is how many elements a collection has.
func size(v any) int {
	switch x := v.(type) {
	case map[string]any:
		return len(x)
	case []any:
		return len(x)
	}
	return 0
}
