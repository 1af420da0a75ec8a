package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
)

func newIndex(t testing.TB, opts aggregate.Options) *aggregate.Index {
	t.Helper()
	opts.Revisions = aggregate.Block(1)
	x, err := aggregate.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func openScope(t testing.TB, x *aggregate.Index, member string, kind aggregate.Kind) *aggregate.Scope {
	t.Helper()
	if err := x.PutMember(aggregate.Member{Name: member, UID: "uid of " + member}); err != nil {
		t.Fatal(err)
	}
	s, err := x.OpenScope(member, kind, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pod is a version of an object that carries a value in its label and body.
func pod(s *aggregate.Scope, name, value string, rv int) aggregate.Item {
	return s.Item(&aggregate.Record{
		Namespace: "n", Name: name, UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", len(name)), ResourceVersion: fmt.Sprint(rv),
		Labels: []aggregate.Label{{Key: "value", Value: value}},
		Body:   fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","value":%q}`, value),
	})
}

func mustCommit(t testing.TB, s *aggregate.Scope) aggregate.Revision {
	t.Helper()
	rev, err := s.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// values reads all pods of a snapshot as member/name=value, by their labels and
// by their bodies, which must agree.
func values(t testing.TB, snap *aggregate.Snapshot) []string {
	t.Helper()
	list, err := snap.List(aggregate.Query{Kind: "Pod"})
	if err != nil {
		t.Error(err)
		return nil
	}
	var out []string
	for o := range list {
		v, _ := o.Label("value")
		body, err := o.AppendBody(nil)
		if err != nil || !strings.Contains(string(body), fmt.Sprintf("%q", v)) {
			t.Errorf("%s is labelled %q, but its body is %q (%v)", o.Ref(), v, body, err)
		}
		out = append(out, o.Member()+"/"+o.Name()+"="+v)
		q := aggregate.Query{Kind: "Pod", Labels: labels.SelectorFromSet(labels.Set{"value": v})}
		if n, err := snap.Count(q); err != nil || n == 0 {
			t.Errorf("%s is not found by its label %q (%v)", o.Ref(), v, err)
		}
	}
	return out
}

func wantValues(t testing.TB, snap *aggregate.Snapshot, want ...string) {
	t.Helper()
	if got := values(t, snap); !slices.Equal(got, want) {
		t.Errorf("revision %d holds %q, want %q", snap.Revision(), got, want)
	}
}

// TestIsolation shows that readers are isolated from writers. Each subtest is
// named after the anomaly that it forbids.
func TestIsolation(t *testing.T) {
	t.Run("dirty read", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		s.Upsert(pod(s, "a", "1", 1))
		mustCommit(t, s)
		rev := x.Snapshot().Revision()
		s.Upsert(pod(s, "a", "2", 2))
		s.Upsert(pod(s, "bb", "2", 3))
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		wantValues(t, x.Snapshot(), "m/a=1")
		s.Delete("n", "a")
		wantValues(t, x.Snapshot(), "m/a=1")
		if info, _ := x.Snapshot().Scope("m", "Pod"); info.Status.State != aggregate.Unknown || x.Snapshot().Revision() != rev {
			t.Errorf("status %v and revision %d are seen before the commit", info.Status, x.Snapshot().Revision())
		}
		mustCommit(t, s)
		wantValues(t, x.Snapshot(), "m/bb=2")
	})

	t.Run("aborted read", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		s.Upsert(pod(s, "a", "1", 1))
		x.RemoveMember("m")
		if _, err := s.Commit(); !errors.Is(err, aggregate.ErrClosed) {
			t.Errorf("commit after the member left: %v", err)
		}
		wantValues(t, x.Snapshot())
		openScope(t, x, "m", "Pod")
		if _, err := s.Replace([]aggregate.Item{pod(s, "a", "1", 1)}, aggregate.Status{}); !errors.Is(err, aggregate.ErrClosed) {
			t.Errorf("relist by the writer of a member that left: %v", err)
		}
		wantValues(t, x.Snapshot())
	})

	t.Run("non-repeatable read", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		s.Upsert(pod(s, "a", "1", 1))
		mustCommit(t, s)
		held := x.Snapshot()
		before, _ := held.Get(aggregate.Ref{Member: "m", Kind: "Pod", Namespace: "n", Name: "a"})
		s.Upsert(pod(s, "a", "2", 2))
		mustCommit(t, s)
		wantValues(t, held, "m/a=1")
		again, _ := held.Get(before.Ref())
		if again != before || again.Revision() != held.Revision() {
			t.Errorf("read again it is %+v, was %+v", again, before)
		}
	})

	t.Run("object renumbered by putting it back", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		s.Upsert(pod(s, "a", "1", 1))
		first := mustCommit(t, s)
		held := x.Snapshot()
		item, ok := s.Held(heldRecord(t, held))
		if !ok {
			t.Fatal("not held")
		}
		s.Upsert(pod(s, "a", "2", 2))
		mustCommit(t, s)
		s.Upsert(item)
		last := mustCommit(t, s)
		ref := aggregate.Ref{Member: "m", Kind: "Pod", Namespace: "n", Name: "a"}
		was, _ := held.Get(ref)
		is, _ := x.Snapshot().Get(ref)
		if was.Revision() != first || is.Revision() != last {
			t.Errorf("revisions %d and %d, want %d and %d", was.Revision(), is.Revision(), first, last)
		}
	})

	t.Run("phantom", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		s.Upsert(pod(s, "a", "1", 1))
		mustCommit(t, s)
		held := x.Snapshot()
		other := openScope(t, x, "m2", "Pod")
		for i, scope := range []*aggregate.Scope{s, other} {
			scope.Upsert(pod(scope, "bb", "1", 10+i))
			mustCommit(t, scope)
		}
		wantValues(t, held, "m/a=1")
		q := aggregate.Query{Kind: "Pod", Labels: labels.SelectorFromSet(labels.Set{"value": "1"})}
		if n, _ := held.Count(q); n != 1 {
			t.Errorf("%d objects by label, want 1", n)
		}
		if n := len(slices.Collect(held.Named("Pod", "n", "bb"))); n != 0 {
			t.Errorf("%d objects of a later name", n)
		}
		wantValues(t, x.Snapshot(), "m/a=1", "m/bb=1", "m2/bb=1")
	})

	t.Run("lost update", testLostUpdate)
	t.Run("partial commit", testPartialCommit)
	t.Run("read skew across a relist", testRelistSkew)
	t.Run("read skew across a join and a leave", testLeaveSkew)
	t.Run("writer blocked by reader", testWriterBlocked)
	t.Run("lost wake-up", testLostWakeUp)
}

// whileReading runs write while readers check every snapshot they can get.
func whileReading(x *aggregate.Index, write func(), read func(*aggregate.Snapshot)) {
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				read(x.Snapshot())
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	write()
	close(done)
	readers.Wait()
}

func testLostUpdate(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	const writers, commits = 4, 200
	var all sync.WaitGroup
	for i := range writers {
		s := openScope(t, x, fmt.Sprint("m", i), "Pod")
		all.Go(func() {
			for n := range commits {
				s.Upsert(pod(s, fmt.Sprint("p", n), "v", n+1))
				if _, err := s.Commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n, err := x.Snapshot().Count(aggregate.Query{Kind: "Pod"}); err != nil || n != writers*commits {
		t.Errorf("%d objects (%v), want %d", n, err, writers*commits)
	}
	changes, err := x.Changes(x.First())
	if err != nil {
		t.Fatal(err)
	}
	var last aggregate.Revision
	n := 0
	for c := range changes {
		if c.Revision <= last {
			t.Errorf("revision %d after %d", c.Revision, last)
		}
		last = c.Revision
		n++
	}
	if n != writers*commits {
		t.Errorf("%d changes, want %d", n, writers*commits)
	}
}

func testPartialCommit(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	names := []string{"a", "bb", "ccc", "dddd"}
	whileReading(x, func() {
		for n := range 300 {
			for i, name := range names {
				s.Upsert(pod(s, name, fmt.Sprint("v", n), 10*n+i+1))
			}
			mustCommit(t, s)
		}
	}, func(snap *aggregate.Snapshot) {
		got := values(t, snap)
		if len(got) != 0 && len(got) != len(names) {
			t.Errorf("%d of %d objects of a commit: %q", len(got), len(names), got)
		}
		for _, v := range got {
			if v[strings.Index(v, "="):] != got[0][strings.Index(got[0], "="):] {
				t.Errorf("a commit is seen in part: %q", got)
			}
		}
	})
}

func testRelistSkew(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	whileReading(x, func() {
		for n := range 200 { // even lists hold 10 objects, odd ones 5 others
			var items []aggregate.Item
			for i := range 10 - 5*(n%2) {
				items = append(items, pod(s, fmt.Sprintf("p%d-%d", n%2, i), fmt.Sprint("v", n), 100*n+i+1))
			}
			if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced, Reason: fmt.Sprint("v", n)}); err != nil {
				t.Error(err)
			}
		}
	}, func(snap *aggregate.Snapshot) {
		info, ok := snap.Scope("m", "Pod")
		if !ok || info.Status.Reason == "" {
			return
		}
		got := values(t, snap)
		if len(got) != 5 && len(got) != 10 || len(got) != info.Objects {
			t.Errorf("a relist is seen in part: %q", got)
		}
		for _, v := range got {
			if !strings.HasSuffix(v, "="+info.Status.Reason) {
				t.Errorf("list %s holds %s", info.Status.Reason, v)
			}
		}
	})
}

func testLeaveSkew(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	kinds := []aggregate.Kind{"Node", "Pod", "Service"}
	whileReading(x, func() {
		for range 100 {
			for _, kind := range kinds {
				s := openScope(t, x, "m", kind)
				if _, err := s.Replace([]aggregate.Item{pod(s, "a", "1", 1)}, aggregate.Status{State: aggregate.Synced}); err != nil {
					t.Error(err)
				}
			}
			x.RemoveMember("m")
		}
	}, func(snap *aggregate.Snapshot) {
		_, joined := snap.Member("m")
		present := 0
		for i, kind := range kinds {
			info, ok := snap.Scope("m", kind)
			n, _ := snap.Count(aggregate.Query{Kind: kind})
			if n != info.Objects || ok && !joined ||
				ok && info.Status.State == aggregate.Synced && n != 1 {
				t.Errorf("scope %+v has %d objects, member is there: %t", info, n, joined)
			}
			if ok {
				present = max(present, i+1)
			}
		}
		for _, kind := range kinds[:present] { // opened in this order, gone at once
			if _, ok := snap.Scope("m", kind); !ok {
				t.Errorf("a leave is seen in part: %s is gone, a later one is not", kind)
			}
		}
	})
}

func testWriterBlocked(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	for i := range 50 {
		s.Upsert(pod(s, fmt.Sprintf("p%02d", i), "old", i+1))
	}
	mustCommit(t, s)
	list, err := x.Snapshot().List(aggregate.Query{Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for o := range list { // each write happens in the middle of the read
		n++
		if v, _ := o.Label("value"); v != "old" {
			t.Errorf("%s is %q in a list that began before", o.Name(), v)
		}
		s.Upsert(pod(s, fmt.Sprintf("p%02d", 50-n), "new", 1000+n))
		s.Delete("n", fmt.Sprintf("p%02d", n))
		mustCommit(t, s)
	}
	if n != 50 {
		t.Errorf("%d objects, want 50", n)
	}
	if _, ok := x.Snapshot().Get(aggregate.Ref{Member: "m", Kind: "Pod", Namespace: "n", Name: "p00"}); !ok {
		t.Error("the last writes are not there")
	}
}

func testLostWakeUp(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	cursor := x.Cursor(x.Snapshot())
	const commits = 500
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range commits {
			s.Upsert(pod(s, "a", fmt.Sprint(n+1), n+1))
			mustCommit(t, s)
		}
	})
	for last := ""; last != fmt.Sprint(commits); { // hangs if a wake-up is lost
		b, err := cursor.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for d := range b.Deltas() {
			last, _ = d.After.Label("value")
		}
	}
	writer.Wait()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := cursor.Next(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("next of a context that ended: %v", err)
	}
}

// heldRecord is the record of object n/a of a snapshot.
func heldRecord(t *testing.T, s *aggregate.Snapshot) *aggregate.Record {
	t.Helper()
	o, ok := s.Get(aggregate.Ref{Member: "m", Kind: "Pod", Namespace: "n", Name: "a"})
	if !ok {
		t.Fatal("not held")
	}
	body, err := o.AppendBody(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &aggregate.Record{Namespace: "n", Name: "a", UID: o.UID(), ResourceVersion: o.ResourceVersion(), Body: body}
}
