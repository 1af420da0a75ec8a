package clusterinformers_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// TestDefinitions_OtherContentAtOneVersionIsTaken has a member serve an object that
// nobody writes with another default: after its API server was upgraded, and after
// the definition of its kind has changed.
func TestDefinitions_OtherContentAtOneVersionIsTaken(t *testing.T) {
	const widgets = aggregate.Kind("Widget.shop.example")
	crds := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	var color, version atomic.Value
	color.Store("red")
	version.Store("v1.36.1")
	var l *fakeServer
	fleet := sim.Options{Members: 1, Kinds: kindsOf("Namespace", "CustomResourceDefinition")}
	r := newRig(t, fleet, func(r *rig, o *clusterinformers.Options) {
		m := r.fleet.Members()[0]
		ok(t, m.Create(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.shop.example", Generation: 1},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "shop.example", Scope: apiextensionsv1.NamespaceScoped,
				Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			},
		}))
		l = newFakeServer(t, m, func(w http.ResponseWriter, req *http.Request) bool {
			switch {
			case req.URL.Path == "/version":
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"major":"1","minor":"36","gitVersion":%q}`, version.Load())
			case strings.HasSuffix(req.URL.Path, "/widgets"):
				w.Header().Set("Content-Type", "application/json")
				if req.URL.Query().Get("sendInitialEvents") == "true" {
					fmt.Fprintf(w, `{"type":"ADDED","object":{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","resourceVersion":"7"},"spec":{"color":%q}}}`+"\n", color.Load())
					fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
				}
				_ = http.NewResponseController(w).Flush()
				<-req.Context().Done()
			default:
				return false
			}
			return true
		})
		r.source.view = []clusterinformers.Spec{l.spec}
	}).start()
	m := r.fleet.Members()[0]
	is := func(want string) {
		t.Helper()
		r.until("the widget is "+want, func() bool {
			held := r.held(m, widgets)
			return len(held) == 1 && strings.Contains(held[0], want) && r.state(m, widgets) == aggregate.Synced
		})
	}
	is("red")
	r.untilState(m, "Namespace", aggregate.Synced)
	lists := r.detail(m, "Namespace").Relists["initial"]
	color.Store("green")
	ok(t, m.Modify(crds, "", "widgets.shop.example", func(o sim.Object) { o.SetGeneration(2) }))
	is("green")
	if got := r.detail(m, "Namespace").Relists; got["initial"] != lists || len(got) != 1 {
		t.Errorf("another kind was listed again: %v", got)
	}
	color.Store("blue")
	version.Store("v1.36.2")
	l.cut()
	is("blue")
	r.during(50*time.Millisecond, "it is not listed again and again", func() bool { return r.detail(m, widgets).Relists["served otherwise"] == 1 })
}
