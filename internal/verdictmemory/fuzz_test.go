package verdictmemory

import (
	"bytes"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// FuzzSeen: whatever a file has, what is read of it is what its sound beginning says.
func FuzzSeen(f *testing.F) {
	one := secrets{}.appendRecord([]byte(magic), 7, policy.Seen{Key: 9, At: 1_700_000_000})
	f.Add([]byte{})
	f.Add([]byte(magic))
	f.Add(one)
	f.Add(append(secrets{}.appendRecord(bytes.Clone(one), 7, policy.Seen{Key: 9}), "torn"...))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := secrets{}.readSeen(bytes.NewReader(text))
		if err != nil && !bytes.HasPrefix(text, []byte(magic)) && got != nil {
			t.Fatalf("%v of a file that is none", got)
		}
		again := []byte(magic)
		for binding, of := range got {
			for key, at := range of {
				if at <= 0 {
					t.Fatalf("time %d", at)
				}
				again = secrets{}.appendRecord(again, binding, policy.Seen{Key: key, At: at})
			}
		}
		same, err := secrets{}.readSeen(bytes.NewReader(again))
		if err != nil {
			t.Fatal(err)
		}
		for binding, of := range got {
			for key, at := range of {
				if same[binding][key] != at {
					t.Fatalf("%d, written again %d", at, same[binding][key])
				}
			}
		}
	})
}

// FuzzQuarantines: a file of quarantines is understood or refused.
func FuzzQuarantines(f *testing.F) {
	f.Add([]byte(`[{"of":"binding x","digest":"y","member":"fleet/a","reason":"slow","until":"2026-01-01T00:00:00Z","last":60000000000}]`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := secrets{}.readQuarantines(bytes.NewReader(text))
		if err != nil && got != nil {
			t.Fatalf("%v of a file that is refused: %v", got, err)
		}
	})
}
