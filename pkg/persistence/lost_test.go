package persistence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"federator.dev/federator/internal/frames"
	"federator.dev/federator/pkg/aggregate"
)

// TestWriter_ReadersAreToldOfMembersThatLeft: also where the process ends, or the disk goes, while a
// member's files are removed.
func TestWriter_ReadersAreToldOfMembersThatLeft(t *testing.T) {
	for _, after := range []string{"killed before the tip", "killed while the directory is removed"} {
		dir := t.TempDir() + "/d"
		s, x, _ := newStore(t, dir, 1, nil)
		w := newWriter(t, s, x)
		scope := newScope(t, x, "prod/a")
		other := newScope(t, x, "prod/b")
		scope.Upsert(object(scope, "o", `{"a":1}`))
		commit(t, scope)
		other.Upsert(object(other, "o", `{"a":1}`))
		commit(t, other)
		if err := w.write(t); err != nil {
			t.Fatal(err)
		}
		seen := x.Snapshot().Revision()
		if after == "killed before the tip" {
			x.RemoveMember("prod/a")
			w.ends.file.Close() // the disk goes, or the process, when the member's files are removed
			if err := w.write(t); err == nil {
				t.Fatal("the batch was written")
			}
		} else {
			os.Remove(filepath.Join(memberDir(dir, "prod/a"), fileName(1, logType))) // os.RemoveAll removes one after the other
		}
		w.close()
		s.Close()
		_, y, _ := newStore(t, dir, 2, nil)
		isTold(t, y, seen, "prod/a", after)
	}
}

// TestLoad_KnowsWhatIsMissing: files that end too early, also where that is the end of a frame, and files
// that are gone: readers do not go on from what the index does not have any more.
func TestLoad_KnowsWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		what string
		harm func(dir string, ends []int64) error
	}{
		{"the last frame's end is cut, of which readers have seen all", func(dir string, ends []int64) error {
			return os.Truncate(filepath.Join(dir, fileName(1, logType)), ends[len(ends)-2]+10)
		}},
		{"the last frame is cut away", func(dir string, ends []int64) error {
			return os.Truncate(filepath.Join(dir, fileName(1, logType)), ends[len(ends)-2])
		}},
		{"a log in the middle is gone", func(dir string, ends []int64) error {
			return os.Remove(filepath.Join(dir, fileName(2, logType)))
		}},
	} {
		dir := t.TempDir() + "/d"
		s, x, _ := newStore(t, dir, 1, nil)
		w := newWriter(t, s, x)
		scope := newScope(t, x, "prod/a")
		var ends []int64
		write := func(i int) {
			scope.Upsert(object(scope, fmt.Sprint("o", i), `{"a":1}`))
			commit(t, scope)
			if err := w.write(t); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, w.logs["prod/a"].log.Written())
		}
		for i := range 3 {
			write(i)
		}
		if c.what == "a log in the middle is gone" {
			for i := range 2 {
				if err := w.nextLog(w.logs["prod/a"], false); err != nil {
					t.Fatal(err)
				}
				write(10 + i)
			}
		}
		seen := x.Snapshot().Revision()
		had, _ := x.Snapshot().Size()
		w.close()
		s.Close()
		if err := c.harm(memberDir(dir, "prod/a"), ends); err != nil {
			t.Fatal(err)
		}
		_, y, out := newStore(t, dir, 2, nil)
		has, _ := y.Snapshot().Size()
		changes, err := y.Changes(seen)
		if err == nil {
			for ch := range changes {
				if ch.After.IsZero() {
					has++
				}
			}
		}
		if err == nil && has < had {
			t.Errorf("%s: of %d objects that a reader holds at %d the index has %d, and it goes on from there without a word (dropped: %v, why: %q)", c.what, had, seen, has, out.Dropped, out.Why)
		}
	}
}

// TestWriter_FailedSyncStopsIt: what a log has whose fsync failed may be lost without a loss of power.
func TestWriter_FailedSyncStopsIt(t *testing.T) {
	s, x, _ := newStore(t, t.TempDir()+"/d", 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	r, pipe, err := os.Pipe() // takes writes, and fails to sync
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	log := w.logs["prod/a"].log
	defer log.Close()
	w.logs["prod/a"].log = frames.Continue(pipe, nil, log.Written())
	scope.Upsert(object(scope, "o", `{"a":1}`))
	commit(t, scope)
	ended := make(chan error, 1)
	go func() { ended <- w.follow(t.Context()) }()
	select {
	case err := <-ended:
		if !errors.Is(err, syscall.EINVAL) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it goes on as if all were sound")
	}
}

// TestLoad_SealedFilesAreOfTheirMember: whoever writes to the disk without the key cannot pass one member's
// files off as another's.
func TestLoad_SealedFilesAreOfTheirMember(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	dir := t.TempDir() + "/d"
	sealed := func(o *Options) { o.Key = key }
	s, x, _ := newStore(t, dir, 1, sealed)
	w := newWriter(t, s, x)
	for _, m := range []string{"prod/a", "test/b"} {
		scope := newScope(t, x, m)
		scope.Upsert(object(scope, "o", `{"of":"`+m+`"}`))
		commit(t, scope)
	}
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.close()
	s.Close()
	// Without the key:
	from, to := filepath.Join(memberDir(dir, "test/b"), fileName(1, logType)), filepath.Join(memberDir(dir, "prod/a"), fileName(1, logType))
	file, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	r := frames.NewReader(bytes.NewReader(file))
	f, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	var h header
	if err := json.Unmarshal(f.Payload, &h); err != nil {
		t.Fatal(err)
	}
	h.Member = "prod/a"
	text, _ := json.Marshal(h) // the names are of one length, as the offsets are nonces; spaces would do otherwise
	forged := append(frames.Append(nil, nil, 0, frames.TypeHeader, 0, text), file[r.Offset():]...)
	if err := os.WriteFile(to, forged, 0o600); err != nil {
		t.Fatal(err)
	}
	_, y, out := newStore(t, dir, 2, sealed)
	for o := range y.Snapshot().Objects("prod/a", "Pod") {
		body, _ := o.AppendBody(nil)
		t.Errorf("prod/a has %s; dropped: %v, readers go on from %d", body, out.Dropped, out.Revision)
	}
}

// TestLoad_NothingKeepsWhatIsDropped: a field that is not held any more is on disk no more, nor in
// dictionaries, which consist of whole objects.
func TestLoad_NothingKeepsWhatIsDropped(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		scope.Upsert(object(scope, fmt.Sprint("o", i), fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","spec":{"password":"hunter2-%d","nodeName":"node-%d","image":"registry.example.com/team/app:%d"}}`, rng.IntN(1e9), rng.IntN(1e6), rng.IntN(1e6))))
	}
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	for {
		_, more, err := x.Train(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	scope.Upsert(object(scope, "last", `{"apiVersion":"v1","kind":"Pod","spec":{"password":"hunter2-1","nodeName":"node-2"}}`))
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.close()
	s.Close()

	// The rule of Pods now drops spec.password.
	s, x, _ = newStore(t, dir, 2, func(o *Options) { o.Form = func(aggregate.Kind) string { return "without spec.password" } })
	w = newWriter(t, s, x)
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if b, _ := os.ReadFile(path); bytes.Contains(b, []byte("hunter2-")) {
				t.Errorf("%s still has %d passwords in clear", strings.TrimPrefix(path, dir), bytes.Count(b, []byte("hunter2-")))
			}
		}
		return nil
	})
	w.close()
	w.segments.member, w.logs, w.ends.file = "", nil, nil
}

// TestWriter_HoldsNoLongBatch: a first list is written piece by piece.
func TestWriter_HoldsNoLongBatch(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	rng := rand.New(rand.NewPCG(1, 1))
	const members, objects = 4, 250
	text := make([]byte, 64<<10)
	for m := range members {
		scope := newScope(t, x, fmt.Sprint("prod/", m))
		var items []aggregate.Item
		for i := range objects {
			for n := range text {
				text[n] = "0123456789abcdef"[rng.IntN(16)]
			}
			items = append(items, object(scope, fmt.Sprint("o", i), `{"a":"`+string(text)+`"}`))
		}
		if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
	}
	p, _ := x.Pending(w.last)
	if err := w.collect(p); err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, m := range w.logs {
		held += m.log.Buffered() + len(m.payload)
	}
	_, bytes := p.Snapshot().Size()
	if held > 4*partBytes {
		t.Errorf("%d MiB are encoded and not written yet, of an index of %d MiB", held>>20, bytes>>20)
	}
}

// TestWriter_ScopeRemovedAndOpenedInOneBatch: it is read as it was written.
func TestWriter_ScopeRemovedAndOpenedInOneBatch(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o", `{"a":1}`))
	commit(t, scope)
	scope.Remove()
	again, err := x.OpenScopeAs("prod/a", "Pod", "v1", "pods")
	if err != nil {
		t.Fatal(err)
	}
	again.Upsert(object(again, "o", `{"a":2}`))
	commit(t, again)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.close()
	s.Close()
	_, y, out := newStore(t, dir, 2, nil)
	if n, _ := y.Snapshot().Size(); n != 1 || len(out.Dropped) > 0 {
		t.Errorf("%d objects of 1, dropped: %v, readers go on from %d", n, out.Dropped, out.Revision)
	}
}

// TestLoad_NobodyMissesAnEmptyLog: a process that is killed between the making of a log and its header
// leaves one, of which nobody has seen anything.
func TestLoad_NobodyMissesAnEmptyLog(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o", `{"a":1}`))
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.close()
	s.Close()
	if err := os.WriteFile(filepath.Join(memberDir(dir, "prod/a"), fileName(2, logType)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, out := newStore(t, dir, 2, nil)
	if out.Revision == 0 {
		t.Errorf("readers list again: %s; dropped: %v", out.Why, out.Dropped)
	}
}

// TestLoad_DoesNotFailOnceTheIndexIsFilled: what cannot be removed then is in the way, and no more.
func TestLoad_DoesNotFailOnceTheIndexIsFilled(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o", `{"a":1}`))
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	raw := trained(t)
	y, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(9)})
	if err != nil {
		t.Fatal(err)
	}
	d, err := y.Load().Dictionary(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.saveDictionary(d); err != nil { // that nothing uses any more
		t.Fatal(err)
	}
	w.close()
	s.Close()
	z, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(2), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{Directory: dir, Boot: "boot", Log: slog.New(slog.DiscardHandler), Form: func(aggregate.Kind) string {
		os.RemoveAll(filepath.Join(dir, dictionariesDir)) // or it is read-only from here on
		return "form"
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	_, err = again.Load(t.Context(), z)
	if n, _ := z.Snapshot().Size(); err != nil && n > 0 {
		t.Errorf("Load failed (%v), and the index has %d objects of members that nobody knows of", err, n)
	}
}

// TestWriter_RecordsWhatIsNotKnownAnyMore: how far a scope was read, where that is taken back.
func TestWriter_RecordsWhatIsNotKnownAnyMore(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o", `{"a":1}`))
	scope.Reached(aggregate.Part{ResourceVersion: "17", Served: "cluster v1.36.0"})
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	// informer.emptyOverBudget, with the writer between its two steps:
	if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.OverBudget}); err != nil {
		t.Fatal(err)
	}
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	scope.Reached(aggregate.Part{})
	commit(t, scope)
	if err := w.progress(t.Context()); err != nil { // every 10 s, and at the end
		t.Fatal(err)
	}
	w.close()
	s.Close()
	_, y, _ := newStore(t, dir, 2, nil)
	if n, _ := y.Snapshot().Size(); n == 0 && len(y.Snapshot().Reached("prod/a", "Pod")) > 0 {
		t.Errorf("the scope has %d objects, and is said to have been read up to %+v; it was %+v", n, y.Snapshot().Reached("prod/a", "Pod"), x.Newest().Reached("prod/a", "Pod"))
	}
}

// TestLoad_EndsThoughTheDiskHangs: with its context. A pipe that nobody writes to stands for the disk.
func TestLoad_EndsThoughTheDiskHangs(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, err := Open(Options{Directory: dir, Boot: "boot", Log: slog.New(slog.DiscardHandler), Form: func(aggregate.Kind) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, manifestName)
	if err := syscall.Mkfifo(fifo, 0o600); err != nil { // opening it hangs
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() { _, _ = s.Load(ctx, x); close(done) }()
	select {
	case <-done:
	case <-time.After(4 * time.Second):
		t.Error("Load has not returned 3 s after its context ended")
	}
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	<-done
}
