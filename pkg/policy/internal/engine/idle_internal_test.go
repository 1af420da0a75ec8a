package engine

import (
	"testing"

	"federator.dev/federator/pkg/policy/internal/value"
)

// TestWorker_HoldsNoResultWhenIdle: what the last evaluation found may be large, and nobody asks for it again.
func TestWorker_HoldsNoResultWhenIdle(t *testing.T) {
	w := worker{found: []value.Value{value.ArrayOf(make([]value.Value, 100_000))}, body: make([]byte, 8<<20), otherBody: make([]byte, 8<<20)}
	w.rest()
	if n := cap(w.body) + cap(w.otherBody); n > 2*keptBody {
		t.Errorf("an idle worker has room for bodies of %d bytes", n)
	}
	if n := len(w.found[:cap(w.found)]); n > 0 {
		t.Errorf("an idle worker holds %d results", n)
	}
}
