package notifications_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub/notifications"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/test/kube"
)

// shared is a hub with the CRDs.
var shared struct {
	kube.Shared
	http   *http.Client
	client dynamic.Interface
}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's logs are not the test's
	shared.Prepare = func(ctx context.Context) (err error) {
		cfg := hubConfig()
		if shared.http, err = rest.HTTPClientFor(cfg); err != nil {
			return err
		}
		shared.Clients = []*http.Client{shared.http}
		if shared.client, err = dynamic.NewForConfigAndClient(cfg, shared.http); err != nil {
			return err
		}
		return shared.Fleet.Hub.InstallCRDs(ctx, "../../../charts/federator/crds")
	}
	os.Exit(shared.Main(m))
}

func hubConfig() *rest.Config {
	cfg := shared.Fleet.Hub.DirectRESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg
}

// world is a hub, a history, and a Controller that sends what it has.
type world struct {
	history *history.History
	opts    notifications.Options
	sends   atomic.Bool
	dials   atomic.Int32
	stop    func()
}

// facts is a source of what a test says goes on.
type facts struct {
	mu    sync.Mutex
	facts []notify.Fact
}

func (f *facts) Facts() ([]notify.Fact, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.facts), true
}

func (f *facts) set(list ...notify.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.facts = list
}

func (f *facts) Run(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// newWorld returns one whose Controller has not begun.
func newWorld(t *testing.T, on *facts) *world {
	t.Helper()
	shared.Start(t)
	dir := t.TempDir()
	w := &world{stop: func() {}}
	w.sends.Store(true)
	var err error
	if w.history, err = history.Open(history.Options{Directory: filepath.Join(dir, "history"), Boot: "boot"}); err != nil {
		t.Fatal(err)
	}
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.history.Begin(x); err != nil {
		t.Fatal(err)
	}
	start(t, w.history.Run)
	empty := &policy.State{Snapshot: x.Snapshot()}
	w.opts = notifications.Options{
		Config: hubConfig(), Namespace: "default", Name: "leader", Origin: "/federator/test", History: w.history, Directory: filepath.Join(dir, "positions"),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			w.dials.Add(1)
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		},
		Sends: w.sends.Load, Leads: w.sends.Load, Notified: func(string) map[string]bool { return map[string]bool{} }, State: func() *policy.State { return empty },
		Facts: func() (notifications.FactSource, error) { return on, nil }, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return w
}

// start runs something until the returned function is called, or the end of the test.
func start(t *testing.T, run func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(end)
	return end
}

func (w *world) run(t *testing.T) (end func()) {
	t.Helper()
	c, err := notifications.New(w.opts)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, c.Run)
}

// record appends transitions of violations.
func (w *world) record(t *testing.T, names ...string) {
	t.Helper()
	var all []history.Record
	for _, name := range names {
		all = append(all, history.Record{
			Type: history.Verdict, Transition: history.Opened, Key: name, Policy: "tier", Severity: "high", Member: "fleet/eu-1", Kind: "ConfigMap", Namespace: "shop", Name: name, Violation: "no tier: " + name,
		})
	}
	if err := w.history.Tell(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

var notificationsResource = v1alpha1.Resource(v1alpha1.Notifications)

// apply creates a Notification or changes its spec.
func apply(t *testing.T, name, spec string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "federator.dev/v1alpha1", "kind": "Notification", "metadata": map[string]any{"name": name}}}
	var s map[string]any
	if err := yaml.Unmarshal([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	u.Object["spec"] = s
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	force := true
	client := shared.client.Resource(notificationsResource)
	if _, err := client.Patch(t.Context(), name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "test", Force: &force}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Delete(context.Background(), name, metav1.DeleteOptions{}) // it may be gone
	})
}

func secret(t *testing.T, name string, data map[string]string) {
	t.Helper()
	secrets := shared.Fleet.Hub.Client().CoreV1().Secrets("default")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// state returns the condition Ready of a Notification, and its status.
func state(name string) (string, *v1alpha1.NotificationStatus, error) {
	u, err := shared.client.Resource(notificationsResource).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	n := &v1alpha1.Notification{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, n); err != nil {
		return "", nil, err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.Ready && c.ObservedGeneration == n.Generation {
			return c.Reason + ": " + c.Message, &n.Status, nil
		}
	}
	return "", &n.Status, nil
}

func until(t *testing.T, check func() error) {
	t.Helper()
	if err := kube.Until(t.Context(), 90*time.Second, check); err != nil {
		t.Fatal(err)
	}
}

func untilReady(t *testing.T, name, prefix string) {
	t.Helper()
	until(t, func() error {
		got, _, err := state(name)
		if err == nil && !strings.HasPrefix(got, prefix) {
			err = fmt.Errorf("%s is %q, want %q", name, got, prefix)
		}
		return err
	})
}

// server remembers what was posted to it.
type server struct {
	*httptest.Server

	mu     sync.Mutex
	bodies []string
	status int
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{status: http.StatusOK}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && s.status == http.StatusOK {
			s.bodies = append(s.bodies, r.URL.Path+" "+string(body))
		}
		w.WriteHeader(s.status)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) answer(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (s *server) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

// untilHas waits until one of the bodies has a text.
func (s *server) untilHas(t *testing.T, text string) {
	t.Helper()
	until(t, func() error {
		for _, b := range s.all() {
			if strings.Contains(b, text) {
				return nil
			}
		}
		return fmt.Errorf("nothing has %s:\n%s", text, strings.Join(s.all(), "\n"))
	})
}

const signing = "0123456789abcdef"

func webhook(s *server, name, more string) string {
	return fmt.Sprintf("webhook: {url: %s, secretRef: {name: %s}, wait: 0s, interval: 0s, groupBy: [Object]}\nrules: [{types: [Violation]}]\n%s", s.URL, name, more)
}

// TestController_SendsWhatIsSelected: a Notification is sent by who sends, from where the last one was; what is wrong is said in its status.
func TestController_SendsWhatIsSelected(t *testing.T) {
	w, s := newWorld(t, &facts{}), newServer(t)
	secret(t, "chat", map[string]string{"key": signing})
	apply(t, "chat", webhook(s, "chat", ""))
	end := w.run(t)
	untilReady(t, "chat", "Sending: ")
	w.record(t, "one")
	s.untilHas(t, `"name":"one"`)
	if text := s.all()[0]; strings.Contains(text, "no tier") || !strings.Contains(text, `"severities":{"high":1}`) {
		t.Error(text)
	}
	if w.dials.Load() == 0 {
		t.Error("a connection was dialed by another")
	}

	// A sink that fails is said to; nothing is lost.
	s.answer(http.StatusServiceUnavailable)
	w.record(t, "two")
	untilReady(t, "chat", "Failing: process leader: ")
	s.answer(http.StatusOK)
	s.untilHas(t, `"name":"two"`)
	untilReady(t, "chat", "Sending: ")

	// Its spec changes; another process goes on where this was.
	apply(t, "chat", webhook(s, "chat", "includeText: true"))
	until(t, func() error {
		_, status, err := state("chat")
		if err == nil && status.ObservedGeneration != 2 {
			err = errors.New("the status is of another generation")
		}
		return err
	})
	w.record(t, "three")
	s.untilHas(t, "no tier: three")
	end()
	w.record(t, "four")
	w.run(t)
	s.untilHas(t, `"name":"four"`)
	if n := len(s.all()); n != 4 {
		t.Errorf("%d messages were sent:\n%s", n, strings.Join(s.all(), "\n"))
	}

	// Who does not lead sends nothing, until it does.
	w.sends.Store(false)
	apply(t, "chat", webhook(s, "chat", "includeText: false"))
	w.record(t, "five")
	w.sends.Store(true)
	s.untilHas(t, `"name":"five"`)

	// What is gone leaves nothing.
	if err := shared.client.Resource(notificationsResource).Delete(t.Context(), "chat", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		files, err := os.ReadDir(w.opts.Directory)
		if err == nil && len(files) > 0 {
			err = fmt.Errorf("%v is left", files)
		}
		return err
	})
}

func TestController_SaysWhatIsWrong(t *testing.T) {
	w, s := newWorld(t, &facts{}), newServer(t)
	w.opts.Others = func() ([]string, bool) { return []string{"leader"}, true }
	secret(t, "good", map[string]string{"key": signing})
	secret(t, "short", map[string]string{"key": "short"})
	secret(t, "bad-ca", map[string]string{"key": signing, "ca.crt": "nothing"})
	for name, spec := range map[string]string{
		"SecretInvalid: Secret default/absent":                    webhook(s, "absent", ""),
		"SecretInvalid: Secret: key: it has 5 bytes":              webhook(s, "short", ""),
		"SecretInvalid: Secret: ca":                               webhook(s, "bad-ca", ""),
		"Suspended: spec.suspend":                                 webhook(s, "good", "suspend: true"),
		"Invalid: spec.rules[0].transitions[0]: ":                 fmt.Sprintf("webhook: {url: %s, secretRef: {name: good}}\nrules: [{types: [Member], transitions: [Opened]}]", s.URL),
		"Sending: what is selected is sent":                       webhook(s, "good", ""),
		"SecretInvalid: Secret default/good has none of the keys": fmt.Sprintf("alertmanager: {urls: [%q], secretRef: {name: good}}", s.URL),
	} {
		t.Run(name, func(t *testing.T) {
			apply(t, "said", spec)
			end := w.run(t)
			defer end()
			untilReady(t, "said", name)
		})
	}
}

// TestController_Alerts: what goes on is an alert until it does not any more.
func TestController_Alerts(t *testing.T) {
	on := &facts{}
	w, s := newWorld(t, on), newServer(t)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	on.set(notify.Fact{UID: "u", Transition: "HaltBegan/1", Type: notify.HaltBegan, Ongoing: true, Subject: "FleetPolicy/tier", At: at, Data: map[string]string{"policy": "tier", "halt": "1", "reason": "OverLimit"}})
	apply(t, "pager", fmt.Sprintf("alertmanager: {urls: [%s], interval: 10s}\nrules: [{types: [Policy]}]", s.URL))
	w.run(t)
	untilReady(t, "pager", "Sending: ")
	s.untilHas(t, `"alertname":"FederatorHalt"`)
	type alert struct {
		Labels           map[string]string
		StartsAt, EndsAt time.Time
	}
	last := func() (path string, out []alert) {
		all := s.all()
		path, body, _ := strings.Cut(all[len(all)-1], " ")
		if err := json.Unmarshal([]byte(body), &out); err != nil {
			t.Fatal(err)
		}
		return path, out
	}
	path, alerts := last()
	if path != "/api/v2/alerts" || len(alerts) != 1 || !alerts[0].StartsAt.Equal(at) || time.Until(alerts[0].EndsAt) < 5*time.Minute {
		t.Errorf("%s: %+v", path, alerts)
	}
	want := maps.Clone(alerts[0].Labels)
	on.set()
	until(t, func() error {
		if _, alerts := last(); len(alerts) != 1 || alerts[0].EndsAt.After(time.Now()) || !maps.Equal(alerts[0].Labels, want) {
			return fmt.Errorf("it has not ended: %+v", alerts)
		}
		return nil
	})
}

func TestNew_Options(t *testing.T) {
	w := newWorld(t, &facts{})
	for want, change := range map[string]func(*notifications.Options){
		"":                      func(*notifications.Options) {},
		"Config":                func(o *notifications.Options) { o.Config = nil },
		"Dial":                  func(o *notifications.Options) { o.Dial = nil },
		"Directory is required": func(o *notifications.Options) { o.Directory = "" },
	} {
		opts := w.opts
		change(&opts)
		if _, err := notifications.New(opts); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
