package grantmemory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

var (
	alice, bob   = digest("alice"), digest("bob")
	less, more   = digest("less"), digest("more")
	first, later = aggregate.Revision(100), aggregate.Revision(200)
)

func digest(s string) Digest { return sha256.Sum256([]byte(s)) }

// machine is what processes share that come one after another.
type machine struct {
	t   *testing.T
	dir string
	now atomic.Int64
}

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, dir: t.TempDir()}
	m.now.Store(int64(time.Hour))
	return m
}

func (m *machine) memory() *Memory {
	g := New(m.dir, slog.New(slog.DiscardHandler))
	g.now = func() time.Duration { return time.Duration(m.now.Load()) }
	return g
}

func (m *machine) start(first aggregate.Revision) *Memory {
	m.t.Helper()
	g := m.memory()
	if err := g.Open(first); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { g.Close(false) })
	return g
}

// after starts a process while an earlier one, which has ended, is not told.
func (m *machine) after(d time.Duration) *Memory {
	m.t.Helper()
	m.now.Add(int64(d))
	return m.start(later)
}

func want(t *testing.T, g *Memory, key, grants Digest, from aggregate.Revision, known bool) {
	t.Helper()
	if got, since, ok := g.Recall(key); got != grants || since != from || ok != known {
		t.Errorf("recalled %x from %d, %t; want %x from %d, %t", got[:4], since, ok, grants[:4], from, known)
	}
}

func TestMemory_RecallsWhatTheProcessBeforeHasSent(t *testing.T) {
	m := newMachine(t)
	g := m.start(first)
	want(t, g, alice, Digest{}, first, false)
	g.Remember(alice, less, first)
	g.Remember(alice, less, 110) // the same
	want(t, g, alice, less, first, true)
	g.Remember(alice, more, 120)
	g.Close(true)
	g = m.after(100 * time.Hour)
	want(t, g, alice, more, 120, true)
	want(t, g, bob, Digest{}, first, false)
	info, err := os.Stat(filepath.Join(m.dir, fileName))
	if err != nil || info.Mode() != 0o600 {
		t.Error(info, err)
	}
}

// TestMemory_TrustsAProcessThatWasKilledOnlyForSoLong, and none that has failed.
func TestMemory_TrustsAProcessThatWasKilledOnlyForSoLong(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(m *machine, g *Memory)
		gap  time.Duration
		kept bool
	}{
		"killed":            {func(*machine, *Memory) {}, Lease - 1, true},
		"killed long ago":   {func(*machine, *Memory) {}, Lease, false},
		"another boot":      {func(*machine, *Memory) {}, -1, false},
		"not in order":      {func(_ *machine, g *Memory) { g.Close(false) }, 0, false},
		"no longer written": {func(_ *machine, g *Memory) { g.fail(os.ErrInvalid) }, 0, false},
		"in the middle of a record": {func(m *machine, _ *Memory) {
			m.edit(func(text []byte) []byte { return append(text, text[headerBytes:len(text)-1]...) })
		}, 0, true},
		"a record is damaged": {func(m *machine, _ *Memory) {
			m.edit(func(text []byte) []byte { text[len(text)-9] ^= 1; return text })
		}, 0, false},
		"the header is damaged": {func(m *machine, _ *Memory) {
			m.edit(func(text []byte) []byte { text[9] ^= 1; return text })
		}, 0, false},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t)
			g := m.start(first)
			g.Remember(alice, less, first)
			c.end(m, g)
			next := m.after(c.gap)
			if c.kept {
				want(t, next, alice, less, first, true)
			} else {
				want(t, next, alice, Digest{}, later, false)
			}
		})
	}
}

func (m *machine) edit(change func([]byte) []byte) {
	m.t.Helper()
	path := filepath.Join(m.dir, fileName)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(text), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// TestMemory_HoldsBackWhatIsNotWritten until what is on disk is not trusted any more: here, nobody
// writes.
func TestMemory_HoldsBackWhatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, began := t.TempDir(), time.Now()
		now := func() time.Duration { return time.Hour + time.Since(began) }
		g := New(dir, slog.New(slog.DiscardHandler))
		g.now = now
		if err := g.Open(first); err != nil {
			t.Fatal(err)
		}
		g.Remember(alice, less, first)
		text, err := os.ReadFile(g.path)
		if err != nil {
			t.Fatal(err)
		}
		g.Close(true)
		if err := os.WriteFile(g.path, text, 0o600); err != nil { // as of a process that hangs
			t.Fatal(err)
		}
		hung := New(dir, slog.New(slog.DiscardHandler))
		hung.now, hung.open, hung.changed = now, true, make(chan struct{}, 1)
		hung.records, hung.expires = map[Digest]record{alice: {less, first, true}}, now()+held
		hung.lease = time.AfterFunc(held, hung.expire)
		hung.Remember(alice, less, first) // nothing is to be written
		if now() != time.Hour {
			t.Error("what has not changed is held back")
		}
		hung.Remember(alice, more, 120)
		next := New(dir, slog.New(slog.DiscardHandler))
		next.now = now
		if err := next.Open(later); err != nil {
			t.Fatal(err)
		}
		want(t, next, alice, Digest{}, later, false)
		hung.Remember(bob, more, 130)
		if now() > time.Hour+held {
			t.Error("what is sent is held back although nothing on disk is trusted")
		}
		time.Sleep(10 * held) // of the next one, which is alive
		next.Remember(alice, less, 210)
		want(t, next, alice, less, 210, true)
		next.Close(true)
	})
}

// TestMemory_IsBounded: with more keys than that, those that are not used any more are dropped, and
// nothing is known of the others.
func TestMemory_IsBounded(t *testing.T) {
	m := newMachine(t)
	g := m.start(first)
	for n := range 8 {
		g.Remember(digest(fmt.Sprint(n)), less, first)
	}
	g.Close(true)
	g = m.memory()
	g.limit = 8
	if err := g.Open(later); err != nil {
		t.Fatal(err)
	}
	g.Remember(digest("0"), less, first)
	for n := range 20 {
		g.Remember(digest(fmt.Sprint("new", n)), less, later)
	}
	if len(g.records) > g.limit {
		t.Errorf("%d records, at most %d", len(g.records), g.limit)
	}
	g.Remember(digest("new1"), more, 210)
	g.Close(true)
	g = m.start(300)
	want(t, g, digest("0"), less, first, true)
	want(t, g, digest("1"), Digest{}, 300, false)
	want(t, g, digest("new1"), more, 210, true)
	want(t, g, digest("new19"), Digest{}, 300, false)
}

// TestMemory_FileIsWrittenAnewOnceItIsLong, while many remember.
func TestMemory_FileIsWrittenAnewOnceItIsLong(t *testing.T) {
	m := newMachine(t)
	g := m.start(first)
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for n := range 1000 {
				g.Remember(digest(fmt.Sprint(k)), digest(fmt.Sprint(n)), first+aggregate.Revision(n))
			}
		})
	}
	all.Wait()
	info, err := os.Stat(g.path)
	if err != nil || info.Size() > headerBytes+1100*recordBytes {
		t.Error(info.Size(), err)
	}
	next := m.after(time.Second) // as if it was killed
	for k := range 4 {
		want(t, next, digest(fmt.Sprint(k)), digest("999"), first+999, true)
	}
}

// TestMemory_RefusesWhatItCannotReplace: somebody may trust that later.
func TestMemory_RefusesWhatItCannotReplace(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(filepath.Join(m.dir, fileName, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := m.memory()
	if err := g.Open(first); err == nil {
		t.Error("no error")
	}
	g.Remember(alice, less, first)
	want(t, g, alice, Digest{}, 0, false)
	g.Close(true)
}

// TestMemory_WaitsForNoDisk: one that does not answer while the process starts; and what it answers later is
// not trusted by the next process. The file is a pipe, which answers once something writes to it.
func TestMemory_WaitsForNoDisk(t *testing.T) {
	m := newMachine(t)
	pipe := filepath.Join(m.dir, fileName)
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	g := m.memory()
	g.patience = 10 * time.Millisecond
	if err := g.Open(first); !errors.Is(err, errNoAnswer) {
		t.Errorf("the error is %v", err)
	}
	g.Remember(alice, less, first)
	g.Close(true)
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		entries, err := os.ReadDir(m.dir)
		if err == nil && len(entries) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v is left: %v", entries, err)
		}
	}
	want(t, m.after(time.Second), alice, Digest{}, later, false)
}

// TestMemory_WhoComesSecondWaits: nothing is sent before what another request has changed is on disk.
func TestMemory_WhoComesSecondWaits(t *testing.T) {
	g := newMachine(t).memory()
	g.records, g.complete, g.open = map[Digest]record{}, first, true // and nothing writes
	g.changed = make(chan struct{}, 1)
	waits := func(what string, key Digest) {
		t.Helper()
		if g.remember(key, less, first) == nil {
			t.Errorf("%s does not wait", what)
		}
	}
	waits("the first", alice)
	waits("the second of the same caller", alice)
	g.limit = 1
	waits("the first for which there is no room", bob)
	waits("the second for which there is none", digest("carol"))
}
