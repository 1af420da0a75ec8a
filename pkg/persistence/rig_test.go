package persistence

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

func newStore(t *testing.T, dir string, block uint64, change func(*Options)) (*Store, *aggregate.Index, Loaded) {
	t.Helper()
	opts := Options{Directory: dir, Boot: "boot", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Form: func(aggregate.Kind) string { return "form" }}
	if change != nil {
		change(&opts)
	}
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(block), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Load(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	return s, x, out
}

// testWriter is a writer whose batches a test decides on.
type testWriter struct {
	*writer
	close func()
}

func newWriter(t *testing.T, s *Store, x *aggregate.Index) *testWriter {
	t.Helper()
	w := &writer{store: s, index: x, logs: map[string]*memberLog{}, long: map[string]bool{}, left: map[string]uint64{}, last: x.Snapshot()}
	w.ends = endsFile{store: s, all: map[string]end{}}
	w.syncer.start()
	if err := w.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	once := sync.OnceFunc(w.close)
	t.Cleanup(once)
	return &testWriter{w, once}
}

// write writes what is pending.
func (w *testWriter) write(t *testing.T) error {
	t.Helper()
	p, _ := w.index.Pending(w.last)
	return w.batch(t.Context(), p, false)
}

// fill writes objects of member prod/a, each in a batch of its own, and returns how far its log then goes.
func (w *testWriter) fill(t *testing.T, s *aggregate.Scope, names ...string) (ends []int64) {
	t.Helper()
	for _, n := range names {
		s.Upsert(object(s, n, `{"a":1}`))
		reachedAt(s, n)
		commit(t, s)
		if err := w.write(t); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, w.logs["prod/a"].seen)
	}
	return ends
}

// segment has a member's logs replaced by a segment.
func (w *testWriter) segment(t *testing.T, member string) {
	t.Helper()
	if err := w.beginSegment(w.logs[member]); err != nil {
		t.Fatal(err)
	}
	if err := w.compacted(<-w.segments.done); err != nil {
		t.Fatal(err)
	}
}

func object(s *aggregate.Scope, name, body string) aggregate.Item {
	return s.Item(&aggregate.Record{Namespace: "n", Name: name, UID: "uid of " + name, ResourceVersion: "1", Body: []byte(body)})
}

func newScope(t *testing.T, x *aggregate.Index, member string) *aggregate.Scope {
	t.Helper()
	if err := x.PutMember(aggregate.Member{Name: member, UID: "uid of " + member}); err != nil {
		t.Fatal(err)
	}
	s, err := x.OpenScopeAs(member, "Pod", "v1", "pods")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func commit(t *testing.T, s *aggregate.Scope) {
	t.Helper()
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// isTold checks that a reader that goes on from a revision at which it had an object is told that the
// object is gone, or to list again.
func isTold(t *testing.T, x *aggregate.Index, at aggregate.Revision, member, what string) {
	t.Helper()
	if _, ok := x.Snapshot().Member(member); ok {
		return
	}
	changes, err := x.Changes(at)
	if errors.Is(err, aggregate.ErrExpired) {
		return
	}
	for c := range changes {
		if c.After.IsZero() {
			return
		}
	}
	t.Errorf("%s: the index has nothing of member %s, and a reader that goes on from %d is not told (%v)", what, member, at, err)
}

// trained is a dictionary that an index has trained.
func trained(t *testing.T) (raw []byte) {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(8)})
	if err != nil {
		t.Fatal(err)
	}
	scope := newScope(t, x, "prod/x")
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		scope.Upsert(object(scope, fmt.Sprint("o", i), fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"node-%d","image":"registry.example.com/team/app:%d"}}`, rng.IntN(1e6), rng.IntN(1e6))))
	}
	commit(t, scope)
	for more := true; more; {
		if _, more, err = x.Train(nil); err != nil {
			t.Fatal(err)
		}
	}
	var e aggregate.Encoder
	for o := range x.Snapshot().Objects("prod/x", "Pod") {
		e.Append(nil, o)
	}
	e.Dictionaries(func(d *aggregate.Dictionary) bool { raw = d.Bytes(); return false })
	return raw
}
