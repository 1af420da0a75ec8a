package history

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/api/v1alpha1"
)

// TestLog_KeepsTheLastTransitions: fifty of them, within the limits of the CRD, and a log that
// was handed out does not change.
func TestLog_KeepsTheLastTransitions(t *testing.T) {
	var l Log
	var before []Log
	start := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for n := range 60 {
		before = append(before, l)
		l = l.With(v1alpha1.PolicyTransition{Type: v1alpha1.HaltBegan, ID: strconv.Itoa(n), Message: strings.Repeat("é", 400), By: strings.Repeat("b", 300)}, start.Add(time.Duration(n)*time.Second))
	}
	for n, old := range append(before, l) {
		if want := min(n, v1alpha1.MaxTransitions); len(old) != want {
			t.Fatalf("after %d transitions the log has %d", n, len(old))
		}
		for i, got := range old {
			if want := n - len(old) + i; got.ID != strconv.Itoa(want) || !got.At.Time.Equal(start.Add(time.Duration(want)*time.Second)) {
				t.Fatalf("after %d transitions, the %dth is %q of %s", n, i, got.ID, got.At)
			}
			if len(got.Message) > maxMessage || len(got.By) > maxBy {
				t.Fatalf("a message of %d bytes, by %d bytes", len(got.Message), len(got.By))
			}
		}
	}
}
