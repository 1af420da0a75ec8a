package segments

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// damageable is a directory with sealed segments, one that is full and an active one, and what was
// appended.
func damageable(t *testing.T, key []byte) (opts Options, all []Entry) {
	m := newModel(t, 1, Options{SegmentBytes: minSegmentBytes, Key: key, Boot: "boot"})
	for m.log.Status().Segments < 3 {
		m.append(20)
		m.now = m.now.Add(time.Second)
	}
	m.sealAll()
	for m.log.Status().Segments < 4 {
		m.append(20)
	}
	m.append(20)
	if st := m.log.Status(); st.Unsealed != 1 {
		t.Fatalf("%+v", st)
	}
	m.opts.Log = slog.New(slog.DiscardHandler)
	return m.opts, m.all
}

// holds checks that what was appended is read, or within a gap that is told of.
func holds(t *testing.T, what string, l *Log, all []Entry) {
	t.Helper()
	for _, q := range []Query{{}, {Kind: "Pod", Backward: true}, {Member: "prod/eu-1", Name: "web-1"}, {UID: all[3].UID}} {
		got, gaps := read(t, l, q)
		at := map[uint64]Entry{}
		for _, e := range got {
			if at[e.Position].Position != 0 {
				t.Fatalf("%s: %+v: position %d twice", what, q, e.Position)
			}
			at[e.Position] = e
		}
		for _, e := range all {
			if !q.matches(&e) {
				continue
			}
			g, ok := at[e.Position]
			delete(at, e.Position)
			if ok && !equal(g, e) {
				t.Fatalf("%s: %+v: position %d is %+v, want %+v", what, q, e.Position, g, e)
			}
			inGap := false
			for _, gap := range gaps {
				inGap = inGap || gap.From <= e.Position && e.Position <= gap.To
			}
			if !ok && !inGap {
				t.Fatalf("%s: %+v: position %d is missing, gaps %+v", what, q, e.Position, gaps)
			}
		}
		if len(at) > 0 {
			t.Fatalf("%s: %+v: entries that were not appended: %+v", what, q, at)
		}
	}
}

// harmed opens a copy of a directory in which one file has other content, checks what is read, and
// that what is appended then has positions of its own.
func harmed(t *testing.T, what string, opts Options, name string, content []byte, all []Entry) {
	t.Helper()
	from := opts.Directory
	opts.Directory = t.TempDir() + "/copy"
	if err := os.Mkdir(opts.Directory, 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		switch path := filepath.Join(opts.Directory, n.Name()); {
		case n.Name() == name:
			err = os.WriteFile(path, content, 0o600)
		case filepath.Ext(path) != "":
			err = os.Link(filepath.Join(from, n.Name()), path) // nothing is written to it but at the end of the active one
			if last, _ := filepath.Glob(filepath.Join(from, "*"+unsealedSuffix)); err == nil && filepath.Base(last[len(last)-1]) == n.Name() {
				var data []byte
				if err = os.Remove(path); err == nil {
					data, err = os.ReadFile(filepath.Join(from, n.Name()))
				}
				if err == nil {
					err = os.WriteFile(path, data, 0o600)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := Open(opts)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer l.Close()
	more := []Entry{{Kind: "Pod", Name: "more"}}
	if _, err := l.Append(more); err != nil || more[0].Position <= all[len(all)-1].Position {
		t.Fatalf("%s: appended at %d, %v", what, more[0].Position, err)
	}
	holds(t, what, l, append(all[:len(all):len(all)], more...))
}

// TestLog_AnyByteFlipped: whichever byte of a file is not as it was written, what is read is right, or
// it is told that it is missing.
func TestLog_AnyByteFlipped(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{7}, 32)} {
		opts, all := damageable(t, key)
		names, err := os.ReadDir(opts.Directory)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(2, 2))
		for _, n := range names {
			content, err := os.ReadFile(filepath.Join(opts.Directory, n.Name()))
			if err != nil || len(content) == 0 {
				continue // the lock
			}
			// Random bytes, and the ends, where there are few for each thing.
			for i := range 24 {
				at := rng.IntN(len(content))
				switch {
				case i < 6:
					at = i * 40 % len(content)
				case i < 12:
					at = len(content) - 1 - (i-6)*60%len(content)
				}
				bad := bytes.Clone(content)
				bad[at] ^= 1 << rng.IntN(8)
				harmed(t, fmt.Sprintf("%s: byte %d of %d flipped", n.Name(), at, len(content)), opts, n.Name(), bad, all)
			}
		}
	}
}

// TestLog_AnyFileCut: the power is lost, and files are shorter than they were.
func TestLog_AnyFileCut(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{7}, 32)} {
		opts, all := damageable(t, key)
		opts.Boot = "another"
		names, err := os.ReadDir(opts.Directory)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(2, 2))
		for _, n := range names {
			content, err := os.ReadFile(filepath.Join(opts.Directory, n.Name()))
			if err != nil || len(content) == 0 {
				continue
			}
			for i := range 12 {
				at := rng.IntN(len(content))
				if i == 0 {
					at = 0
				}
				bad := content[:at]
				if i%2 == 1 { // as some file systems do it
					bad = append(bytes.Clone(bad), make([]byte, len(content)-at)...)
				}
				harmed(t, fmt.Sprintf("%s: cut at %d of %d", n.Name(), at, len(content)), opts, n.Name(), bad, all)
			}
		}
	}
}

// TestOpen_KnowsWhatPowerMayHaveTaken: after a clean end nothing is missing, nor within one boot.
func TestOpen_KnowsWhatPowerMayHaveTaken(t *testing.T) {
	m := newModel(t, 1, Options{Boot: "first"})
	m.append(10)
	if err := m.log.Close(); err != nil {
		t.Fatal(err)
	}
	m.opts.Boot = "second"
	m.open()
	m.append(10)
	m.log.die()
	m.open()
	m.append(10)
	if g := m.log.Gaps(); len(g) > 0 || m.log.Status().Last.Position != 30 || m.log.Status().Segments != 1 {
		t.Fatalf("%+v, gaps %+v", m.log.Status(), g)
	}
	m.log.die()
	m.opts.Boot = "third"
	m.open()
	g := m.log.Gaps()
	if len(g) != 1 || g[0].From != 31 || g[0].To < 31 || g[0].Since.IsZero() || g[0].Until.IsZero() {
		t.Fatalf("%+v", g)
	}
	if m.append(1); m.all[30].Position != g[0].To+1 {
		t.Errorf("appended at %d after the gap %+v", m.all[30].Position, g)
	}
	holds(t, "after a loss", m.log, m.all)
	// The closed mark of before is no proof of what came after it.
	m.log.die()
	m.opts.Boot = "fourth"
	m.open()
	if g := m.log.Gaps(); len(g) != 2 {
		t.Errorf("%+v", g)
	}
}

// TestOpen_EndsASealing: wherever a process ended while it sealed, one of the two forms is in effect.
func TestOpen_EndsASealing(t *testing.T) {
	opts, all := damageable(t, nil)
	logs, err := filepath.Glob(filepath.Join(opts.Directory, "*"+unsealedSuffix))
	if err != nil || len(logs) != 2 {
		t.Fatal(logs, err)
	}
	raw, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(logs[0])
	// What the sealing makes of it, in a copy.
	done := opts
	done.Directory = t.TempDir() + "/done"
	if err := os.CopyFS(done.Directory, os.DirFS(opts.Directory)); err != nil {
		t.Fatal(err)
	}
	l, err := Open(done)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newSealer(l)
	if err != nil {
		t.Fatal(err)
	}
	l.sealAll(t.Context(), w)
	l.Close()
	made, err := filepath.Glob(filepath.Join(done.Directory, name[:16]+"-*"+sealedSuffix))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	sealed, err := os.ReadFile(made[0])
	if err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(opts.Directory, filepath.Base(made[0]))
	for what, files := range map[string]map[string][]byte{
		"being written":      {into + temporarySuffix: sealed[:len(sealed)/2]},
		"renamed":            {into: sealed},
		"renamed and broken": {into: sealed[:len(sealed)-3]},
	} {
		for path, content := range files {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		harmed(t, what, opts, name, raw, all)
		for path := range files {
			os.Remove(path)
		}
	}
}

// TestOpen_AnotherKey: history is not lost by a key that is configured wrongly.
func TestOpen_AnotherKey(t *testing.T) {
	opts, all := damageable(t, bytes.Repeat([]byte{7}, 32))
	at := opts.Directory
	opts.Directory = t.TempDir() + "/copy"
	if err := os.CopyFS(opts.Directory, os.DirFS(at)); err != nil {
		t.Fatal(err)
	}
	right := opts.Key
	opts.Key = bytes.Repeat([]byte{8}, 32)
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	if got, gaps := read(t, l, Query{}); len(got) > 0 || len(gaps) == 0 {
		t.Fatalf("%d entries are read with another key, gaps %+v", len(got), gaps)
	}
	holds(t, "another key", l, all)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	opts.Key = right
	if l, err = Open(opts); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	holds(t, "the right key", l, all)
	if got, _ := read(t, l, Query{}); len(got) != len(all) {
		t.Fatalf("%d entries of %d", len(got), len(all))
	}
}
