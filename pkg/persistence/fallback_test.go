package persistence

import (
	"os"
	"path/filepath"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

func reachedAt(s *aggregate.Scope, rv string) {
	s.Reached(aggregate.Part{ResourceVersion: rv, Served: "so"})
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func rvOf(x *aggregate.Index, member string) string {
	for _, p := range x.Snapshot().Reached(member, "Pod") {
		return p.ResourceVersion
	}
	return ""
}

// A member's first log says that there was nothing before it ("Begins") although the segment of its
// number has all that there was: without the segment the log is taken for all.
func TestLoad_LogIsNothingWithoutTheSegmentThatItNeeds(t *testing.T) {
	for _, how := range []string{"flipped", "gone"} {
		dir := t.TempDir() + "/d"
		s, x, _ := newStore(t, dir, 1, nil)
		s.loaded = nil // begins anew, as after any failure of the disk
		scope := newScope(t, x, "prod/a")
		for _, n := range []string{"o1", "o2", "o3"} {
			scope.Upsert(object(scope, n, `{"a":1}`))
		}
		reachedAt(scope, "10")
		scope.SetStatus(aggregate.Status{State: aggregate.Synced})
		commit(t, scope)
		pending, _ := x.Pending(x.Snapshot())
		pending.Release()
		w := newWriter(t, s, x) // segment 1 has o1..o3
		scope.Upsert(object(scope, "o4", `{"a":1}`))
		reachedAt(scope, "11")
		commit(t, scope)
		if err := w.write(t); err != nil { // log 1 has o4, reached 11
			t.Fatal(err)
		}
		seen := x.Snapshot().Revision()
		w.close()
		s.Close()
		segment := filepath.Join(memberDir(dir, "prod/a"), fileName(1, segmentType))
		if how == "flipped" {
			flip(t, segment, -3)
		} else if err := os.Remove(segment); err != nil {
			t.Fatal(err)
		}
		_, y, out := newStore(t, dir, 2, nil)
		n, _ := y.Snapshot().Size()
		if rv := rvOf(y, "prod/a"); n != 4 && rv != "" {
			_, err := y.Changes(seen)
			t.Errorf("%s: %d objects of 4 are held, and the member is resumed at %q, where it has 4 (readers go on: %v, dropped %v, why %q)", how, n, rv, err == nil, out.Dropped, out.Why)
		}
	}
}

// A batch that was written as a segment is in no log: whoever falls back to the files before the segment
// and goes on with the log after it misses the batch.
func TestLoad_NoFallbackSkipsARewrittenBatch(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o1", `{"a":1}`))
	reachedAt(scope, "10")
	scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	scope.Upsert(object(scope, "o2", `{"a":1}`))
	reachedAt(scope, "11")
	commit(t, scope)
	p, _ := x.Pending(w.last)
	if err := w.collect(p); err != nil {
		t.Fatal(err)
	}
	w.logs["prod/a"].abandon() // too long, or lost
	if err := w.flush(t.Context(), p.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := w.ends.write(p.Snapshot().Revision()); err != nil {
		t.Fatal(err)
	}
	clear(w.left) // removing fails, which is a warning only, or the process is killed here
	w.last = p.Snapshot()
	p.Release()
	scope.Upsert(object(scope, "o3", `{"a":1}`))
	reachedAt(scope, "12")
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.close()
	s.Close()
	flip(t, filepath.Join(memberDir(dir, "prod/a"), fileName(2, segmentType)), -3)
	_, y, out := newStore(t, dir, 2, nil)
	n, _ := y.Snapshot().Size()
	if rv := rvOf(y, "prod/a"); n != 3 && rv == "12" {
		t.Errorf("%d objects of 3 are held, and the member is resumed at %q, where it has 3 (dropped %v, why %q)", n, rv, out.Dropped, out.Why)
	}
}

// What begin does to a doubtful member hides the doubt from the process after it, where begin was killed
// before ends is rewritten.
func TestBegin_KilledHidesNoDoubt(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	ends := w.fill(t, scope, "o1", "o2", "o3", "o4", "o5")
	if err := w.beginSegment(w.logs["prod/a"]); err != nil { // compaction begins
		t.Fatal(err)
	}
	w.segments.stop() // and the process is killed
	os.Remove(filepath.Join(memberDir(dir, "prod/a"), fileName(2, segmentType)))
	seen := x.Snapshot().Revision()
	w.close()
	s.Close()
	flip(t, filepath.Join(memberDir(dir, "prod/a"), fileName(1, logType)), ends[3]-2) // in the frame of o4

	s, y, out := newStore(t, dir, 2, nil)
	if out.Revision != 0 {
		t.Fatal("no doubt", out)
	}
	w2 := &writer{store: s, index: y, logs: map[string]*memberLog{}, long: map[string]bool{}, left: map[string]uint64{}, last: y.Snapshot()}
	w2.ends = endsFile{store: s, all: map[string]end{}}
	w2.syncer.start()
	for name, m := range s.loaded { // begin, killed before writeManifest or ends.write
		if err := w2.resume(t.Context(), name, m); err != nil {
			t.Fatal(err)
		}
	}
	w2.close()
	s.Close()

	_, z, out := newStore(t, dir, 3, nil)
	n, _ := z.Snapshot().Size()
	if changes, err := z.Changes(seen); err == nil {
		gone := 0
		for c := range changes {
			if c.After.IsZero() {
				gone++
			}
		}
		if n+gone < 5 {
			t.Errorf("a reader has 5 objects at %d, the index has %d, and it goes on from there (told of %d; %+v)", seen, n, gone, out)
		}
	}
}

// A log whose header is doubtful stays, and the log that continues it is never read.
func TestBegin_DoubtfulHeaderIsNotForEver(t *testing.T) {
	dir := t.TempDir() + "/d"
	s, x, _ := newStore(t, dir, 1, nil)
	w := newWriter(t, s, x)
	scope := newScope(t, x, "prod/a")
	scope.Upsert(object(scope, "o1", `{"a":1}`))
	reachedAt(scope, "1")
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.segment(t, "prod/a")
	w.close()
	s.Close()
	flip(t, filepath.Join(memberDir(dir, "prod/a"), fileName(2, logType)), 30) // the header of log 2

	// Process 2 is told of it, and goes on.
	s, x, out := newStore(t, dir, 2, nil)
	t.Log("2:", out.Dropped, out.Why)
	w = newWriter(t, s, x)
	scope, err := x.OpenScopeAs("prod/a", "Pod", "v1", "pods")
	if err != nil {
		t.Fatal(err)
	}
	scope.Upsert(object(scope, "o2", `{"a":1}`))
	reachedAt(scope, "2")
	commit(t, scope)
	if err := w.write(t); err != nil {
		t.Fatal(err)
	}
	w.close()
	s.Close()
	// Nothing happens to the disk, process 3 loads.
	_, y, out := newStore(t, dir, 3, nil)
	if n, _ := y.Snapshot().Size(); n != 2 || out.Revision == 0 {
		t.Errorf("%d objects of 2, although nothing has happened to what process 2 has written: dropped %v, why %q", n, out.Dropped, out.Why)
	}
}
