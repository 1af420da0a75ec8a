package sharing

import (
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/test/seed"
)

// names are the first so many keys, each told with a change of its own.
func names(n int) *interest.Set {
	var b interest.Builder
	for i := range n {
		b.Add(interest.Names("Pod"), uint32(i))
	}
	return b.Take()
}

// TestKnown_AdvancesBehindWhatIsTold: a loop that is always some changes behind what is told comes to know of it, as far as it is.
func TestKnown_AdvancesBehindWhatIsTold(t *testing.T) {
	const behind = 5
	var k known
	for changes := uint64(behind); changes < 100; changes++ {
		heard := changes - behind
		k.follow(names(int(changes)), heard, changes)
		if !names(int(heard)).Covers(k.held) {
			t.Fatalf("at %d it knows of more than it has evaluated", heard)
		}
		if late := int(heard) - 2*behind; late > 0 && !k.held.Covers(names(late)) {
			t.Fatalf("at %d it knows of %d keys", heard, k.held.Size())
		}
	}
	k.follow(names(99), 99, 99)
	if k.follow(names(99), 99, 99); k.held.Size() != 99 {
		t.Errorf("it knows of %d keys once it has evaluated all", k.held.Size())
	}
}

// TestKnown_IsWhatWasEvaluated, whatever is told and told no more: a key is known only once the loop has come to where it was told
// last, and at the latest when it has evaluated all.
func TestKnown_IsWhatWasEvaluated(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	for range 200 {
		var k known
		const keys = 8
		var told [keys]uint64 // the change with which each was told; 0: it is not held
		changes, heard := uint64(1), uint64(0)
		held := func() *interest.Set {
			var b interest.Builder
			for i, at := range told {
				if at > 0 {
					b.Add(interest.Names("Pod"), uint32(i))
				}
			}
			return b.Take()
		}
		for range 100 {
			i := rng.IntN(keys)
			if changes++; rng.IntN(3) == 0 {
				told[i] = 0
			} else if told[i] == 0 {
				told[i] = changes
			}
			heard += rng.Uint64N(changes - heard + 1)
			if rng.IntN(4) == 0 {
				heard = min(heard, changes-1)
			}
			k.follow(held(), heard, changes)
			for i, at := range told {
				if k.held.Has(interest.Names("Pod"), uint32(i)) && (at == 0 || at > heard) {
					t.Fatalf("key %d was told at %d, and is known at %d", i, at, heard)
				}
			}
		}
		k.follow(held(), changes, changes)
		if k.follow(held(), changes, changes); !k.held.Equal(held()) {
			t.Fatalf("%d keys are known, %d are held", k.held.Size(), held().Size())
		}
	}
}
