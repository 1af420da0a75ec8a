package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/test/kube"
)

var key = []byte("0123456789abcdef")

// inbox is a receiver of events.
type inbox struct {
	*httptest.Server

	mu     sync.Mutex
	events []notify.Event
	ids    []string // of header webhook-id
	bad    []string // requests that are not valid
	refuse int      // how many requests are answered 503
	header http.Header
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	in := &inbox{}
	in.Server = httptest.NewServer(in)
	t.Cleanup(in.Close)
	return in
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.header = r.Header; in.refuse > 0 {
		in.refuse--
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	hook, keyErr := standardwebhooks.NewWebhookRaw(key)
	var e notify.Event
	if err = errors.Join(err, keyErr, hook.Verify(body, r.Header), json.Unmarshal(body, &e)); err != nil {
		in.bad = append(in.bad, err.Error())
		return
	}
	in.events, in.ids = append(in.events, e), append(in.ids, r.Header.Get("webhook-id"))
}

func (in *inbox) got(t *testing.T) []notify.Event {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.bad) > 0 {
		t.Fatalf("requests that are not valid: %q", in.bad)
	}
	return slices.Clone(in.events)
}

// facts is a Source that a test sets.
type facts struct {
	mu       sync.Mutex
	list     []notify.Fact
	complete bool
}

func (f *facts) Facts() ([]notify.Fact, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list), f.complete
}

func (f *facts) set(complete bool, list ...notify.Fact) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list, f.complete = list, complete
}

func halt(id, until string) notify.Fact {
	return notify.Fact{
		UID: "3c7b", Transition: "halt/" + id, Type: notify.HaltBegan, Until: until, Subject: "FleetPolicy/tier",
		At: time.Now().Truncate(time.Second), Data: map[string]string{"reason": "OverLimit"},
	}
}

// namespaceOf creates a namespace of this test on the shared hub.
func namespaceOf(t *testing.T, hub *kube.Hub) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	if err := hub.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")); err != nil {
		t.Fatal(err)
	}
	return name
}

func options(hub *rest.Config, namespace string, source notify.Source, url string) notify.Options {
	return notify.Options{
		Hub: hub, Namespace: namespace, Origin: "/federator/test", Source: source, IsLeader: func() bool { return true },
		Receivers: []notify.Receiver{{Name: "chat", URL: url, Keys: keys(key)}},
	}
}

func keys(all ...[]byte) func() ([][]byte, error) {
	return func() ([][]byte, error) { return all, nil }
}

// run runs a Notifier until the test ends, or stop is called.
func run(t *testing.T, opts notify.Options) (n *notify.Notifier, stop func()) {
	t.Helper()
	n, err := notify.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.Run(ctx) }) // its error is that of ctx
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return n, stop
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	if err := kube.Until(t.Context(), time.Minute, func() error {
		if check() {
			return nil
		}
		return errors.New(what)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestNotifier_TellsEachFactOnce(t *testing.T) {
	hub := shared.Start(t).Hub
	namespace, in, source := namespaceOf(t, hub), newInbox(t), &facts{}
	source.set(true, halt("1", notify.HaltEnded))
	_, stop := run(t, options(hub.RESTConfig(), namespace, source, in.URL+"/hook?token=hidden"))
	eventually(t, "the halt is told", func() bool { return len(in.got(t)) == 1 })
	e := in.got(t)[0]
	if e.ID != "3c7b/halt/1" || e.Type != notify.HaltBegan || e.Source != "/federator/test" || e.Subject != "FleetPolicy/tier" || e.Data["reason"] != "OverLimit" || e.SpecVersion != "1.0" {
		t.Errorf("event %+v", e)
	}
	in.mu.Lock()
	if id, kind := in.header.Get("webhook-id"), in.header.Get("Content-Type"); id != e.ID || !strings.HasPrefix(kind, "application/cloudevents+json") {
		t.Errorf("webhook-id %q, content type %q", id, kind)
	}
	in.mu.Unlock()
	stop() // another process goes on
	n, _ := run(t, options(hub.RESTConfig(), namespace, source, in.URL))
	source.set(false)
	n.Trigger()
	source.set(true, halt("2", ""))
	n.Trigger()
	eventually(t, "the end and the next are told", func() bool { return len(in.got(t)) >= 3 })
	var types []string
	for _, e := range in.got(t) {
		types = append(types, e.ID+" "+e.Type)
	}
	slices.Sort(types[1:])
	if want := []string{"3c7b/halt/1 " + notify.HaltBegan, "3c7b/halt/1/ended " + notify.HaltEnded, "3c7b/halt/2 " + notify.HaltBegan}; !slices.Equal(types, want) {
		t.Errorf("told %q, want %q", types, want)
	}
}

func TestNotifier_RetriesAndOnlyTheLeaderSends(t *testing.T) {
	hub := shared.Start(t).Hub
	namespace, in, source := namespaceOf(t, hub), newInbox(t), &facts{}
	in.refuse = 2
	source.set(true, halt("1", ""), halt("2", ""))
	follower := options(hub.RESTConfig(), namespace, source, in.URL)
	follower.IsLeader = func() bool { return false }
	run(t, follower)
	run(t, options(hub.RESTConfig(), namespace, source, in.URL))
	eventually(t, "both are told", func() bool { return len(in.got(t)) == 2 })
	if e := in.got(t); e[0].ID != "3c7b/halt/1" || e[1].ID != "3c7b/halt/2" {
		t.Errorf("told %+v, want them in order", e)
	}
	m, err := hub.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), "federator-notices-chat", metav1.GetOptions{})
	if err != nil || !strings.Contains(m.Data["notices.json"], `"told"`) || strings.Contains(m.Data["notices.json"], string(key)) {
		t.Errorf("the ConfigMap is %v, %v", m.Data, err)
	}
}

func TestNotifier_FollowsNoRedirect(t *testing.T) {
	hub := shared.Start(t).Hub
	namespace, in, source := namespaceOf(t, hub), newInbox(t), &facts{}
	var mu sync.Mutex
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked++
		mu.Unlock()
		http.Redirect(w, r, in.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(elsewhere.Close)
	source.set(true, halt("1", ""))
	run(t, options(hub.RESTConfig(), namespace, source, elsewhere.URL))
	eventually(t, "it is tried again", func() bool { mu.Lock(); defer mu.Unlock(); return asked > 1 })
	if e := in.got(t); len(e) > 0 {
		t.Errorf("a redirect was followed: %+v", e)
	}
}

// TestNotifier_CollectsWhileAReceiverIsAway: what comes and goes until it is back is told.
func TestNotifier_CollectsWhileAReceiverIsAway(t *testing.T) {
	hub := shared.Start(t).Hub
	namespace, in, source := namespaceOf(t, hub), newInbox(t), &facts{}
	setRefuse := func(n int) { in.mu.Lock(); in.refuse = n; in.mu.Unlock() }
	setRefuse(1 << 30)
	source.set(true, halt("1", ""))
	n, _ := run(t, options(hub.RESTConfig(), namespace, source, in.URL))
	stored := func(id string) func() bool {
		return func() bool {
			m, err := hub.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), "federator-notices-chat", metav1.GetOptions{})
			return err == nil && strings.Contains(m.Data["notices.json"], id)
		}
	}
	eventually(t, "it is refused", func() bool { in.mu.Lock(); defer in.mu.Unlock(); return in.refuse < 1<<30 })
	for _, id := range []string{"2", "3"} {
		source.set(true, halt(id, ""))
		n.Trigger()
		eventually(t, "it is stored", stored("3c7b/halt/"+id))
	}
	source.set(true)
	setRefuse(0)
	eventually(t, "all are told", func() bool { return len(in.got(t)) == 3 })
}

// TestNotifier_SignsWithEachKey: while one takes the place of another, a receiver may have
// either.
func TestNotifier_SignsWithEachKey(t *testing.T) {
	hub := shared.Start(t).Hub
	namespace, in, source := namespaceOf(t, hub), newInbox(t), &facts{}
	source.set(true, halt("1", ""))
	opts := options(hub.RESTConfig(), namespace, source, in.URL)
	opts.Receivers[0].Keys = keys([]byte("another key of 16 bytes"), key)
	run(t, opts)
	eventually(t, "it is told", func() bool { return len(in.got(t)) == 1 })
}

func TestNew_RefusesReceivers(t *testing.T) {
	for _, c := range []struct {
		receiver notify.Receiver
		want     string
	}{
		{notify.Receiver{Name: "A", URL: "https://h/", Keys: keys(key)}, "name: \"A\" is not a DNS label"},
		{notify.Receiver{Name: "a", URL: "ftp://h/", Keys: keys(key)}, "url: it is not an http or https URL"},
		{notify.Receiver{Name: "a", URL: "https:///x", Keys: keys(key)}, "not an http or https URL"},
		{notify.Receiver{Name: "a", URL: "http://example.com/", Keys: keys(key)}, "for addresses of this machine only"},
		{notify.Receiver{Name: "a", URL: "https://u:p@h/", Keys: keys(key)}, "has a user"},
		{notify.Receiver{Name: "a", URL: "https://h/", Keys: keys(key, key[:8])}, "key: it has 8 bytes, at least 16"},
		{notify.Receiver{Name: "a", URL: "https://h/", Keys: keys()}, "key: there is none"},
		{notify.Receiver{Name: "a", URL: "https://h/"}, "Keys is required"},
		{notify.Receiver{Name: "a", URL: "https://h/\x7f?token=u:p", Keys: keys(key)}, "url: it is not a URL"},
	} {
		opts := options(&rest.Config{}, "n", &facts{}, "")
		opts.Receivers = []notify.Receiver{c.receiver}
		if _, err := notify.New(opts); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%+v: error %v, want %q", c.receiver, err, c.want)
		}
	}
	opts := options(&rest.Config{}, "n", &facts{}, "https://h/")
	opts.Receivers = append(opts.Receivers, opts.Receivers[0])
	if _, err := notify.New(opts); err == nil || !strings.Contains(err.Error(), "two receivers") {
		t.Errorf("two of a name: error %v", err)
	}
	opts.Source = nil
	if _, err := notify.New(opts); err == nil {
		t.Error("no source: no error")
	}
}

// shared is the hub of all tests.
var shared kube.Shared

func prepare(context.Context) error {
	c, err := rest.HTTPClientFor(shared.Fleet.Hub.RESTConfig())
	shared.Clients = []*http.Client{c}
	return err
}

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go's logs are not the test's
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	shared.Prepare = prepare
	os.Exit(shared.Main(m))
}
