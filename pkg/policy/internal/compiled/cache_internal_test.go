package compiled

import (
	"testing"

	"federator.dev/federator/pkg/policy/internal/value"
)

// TestHashAll_SpreadsKeys: equal keys have one hash, and others hardly ever: the groups of an indexed
// comprehension are found by it.
func TestHashAll_SpreadsKeys(t *testing.T) {
	seen := map[uint64]bool{}
	const n = 10_000
	for i := range n {
		seen[hashAll([]value.Value{value.Int(i)})] = true
		seen[hashAll([]value.Value{value.ArrayOf([]value.Value{value.Int(i), value.Text("a")})})] = true
	}
	if len(seen) < 2*n-10 {
		t.Errorf("%d keys have %d hashes", 2*n, len(seen))
	}
	for _, pair := range [][2]value.Value{
		{value.Int(1), value.Numeral("1.0")},
		{value.Int(100), value.Numeral("1e2")},
		{value.Int(0), value.Numeral("-0")},
		{value.ArrayOf([]value.Value{value.Int(2)}), value.ArrayOf([]value.Value{value.Numeral("2.0")})},
	} {
		if !value.Equal(pair[0], pair[1]) || hashAll(pair[:1]) != hashAll(pair[1:]) {
			t.Errorf("%v and %v are equal and have two hashes", pair[0].AST(), pair[1].AST())
		}
	}
}
