package grantmemory

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRead: whatever a file has, it is understood or refused, and what is understood is written again as
// it was.
func FuzzRead(f *testing.F) {
	head := header{complete: 7, alive: sealed}.append(nil)
	f.Add([]byte{})
	f.Add(head)
	f.Add(appendRecord(bytes.Clone(head), Digest{1}, record{grants: Digest{2}, from: 9}))
	f.Add(append(appendRecord(bytes.Clone(head), Digest{1}, record{grants: Digest{2}, from: 9}), "torn"...))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), fileName)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		h, records, err := read(path)
		if err != nil {
			if len(records) > 0 {
				t.Fatalf("%d records of a file that is refused: %v", len(records), err)
			}
			return
		}
		file, _, err := create(path, h, records)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		again, same, err := read(path)
		if err != nil || again != h || len(same) != len(records) {
			t.Fatalf("%+v with %d records, written again: %+v with %d: %v", h, len(records), again, len(same), err)
		}
		for key, r := range records {
			if same[key] != r {
				t.Fatalf("%x: %+v, written again: %+v", key, r, same[key])
			}
		}
	})
}
