package aggregate_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestRecompress follows objects that change: they are encoded fast, and small as
// soon as they have stayed as they are between two looks.
func TestRecompress(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	const objects = 500
	body := func(i int) []byte { return shape(1, i) }
	fill(t, s, objects, body)
	trainAll(t, x)
	small := wantAccounts(t, x, s, body)

	rv := 1000
	update := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			rv++
			rec := record(i, rv, body(i))
			rec.Update = true
			s.Upsert(s.Item(rec))
		}
		mustCommit(t, s)
	}
	// settle says how many are to settle. That is no commit, and no training follows.
	settle := func(want int) int64 {
		t.Helper()
		before, revision := x.Snapshot(), x.Snapshot().Revision()
		if n := x.Recompress(nil); n != want {
			t.Errorf("%d objects were recompressed, want %d", n, want)
		}
		if x.Snapshot() != before || x.Snapshot().Revision() != revision {
			t.Error("settling is a commit")
		}
		if done := trainAll(t, x); len(done) > 0 {
			t.Errorf("trained %+v", done)
		}
		return wantAccounts(t, x, s, body)
	}

	update(0, 100)
	fast := wantAccounts(t, x, s, body)
	if fast < small+small/50 {
		t.Errorf("100 updates of %d objects made %d bytes of %d: they are not encoded fast", objects, fast, small)
	}
	if got := settle(0); got != fast {
		t.Errorf("%d bytes after the first time, want the %d that have come since", got, fast)
	}
	update(0, 50)
	half := settle(50)
	if half >= fast || half <= small {
		t.Errorf("%d bytes when half are recompressed, of %d, and %d at first", half, fast, small)
	}
	stop := make(chan struct{})
	close(stop)
	if n := x.Recompress(stop); n > 0 {
		t.Errorf("stopped at once, %d were recompressed", n)
	}
	if got := settle(50); got > small+small/100 || got >= half {
		t.Errorf("%d bytes when all are recompressed, %d when half had, and %d at first", got, half, small)
	}

	// An item that is on its way meanwhile is not forgotten.
	rec := record(7, 5000, body(7))
	rec.Update = true
	item := s.Item(rec)
	settle(0)
	s.Upsert(item)
	mustCommit(t, s)
	settle(0)
	settle(1)

	// A writer that comes later takes over what was left.
	update(0, 100)
	s.Close()
	s = nil
	settle(0)
	settle(100)
	settle(0)
	s = openScope(t, x, "m", "Pod")
	if got := wantAccounts(t, x, s, body); got > small+small/100 {
		t.Errorf("%d bytes recompressed without a writer, %d at first", got, small)
	}
}

// TestRecompress_KindsWithoutADictionary are encoded as all else is.
func TestRecompress_KindsWithoutADictionary(t *testing.T) {
	x := newIndex(t, aggregate.Options{})
	s := openScope(t, x, "m", "Pod")
	body := func(i int) []byte { return shape(1, i) }
	fill(t, s, 10, body)
	before := wantAccounts(t, x, s, body)
	for i := range 10 {
		rec := record(i, 100+i, body(i))
		rec.Update = true
		s.Upsert(s.Item(rec))
	}
	mustCommit(t, s)
	if after := wantAccounts(t, x, s, body); after != before {
		t.Errorf("%d bytes, %d before the updates", after, before)
	}
}
