package verdictmemory

import (
	"bytes"
	"reflect"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// FuzzSeen: whatever a file has, what is read of it is what its sound beginning says.
func FuzzSeen(f *testing.F) {
	one := secrets{}.appendRecord([]byte(plainMagic), 7, policy.Seen{Subject: 8, Violation: 9, At: 1_700_000_000})
	f.Add([]byte{})
	f.Add([]byte(plainMagic))
	f.Add(one)
	f.Add(append(secrets{}.appendRecord(bytes.Clone(one), 7, policy.Seen{Subject: 8, Violation: 9}), "torn"...))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := secrets{}.readSeen(bytes.NewReader(text))
		if err != nil && !bytes.HasPrefix(text, []byte(plainMagic)) && got != nil {
			t.Fatalf("%v of a file that is none", got)
		}
		again := []byte(plainMagic)
		for binding, of := range got {
			for _, list := range of {
				for _, x := range list {
					if x.At <= 0 {
						t.Fatalf("time %d", x.At)
					}
					again = secrets{}.appendRecord(again, binding, x)
				}
			}
		}
		same, err := secrets{}.readSeen(bytes.NewReader(again))
		if err != nil {
			t.Fatal(err)
		}
		if len(got)+len(same) > 0 && !reflect.DeepEqual(got, same) {
			t.Fatalf("%v, written again %v", got, same)
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
