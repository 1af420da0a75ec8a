package engine

import (
	"testing"

	"federator.dev/federator/pkg/policy/internal/value"
)

// TestWorker_HoldsNoResultWhenIdle: what the last evaluation found may be large, and nobody asks for it again.
func TestWorker_HoldsNoResultWhenIdle(t *testing.T) {
	w := worker{found: []value.Value{value.ArrayOf(make([]value.Value, 100_000))}}
	w.rest()
	if n := len(w.found[:cap(w.found)]); n > 0 {
		t.Errorf("an idle worker holds %d results", n)
	}
}
