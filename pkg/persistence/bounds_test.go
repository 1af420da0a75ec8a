package persistence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"federator.dev/federator/internal/frames"
)

func onDisk(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// TestCompact_KeepsWithinMaxBytes: a segment and what it replaces are there together for a while.
func TestCompact_KeepsWithinMaxBytes(t *testing.T) {
	dir := t.TempDir() + "/d"
	const maxBytes = 4 << 20
	s, x, _ := newStore(t, dir, 1, func(o *Options) { o.MaxBytes = maxBytes })
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	rng := rand.New(rand.NewPCG(1, 1))
	text := make([]byte, 64<<10)
	for i := range 85 { // about 3.5 MB on disk, as it compresses by half
		for n := range text {
			text[n] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[rng.IntN(64)]
		}
		scope.Upsert(object(scope, fmt.Sprint("o", i), `{"a":"`+string(text[:48<<10])+`"}`))
	}
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	if got := onDisk(dir); got > maxBytes {
		t.Fatalf("%d already", got)
	}
	if err := w.compact(); err != nil {
		t.Fatal(err)
	}
	if w.segments.member != "" {
		<-w.segments.done
		w.segments.member = ""
	}
	if got := onDisk(dir); got > maxBytes {
		t.Errorf("%d bytes are on disk, at most %d may be", got, maxBytes)
	}
}

// TestLoad_SealedHeadersAreProven: whoever writes to the disk without the key can take the last batches of a member away: how far the log before
// goes says the header of a log, and nothing proves it while that has nothing else.
func TestLoad_SealedHeadersAreProven(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	dir := t.TempDir() + "/d"
	sealed := func(o *Options) { o.Key = key }
	s, x, _ := newStore(t, dir, 1, sealed)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	ends := w.fill(t, scope, "o1", "o2", "o3", "o4", "o5")
	if err := w.beginSegment(w.logs["prod/a"]); err != nil {
		t.Fatal(err)
	}
	w.segments.stop()
	os.Remove(filepath.Join(memberDir(dir, "prod/a"), fileName(2, segmentType)))
	seen := x.Snapshot().Revision()
	w.close()
	s.Close()
	path := filepath.Join(memberDir(dir, "prod/a"), fileName(2, logType))
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := frames.NewReader(bytes.NewReader(file)).Next()
	if err != nil {
		t.Fatal(err)
	}
	var h header
	if err := json.Unmarshal(f.Payload, &h); err != nil {
		t.Fatal(err)
	}
	h.Follows = ends[2] // without the key
	text, _ := json.Marshal(h)
	for len(text) < len(f.Payload) {
		text = append(text, ' ')
	}
	if err := os.WriteFile(path, frames.Append(nil, nil, 0, frames.TypeHeader, 0, text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, y, out := newStore(t, dir, 2, sealed)
	n, _ := y.Snapshot().Size()
	if _, err := y.Changes(seen); err == nil && n < 5 {
		t.Errorf("%d objects of 5, and readers go on: %+v", n, out)
	}
}
