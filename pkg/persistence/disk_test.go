package persistence_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/persistence"
)

// open opens a store and makes an index for it.
func open(t *testing.T, dir string, block uint64, change func(*persistence.Options), logBytes int64) (*persistence.Store, *aggregate.Index) {
	t.Helper()
	opts := persistence.Options{
		Directory: dir, Boot: "boot", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Form: func(aggregate.Kind) string { return "form" },
	}
	if change != nil {
		change(&opts)
	}
	store, err := persistence.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(block), Hold: true, LogBytes: logBytes})
	if err != nil {
		t.Fatal(err)
	}
	return store, x
}

// run has a store write an index until the test ends.
func run(t *testing.T, store *persistence.Store, x *aggregate.Index) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx, x) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		store.Close()
	})
	return &process{t: t, index: x, store: store, scope: map[string]*aggregate.Scope{}}
}

// sound checks that persistence has not stopped.
func (p *process) sound(what string) {
	p.t.Helper()
	p.settle()
	if e := p.store.Status().Error; e != "" {
		p.t.Errorf("%s, and nothing is kept any more: %s", what, e)
	}
}

// TestStore_OwnsNoLostRevision: a revision that the process before last issued and did not write, or that
// another replica issued, is Expired however often it was started since.
func TestStore_OwnsNoLostRevision(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir() + "/d"
	p := start(t, dir, 1, nil)
	p.member("prod/eu-1")
	s := p.open("prod/eu-1", "Pod")
	s.Upsert(p.item(s, "a", 1, rng))
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	written := p.settle().Revision()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	// Readers saw more of block 1, as while the disk was slow, that is on no disk. Object b was added at
	// it, and is gone by the time federator runs again.
	lost := written + 5
	foreign := aggregate.Block(2).First + 7 // block 2 belongs to another replica
	q := start(t, dir, 3, nil)
	if q.index.Owns(lost) || q.index.Owns(foreign) {
		t.Fatal("accepted after the first restart already")
	}
	if err := q.stop(); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir, 5, nil)
	for what, rev := range map[string]aggregate.Revision{"lost": lost, "another replica's": foreign} {
		if changes, err := r.index.Changes(rev); !errors.Is(err, aggregate.ErrExpired) {
			n := 0
			for range changes {
				n++
			}
			t.Errorf("after the second restart a reader goes on from the %s revision %d with %d changes, err %v: want ErrExpired", what, rev, n, err)
		}
	}
}

// TestRun_ReadersDoNotWaitForTheDisk: not for what is being written, nor for what comes after it; and that
// nothing is kept is said as long as it is so. Form stands for the disk: it is called where a batch is
// written.
func TestRun_ReadersDoNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		hang := make(chan struct{})
		var hung atomic.Bool
		var told []string
		p := start(t, t.TempDir()+"/d", 1, func(o *persistence.Options) {
			o.OnChange = func(why string) { told = append(told, why) }
			o.Form = func(aggregate.Kind) string {
				if hung.Load() {
					<-hang
				}
				return "form"
			}
		})
		p.member("prod/eu-1")
		s := p.open("prod/eu-1", "Pod")
		p.sound("at first")
		hung.Store(true)
		for n := range 20 {
			s.Upsert(p.item(s, "a", n, rng))
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			from := time.Now()
			p.settle()
			if waited := time.Since(from); waited > 1500*time.Millisecond {
				t.Errorf("readers have waited %s", waited)
			}
		}
		if st := p.store.Status(); st.Error == "" || st.Slow != 1 {
			t.Errorf("while the disk hangs: %+v", st)
		}
		hung.Store(false)
		close(hang)
		time.Sleep(time.Second)
		p.sound("the disk answers again")
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if len(told) != 2 || told[0] == "" || told[1] != "" {
			t.Errorf("told %q, want why nothing is kept, and that it is again", told)
		}
	})
}

// TestRun_ReadersDoNotWaitForTheStart: where the disk hangs as persistence begins after a load. A pipe that
// nobody reads stands for the disk.
func TestRun_ReadersDoNotWaitForTheStart(t *testing.T) {
	dir := t.TempDir() + "/d"
	store, x := open(t, dir, 1, nil, 0)
	if _, err := store.Load(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "manifest.json.tmp")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx, x) }()
	p := &process{t: t, index: x, store: store, scope: map[string]*aggregate.Scope{}}
	p.member("prod/eu-1")
	p.settle()
	cancel()
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	t.Log(<-ended) // a pipe cannot be synced
}

// TestLoad_LeavesWhatItWasStoppedReading: a process that is ended while it loads loses nothing.
func TestLoad_LeavesWhatItWasStoppedReading(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	dir := t.TempDir() + "/d"
	p := start(t, dir, 1, nil)
	p.member("prod/eu-1")
	s := p.open("prod/eu-1", "Pod")
	s.Upsert(p.item(s, "a", 1, rng))
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	p.settle()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}

	store, x := open(t, dir, 2, nil, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Load(ctx, x); err == nil {
		t.Fatal("it was loaded")
	}
	if err := store.Run(ctx, x); err != nil { // as serve does: it is started, and stopped at once
		t.Error(err)
	}
	store.Close()

	q := start(t, dir, 3, nil)
	if q.out.Objects != 1 {
		t.Errorf("%d objects are left of 1: %s", q.out.Objects, q.out.Why)
	}
}

// TestRun_MembersLargerThanTheChangeLog: the departure of a member, or a relist, that exceeds the change log
// costs the others nothing, and is loaded as it was.
func TestRun_MembersLargerThanTheChangeLog(t *testing.T) {
	dir := t.TempDir() + "/d"
	store, x := open(t, dir, 1, nil, 64<<10)
	if _, err := store.Load(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	p := run(t, store, x)
	rng := rand.New(rand.NewPCG(1, 1))
	fill := func(member string, rv int) {
		t.Helper()
		s := p.open(member, "Pod")
		var items []aggregate.Item
		for i := range 2000 {
			items = append(items, p.item(s, fmt.Sprint("web-", i), rv+i, rng))
		}
		if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
		p.sound("a large list of " + member)
	}
	for _, m := range []string{"prod/large", "prod/other"} {
		p.member(m)
		fill(m, 1)
	}
	fill("prod/other", 5000)
	x.RemoveMember("prod/large")
	p.sound("one member left")
	want := describe(t, x.Snapshot())
	other, y := open(t, copied(t, dir), 2, nil, 0)
	defer other.Close()
	if out, err := other.Load(t.Context(), y); err != nil || len(out.Dropped) > 0 || out.Revision == 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	same(t, "loaded", describe(t, y.Snapshot()), want)
}

// copied is a copy of a directory, as a kill leaves it.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir() + "/copy"
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestRun_BeginsAnewUnderLoad: what is committed while all is rewritten, and exceeds the change log, does
// not have it begin anew again. Form stands for the time that the writing takes.
func TestRun_BeginsAnewUnderLoad(t *testing.T) {
	busy, done := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	store, x := open(t, t.TempDir()+"/d", 1, func(o *persistence.Options) {
		o.Form = func(aggregate.Kind) string {
			if calls.Add(1) == 1 {
				close(busy)
				<-done
			}
			return "form"
		}
	}, 64<<10)
	p := &process{t: t, index: x, store: store, scope: map[string]*aggregate.Scope{}}
	rng := rand.New(rand.NewPCG(1, 1))
	p.member("prod/eu-1")
	s := p.open("prod/eu-1", "Pod")
	if _, err := store.Load(t.Context(), x); err != nil { // the index is not empty: all is rewritten
		t.Log(err)
	}
	p = run(t, store, x)
	<-busy
	for i := range 2000 {
		s.Upsert(p.item(s, fmt.Sprint("web-", i%10), i+1, rng))
		if _, err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	p.sound("it began anew under load")
}

// TestStore_AnyMemberName: long ones, and those that are paths, are names of members like others.
func TestStore_AnyMemberName(t *testing.T) {
	dir := t.TempDir() + "/d"
	p := start(t, dir, 1, nil)
	names := []string{"prod/eu-1", strings.Repeat("n", 63) + "/" + strings.Repeat("c", 253), "..", "."}
	for _, name := range names {
		p.member(name)
		p.sound(name + " joins")
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	q := start(t, dir, 2, nil)
	if q.out.Members != len(names) || len(q.out.Dropped) > 0 {
		t.Errorf("%+v, want %d members", q.out, len(names))
	}
	for _, name := range names {
		q.index.RemoveMember(name)
		q.sound(name + " leaves")
	}
	if err := q.stop(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "members"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left of members", left, err)
	}
}

// TestRun_StopsWhileItCompacts: the end of a segment that is being written is no error, and what was
// committed last is kept.
func TestRun_StopsWhileItCompacts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 4 {
		dir := t.TempDir() + "/d"
		p := start(t, dir, 1, nil)
		p.member("prod/eu-1")
		s := p.open("prod/eu-1", "Pod")
		big := make([]byte, 64<<10)
		for i := range 250 { // 16 MB, that do not compress
			for n := range big {
				big[n] = "0123456789abcdef"[rng.IntN(16)]
			}
			s.Upsert(s.Item(&aggregate.Record{Namespace: "n", Name: fmt.Sprint("o", i), UID: fmt.Sprint("u", i), ResourceVersion: "1", Body: []byte(`{"a":"` + string(big) + `"}`)}))
			if i%50 == 0 {
				if _, err := s.Commit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for n := range 1 + round*20 {
			s.Upsert(p.item(s, fmt.Sprint("x", n%50), n+2, rng))
			if _, err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		want := describe(t, p.index.Newest())
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		q := start(t, dir, 2, nil)
		same(t, "loaded", describe(t, q.index.Snapshot()), want)
		if err := q.stop(); err != nil {
			t.Error(err)
		}
	}
}
