package handover_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/handover"
)

// TestTake_EqualsWhatIsHeld: what was taken over is what the other process holds, with how far it was read, whatever it was encoded by.
func TestTake_EqualsWhatIsHeld(t *testing.T) {
	from := newIndex(t, 1)
	pods := open(t, from, "Pod")
	fill(t, pods, 5000, "9000")
	train(t, from)
	for i := range 300 { // by the dictionary, small and fast
		pods.Upsert(pods.Item(record(i, fmt.Sprint(7000+i))))
	}
	pods.Reached(aggregate.Part{ResourceVersion: "9001", Served: "cluster v1.36"})
	_, err := pods.Commit()
	must(t, err)
	fill(t, open(t, from, "ConfigMap"), 40, "17")
	fill(t, open(t, from, "Node"), 0, "18")
	fill(t, open(t, from, "Event"), 9, "") // it is not known how far: nobody can go on
	proved := time.Now().Add(-time.Minute)
	s := newServer(t, from, func(o *handover.GiverOptions) {
		o.Proved = func(_ string, kind aggregate.Kind) time.Time {
			if kind == "Pod" {
				return proved
			}
			return time.Time{}
		}
	})
	to, taker := newIndex(t, 2), newTaker(t, s.holder())
	taken := taker.Take(t.Context(), wish(to))
	if got := slices.Sorted(maps.Keys(taken)); !slices.Equal(got, []aggregate.Kind{"ConfigMap", "Node", "Pod"}) {
		t.Fatalf("it took %v", got)
	}
	if d := taken["Pod"].Sub(proved); d < -time.Second || d > 5*time.Second || !taken["Node"].IsZero() {
		t.Errorf("Pods were proved %s later than they were, Nodes at %s", d, taken["Node"])
	}
	equal := func(when string) {
		t.Helper()
		for kind := range taken {
			if got, want := contents(t, to, kind), contents(t, from, kind); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %d objects are not the %d that are held", when, kind, len(got), len(want))
			}
			if got, want := to.Newest().Reached(member, kind), from.Newest().Reached(member, kind); !slices.Equal(got, want) {
				t.Errorf("%s was read up to %v, want %v", kind, got, want)
			}
			if info, _ := to.Newest().Scope(member, kind); info.Status.State != aggregate.Stale || !info.Status.Unread {
				t.Errorf("%s is %+v", kind, info.Status)
			}
		}
	}
	equal("taken")
	train(t, to) // bodies get the dictionary of this process
	equal("trained")
	results(t, taker, "taken")
	if !s.giver.Given(member) {
		t.Error("the giver does not know that it gave the member")
	}
	s.giver.Forget()
	if s.giver.Given(member) {
		t.Error("it does not forget")
	}
}

// TestTake_IsOfOneRevision: while the member changes, objects and the resourceVersion from which they are gone on with are of one
// state, so that no event is lost between them.
func TestTake_IsOfOneRevision(t *testing.T) {
	from := newIndex(t, 1)
	pods := open(t, from, "Pod")
	const objects = 1500
	fill(t, pods, objects, "1")
	s := newServer(t, from, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	commits := make(chan struct{}) // each is told who waits for one
	// Event n sets object n%objects to version n, or deletes it where n is a multiple of 3.
	writing.Go(func() {
		defer close(commits)
		for n := 2; ctx.Err() == nil; n++ {
			if rec := record(n%objects, strconv.Itoa(n)); n%3 == 0 {
				pods.Delete(rec.Namespace, rec.Name)
			} else {
				pods.Upsert(pods.Item(rec))
			}
			if n%4 != 0 {
				continue // several events a commit
			}
			pods.Reached(aggregate.Part{ResourceVersion: strconv.Itoa(n), Served: "cluster v1.36"})
			if _, err := pods.Commit(); err != nil {
				t.Error(err)
				return
			}
			select {
			case commits <- struct{}{}:
			default:
			}
		}
	})
	want := map[string]string{} // by the events up to the last one
	for i := range objects {
		rec := record(i, strconv.Itoa(1000+i))
		want[rec.Namespace+"/"+rec.Name] = rec.ResourceVersion
	}
	last := 1
	for round := range 5 {
		<-commits // it goes on
		to, taker := newIndex(t, 2), newTaker(t, s.holder())
		taker.Take(t.Context(), wish(to))
		results(t, taker, "taken")
		parts := to.Newest().Reached(member, "Pod")
		if len(parts) != 1 {
			t.Fatalf("it was read up to %v", parts)
		}
		reached, err := strconv.Atoi(parts[0].ResourceVersion)
		must(t, err)
		if reached <= last {
			t.Fatalf("round %d is of %d, and the one before of %d", round, reached, last)
		}
		for n := last + 1; n <= reached; n++ {
			rec := record(n%objects, strconv.Itoa(n))
			if want[rec.Namespace+"/"+rec.Name] = rec.ResourceVersion; n%3 == 0 {
				delete(want, rec.Namespace+"/"+rec.Name)
			}
		}
		last = reached
		got := map[string]string{}
		for o := range to.Newest().Objects(member, "Pod") {
			got[o.Namespace()+"/"+o.Name()] = o.ResourceVersion()
		}
		if !maps.Equal(got, want) {
			t.Fatalf("at %d there are %d objects, want %d, or others", reached, len(got), len(want))
		}
	}
}

// TestTake_ListsWhatDoesNotCome: whatever a process sends, what did not come whole is not there, and what did stays.
func TestTake_ListsWhatDoesNotCome(t *testing.T) {
	from := newIndex(t, 1)
	fill(t, open(t, from, "ConfigMap"), 100, "17") // the first
	fill(t, open(t, from, "Pod"), 4000, "9000")
	giver := newServer(t, from, nil)
	whole := sent(t, giver)
	flipped := func(at int) []byte {
		out := slices.Clone(whole)
		out[at] ^= 0x40
		return out
	}
	serve := func(h http.HandlerFunc) func(*server) { return func(s *server) { s.answer.Store(&h) } }
	for name, c := range map[string]struct {
		prepare func(*server)
		wish    func(*handover.Wish)
		result  string
		taken   []aggregate.Kind
	}{
		"all":         {result: "taken", taken: []aggregate.Kind{"ConfigMap", "Pod"}},
		"as sent":     {prepare: serve(sends(whole)), result: "taken", taken: []aggregate.Kind{"ConfigMap", "Pod"}},
		"cut":         {prepare: serve(sends(whole[:len(whole)*3/4])), result: "partly", taken: []aggregate.Kind{"ConfigMap"}},
		"without end": {prepare: serve(sends(whole[:len(whole)-22])), result: "partly", taken: []aggregate.Kind{"ConfigMap", "Pod"}},
		"nothing":     {prepare: serve(sends(nil)), result: "failed"},
		"digest":      {prepare: serve(sends(flipped(len(whole) * 3 / 4))), result: "partly", taken: []aggregate.Kind{"ConfigMap"}},
		"header":      {prepare: serve(sends(flipped(30))), result: "failed"},
		"no frames":   {prepare: serve(sends([]byte("<html>not a stream, but a page of somebody else</html>"))), result: "failed"},
		"aborted": {prepare: serve(func(w http.ResponseWriter, r *http.Request) {
			sends(whole[:len(whole)/2])(w, r)
			panic(http.ErrAbortHandler)
		}), result: "partly", taken: []aggregate.Kind{"ConfigMap"}},
		"another version": {prepare: serve(http.NotFound), result: "refused"},
		"a page": {prepare: serve(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "hello")
		}), result: "refused"},
		"gone":           {prepare: func(s *server) { s.Close() }, result: "failed"},
		"another member": {wish: func(w *handover.Wish) { w.UID = "another" }, result: "refused"},
		"form": {wish: func(w *handover.Wish) {
			w.Form = func(kind aggregate.Kind) string {
				if kind == "Pod" {
					return "another"
				}
				return form(kind)
			}
		}, result: "partly", taken: []aggregate.Kind{"ConfigMap"}},
		"not wanted":       {wish: func(w *handover.Wish) { w.Wanted = func(kind aggregate.Kind) bool { return kind != "ConfigMap" } }, result: "partly", taken: []aggregate.Kind{"Pod"}},
		"too many objects": {wish: func(w *handover.Wish) { w.MaxObjects = 4050 }, result: "partly", taken: []aggregate.Kind{"ConfigMap"}},
		"too many bytes":   {wish: func(w *handover.Wish) { w.MaxBytes = 200 << 10 }, result: "partly", taken: []aggregate.Kind{"ConfigMap"}},
		"silent": {prepare: serve(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), result: "refused"}, // the type is another one: that is not waited for
		"stalled": {prepare: serve(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.federator.handover+zstd")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), result: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, from, nil)
			if c.prepare != nil {
				c.prepare(s)
			}
			to, taker := newIndex(t, 2), newTaker(t, s.holder())
			w := wish(to)
			if c.wish != nil {
				c.wish(&w)
			}
			began := time.Now()
			taken := taker.Take(t.Context(), w)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
			if got := slices.Sorted(maps.Keys(taken)); !slices.Equal(got, c.taken) {
				t.Errorf("it took %v, want %v", got, c.taken)
			}
			results(t, taker, c.result)
			for _, kind := range []aggregate.Kind{"ConfigMap", "Pod"} {
				want := []string(nil)
				if slices.Contains(c.taken, kind) {
					want = contents(t, from, kind)
				}
				if got := contents(t, to, kind); !slices.Equal(got, want) {
					t.Errorf("there are %d of %s, want %d", len(got), kind, len(want))
				}
				if parts := to.Newest().Reached(member, kind); (len(parts) > 0) != slices.Contains(c.taken, kind) {
					t.Errorf("%s was read up to %v", kind, parts)
				}
			}
		})
	}
}

// TestTake_GoesOnWithTheNextHolder with what the one before did not send.
func TestTake_GoesOnWithTheNextHolder(t *testing.T) {
	from := newIndex(t, 1)
	fill(t, open(t, from, "ConfigMap"), 100, "17")
	fill(t, open(t, from, "Pod"), 4000, "9000")
	good, bad := newServer(t, from, nil), newServer(t, from, nil)
	whole := sent(t, good)
	cut := sends(whole[:len(whole)*3/4])
	bad.answer.Store(&cut)
	to, taker := newIndex(t, 2), newTaker(t, bad.holder(), good.holder())
	if taken := taker.Take(t.Context(), wish(to)); len(taken) != 2 {
		t.Errorf("it took %v", taken)
	}
	if got, want := contents(t, to, "Pod"), contents(t, from, "Pod"); !slices.Equal(got, want) {
		t.Errorf("there are %d Pods, want %d", len(got), len(want))
	}
}

// TestTake_OneMemberIsNotTheProcess: what a process sends of one member and makes no sense keeps nobody from asking it of others; that
// it does not answer does, for a while.
func TestTake_OneMemberIsNotTheProcess(t *testing.T) {
	from := newIndex(t, 1)
	fill(t, open(t, from, "Pod"), 4000, "9000")
	s := newServer(t, from, nil)
	whole := sent(t, s)
	taker := newTaker(t, s.holder())
	for _, bad := range [][]byte{nil, whole[:len(whole)*3/4], []byte("<html>not a stream, but a page of somebody else</html>")} {
		answer := sends(bad)
		s.answer.Store(&answer)
		if taken := taker.Take(t.Context(), wish(newIndex(t, 2))); len(taken) != 0 {
			t.Errorf("it took %v", taken)
		}
		s.answer.Store(nil)
		if taken := taker.Take(t.Context(), wish(newIndex(t, 3))); len(taken) != 1 {
			t.Errorf("after %d bytes it took %v", len(bad), taken)
		}
	}
	stalls := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s.answer.Store(&stalls)
	taker.Take(t.Context(), wish(newIndex(t, 4)))
	before := s.asked.Load()
	taker.Take(t.Context(), wish(newIndex(t, 5)))
	if n := s.asked.Load() - before; n != 0 {
		t.Errorf("the process that does not answer was asked %d times", n)
	}
}

// TestTake_NobodyHoldsIt, and nothing is waited for once ctx is done.
func TestTake_NobodyHoldsIt(t *testing.T) {
	taker := newTaker(t)
	if taken := taker.Take(t.Context(), wish(newIndex(t, 2))); len(taken) != 0 {
		t.Errorf("it took %v", taken)
	}
	results(t, taker, "nobody")
	s := newServer(t, newIndex(t, 1), nil)
	ctx, cancel := context.WithCancel(t.Context())
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	s.answer.Store(&silent)
	if taken := newTaker(t, s.holder()).Take(ctx, wish(newIndex(t, 2))); len(taken) != 0 || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("it took %v", taken)
	}
}

// TestGiver_AnswersPeersOnly, and nobody who asks for nothing.
func TestGiver_AnswersPeersOnly(t *testing.T) {
	s := newServer(t, newIndex(t, 1), nil)
	for _, c := range []struct {
		method, query string
		peer          bool
		status        int
	}{
		{http.MethodGet, "?name=" + member, false, http.StatusForbidden},
		{http.MethodPost, "?name=" + member, true, http.StatusMethodNotAllowed},
		{http.MethodGet, "", true, http.StatusBadRequest},
		{http.MethodGet, "?name=fleet/other", true, http.StatusNotFound},
		{http.MethodGet, "?name=" + member + "&uid=other", true, http.StatusConflict},
		{http.MethodGet, "?name=" + member + "&uid=uid-a", true, http.StatusOK},
	} {
		client := s.Client()
		if c.peer {
			client = s.holder().Client
		}
		req, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+handover.Path+c.query, http.NoBody)
		must(t, err)
		resp, err := client.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s %s: %s, want %d", c.method, c.query, resp.Status, c.status)
		}
	}
}

// TestGiver_CutsWhoDoesNotRead: a peer that reads nothing holds nothing up for long.
func TestGiver_CutsWhoDoesNotRead(t *testing.T) {
	from := newIndex(t, 1)
	pods := open(t, from, "Pod")
	for i := range 6000 { // what does not compress
		rec := record(i, "1")
		text := make([]byte, 4096)
		for n := range text {
			text[n] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[rng.IntN(64)]
		}
		rec.Body = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","text":%q}`, text)
		pods.Upsert(pods.Item(rec))
	}
	pods.SetStatus(aggregate.Status{State: aggregate.Synced})
	pods.Reached(aggregate.Part{ResourceVersion: "1", Served: "x"})
	_, err := pods.Commit()
	must(t, err)
	s := newServer(t, from, func(o *handover.GiverOptions) { o.Stall = 200 * time.Millisecond })
	done := make(chan struct{})
	gives := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		s.giver.ServeHTTP(w, r)
	})
	s.answer.Store(&gives)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+handover.Path+"?name="+member, http.NoBody)
	must(t, err)
	resp, err := s.holder().Client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	if s.giver.Given(member) {
		t.Error("the member counts as given")
	}
}

// BenchmarkTake takes over a member of 20,000 Pods over TLS.
func BenchmarkTake(b *testing.B) {
	const objects = 20_000
	from := newIndex(b, 1)
	fill(b, open(b, from, "Pod"), objects, "9000")
	train(b, from)
	s := newServer(b, from, func(o *handover.GiverOptions) { o.Logger = nil })
	taker, err := handover.NewTaker(handover.TakerOptions{Holders: func(string) []handover.Holder { return []handover.Holder{s.holder()} }})
	must(b, err)
	for b.Loop() {
		to := newIndex(b, 2)
		if taken := taker.Take(b.Context(), wish(to)); len(taken) != 1 {
			b.Fatal(taken)
		}
	}
	b.ReportMetric(float64(objects)*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
	b.ReportMetric(float64(len(sent(b, s)))/objects, "frames-B/object")
}
