package aggregate_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// shape makes a body as objects of one kind have them; shapes share little.
func shape(shape, n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(shape), 3))
	var b strings.Builder
	b.WriteString(`{"apiVersion":"v1","kind":"Pod"`)
	for i := range 30 {
		fmt.Fprintf(&b, `,"f%02d-%x":"%x-%d"`, i, rng.Uint64(), rng.Uint64(), (n*7919+i)%(10+i))
	}
	fmt.Fprintf(&b, `,"z":"%d"}`, n)
	return []byte(b.String())
}

func record(i, rv int, body []byte) *aggregate.Record {
	return &aggregate.Record{
		Namespace: "n", Name: fmt.Sprintf("p%05d", i), UID: fmt.Sprintf("00000000-0000-4000-8000-%012x", i),
		ResourceVersion: fmt.Sprint(rv), Body: body,
	}
}

// trainAll calls Train until nothing is to be done, and returns what it did.
func trainAll(t *testing.T, x *aggregate.Index) []aggregate.Training {
	t.Helper()
	var out []aggregate.Training
	for range 20 {
		tr, more, err := x.Train(nil)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return out
		}
		out = append(out, tr)
	}
	t.Fatalf("training does not end: %+v", out)
	return nil
}

// wantAccounts checks the accounts of a scope and returns its bytes.
func wantAccounts(t *testing.T, x *aggregate.Index, s *aggregate.Scope, bodies func(i int) []byte) int64 {
	t.Helper()
	var sum int64
	i := 0
	list, err := x.Snapshot().List(aggregate.Query{Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	for o := range list {
		sum += o.Size()
		if b, err := o.AppendBody(nil); err != nil || !bytes.Equal(b, bodies(i)) {
			t.Fatalf("body of %s is %q (%v)", o.Ref(), b, err)
		}
		i++
	}
	info, _ := x.Snapshot().Scope("m", "Pod")
	const namespace = 300 // at most, which all share
	if info.Bytes < sum || info.Bytes > sum+namespace {
		t.Errorf("ScopeInfo.Bytes is %d, objects have %d", info.Bytes, sum)
	}
	if s != nil {
		if n, size := s.Size(); n != i || size != info.Bytes {
			t.Errorf("Size is %d objects and %d bytes, want %d and %d", n, size, i, info.Bytes)
		}
	}
	return info.Bytes
}

func fill(t *testing.T, s *aggregate.Scope, n int, body func(i int) []byte) {
	t.Helper()
	for i := range n {
		s.Upsert(s.Item(record(i, i+1, body(i))))
	}
	mustCommit(t, s)
}

func TestTrain(t *testing.T) {
	t.Run("makes bodies smaller and keeps accounts exact", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		body := func(i int) []byte { return shape(1, i) }
		fill(t, s, 500, body)
		held, rev := x.Snapshot(), x.Snapshot().Revision()
		before := wantAccounts(t, x, s, body)
		done := trainAll(t, x)
		after := wantAccounts(t, x, s, body)
		const rounding = 500 * 64 // to what the heap gives
		if len(done) != 1 || done[0].Objects != 500 || done[0].After*3 > done[0].Before ||
			(done[0].Before-done[0].After-(before-after)+rounding)/(2*rounding) != 0 {
			t.Errorf("training %+v, accounts %d before and %d after", done, before, after)
		}
		if x.Snapshot() != held || x.Snapshot().Revision() != rev {
			t.Error("training is a commit")
		}
		s.Upsert(s.Item(record(7, 1000, shape(1, 7))))
		mustCommit(t, s)
		wantAccounts(t, x, s, body)
	})

	t.Run("keeps accounts of a scope without a writer", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		body := func(i int) []byte { return shape(1, i) }
		fill(t, s, 200, body)
		s.Close()
		if len(trainAll(t, x)) == 0 {
			t.Fatal("no training")
		}
		wantAccounts(t, x, nil, body)
		s = openScope(t, x, "m", "Pod")
		wantAccounts(t, x, s, body)
	})

	for _, c := range []struct {
		name string
		n    int
		body func(i int) []byte
	}{
		{"few objects", 63, func(i int) []byte { return shape(1, i) }},
		{"no objects", 0, nil},
		{"empty objects", 100, func(int) []byte { return nil }},
		{"identical objects", 300, func(int) []byte { return shape(1, 1) }},
		{"identical tiny objects", 300, func(int) []byte { return []byte("{}") }},
		{"random objects", 300, func(i int) []byte {
			rng := rand.New(rand.NewPCG(uint64(i), 4))
			b := make([]byte, 1000)
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
			return b
		}},
		{"large objects", 70, func(i int) []byte { return bytes.Repeat(shape(i, i), 100) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newIndex(t, aggregate.Options{})
			s := openScope(t, x, "m", "Pod")
			fill(t, s, c.n, c.body)
			before := wantAccounts(t, x, s, c.body)
			done := trainAll(t, x)
			if after := wantAccounts(t, x, s, c.body); after > before {
				t.Errorf("%d bytes became %d", before, after)
			}
			if c.n < 64 && len(done) != 0 {
				t.Errorf("trained %+v", done)
			}
		})
	}

	t.Run("one busy object is no reason", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		for i := range 2000 {
			s.Upsert(s.Item(record(0, i+1, shape(1, i))))
			mustCommit(t, s)
		}
		if done := trainAll(t, x); len(done) != 0 {
			t.Errorf("trained %+v", done)
		}
	})

	t.Run("early samples serve a first sync under way", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		body := func(i int) []byte { return shape(1, i) }
		var items []aggregate.Item
		var early, late int64
		for i := range 2000 {
			item := s.Item(record(i, i+1, body(i)))
			items = append(items, item)
			switch {
			case i < 1000:
				early += item.Size()
			default:
				late += item.Size()
			}
			if i == 999 && len(trainAll(t, x)) == 0 {
				t.Fatal("no training")
			}
		}
		if late*2 > early {
			t.Errorf("1000 objects take %d bytes before training, %d after", early, late)
		}
		if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
		wantAccounts(t, x, s, body)
		trainAll(t, x) // stragglers
		if size := wantAccounts(t, x, s, body); size > 2*late+late/5 {
			t.Errorf("%d bytes at last, want about %d", size, 2*late)
		}
	})

	t.Run("again when objects have changed their shape", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		fill(t, s, 300, func(i int) []byte { return shape(1, i) })
		trainAll(t, x)
		body := func(i int) []byte { return shape(2, i) }
		for round := range 2 {
			for i := range 300 {
				s.Upsert(s.Item(record(i, 1000*(round+1)+i, body(i))))
			}
			mustCommit(t, s)
		}
		before := wantAccounts(t, x, s, body)
		done := trainAll(t, x)
		after := wantAccounts(t, x, s, body)
		if len(done) == 0 || after*3 > before*2 {
			t.Errorf("training %+v made %d bytes of %d", done, after, before)
		}
	})

	t.Run("goes on where it was stopped", func(t *testing.T) {
		x := newIndex(t, aggregate.Options{})
		s := openScope(t, x, "m", "Pod")
		body := func(i int) []byte { return shape(1, i) }
		fill(t, s, 300, body)
		stop := make(chan struct{})
		close(stop)
		if tr, more, err := x.Train(stop); err != nil || !more || tr.Objects != 0 {
			t.Fatalf("stopped at once it did %+v, %t, %v", tr, more, err)
		}
		if done := trainAll(t, x); len(done) == 0 || done[0].Objects != 300 {
			t.Errorf("then it did %+v", done)
		}
		wantAccounts(t, x, s, body)
	})
}

// TestTrain_DuringWritesAndReads shows that no reader sees a body that it cannot decode,
// and no account goes wrong, while kinds are trained, written, relisted, closed
// and opened at the same time.
func TestTrain_DuringWritesAndReads(t *testing.T) {
	x := newIndex(t, aggregate.Options{LogBytes: 1 << 16})
	stop := make(chan struct{})
	var writers, others sync.WaitGroup
	for m := range 2 {
		member := fmt.Sprint("m", m)
		s := openScope(t, x, member, "Pod")
		writers.Go(func() { churn(t, x, s, member) })
	}
	others.Go(func() {
		for {
			if _, _, err := x.Train(stop); err != nil {
				t.Error(err)
			}
			x.Recompress(stop)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	others.Go(func() {
		var held []*aggregate.Snapshot
		var buf []byte
		for {
			held = append(held, x.Snapshot())
			snap := held[len(held)*3/4] // some of them old
			list, err := snap.List(aggregate.Query{Kind: "Pod"})
			if err != nil {
				t.Error(err)
			}
			for o := range list {
				if buf, err = o.AppendBody(buf[:0]); err != nil || !bytes.HasPrefix(buf, []byte(`{"apiVersion"`)) {
					t.Errorf("%s at revision %d: %q, %v", o.Ref(), snap.Revision(), buf, err)
					return
				}
			}
			select {
			case <-stop:
				return
			default:
			}
			if len(held) > 20 {
				held = slices.Delete(held, 0, 10)
			}
		}
	})
	writers.Wait()
	close(stop)
	others.Wait()
	trainAll(t, x)
	if again := trainAll(t, x); len(again) > 0 {
		t.Errorf("training does not come to rest: %v", again)
	}
}

func churn(t *testing.T, x *aggregate.Index, s *aggregate.Scope, member string) {
	rng := rand.New(rand.NewPCG(5, uint64(len(member))))
	rv := 0
	for n := range 36 {
		switch n % 6 {
		case 0:
			var items []aggregate.Item
			for i := range 120 {
				rv++
				items = append(items, s.Item(record(i, rv, shape(n/12, rv))))
			}
			if _, err := s.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
				t.Error(err)
			}
		case 5:
			s.Close()
			var err error
			if s, err = x.OpenScope(member, "Pod", "v1"); err != nil {
				t.Error(err)
				return
			}
		default:
			for range 40 {
				rv++
				rec := record(rng.IntN(120), rv, shape(n/12, rv))
				rec.Update = rng.IntN(2) == 0
				s.Upsert(s.Item(rec))
			}
			if _, err := s.Commit(); err != nil {
				t.Error(err)
			}
		}
	}
	// The account is compared while nobody but Train works on the scope; what it
	// does between the reads below must show in both.
	for range 1000 {
		_, before := s.Size()
		info, _ := x.Snapshot().Scope(member, "Pod")
		if _, after := s.Size(); before == after {
			if info.Bytes != before {
				t.Errorf("ScopeInfo.Bytes is %d, Size %d", info.Bytes, before)
			}
			return
		}
	}
	t.Error("training never pauses")
}
