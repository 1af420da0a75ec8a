package notifications

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/policy"
)

const patience = time.Minute

// hubServer is a hub that has Notifications and Secrets.
type hubServer struct {
	t   *testing.T
	url string

	secret atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // handles a request in its place, if it says so

	mu      sync.Mutex
	version int
	items   map[string]*v1alpha1.Notification
	data    map[string]string // of all Secrets
	events  []metav1.WatchEvent
	more    chan struct{}
	puts    int
}

func newHub(t *testing.T) *hubServer {
	h := &hubServer{t: t, items: map[string]*v1alpha1.Notification{}, more: make(chan struct{}), version: 1, data: map[string]string{"key": "0123456789abcdef", "token": "hidden"}}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

// change puts a Notification, or deletes it where there is no spec.
func (h *hubServer) change(name string, uid types.UID, spec *v1alpha1.NotificationSpec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.items[name]
	event := "MODIFIED"
	switch {
	case spec == nil:
		delete(h.items, name)
		h.event("DELETED", n)
		return
	case n == nil:
		event = "ADDED"
		n = &v1alpha1.Notification{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Second))}}
	default:
		n = n.DeepCopy()
	}
	n.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "Notification"}
	n.Generation++
	n.Spec = *spec
	h.items[name] = n
	h.event(event, n)
}

// event adds one, under mu.
func (h *hubServer) event(kind string, n *v1alpha1.Notification) {
	h.version++
	n.ResourceVersion = fmt.Sprint(h.version)
	text, err := json.Marshal(n)
	if err != nil {
		h.t.Error(err)
	}
	h.events = append(h.events, metav1.WatchEvent{Type: kind})
	h.events[len(h.events)-1].Object.Raw = text
	close(h.more)
	h.more = make(chan struct{})
}

func (h *hubServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	reply := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	if strings.HasPrefix(r.URL.Path, "/api/v1/") {
		if f := h.secret.Load(); f != nil && (*f)(w, r) {
			return
		}
		s := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "s", ResourceVersion: "1"}, Data: map[string][]byte{}}
		for k, v := range h.data {
			s.Data[k] = []byte(v)
		}
		reply(s)
		return
	}
	switch q := r.URL.Query(); {
	case r.Method == http.MethodPut:
		h.put(w, r)
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusBadRequest)
	case q.Get("watch") != "":
		h.watch(w, r)
	default:
		h.mu.Lock()
		defer h.mu.Unlock()
		list := v1alpha1.NotificationList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "NotificationList"}}
		list.ResourceVersion = fmt.Sprint(h.version)
		for _, n := range h.items {
			list.Items = append(list.Items, *n)
		}
		reply(list)
	}
}

func (h *hubServer) put(w http.ResponseWriter, r *http.Request) {
	var n v1alpha1.Notification
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.puts++
	is := h.items[n.Name]
	if is == nil || is.ResourceVersion != n.ResourceVersion {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonConflict, Code: http.StatusConflict})
		return
	}
	is = is.DeepCopy()
	is.Status = n.Status
	h.items[n.Name] = is
	h.event("MODIFIED", is)
	_ = json.NewEncoder(w).Encode(is)
}

func (h *hubServer) watch(w http.ResponseWriter, r *http.Request) {
	var from int
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &from)
	w.WriteHeader(http.StatusOK)
	for at := from - 1; ; { // an event of each version after the first
		h.mu.Lock()
		events, more := h.events[at:], h.more
		h.mu.Unlock()
		for _, e := range events {
			_ = json.NewEncoder(w).Encode(e)
			at++
		}
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// eventually waits for a condition of the hub's Notifications.
func (h *hubServer) eventually(what string, is func(map[string]*v1alpha1.Notification) bool) {
	h.t.Helper()
	late := time.After(patience)
	for {
		h.mu.Lock()
		ok, more := is(h.items), h.more
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-late:
			h.t.Fatal("too late: ", what)
		}
	}
}

// readyOf returns the condition of a Notification.
func readyOf(n *v1alpha1.Notification) metav1.Condition {
	for _, c := range n.Status.Conditions {
		if n.Status.ObservedGeneration == n.Generation {
			return c
		}
	}
	return metav1.Condition{}
}

// inbox is a receiver that notes what it is sent.
type inbox struct {
	url  string
	mu   sync.Mutex
	got  []string
	came chan struct{}
}

func newInbox(t *testing.T) *inbox {
	in := &inbox{came: make(chan struct{}, 1000)}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		in.mu.Lock()
		in.got = append(in.got, string(text))
		in.mu.Unlock()
		in.came <- struct{}{}
	}))
	t.Cleanup(s.Close)
	in.url = s.URL
	return in
}

func (in *inbox) all() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Join(in.got, "\n")
}

func (in *inbox) wait(t *testing.T, what string, n int) {
	t.Helper()
	for late := time.After(patience); n > 0; n-- {
		select {
		case <-in.came:
		case <-late:
			t.Fatal("nothing came: ", what)
		}
	}
}

// facts is what goes on on the hub.
type facts struct {
	list func() []notify.Fact
}

func (f facts) Run(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func (f facts) Facts() ([]notify.Fact, bool)  { return f.list(), true }

func planWaits(name string) notify.Fact {
	return notify.Fact{Type: notify.PlanWaits, Subject: "Plan/" + name, At: time.Now().Add(-time.Hour), Ongoing: true, Data: map[string]string{"policy": "tier"}}
}

// newState returns the state of no policies, with a member.
func newState(t *testing.T) *policy.State {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(aggregate.Member{Name: "fleet/eu", UID: "uid-eu", Labels: []aggregate.Label{{Key: "region", Value: "eu"}}}); err != nil {
		t.Fatal(err)
	}
	src := policy.Source{Files: []policy.File{{Path: "p.rego", Data: []byte("# METADATA\n# title: P\n# custom: {severity: low, kinds: [\"Pod\"]}\npackage p\n\nviolation contains {\"msg\": \"x\"} if input.object.x\n")}}}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bindings, _ := policy.DefaultBindings(set, nil)
	engine, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Clock: time.Now, Limits: policy.Limits{Evaluation: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Reset(t.Context(), x.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	return engine.State()
}

// newHistory returns a history that is recorded until the test ends.
func newHistory(t *testing.T) *history.History {
	t.Helper()
	h, err := history.Open(history.Options{Directory: filepath.Join(t.TempDir(), "history"), Boot: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Begin(x); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return h
}

// opened is a violation of a policy.
func opened(policy, key string) history.Record {
	return history.Record{Type: history.Verdict, Transition: history.Opened, Key: key, Policy: policy, Severity: "high", Member: "fleet/eu", Kind: "Pod", Namespace: "shop", Name: key}
}

// start runs a Controller until the test, or end, ends it.
func start(t *testing.T, h *hubServer, change func(*Options)) (end func()) {
	t.Helper()
	none := map[string]bool{}
	opts := Options{
		Config: &rest.Config{Host: h.url}, Namespace: "federator", Name: "leader", Origin: "/federator/test", Dial: (&net.Dialer{}).DialContext,
		History: newHistory(t), Directory: t.TempDir(),
		Sends: func() bool { return true }, Leads: func() bool { return true }, Notified: func(string) map[string]bool { return none },
		State: func() *policy.State { return nil }, Facts: func() (FactSource, error) { return facts{func() []notify.Fact { return nil }}, nil },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&opts)
	}
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return end
}

func webhookTo(url string, rules ...v1alpha1.NotificationRule) *v1alpha1.NotificationSpec {
	soon := &metav1.Duration{}
	return &v1alpha1.NotificationSpec{Webhook: &v1alpha1.NotificationWebhook{URL: url, SecretRef: v1alpha1.LocalSecretReference{Name: "s"}, Wait: soon, Interval: soon}, Rules: rules}
}

func alertsTo(url string) *v1alpha1.NotificationSpec {
	return &v1alpha1.NotificationSpec{
		Alertmanager: &v1alpha1.NotificationAlertmanager{URLs: []string{url}, SecretRef: &v1alpha1.LocalSecretReference{Name: "s"}, Interval: &metav1.Duration{Duration: 50 * time.Millisecond}},
		Rules:        []v1alpha1.NotificationRule{{Types: []v1alpha1.NotificationType{v1alpha1.NotifyPolicy}}},
	}
}
