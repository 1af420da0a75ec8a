package resources_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// collision returns a fleet of two members with a pod, a node and a namespace of the
// same names.
func collision(t testing.TB) *fleet {
	t.Helper()
	f := newFleet(t, settings{})
	for _, m := range []string{"a/one", "a/one.eu"} {
		f.join(m)
		web := pod(m, "blue", "web")
		web.node = "n.1"
		f.put(web, testObject{kind: nodes, member: m, name: "n.1"}, testObject{kind: "Namespace", member: m, name: "blue"})
	}
	f.commit()
	return f
}

// keysOf are the namespaces and names of what was sent.
func keysOf(a answer) []string {
	var out []string
	for _, o := range a.list.Items {
		out = append(out, field(o, "metadata", "namespace")+"/"+field(o, "metadata", "name"))
	}
	return out
}

// TestFlat_KeysAreOfOneObject: objects of one name in several members are distinguished in lists,
// and had by its key.
func TestFlat_KeysAreOfOneObject(t *testing.T) {
	f := collision(t)
	for path, want := range map[string][]string{
		"/flat/api/v1/pods":       {"a.one.blue/web", "a.one_eu.blue/web"},
		"/flat/api/v1/nodes":      {"/a.one.n.1", "/a.one_eu.n.1"},
		"/flat/api/v1/namespaces": {"/a.one.blue", "/a.one_eu.blue"},
	} {
		if got := keysOf(f.mustAsk(all, path, nil, "")); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		for _, key := range want {
			namespace, name, _ := strings.Cut(key, "/")
			one := path + "/" + name
			if namespace != "" {
				one = "/flat/api/v1/namespaces/" + namespace + "/pods/" + name
			}
			o := f.mustAsk(all, one, nil, "").object(t)
			member := "a/" + strings.ReplaceAll(strings.Split(key, ".")[1], "_", ".")
			if got := field(o, "metadata", "namespace") + "/" + field(o, "metadata", "name"); got != key || field(o, "metadata", "annotations", "federator.dev/member") != member {
				t.Errorf("%s: %s of %v, want %s of %s", one, got, o["metadata"], key, member)
			}
		}
	}
	if got := field(f.mustAsk(all, "/flat/api/v1/namespaces/a.one_eu.blue/pods/web", nil, "").object(t), "spec", "nodeName"); got != "a.one_eu.n.1" {
		t.Errorf("the pod is on the node %q", got)
	}
}

// TestFlat_InEveryFormat: keys are flat whatever is made of the object.
func TestFlat_InEveryFormat(t *testing.T) {
	f := collision(t)
	const partial, table = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "as=Table;g=meta.k8s.io;v=v1"
	for _, accept := range []string{"application/yaml", "application/json;" + partial, "application/yaml;" + partial, "application/json;" + table} {
		a := f.mustAsk(all, "/flat/api/v1/namespaces/a.one_eu.blue/pods/web", nil, accept)
		if text := string(a.body); !strings.Contains(text, "a.one_eu.blue") {
			t.Errorf("%s: %s", accept, text)
		}
	}
	rows := f.mustAsk(all, "/flat/api/v1/pods", values("includeObject", "Metadata"), "application/json;"+table).list
	if rows.ColumnDefinitions[0].Name != "Name" || len(rows.Rows) != 2 || rows.Rows[1].Cells[6] != "a.one_eu.n.1" || !strings.Contains(string(rows.Rows[1].Object.Raw), `"a.one_eu.blue"`) {
		t.Errorf("a Table of pods: %+v", rows)
	}
	rows = f.mustAsk(all, "/flat/api/v1/nodes", nil, "application/json;"+table).list
	if rows.Rows[0].Cells[0] != "a.one.n.1" {
		t.Errorf("a Table of nodes: %+v", rows.Rows)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(f.mustAsk(all, "/flat/api/v1/pods", nil, "application/vnd.kubernetes.protobuf").body, nil, nil)
	ok(t, err)
	if list, is := object.(*corev1.PodList); !is || len(list.Items) != 2 || list.Items[1].Namespace != "a.one_eu.blue" || list.Items[1].Spec.NodeName != "a.one_eu.n.1" {
		t.Errorf("protobuf: %v", object)
	}
}

// TestFlat_NamesThatLeadNowhere: a list is empty and says what names look like, an
// object is not found; a watch stays open and says nothing.
func TestFlat_NamesThatLeadNowhere(t *testing.T) { synctest.Test(t, namesThatLeadNowhere) }

func namesThatLeadNowhere(t *testing.T) {
	f := collision(t)
	for _, path := range []string{"namespaces/blue/pods", "namespaces/a.two.blue/pods", "namespaces/a.one.green/pods", "namespaces/a.One.blue/pods"} {
		if got := keysOf(f.mustAsk(all, "/flat/api/v1/"+path, nil, "")); len(got) != 0 {
			t.Errorf("%s: %q", path, got)
		}
		w := httptest.NewRecorder()
		status := f.serve(w, f.request(t.Context(), "/flat/api/v1/"+path, values("watch", "1", "timeoutSeconds", "1"), ""), all)
		if status.Code != 0 || w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("a watch of %s: %d %s%s", path, w.Code, status.Message, w.Body)
		}
		wantRefusal(t, path, f.ask(all, "/flat/api/v1/"+path+"/web", nil, ""), http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	for _, path := range []string{"nodes/n.1", "nodes/a.two.n.1", "namespaces/blue", "namespaces/a.two.blue", "pods/web"} {
		wantRefusal(t, path, f.ask(all, "/flat/api/v1/"+path, nil, ""), http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// TestFlat_Selectors: terms on fields mean what is shown.
func TestFlat_Selectors(t *testing.T) {
	f := collision(t)
	both := []string{"a.one.blue/web", "a.one_eu.blue/web"}
	for selector, want := range map[string][]string{
		"spec.nodeName=a.one.n.1":                                             both[:1],
		"spec.nodeName!=a.one.n.1":                                            both[1:],
		"spec.nodeName=n.1":                                                   nil,
		"spec.nodeName!=n.1":                                                  both,
		"spec.host=a.one_eu.n.1":                                              both[1:],
		"metadata.namespace=a.one_eu.blue":                                    both[1:],
		"metadata.namespace!=a.one_eu.blue":                                   both[:1],
		"metadata.namespace=blue":                                             nil,
		"metadata.namespace!=blue":                                            both,
		"metadata.namespace=":                                                 nil,
		"metadata.name=web":                                                   both,
		"metadata.namespace=a.one.blue,spec.nodeName=a.one.n.1":               both[:1],
		"metadata.namespace=a.one.blue,metadata.namespace=a.one_eu.blue":      nil,
		"metadata.annotations['federator.dev/original-namespace']=blue":       both,
		"metadata.annotations['federator.dev/original-namespace']=a.one.blue": nil,
		"metadata.annotations['federator.dev/member']=a/one":                  both[:1],
	} {
		if got := keysOf(f.mustAsk(all, "/flat/api/v1/pods", values("fieldSelector", selector), "")); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
	for selector, want := range map[string][]string{
		"metadata.name=a.one.n.1":  {"/a.one.n.1"},
		"metadata.name!=a.one.n.1": {"/a.one_eu.n.1"},
		"metadata.name=n.1":        nil,
	} {
		if got := keysOf(f.mustAsk(all, "/flat/api/v1/nodes", values("fieldSelector", selector), "")); !slices.Equal(got, want) {
			t.Errorf("nodes with %s: %q, want %q", selector, got, want)
		}
	}
}

// TestFlat_Refusals speak of names as the client wrote them.
func TestFlat_Refusals(t *testing.T) {
	f := collision(t)
	nobody := granted(authz.NewGrants(map[string]authz.MemberGrant{}, time.Time{}))
	for path, where := range map[string]string{
		"/flat/api/v1/namespaces/a.one.blue/pods":   `in the namespace "a.one.blue"`,
		"/flat/api/v1/namespaces/a.three.blue/pods": `in the namespace "a.three.blue"`,
		"/flat/api/v1/nodes/a.one.n.1":              "at the cluster scope",
		"/flat/api/v1/pods":                         "at the cluster scope",
	} {
		a := f.ask(nobody, path, nil, "")
		wantRefusal(t, path, a, http.StatusForbidden, metav1.StatusReasonForbidden)
		if !strings.HasSuffix(a.status.Message, where) {
			t.Errorf("%s: %s", path, a.status.Message)
		}
	}
}

// TestFlat_KeysWhereMembersDifferInWhatHasNamespaces: each object is as its own member
// has it, so that nobody else's discovery gives it another's key, or hides it.
func TestFlat_KeysWhereMembersDifferInWhatHasNamespaces(t *testing.T) {
	f := newFleet(t, settings{})
	for m, namespaces := range map[string][]string{"a/one": {""}, "e/vil": {"", "blue"}, "e/viler": {"", "blue"}} {
		f.join(m)
		for _, namespace := range namespaces {
			f.put(testObject{kind: fleets, member: m, namespace: namespace, name: "x"})
		}
	}
	f.commit()
	const base = "/apis/shop.example/v1"
	want := []string{"/a.one.x", "/e.vil.x", "e.vil.blue/x", "/e.viler.x", "e.viler.blue/x"}
	if got := keysOf(f.mustAsk(all, "/flat"+base+"/fleets", nil, "")); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, path := range []string{"/flat" + base + "/fleets/a.one.x", "/flat" + base + "/namespaces/e.vil.blue/fleets/x", "/members/a/one" + base + "/fleets/x"} {
		f.mustAsk(all, path, nil, "")
	}
}
