package handover_test

import (
	"context"
	"encoding/binary"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/handover"
)

func someSeen(n int) []handover.Seen {
	out := make([]handover.Seen, n)
	for i := range out {
		out[i] = handover.Seen{Binding: uint64(i % 7), Subject: rng.Uint64(), Violation: rng.Uint64(), At: 1 + rng.Int64N(1_700_000_000)}
	}
	return out
}

// TestSeen_IsAllThatIsKnown of a member, or of keys, and nothing of one that is another.
func TestSeen_IsAllThatIsKnown(t *testing.T) {
	known := map[string][]handover.Seen{member: someSeen(10_000), "": someSeen(1)}
	s := newServer(t, newIndex(t, 1), func(o *handover.GiverOptions) {
		o.Seen = func(of string) iter.Seq[handover.Seen] { return slices.Values(known[of]) }
	})
	taker := newTaker(t)
	for of, want := range known {
		if got, err := taker.Seen(t.Context(), s.holder(), of, ""); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %d, want %d: %v", of, len(got), len(want), err)
		}
	}
	for _, of := range [][2]string{{"fleet/other", ""}, {member, "uid-b"}} {
		if got, err := taker.Seen(t.Context(), s.holder(), of[0], of[1]); err == nil {
			t.Errorf("%v: %d", of, len(got))
		}
	}
	unknown := newServer(t, newIndex(t, 1), nil) // it has no policies
	if got, err := taker.Seen(t.Context(), unknown.holder(), member, ""); err != nil || len(got) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestSeen_RefusesWhatIsNotWhole, or makes no sense: nothing of it counts, and the process is asked again.
func TestSeen_RefusesWhatIsNotWhole(t *testing.T) {
	text := func(numbers ...uint64) []byte {
		out := []byte("fdhseen1")
		for _, n := range numbers {
			out = binary.LittleEndian.AppendUint64(out, n)
		}
		return out
	}
	now := uint64(time.Now().Unix())
	s := newServer(t, newIndex(t, 1), nil)
	taker := newTaker(t)
	for name, c := range map[string]struct {
		text []byte
		want int // -1: it is refused
	}{
		"as sent":      {text(1, 2, 3, now, 0, 0, 1, 0), 1},
		"nothing":      {nil, -1},
		"no end":       {text(1, 2, 3, now), -1},
		"another end":  {text(1, 2, 3, now, 0, 0, 2, 0), -1},
		"cut":          {text(1, 2, 3, now, 0, 0, 1)[:60], -1},
		"no time":      {text(1, 2, 3, 0, 0, 0, 1, 0), -1},
		"before 1970":  {text(1, 2, 3, 1<<63, 0, 0, 1, 0), -1},
		"a later year": {text(1, 2, 3, now+1<<30, 1, 3, 3, now, 0, 0, 2, 0), 2},
		"more follows": {text(0, 0, 0, 0, 0), -1},
		"another text": {[]byte("fdhseen2"), -1},
	} {
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.federator.seen")
			_, _ = w.Write(c.text)
		})
		s.answer.Store(&answer)
		got, err := taker.Seen(t.Context(), s.holder(), member, "")
		if (err != nil) != (c.want < 0) || len(got) != max(c.want, 0) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for _, x := range got {
			if x.At > time.Now().Unix() {
				t.Errorf("%s: it was first seen at a time that is to come: %v", name, x)
			}
		}
	}
}

// TestSeen_IsBounded: of what has more, the first are told.
func TestSeen_IsBounded(t *testing.T) {
	s := newServer(t, newIndex(t, 1), func(o *handover.GiverOptions) {
		o.Seen = func(string) iter.Seq[handover.Seen] {
			return func(yield func(handover.Seen) bool) {
				for n := uint64(0); yield(handover.Seen{Subject: n, At: 1}); n++ {
				}
			}
		}
	})
	if got, err := newTaker(t).Seen(t.Context(), s.holder(), "", ""); err != nil || len(got) != 1<<20 {
		t.Errorf("%d: %v", len(got), err)
	}
}

// TestSeen_DoesNotWaitForMembers that are handed over meanwhile: keys of views would be judged before it comes.
func TestSeen_DoesNotWaitForMembers(t *testing.T) {
	s := newServer(t, newIndex(t, 1), func(o *handover.GiverOptions) {
		o.Seen = func(string) iter.Seq[handover.Seen] { return slices.Values(someSeen(3)) }
	})
	taker, err := handover.NewTaker(handover.TakerOptions{Holders: func(string) []handover.Holder { return []handover.Holder{s.holder()} }, Stall: time.Minute})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	forever := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == handover.SeenPath {
			s.giver.ServeHTTP(w, r)
			return
		}
		asked <- struct{}{}
		<-ctx.Done()
	})
	s.answer.Store(&forever)
	var taking sync.WaitGroup
	defer taking.Wait()
	defer cancel()
	for range 2 {
		taking.Go(func() { taker.Take(ctx, wish(newIndex(t, 1))) })
		<-asked
	}
	soon, done := context.WithTimeout(ctx, 20*time.Second)
	defer done()
	if got, err := taker.Seen(soon, s.holder(), "", ""); err != nil || len(got) != 3 {
		t.Errorf("%d: %v", len(got), err)
	}
}

// TestSeen_IsRefusedWhereItIsNotKnown: nothing would be said to be there.
func TestSeen_IsRefusedWhereItIsNotKnown(t *testing.T) {
	s := newServer(t, newIndex(t, 1), func(o *handover.GiverOptions) {
		o.Seen = func(of string) iter.Seq[handover.Seen] {
			if of == "" {
				return slices.Values(someSeen(1))
			}
			return nil
		}
	})
	if got, err := newTaker(t).Seen(t.Context(), s.holder(), member, ""); err == nil {
		t.Errorf("%v", got)
	}
	if got, err := newTaker(t).Seen(t.Context(), s.holder(), "", ""); err != nil || len(got) != 1 {
		t.Errorf("%v: %v", got, err)
	}
}

// TestSeen_OfAProcessThatOnlyBegins pauses nothing: it says that, and members are taken from it, once it has begun.
func TestSeen_OfAProcessThatOnlyBegins(t *testing.T) {
	from := newIndex(t, 1)
	fill(t, open(t, from, "Pod"), 10, "9000")
	s := newServer(t, from, func(o *handover.GiverOptions) {
		o.Seen = func(string) iter.Seq[handover.Seen] { return slices.Values(someSeen(3)) }
	})
	taker := newTaker(t, s.holder())
	begins := s.holder()
	begins.URL = "https://127.0.0.1:1"
	if _, err := taker.Seen(t.Context(), begins, "", ""); err == nil {
		t.Fatal("a process answers that does not listen")
	}
	if got, err := taker.Seen(t.Context(), s.holder(), "", ""); err != nil || len(got) != 3 {
		t.Errorf("%d: %v", len(got), err)
	}
	if taken := taker.Take(t.Context(), wish(newIndex(t, 2))); len(taken) == 0 {
		t.Error("nothing is taken from it")
	}
}

// TestSeen_OfAProcessThatHangs is asked once, and not again for each member: the others would wait.
func TestSeen_OfAProcessThatHangs(t *testing.T) {
	from := newIndex(t, 1)
	fill(t, open(t, from, "Pod"), 10, "9000")
	s := newServer(t, from, nil)
	taker := newTaker(t, s.holder())
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s.answer.Store(&hangs)
	before := s.asked.Load()
	for range 3 {
		if _, err := taker.Seen(t.Context(), s.holder(), member, ""); err == nil {
			t.Fatal("it answers")
		}
	}
	if n := s.asked.Load() - before; n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	s.answer.Store(nil)
	if taken := taker.Take(t.Context(), wish(newIndex(t, 2))); len(taken) == 0 {
		t.Error("no members are taken from it")
	}
}
