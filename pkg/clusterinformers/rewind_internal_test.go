package clusterinformers

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// historian is a member whose server is asked what it had at a resourceVersion.
type historian struct {
	t      *testing.T
	member *member
	busy   bool              // it does not say
	wrote  map[string]string // names of objects by the resourceVersion of their last write
	asked  int
}

// newHistorian returns one that has an informer for Pods.
func newHistorian(t *testing.T) (*historian, *informer) {
	i := unstartedInformer(t)
	h := &historian{t: t, member: i.member, wrote: map[string]string{}}
	h.member.informers[i.kind] = &runningInformer{informer: i}
	h.member.conn.client = memberclient.New(&rest.Config{Host: "http://member"}, &http.Client{Transport: roundTripper(h.answer)})
	h.member.conn.verify = h.member.verifyHistory
	h.member.conn.setLocked(true, connection.Connected, "", "")
	h.verify()
	return h, i
}

func (h *historian) answer(r *http.Request) (*http.Response, error) {
	h.asked++
	answer := func(code int, text string) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
	}
	if h.busy {
		return answer(http.StatusServiceUnavailable, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`)
	}
	at, items := r.URL.Query().Get("resourceVersion"), ""
	if name := h.wrote[at]; name != "" && r.URL.Query().Get("fieldSelector") == "metadata.name="+name {
		items = fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q}}`, name, at)
	}
	return answer(http.StatusOK, fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"items":[%s]}`, at, items))
}

// add adds an informer for another kind.
func (h *historian) add(gvk schema.GroupVersionKind, resource string) *informer {
	h.t.Helper()
	kind := aggregate.MakeKind(gvk.Kind, gvk.Group)
	res := catalog.APIResource{GVK: gvk, GVR: gvk.GroupVersion().WithResource(resource), Namespaced: true}
	i, err := newInformer(h.t.Context(), h.member, kind, res, KindRule{}, "", "")
	if err != nil {
		h.t.Fatal(err)
	}
	h.member.informers[kind] = &runningInformer{informer: i}
	return i
}

// sends has the server write an object, and send it.
func (h *historian) sends(i *informer, name, rv string) {
	h.wrote[rv] = name
	p := i.listWatches[0]
	i.mu.Lock()
	defer i.mu.Unlock()
	p.noteLocked(witness{namespace: "b", name: name, at: rv})
}

// lists has the server answer a list with an object that it has written, and the watch that follows.
func (h *historian) lists(i *informer, name, rv string) {
	h.wrote[rv] = name
	p := i.listWatches[0]
	rec := &aggregate.Record{Namespace: "b", Name: name, UID: "u", ResourceVersion: rv, Body: []byte(`{}`)}
	if err := p.replace([]*object{p.object(rec, nil, false)}, rv, time.Now()); err != nil {
		h.t.Fatal(err)
	}
	p.keepWitness()
}

func (h *historian) verify() {
	c := h.member.conn
	c.verified(h.t.Context(), c.client, c.dials.Load())
}

// want verifies the history, and checks whether it is found to be another one.
func (h *historian) want(other bool) {
	h.t.Helper()
	was := h.member.resets
	h.verify()
	if got := h.member.resets > was; got != other {
		h.t.Errorf("found to have another history: %t, want %t", got, other)
	}
	if doubtful := h.member.conn.doubts.Load()%2 != 0; doubtful != h.busy {
		h.t.Errorf("it is doubtful: %t, and busy: %t", doubtful, h.busy)
	}
}

// TestMember_FindsAnotherHistory: whatever was answered by the server that was taken back before it says what it had.
func TestMember_FindsAnotherHistory(t *testing.T) {
	for name, happens := range map[string]func(h *historian, pods *informer){
		"its events come first": func(h *historian, pods *informer) {
			pods.listWatches[0].keepWitness()
			h.sends(pods, "new", "15")
		},
		"watches are opened again and again before it answers": func(h *historian, pods *informer) {
			h.busy = true
			for n := range 3 {
				pods.listWatches[0].keepWitness()
				h.sends(pods, "new", fmt.Sprint(15+n))
				h.want(false)
				h.member.conn.onDial()
			}
			h.busy = false
		},
		"a kind is listed for the first time": func(h *historian, pods *informer) {
			h.lists(h.add(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "services"), "new", "15")
			pods.listWatches[0].keepWitness()
			h.sends(pods, "new", "16")
		},
		"another watch is opened first": func(h *historian, _ *informer) {
			services := h.add(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "services")
			services.listWatches[0].keepWitness()
			h.sends(services, "new", "15")
		},
		"it was taken back after it had come back": func(h *historian, pods *informer) {
			h.busy = true
			h.wrote["10"] = "old"
			pods.listWatches[0].keepWitness()
			h.sends(pods, "lost", "12")
			h.want(false)
			delete(h.wrote, "12")
			h.member.conn.onDial()
			pods.listWatches[0].keepWitness()
			h.sends(pods, "new", "15")
			h.want(false)
			h.busy = false
		},
		"an aggregated API is kept elsewhere": func(h *historian, _ *informer) {
			h.sends(h.add(schema.GroupVersionKind{Group: "far.example.com", Version: "v1", Kind: "Widget"}, "widgets"), "far", "1000000")
		},
		"Events are kept elsewhere": func(h *historian, _ *informer) {
			h.sends(h.add(schema.GroupVersionKind{Version: "v1", Kind: "Event"}, "events"), "far", "1000000")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, pods := newHistorian(t)
				h.sends(pods, "old", "10")
				delete(h.wrote, "10")
				h.member.conn.onDial()
				happens(h, pods)
				h.want(true)
			})
		})
	}
}

// TestMember_VerifiesWhatWasSentLast: watches end and are opened again while nothing is doubtful, so that what was
// verified last is long ago; and a quiet member is asked once.
func TestMember_VerifiesWhatWasSentLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, pods := newHistorian(t)
		p := pods.listWatches[0]
		for n := range 3 {
			h.sends(pods, "x", fmt.Sprint(10+n))
			p.keepWitness()
		}
		h.asked = 0
		h.member.conn.onDial()
		p.keepWitness()
		if h.want(false); h.asked != 1 {
			t.Errorf("a quiet member was asked %d times", h.asked)
		}
		h.sends(pods, "lost", "20")
		delete(h.wrote, "20")
		h.member.conn.onDial()
		p.keepWitness()
		h.sends(pods, "new", "25")
		h.want(true)
	})
}

// TestWitness_DialWhileVerifying: a second connection is made while the first one's server is verified. What
// was known before either is kept, whatever the second has sent.
func TestWitness_DialWhileVerifying(t *testing.T) {
	h, pods := newHistorian(t)
	c := h.member.conn
	h.sends(pods, "old", "90")
	p := pods.listWatches[0]
	c.onDial()
	checked := c.dials.Load()
	c.onDial() // to a server that was taken back to 50 and has written up to 95
	delete(h.wrote, "90")
	p.keepWitness()
	h.sends(pods, "new", "95")
	c.settle(checked)
	p.keepWitness()
	h.want(true)
}
