package rows_test

import (
	"strings"
	"testing"

	"federator.dev/federator/internal/rows"
)

// TestParseQuantity_IsBounded: a text of a hostile member costs nothing, and has a number that JSON has, too.
func TestParseQuantity_IsBounded(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "250m": 0.25, "-1Gi": -1 << 30, "1e3": 1000, "2E": 2e18, "1.5E-3": 0.0015, "1e-999": 1e-9} {
		if got, ok := rows.ParseQuantity(text); !ok || got != want {
			t.Errorf("%s is %v, %t, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "x", "1x", "1e400", "-1e400", "1e-2147483647", "0.5e-99999999", "1E+00009", "1" + strings.Repeat("0", 128), "0." + strings.Repeat("0", 1<<20)} {
		if got, ok := rows.ParseQuantity(text); ok {
			t.Errorf("%.20q is %v", text, got)
		}
	}
}
