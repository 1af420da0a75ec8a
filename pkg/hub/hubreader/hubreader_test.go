package hubreader_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policyquery"
)

const patience = 30 * time.Second

// apiServer is a hub that lists Actions, and whose watches send what they are given.
type apiServer struct {
	mu      sync.Mutex
	actions []v1alpha1.Action
	broken  []string // that cannot be decoded, on the first page
	states  []string // PolicyStates
	version int
	down    bool
	gone    bool // watches have expired
	lists   int
	watches []string // the resourceVersions that they began at
	events  chan string
	changes chan string   // of PolicyStates
	drop    chan struct{} // closed to end all watches
	log     *slog.Logger
}

func newAction(i int) v1alpha1.Action {
	a := v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("a-%07d", i), CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)), ResourceVersion: fmt.Sprint(i),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("x", 200)}},
	}}
	a.Spec.Binding, a.Spec.Violation = "tier", strings.Repeat("v", 100)
	a.Spec.Target = v1alpha1.Target{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: fmt.Sprint("web-", i)}
	a.Spec.Patch = v1alpha1.JSONText(`"` + strings.Repeat("p", 2000) + `"`)
	a.APIVersion, a.Kind = "federator.dev/v1alpha1", "Action"
	return a
}

func (h *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	h.mu.Lock()
	down, gone, drop := h.down, h.gone, h.drop
	h.mu.Unlock()
	switch {
	case down:
		http.Error(w, "not now", http.StatusInternalServerError)
	case q.Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/actions") {
			h.mu.Lock()
			h.watches, h.gone = append(h.watches, q.Get("resourceVersion")), false
			h.mu.Unlock()
			if gone {
				_, _ = fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
				return
			}
		}
		_ = http.NewResponseController(w).Flush()
		for {
			var events chan string
			switch path.Base(r.URL.Path) {
			case "actions":
				events = h.events
			case "policystates":
				events = h.changes
			}
			select {
			case <-r.Context().Done():
				return
			case <-drop:
				return
			case e := <-events:
				_, _ = fmt.Fprintln(w, e)
				_ = http.NewResponseController(w).Flush()
			}
		}
	case strings.HasSuffix(r.URL.Path, "/actions"):
		h.list(w, q.Get("continue"))
	default:
		w.Header().Set("Content-Type", "application/json")
		kind := map[string]string{"fleetpolicies": "FleetPolicyList", "policysources": "PolicySourceList", "policystates": "PolicyStateList", "configmaps": "ConfigMapList"}[path.Base(r.URL.Path)]
		version := "federator.dev/v1alpha1"
		if kind == "ConfigMapList" {
			version = "v1"
		}
		items := ""
		if kind == "PolicyStateList" {
			h.mu.Lock()
			items = strings.Join(h.states, ",")
			h.mu.Unlock()
		}
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, version, items)
	}
}

func (h *apiServer) list(w http.ResponseWriter, from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	start := 0
	if from == "" {
		h.lists++
	} else {
		_, _ = fmt.Sscan(from, &start)
	}
	list := struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Items           []any `json:"items"`
	}{TypeMeta: metav1.TypeMeta{Kind: "ActionList", APIVersion: "federator.dev/v1alpha1"}, Items: []any{}}
	list.ResourceVersion = fmt.Sprint(h.version)
	end := min(len(h.actions), start+250)
	for i := range h.actions[start:end] {
		list.Items = append(list.Items, &h.actions[start+i])
	}
	if start == 0 {
		for _, broken := range h.broken {
			list.Items = append(list.Items, json.RawMessage(broken))
		}
	}
	if end < len(h.actions) {
		list.Continue = fmt.Sprint(end)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

func (h *apiServer) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

// send has the watch send an event.
func (h *apiServer) send(kind string, a v1alpha1.Action) {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	h.events <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, text)
}

func start(t *testing.T, h *apiServer, most int) *hubreader.Reader {
	t.Helper()
	h.events, h.changes, h.drop = make(chan string), make(chan string), make(chan struct{})
	server := httptest.NewServer(h)
	transport := &http.Transport{}
	r, err := hubreader.New(hubreader.Options{Config: &rest.Config{Host: server.URL, Transport: transport, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, Namespace: "federator", MaxActions: most, Logger: h.log})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.FleetPolicies(); !errors.Is(err, policyquery.ErrHubNotRead) {
		t.Errorf("before it is read: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		server.Close()
	})
	return r
}

// holds waits until a Reader holds some Actions, in order, and is stale or not.
func holds(t *testing.T, r *hubreader.Reader, want string, stale bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		changed := r.Changes(policyquery.HubActions)
		var names []string
		all, state, err := r.Actions()
		if err == nil {
			for a := range all {
				names = append(names, strings.TrimLeft(strings.TrimPrefix(a.Name, "a-"), "0"))
			}
			if strings.Join(names, " ") == want && state.Stale == stale {
				return
			}
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("it holds %q, %+v, %v; want %q, stale %v", names, state, err, want, stale)
		}
	}
}

// TestReader_FollowsTheHub over failures: it goes on from where it was, and lists again only what has expired.
func TestReader_FollowsTheHub(t *testing.T) {
	h := &apiServer{version: 100, actions: []v1alpha1.Action{newAction(1), newAction(2)}}
	r := start(t, h, 0)
	holds(t, r, "2 1", false)
	third := newAction(3)
	third.ResourceVersion = "103"
	h.send("ADDED", third)
	holds(t, r, "3 2 1", false)
	h.send("DELETED", newAction(2))
	holds(t, r, "3 1", false)
	h.change(func() { h.down = true; close(h.drop) })
	holds(t, r, "3 1", true)
	h.change(func() { h.down, h.drop = false, make(chan struct{}) })
	holds(t, r, "3 1", false)
	h.change(func() {
		if h.lists != 1 || len(h.watches) < 2 || !slices.Contains([]string{"2", "103"}, h.watches[len(h.watches)-1]) {
			t.Errorf("%d lists, watches from %v", h.lists, h.watches)
		}
		h.gone, h.actions, h.version = true, []v1alpha1.Action{newAction(7)}, 200
		drop := h.drop
		h.drop = make(chan struct{})
		close(drop)
	})
	holds(t, r, "7", false)
	if p, err := r.FleetPolicies(); err != nil || len(p.Items) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestReader_ActionsAreSmall: what is held of many is bounded, whatever they have.
func TestReader_ActionsAreSmall(t *testing.T) {
	h := &apiServer{version: 100}
	const all, most = 4_000, 2_000
	for i := range all {
		h.actions = append(h.actions, newAction(i+1))
	}
	before := heap()
	r := start(t, h, most)
	deadline := time.Now().Add(patience)
	var state policyquery.HubState
	n := 0
	for n != most && time.Now().Before(deadline) {
		changed := r.Changes(policyquery.HubActions)
		found, s, err := r.Actions()
		if err != nil {
			select {
			case <-changed:
			case <-time.After(patience):
			}
			continue
		}
		state, n = s, 0
		for a := range found {
			if n++; a.Name != fmt.Sprintf("a-%07d", all+1-n) {
				t.Fatalf("%d: %s", n, a.Name)
			}
		}
	}
	if n != most || !state.Older {
		t.Errorf("%d are held: %+v", n, state)
	}
	if each := (heap() - before) / most; each > 1500 {
		t.Errorf("an Action takes %d bytes", each)
	}
	runtime.KeepAlive(r)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
