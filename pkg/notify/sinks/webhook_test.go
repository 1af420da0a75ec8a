package sinks_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"federator.dev/federator/pkg/notify/sinks"
)

// inbox is a receiver that keeps the bodies that have a valid signature with key.
type inbox struct {
	t  *testing.T
	mu sync.Mutex
	// refuse answers the requests that it is set for.
	refuse func(n int, w http.ResponseWriter) bool
	asked  int
	bodies []string
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	hook, keyErr := standardwebhooks.NewWebhookRaw(key)
	if err = errors.Join(err, keyErr, hook.Verify(body, r.Header)); err != nil {
		in.t.Error(err)
	}
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/cloudevents+json") || r.Method != http.MethodPost {
		in.t.Errorf("%s of %s", r.Method, kind)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.asked++
	if in.refuse != nil && in.refuse(in.asked, w) {
		return
	}
	in.bodies = append(in.bodies, string(body))
	w.WriteHeader(http.StatusAccepted)
}

func (in *inbox) got() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.bodies
}

func TestWebhook_PostsSignedEventsInOrder(t *testing.T) {
	authority, in := newCA(t), &inbox{t: t}
	s := authority.serve(in, true)
	cert, private := authority.issue()
	var dials atomic.Int64
	w, err := sinks.NewWebhook(sinks.WebhookOptions{
		URL: s.URL + "/hook?token=hidden", Keys: [][]byte{[]byte("another key of 16 bytes"), key}, CA: authority.pem(), ClientCert: cert, ClientKey: private, Dial: counted(&dials),
	})
	closing(t, w, err)
	if sent, err := w.Send(t.Context(), messages(3)); sent != 3 || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	got := in.got()
	if len(got) != 3 || got[0] != `{"specversion":"1.0","id":"v-0","source":"/federator/test","type":"dev.federator.violation.opened","subject":"Pod/shop/web",`+
		`"time":"2026-11-30T12:00:00Z","datacontenttype":"application/json","data":{"policy":"tier"}}` || !strings.Contains(got[2], `"v-2"`) {
		t.Errorf("posted %q", got)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections were dialed, want one", n)
	}
}

func TestWebhook_SaysHowMuchWasTaken(t *testing.T) {
	authority := newCA(t)
	for _, c := range []struct {
		status int
		header string
		body   string
		wait   time.Duration
		want   string
	}{
		{http.StatusGone, "", "no longer\nhere", 0, `message "v-1": the receiver answered 410 Gone: "no longer here"`},
		{http.StatusTooManyRequests, "7", "", 7 * time.Second, `answered 429 Too Many Requests: ""`},
		{http.StatusServiceUnavailable, "-1", strings.Repeat("x", 1<<20), 0, `answered 503 Service Unavailable: "xxx`},
		{http.StatusTemporaryRedirect, "", "", 0, "answered 307 Temporary Redirect"},
	} {
		in := &inbox{t: t}
		s := authority.serve(in, false)
		in.refuse = func(n int, w http.ResponseWriter) bool {
			if n != 2 {
				return false
			}
			w.Header().Set("Retry-After", c.header)
			w.Header().Set("Location", s.URL)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body) // the client may read no more
			return true
		}
		w, err := sinks.NewWebhook(sinks.WebhookOptions{URL: s.URL + "?token=hidden", Keys: [][]byte{key}, CA: authority.pem()})
		closing(t, w, err)
		sent, err := w.Send(t.Context(), messages(3))
		var refused *sinks.RefusedError
		if sent != 1 || len(in.got()) != 1 || !errors.As(err, &refused) || refused.Status != c.status || refused.RetryAfter() != c.wait || len(refused.Body) > 256 {
			t.Errorf("%d: sent %d, %d taken, %v", c.status, sent, len(in.got()), err)
		}
		if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "hidden") {
			t.Errorf("%d: error %q, want %q", c.status, text, c.want)
		}
	}
}

// TestWebhook_DialsNothingElse: neither a proxy of the environment nor an address that Dial refuses is reached.
func TestWebhook_DialsNothingElse(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	refused := errors.New("the address is not allowed")
	var address string
	w, err := sinks.NewWebhook(sinks.WebhookOptions{
		URL: "https://hooks.example.com/?token=hidden", Keys: [][]byte{key},
		Dial: func(_ context.Context, _, to string) (net.Conn, error) { address = to; return nil, refused },
	})
	closing(t, w, err)
	if sent, err := w.Send(t.Context(), messages(1)); sent != 0 || !errors.Is(err, refused) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("sent %d, error %v", sent, err)
	}
	if address != "hooks.example.com:443" {
		t.Errorf("dialed %q", address)
	}
}

func TestWebhook_IsBoundedByTimeoutAndContext(t *testing.T) {
	authority, held := newCA(t), make(chan struct{})
	asked := make(chan struct{}, 1)
	s := authority.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-held }), false)
	t.Cleanup(func() { close(held) })
	opts := sinks.WebhookOptions{URL: s.URL, Keys: [][]byte{key}, CA: authority.pem(), Timeout: 100 * time.Millisecond}
	w, err := sinks.NewWebhook(opts)
	closing(t, w, err)
	if sent, err := w.Send(t.Context(), messages(1)); sent != 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sent %d, %v", sent, err)
	}
	<-asked
	opts.Timeout = 0
	w, err = sinks.NewWebhook(opts)
	closing(t, w, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if sent, err := w.Send(ctx, messages(1)); sent != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("sent %d, %v", sent, err)
	}
}

func TestNewWebhook_RefusesOptions(t *testing.T) {
	keys := [][]byte{key}
	cert, private := newCA(t).issue()
	for _, c := range []struct {
		opts  sinks.WebhookOptions
		field string
	}{
		{sinks.WebhookOptions{Keys: keys}, "url"},
		{sinks.WebhookOptions{URL: "http://example.com/?hidden", Keys: keys}, "url"},
		{sinks.WebhookOptions{URL: "https://u:hidden@h/", Keys: keys}, "url"},
		{sinks.WebhookOptions{URL: "https://h/"}, "key"},
		{sinks.WebhookOptions{URL: "https://h/", Keys: [][]byte{key, []byte("hidden")}}, "key"},
		{sinks.WebhookOptions{URL: "https://h/", Keys: keys, CA: []byte("hidden")}, "ca"},
		{sinks.WebhookOptions{URL: "https://h/", Keys: keys, ClientCert: cert}, "clientCert"},
		{sinks.WebhookOptions{URL: "https://h/", Keys: keys, ClientKey: private}, "clientCert"},
		{sinks.WebhookOptions{URL: "https://h/", Keys: keys, Timeout: -1}, "timeout"},
	} {
		_, err := sinks.NewWebhook(c.opts)
		wantField(t, err, c.field)
	}
}

// wantField checks that an error is of a field, and shows no value.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var wrong *sinks.FieldError
	if !errors.As(err, &wrong) || wrong.Field != field || strings.Contains(err.Error(), "hidden") {
		t.Errorf("error %v, want one of %s", err, field)
	}
}

func TestWebhook_RefusesMessages(t *testing.T) {
	authority, in := newCA(t), &inbox{t: t}
	s := authority.serve(in, false)
	w, err := sinks.NewWebhook(sinks.WebhookOptions{URL: s.URL, Keys: [][]byte{key}, CA: authority.pem()})
	closing(t, w, err)
	for field, change := range badMessages {
		all := messages(3)
		change(&all[1])
		sent, err := w.Send(t.Context(), all)
		wantField(t, err, field[:strings.Index(field, " ")])
		if sent != 1 {
			t.Errorf("%s: sent %d", field, sent)
		}
	}
}

// badMessages make a message one that no sink takes; keys begin with the field.
var badMessages = map[string]func(*sinks.Message){
	"id of none":        func(m *sinks.Message) { m.ID = "" },
	"id of two lines":   func(m *sinks.Message) { m.ID = "a\r\nX-Header: b" },
	"id that is long":   func(m *sinks.Message) { m.ID = strings.Repeat("a", 257) },
	"id of é":           func(m *sinks.Message) { m.ID = "é" },
	"type of none":      func(m *sinks.Message) { m.Type = "" },
	"source of none":    func(m *sinks.Message) { m.Source = "" },
	"data of an array":  func(m *sinks.Message) { m.Data = []byte(`[]`) },
	"data of no JSON":   func(m *sinks.Message) { m.Data = []byte(`{"a":`) },
	"data of nothing":   func(m *sinks.Message) { m.Data = []byte{} },
	"time of year 1000": func(m *sinks.Message) { m.Time = m.Time.AddDate(10000, 0, 0) },
}
