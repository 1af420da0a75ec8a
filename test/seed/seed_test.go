package seed_test

import (
	"testing"

	"federator.dev/federator/test/seed"
)

func TestOf_IsTheSameByDefault(t *testing.T) {
	t.Setenv("SEED", "")
	if a, b := seed.Of(t), seed.Of(t); a != b {
		t.Errorf("seeds %d and %d of one test", a, b)
	}
	t.Run("another", func(t *testing.T) {
		if seed.Of(t) == 0 {
			t.Error("no seed")
		}
	})
	t.Setenv("SEED", "42")
	if got := seed.Of(t); got != 42 {
		t.Errorf("seed %d, want the one that was requested", got)
	}
	t.Setenv("SEED", "random")
	if a, b := seed.Of(t), seed.Of(t); a == b {
		t.Errorf("seed %d twice, want random ones", a)
	}
}
