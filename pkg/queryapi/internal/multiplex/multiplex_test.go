package multiplex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// changeless is for questions whose answers never change by themselves.
func changeless(string) <-chan struct{} { return nil }

func credible(*http.Request) string { return "" }

// work is what questions compute.
type work struct{ used atomic.Int64 }

// do computes for some time, and the clock of the process shows it as it does.
func (w *work) do(d time.Duration) {
	const steps = 100
	for range steps {
		time.Sleep(d / steps)
		w.used.Add(int64(d / steps))
	}
}

func (w *work) cpu() time.Duration { return time.Duration(w.used.Load()) }

// ann is the caller of all streams.
func ann(*http.Request) string { return "ann" }

// changing are answers that change all the time.
func changing(string) <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func request(ctx context.Context, subscriptions ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/query/v1/stream?"+url.Values{Parameter: subscriptions, "watch": {"true"}}.Encode(), nil)
	return r.WithContext(ctx)
}

// open serves a stream for some time, and returns what it has written.
func open(t *testing.T, o Options, lasts time.Duration, subscriptions ...string) string {
	t.Helper()
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	w := httptest.NewRecorder()
	if err := h.Serve(w, request(ctx, subscriptions...)); err != nil {
		t.Fatal(err)
	}
	return w.Body.String()
}

func TestAsk_QuestionsShareABudgetOfTime(t *testing.T) {
	for _, test := range []struct {
		took      time.Duration
		questions int
		atMost    time.Duration // of 100 s
	}{
		{100 * time.Microsecond, 1, 40 * time.Millisecond}, // 4 a second
		{10 * time.Millisecond, 1, 3100 * time.Millisecond},
		{10 * time.Millisecond, 10, 3200 * time.Millisecond},
		{500 * time.Millisecond, 1, 3500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			var work work
			o := Options{Changes: changing, Caller: ann, Check: credible, CPU: work.cpu, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				work.do(test.took)
				fmt.Fprint(w, asked.Add(1))
			})}
			var subscriptions []string
			for i := range test.questions {
				subscriptions = append(subscriptions, fmt.Sprintf("q%d /query/v1/members", i))
			}
			open(t, o, 100*time.Second, subscriptions...)
			if busy := time.Duration(asked.Load()) * test.took; busy > test.atMost || asked.Load() < int64(2*test.questions) {
				t.Errorf("%d questions of %v: asked %d times, %v of 100 s", test.questions, test.took, asked.Load(), busy)
			}
		})
	}
}

// TestAsk_WaitingCostsNothing: a question that waits for the hub, or for a busy machine, is not asked more rarely.
func TestAsk_WaitingCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		open(t, Options{Changes: changing, Caller: ann, Check: credible, CPU: func() time.Duration { return 0 }, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(500 * time.Millisecond)
			fmt.Fprint(w, asked.Add(1))
		})}, 100*time.Second, "a /query/v1/members", "b /query/v1/policies")
		if n := asked.Load(); n < 250 { // each after 500 ms and the least time between two
			t.Errorf("two questions were asked %d times in 100 s", n)
		}
	})
}

func TestAsk_SendsOnlyWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		out := open(t, Options{Changes: changing, Caller: ann, Check: credible, Beat: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"n":%d}`+"\n", asked.Add(1)/100)
		})}, 50*time.Second, "q /query/v1/count?resource=pods")
		if want := `{"id":"q","value":{"n":0}}` + "\n" + `{"id":"q","value":{"n":1}}` + "\n" + `{"id":"q","value":{"n":2}}` + "\n"; out != want {
			t.Errorf("asked %d times, sent\n%s", asked.Load(), out)
		}
	})
}

func TestAsk_AsksAgainWhereNothingSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		open(t, Options{Changes: func(string) <-chan struct{} { return make(chan struct{}) }, Caller: ann, Check: credible, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			io.WriteString(w, "1")
		})}, 61*time.Second, "q /query/v1/members")
		if n := asked.Load(); n != 7 {
			t.Errorf("asked %d times in 61 s, want 7", n)
		}
	})
}

// TestAsk_AsksAgainForChangesElsewhere, also where nothing changes here.
func TestAsk_AsksAgainForChangesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		never := func(string) <-chan struct{} { return make(chan struct{}) }
		open(t, Options{Changes: never, Elsewhere: func(string) <-chan struct{} {
			closed := make(chan struct{})
			time.AfterFunc(2*time.Second, func() { close(closed) })
			return closed
		}, Caller: ann, Check: credible, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			io.WriteString(w, "1")
		})}, 61*time.Second, "q /query/v1/members")
		if n := asked.Load(); n != 31 {
			t.Errorf("asked %d times in 61 s, want 31", n)
		}
	})
}

func TestAsk_GoesOnAfterTemporaryErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		out := open(t, Options{Changes: changing, Caller: ann, Check: credible, Beat: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n := asked.Add(1); n > 1 && n < 5 {
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, `{"code":503}`)
				return
			}
			io.WriteString(w, "1")
		})}, time.Minute, "q /query/v1/members")
		if want := `{"id":"q","value":1}` + "\n" + strings.Repeat(`{"id":"q","retry":{"code":503}}`+"\n", 3) + `{"id":"q","value":1}` + "\n"; out != want {
			t.Errorf("sent\n%s", out)
		}
	})
}

func TestServe_EachSubscriptionIsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := open(t, Options{Changes: changeless, Caller: ann, Check: credible, Beat: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/query/v1/abort":
				panic(http.ErrAbortHandler)
			case "/query/v1/large":
				w.Write(bytes.Repeat([]byte("1"), maxAnswer+1))
			case "/query/v1/text":
				io.WriteString(w, "no JSON")
			case "/query/v1/refused":
				w.WriteHeader(http.StatusForbidden)
				io.WriteString(w, `{"code":403}`)
			case "/fleet/ends":
				io.WriteString(w, "{\"type\":")
				io.WriteString(w, "\"A\"}\n\n{\"type\":\"B\"}\n{\"cut\":")
			case "/fleet/refused":
				w.WriteHeader(http.StatusForbidden)
				io.WriteString(w, "{\"code\":\n403}\n")
			}
		})}, time.Millisecond, "a /query/v1/abort", "l /query/v1/large", "t /query/v1/text", "r /query/v1/refused", "e /fleet/ends?watch=1", "f /fleet/refused?watch=1")
		for _, want := range []string{
			`{"id":"a","retry":{`, `{"id":"l","error":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure"`, `{"id":"t","retry":{`, `{"id":"r","error":{"code":403}}`,
			`{"id":"e","event":{"type":"A"}}` + "\n" + `{"id":"e","event":{"type":"B"}}` + "\n" + `{"id":"e","end":true}` + "\n", "{\"id\":\"f\",\"error\":{\"code\":\n403}}",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	})
}

// slowReader never reads what is written, until its deadline passes.
type slowReader struct {
	http.ResponseWriter
	mu       sync.Mutex
	deadline time.Time
}

func (s *slowReader) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}

func (s *slowReader) Write([]byte) (int, error) {
	s.mu.Lock()
	at := s.deadline
	s.mu.Unlock()
	time.Sleep(time.Until(at))
	return 0, errors.New("deadline")
}

func (s *slowReader) FlushError() error { return nil }

func TestServe_AClientThatDoesNotReadIsLeftWithinItsTimeAndBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written atomic.Int64
		h, err := New(Options{Changes: changeless, Caller: ann, Check: credible, WriteTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			line := append(bytes.Repeat([]byte("1"), 1000), '\n')
			for {
				if _, err := w.Write(line); err != nil || r.Context().Err() != nil {
					return
				}
				written.Add(int64(len(line)))
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		func() {
			defer func() {
				if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
					t.Errorf("the stream ended with %v", cause)
				}
			}()
			_ = h.Serve(&slowReader{ResponseWriter: httptest.NewRecorder()}, request(t.Context(), "a /fleet/x?watch=1", "b /fleet/x?watch=1"))
		}()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the client was left after %v", took)
		}
		if n := written.Load(); n > 3*maxBuffered {
			t.Errorf("%d bytes were held for it", n)
		}
	})
}

func TestServe_EndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		out := open(t, Options{Changes: changeless, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}), Caller: ann, Check: func(*http.Request) string {
			if time.Since(began) > time.Minute {
				return "gone"
			}
			return ""
		}, CheckInterval: 7 * time.Second}, time.Hour, "w /fleet/x?watch=1")
		if took := time.Since(began); took != 63*time.Second || !strings.HasSuffix(out, "{\"session\":{\"ended\":\"gone\"}}\n") || strings.Count(out, `{"beat":`) != 6 {
			t.Errorf("after %v:\n%s", took, out)
		}
	})
}

func TestNew_RefusesWhatItCannotWorkWith(t *testing.T) {
	whole := Options{Handler: http.NotFoundHandler(), Changes: changeless, Caller: ann, Check: credible}
	if _, err := New(whole); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"no handler": func(o *Options) { o.Handler = nil }, "no changes": func(o *Options) { o.Changes = nil }, "no check": func(o *Options) { o.Check = nil },
		"negative time": func(o *Options) { o.Beat = -1 }, "negative share": func(o *Options) { o.Share = -1 },
	} {
		o := whole
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestParse_AnEmptyWatchIsNoQuestion: it would hold a slot for as long as the stream lasts.
func TestParse_AnEmptyWatchIsNoQuestion(t *testing.T) {
	for _, path := range []string{"/fleet/api/v1/pods?watch=", "/fleet/api/v1/pods?watch", "/fleet/api/v1/pods?watch=0&watch=1"} {
		if s, err := parseOne("a " + path); err == nil {
			t.Errorf("%s is taken, as a watch: %t", path, s.watch)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"s=a+/query/v1/members", "s=a+/fleet/api/v1/pods%3Fwatch%3Dtrue%26as%3DTable&s=b+/flat/x", "s=a+//x/fleet/", "s=%2", "s=a+/query/v1/stream%2f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		subscriptions, err := parse(values)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range subscriptions {
			r := s.request(request(t.Context()))
			switch {
			case seen[s.id] || !validID.MatchString(s.id):
				t.Errorf("id %q", s.id)
			case r.URL.Host != "" || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/"):
				t.Errorf("request %s %s", r.Method, r.URL)
			case len(r.Header) > 2:
				t.Errorf("headers %v", r.Header)
			}
			seen[s.id] = true
		}
	})
}
