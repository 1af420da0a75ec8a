package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

const definitionKind aggregate.Kind = "CustomResourceDefinition.apiextensions.k8s.io"

// changingWidget is a member with one widget, whose content changes without its
// resourceVersion, and the widget's definition.
func changingWidget(t *testing.T, color *atomic.Value, answer func(w http.ResponseWriter, req *http.Request) bool) (*rig, *fakeServer) {
	var l *fakeServer
	r := newRig(t, sim.Options{Members: 1, Kinds: kindsOf("Namespace", "CustomResourceDefinition")}, func(r *rig, _ *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		crd := widgetCRD("v1")
		crd.Generation = 1
		ok(t, m.Create(crd))
		l = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			if !strings.HasSuffix(req.URL.Path, "/widgets") {
				return answer(w, req)
			}
			w.Header().Set("Content-Type", "application/json")
			if req.URL.Query().Get("sendInitialEvents") == "true" {
				fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","resourceVersion":"7"},"spec":{"color":%q}}}`+"\n", color.Load())
				fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			}
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
			return true
		})
		r.source.view = []clusterinformers.Spec{l.spec}
	}).start()
	return r, l
}

// untilHeld waits until the only object of a kind contains a text.
func (r *rig) untilHeld(m *sim.Member, kind aggregate.Kind, text string) {
	r.t.Helper()
	r.until(string(kind)+" has "+text, func() bool {
		held := r.held(m, kind)
		return len(held) == 1 && strings.Contains(held[0], text) && r.state(m, kind) == aggregate.Synced
	})
}

// TestDefinitions_OtherContentAtOneVersionIsTaken has a member serve an object that
// nobody writes with another default: after its API server was upgraded, and after
// the definition of its kind has changed.
func TestDefinitions_OtherContentAtOneVersionIsTaken(t *testing.T) {
	var color, version atomic.Value
	color.Store("red")
	version.Store("v1.36.1")
	r, l := changingWidget(t, &color, func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/version" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"major":"1","minor":"36","gitVersion":%q}`, version.Load())
		return true
	})
	m := r.fleet.Members()[0]
	r.untilHeld(m, widgetKind, "red")
	r.untilState(m, "Namespace", aggregate.Synced)
	r.untilState(m, definitionKind, aggregate.Synced)
	lists := r.detail(m, "Namespace").Relists["initial"]
	color.Store("green")
	ok(t, m.Modify(crds, "", widgets.String(), func(o sim.Object) { o.SetGeneration(2) }))
	r.untilHeld(m, widgetKind, "green")
	if got := r.detail(m, "Namespace").Relists; got["initial"] != lists || len(got) != 1 {
		t.Errorf("another kind was listed again: %v", got)
	}
	color.Store("blue")
	version.Store("v1.36.2")
	l.cut()
	r.untilHeld(m, widgetKind, "blue")
	r.during(50*time.Millisecond, "it is not listed again and again", func() bool { return r.detail(m, widgetKind).Relists["served otherwise"] == 1 })
}

// TestDefinitions_ChangesDuringADiscoveryAreNoticed changes a definition right after it
// was listed, while the member's loop waits for discovery.
func TestDefinitions_ChangesDuringADiscoveryAreNoticed(t *testing.T) {
	var color atomic.Value
	color.Store("red")
	discovering, discovered, listed := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	wait := func(req *http.Request, until <-chan struct{}) {
		select {
		case <-until:
		case <-req.Context().Done():
		}
	}
	var block atomic.Bool
	r, _ := changingWidget(t, &color, func(_ http.ResponseWriter, req *http.Request) bool {
		switch {
		case strings.HasSuffix(req.URL.Path, "/customresourcedefinitions"):
			wait(req, listed)
		case req.URL.Path == "/apis" && block.Load():
			discovering <- struct{}{}
			wait(req, discovered)
		}
		return false
	})
	m := r.fleet.Members()[0]
	r.untilHeld(m, widgetKind, "red")
	block.Store(true)
	r.manager.RequireKinds([]aggregate.Kind{"Gadget.shop.example"})
	<-discovering
	close(listed)
	r.untilHeld(m, definitionKind, `"generation":1`)
	color.Store("green")
	ok(t, m.Modify(crds, "", widgets.String(), func(o sim.Object) { o.SetGeneration(2) }))
	r.untilHeld(m, definitionKind, `"generation":2`)
	block.Store(false)
	close(discovered)
	r.untilHeld(m, widgetKind, "green")
}
