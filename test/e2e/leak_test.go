package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/seed"
	"federator.dev/federator/test/sim"
)

// leakKind is one of the kinds whose objects are hidden from some users.
type leakKind struct {
	path, resource string // as in paths and in grants
	object         func(metav1.ObjectMeta) sim.Object
}

var leakKinds = []leakKind{
	{"/api/v1", "configmaps", func(m metav1.ObjectMeta) sim.Object { return &corev1.ConfigMap{ObjectMeta: m} }},
	{"/api/v1", "services", func(m metav1.ObjectMeta) sim.Object {
		return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "x"}}}
	}},
	{"/api/v1", "serviceaccounts", func(m metav1.ObjectMeta) sim.Object { return &corev1.ServiceAccount{ObjectMeta: m} }},
	{"/api/v1", "pods", func(m metav1.ObjectMeta) sim.Object {
		m.Labels["app"] = "x"
		// It names nothing else that is marked: what is in a body may be seen.
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{ServiceAccountName: m.Name, NodeName: "n"}}
	}},
	{"/apis/apps/v1", "deployments.apps", func(m metav1.ObjectMeta) sim.Object { return &appsv1.Deployment{ObjectMeta: m} }},
	{"/apis/apps/v1", "statefulsets.apps", func(m metav1.ObjectMeta) sim.Object { return &appsv1.StatefulSet{ObjectMeta: m} }},
	{"/apis/batch/v1", "jobs.batch", func(m metav1.ObjectMeta) sim.Object { return &batchv1.Job{ObjectMeta: m} }},
	{"/apis/networking.k8s.io/v1", "ingresses.networking.k8s.io", func(m metav1.ObjectMeta) sim.Object { return &networkingv1.Ingress{ObjectMeta: m} }},
	{"/apis/policy/v1", "poddisruptionbudgets.policy", func(m metav1.ObjectMeta) sim.Object { return &policyv1.PodDisruptionBudget{ObjectMeta: m} }},
	{"/apis/autoscaling/v2", "horizontalpodautoscalers.autoscaling", func(m metav1.ObjectMeta) sim.Object {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: m}
	}},
}

const (
	leakMembers    = 5
	leakNamespaces = 6 // of objects, in each member
)

// marker is in the name of the objects of one kind in one member, and in
// nothing else.
func marker(member int, k leakKind) string {
	plural, _, _ := strings.Cut(k.resource, ".")
	return fmt.Sprintf("marked%d-%s", member, plural)
}

// leakMember is how a member is called: two share a namespace of the hub.
func leakMember(i int) string { return fmt.Sprintf("leak-%d/hidden%d", i/2, i) }

// right is that a user may get, list and watch a kind in a member.
type right struct {
	member   int
	resource string
}

// TestGrants_NothingElseIsVisible gives three users random grants, asks
// every endpoint in random ways, and looks for what they may not read in all
// that comes back.
func TestGrants_NothingElseIsVisible(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0)) // a mix, not a secret
	onHub, err := shared.hub()
	if err != nil {
		t.Fatal(err)
	}
	s := newSimulated(t, leakMembers, leakMember,
		func(i int) []aggregate.Label {
			return []aggregate.Label{{Key: "hidden", Value: fmt.Sprintf("hidden%d", i)}}
		},
		func(i int, m *sim.Member) {
			for _, k := range leakKinds {
				for ns := range leakNamespaces {
					meta := metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", ns), Name: fmt.Sprintf("%s-%d", marker(i, k), ns), Labels: map[string]string{"l": marker(i, k)}}
					if err := m.Create(k.object(meta)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, func(o *queryapi.Options) {
			loop := leakPolicies(t, o.Index)
			o.Queries = map[string]queryapi.Query{
				"rego":       &policyquery.Rego{Index: o.Index, Kinds: o.Fleet.(served).Kinds, State: loop.State},
				"violations": policyquery.Violations{Kinds: o.Fleet.(served).Kinds, Loop: loop},
			}
			leakOnHub(t, onHub, o, loop)
		})
	st := &story{hub: s.api.hub, namespace: "leak"}
	shown := 0 // answers of Rego
	for round := range 2 {
		for u := range 3 {
			user := fmt.Sprintf("u%d", u)
			rights := map[right]bool{}
			for range 1 + rng.IntN(4) {
				st.leakGrant(t, user, rng, rights)
			}
			if u > 0 { // who lists federator's own objects sees those of targets that they may read
				st.leakGrantOnHub(t, user)
			}
			l := &leakCheck{t: t, s: s, rng: rng, user: st.user(user), rights: rights}
			l.client = l.as()
			l.settled()
			for range 120 {
				l.ask()
			}
			before := l.answers
			for range 60 {
				l.askRego()
			}
			shown += l.answers - before
			for range 20 {
				l.askViolations()
			}
			for range 60 {
				l.askHub()
			}
			for range 5 {
				l.askStream()
			}
			l.violations()
			l.searches()
			l.counts()
			watched := l.watchViolations()
			l.watch(func() {
				if err := revoke(t.Context(), st, nil, []string{user}); err != nil {
					t.Fatal(err)
				}
				clear(l.rights)
			})
			watched()
			if l.answers == 0 {
				t.Errorf("round %d, %s: no answer had an object that may be seen", round, user)
			}
		}
	}
	if t.Logf("%d answers of Rego had objects that may be seen", shown); shown == 0 {
		t.Error("Rego shows nothing")
	}
}

// leakGrant grants one kind at one of the three widths.
func (s *story) leakGrant(t *testing.T, user string, rng *rand.Rand, rights map[right]bool) {
	t.Helper()
	k := leakKinds[rng.IntN(len(leakKinds))]
	member := rng.IntN(leakMembers)
	namespace, name, _ := strings.Cut(leakMember(member), "/")
	where, reach := "all", func(int) bool { return true }
	switch rng.IntN(4) {
	case 0:
	case 1:
		where, reach = "here", func(i int) bool { return i/2 == member/2 }
	default:
		where, reach = name, func(i int) bool { return i == member }
	}
	in := *s
	in.namespace = namespace
	if err := s.hub.Apply(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")); err != nil {
		t.Fatal(err)
	}
	if err := in.hubGrant(t.Context(), s.user(user), []string{"get", "list", "watch"}, []string{k.resource}, where); err != nil {
		t.Fatal(err)
	}
	for i := range leakMembers {
		if reach(i) {
			rights[right{i, k.resource}] = true
		}
	}
}

// leakCheck asks as one user.
type leakCheck struct {
	t       *testing.T
	s       *simulated
	rng     *rand.Rand
	user    string
	rights  map[right]bool
	client  *http.Client
	answers int // that showed an object
}

// look fails if what came back has anything that the user may not see.
func (l *leakCheck) look(what string, header http.Header, body []byte) {
	l.t.Helper()
	seen := append(bytes.Clone(body), fmt.Sprint(header)...)
	for i := range leakMembers {
		any := false
		for _, k := range leakKinds {
			if l.rights[right{i, k.resource}] {
				any = true
				if bytes.Contains(seen, []byte(marker(i, k))) {
					l.answers++
				}
				continue
			}
			if bytes.Contains(seen, []byte(marker(i, k))) && !strings.Contains(what, marker(i, k)) {
				l.t.Fatalf("%s shows %s of member %d to %s, who may read %v:\n%.2000s", what, k.resource, i, l.user, slices.Collect(maps.Keys(l.rights)), seen)
			}
		}
		name := fmt.Sprintf("hidden%d", i)
		if !any && bytes.Contains(seen, []byte(name)) && !strings.Contains(what, name) {
			l.t.Fatalf("%s names member %d to %s, who may read nothing there:\n%.2000s", what, i, l.user, seen)
		}
	}
}

// as makes the user's client: reviews are remembered by its credentials.
func (l *leakCheck) as() *http.Client {
	l.t.Helper()
	config, err := l.s.api.config("fleet", l.user)
	if err != nil {
		l.t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

func (l *leakCheck) fetch(ctx context.Context, path, accept string) (int, http.Header, []byte) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.s.api.host+path, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	if err != nil && ctx.Err() == nil {
		l.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, resp.Header, body.Bytes()
}

// settled waits until the grants have come into force: exactly they.
func (l *leakCheck) settled() {
	l.t.Helper()
	err := until(l.t.Context(), patience, func() error {
		for i := range leakMembers {
			for _, k := range leakKinds {
				plural, _, _ := strings.Cut(k.resource, ".")
				code, _, _ := l.fetch(l.t.Context(), "/members/"+leakMember(i)+k.path+"/"+plural+"?limit=1", "application/json")
				if want := l.rights[right{i, k.resource}]; want != (code == http.StatusOK) {
					return fmt.Errorf("%s in member %d: %d, may read: %v", k.resource, i, code, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

var accepts = []string{
	"application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json", "*/*",
}

// ask makes one random request.
func (l *leakCheck) ask() {
	l.t.Helper()
	rng := l.rng
	k, i, ns := leakKinds[rng.IntN(len(leakKinds))], rng.IntN(leakMembers), rng.IntN(leakNamespaces)
	plural, _, _ := strings.Cut(k.resource, ".")
	prefix := []string{"/fleet", "/members/" + leakMember(i), "/flat"}[rng.IntN(3)]
	namespace, flat := fmt.Sprintf("ns%d", ns), strings.Replace(leakMember(i), "/", ".", 1)+"."
	if prefix == "/flat" {
		namespace = flat + namespace
	}
	q := url.Values{}
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"limit", []string{"1", "3", "500"}},
		{"resourceVersion", []string{"0", "1"}},
		{"labelSelector", []string{
			"l=" + marker(i, k), "l!=" + marker(i, k), "federator.dev/member=" + strings.Replace(leakMember(i), "/", ".", 1),
			"federator.dev/member-name", "member.federator.dev/hidden", fmt.Sprintf("member.federator.dev/hidden notin (hidden%d)", i), "app=x",
		}},
		{"fieldSelector", []string{"metadata.namespace=ns1", "spec.nodeName=n", "metadata.name!=x", "spec.serviceAccountName!=y", "metadata.namespace=" + namespace, "metadata.namespace!=" + namespace, "spec.nodeName=" + flat + "n", "spec.nodeName!=" + flat + "n"}},
		{"require", []string{"synced"}},
	} {
		if rng.IntN(4) == 0 {
			q.Set(p.name, p.values[rng.IntN(len(p.values))])
		}
	}
	name := fmt.Sprintf("%s-%d", marker(i, k), ns)
	paths := []string{
		prefix + k.path + "/" + plural, prefix + k.path + "/" + plural, fmt.Sprintf("%s%s/namespaces/%s/%s", prefix, k.path, namespace, plural),
		fmt.Sprintf("%s%s/namespaces/%s/%s/%s", prefix, k.path, namespace, plural, name), prefix + "/api/v1/namespaces/" + namespace,
		prefix + "/apis", prefix + "/api", prefix + k.path, prefix + "/version", prefix + "/openapi/v3", prefix + "/openapi/v3" + strings.Replace(k.path, "/api/", "/api/", 1),
		"/query/v1/members", "/query/v1/count", "/query/v1/related", "/", "/metrics", "/healthz", "/query/v1", prefix + "/api/v1/namespaces/kube-system/secrets",
	}
	path := paths[rng.IntN(len(paths))]
	switch {
	case path == "/query/v1/count":
		q = url.Values{"resource": {k.resource}, "groupBy": {[]string{"member", "namespace", "label:l", "field:metadata.name", "memberLabel:hidden", "kind"}[rng.IntN(6)]}}
	case path == "/query/v1/related":
		q = url.Values{"resource": {k.resource}, "member": {leakMember(i)}, "namespace": {fmt.Sprintf("ns%d", ns)}, "name": {name}, "depth": {"5"}}
	case path == "/query/v1/members" || !strings.Contains(path, "/"+plural):
		q = url.Values{}
	}
	what := path
	if len(q) > 0 {
		what += "?" + q.Encode()
	}
	_, header, body := l.fetch(l.t.Context(), what, accepts[rng.IntN(len(accepts))])
	unescaped, err := url.QueryUnescape(what)
	if err != nil {
		l.t.Fatal(err)
	}
	l.look(unescaped, header, body)
}

// askRego asks one random question about everything: the answer has what may be seen.
func (l *leakCheck) askRego() {
	l.t.Helper()
	rng := l.rng
	k, i, ns := leakKinds[rng.IntN(len(leakKinds))], rng.IntN(leakMembers), rng.IntN(leakNamespaces)
	kinds := []string{"ConfigMap", "Pod", "Deployment.apps", "Ingress.networking.k8s.io", "PodDisruptionBudget.policy", "Secret"}
	kind := kinds[rng.IntN(len(kinds))]
	name := fmt.Sprintf("%s-%d", marker(i, k), ns)
	query := []string{
		"x := data.fleet.views", "x := data.fleet.views.leak.names", "data.fleet.views.leak.names[key]", "data.fleet.views.leak.all[key][i].value",
		fmt.Sprintf("data.fleet.views.leak.names[%q]", name), "count(data.fleet.views.leak.all.everything, n)",
		"x := data.fleet.objects", fmt.Sprintf("x := data.fleet.objects[%q]", kind), fmt.Sprintf("data.fleet.objects[%q][m][ns][n]", kind),
		fmt.Sprintf("data.fleet.objects[%q][%q]", kind, leakMember(i)), fmt.Sprintf("x := data.fleet.by_name[%q]", kind),
		fmt.Sprintf("data.fleet.by_name[%q][%q][%q]", kind, fmt.Sprintf("ns%d", ns), name),
		"x := data.fleet.members", "data.fleet.names[i]", "x := data.fleet.scopes", "data.fleet.scopes[m][k]",
		fmt.Sprintf("data.fleet.scopes[%q]", leakMember(i)), fmt.Sprintf("data.fleet.members[%q].labels[k]", leakMember(i)),
		fmt.Sprintf("to_number(data.fleet.objects[%q][m][ns][n].metadata.name)", kind),
		fmt.Sprintf("x := {n | data.fleet.objects[%q][m][ns][n].metadata.labels.l != \"\"}", kind),
		"walk(data.fleet.objects, [path, value]); is_string(value)", fmt.Sprintf("not data.fleet.objects[%q][m]; x := 1", kind),
		"json.marshal(data.fleet.views, text)", "data.fleet.objects[", "print(data.fleet.views)", "x := data.fleet", "data.leak.violation", "x := data",
	}
	at := query[rng.IntN(len(query))]
	what := "/query/v1/rego?" + url.Values{"query": {at}}.Encode()
	_, header, body := l.fetch(l.t.Context(), what, "application/json")
	l.look(at, header, body)
}

// counts compares every count with what may be listed.
func (l *leakCheck) counts() {
	l.t.Helper()
	for _, k := range leakKinds {
		want := 0
		for i := range leakMembers {
			if l.rights[right{i, k.resource}] {
				want += leakNamespaces
			}
		}
		code, header, body := l.fetch(l.t.Context(), "/query/v1/count?groupBy=label:l&labelSelector=l&resource="+k.resource, "application/json")
		l.look("count of "+k.resource, header, body)
		if want == 0 {
			if code != http.StatusForbidden {
				l.t.Errorf("count of %s for %s: %d, want 403: %s", k.resource, l.user, code, body)
			}
			continue
		}
		var answer struct{ Total int }
		if err := json.Unmarshal(body, &answer); err != nil || answer.Total != want {
			l.t.Errorf("count of %s for %s: %d, %v, want %d: %.300s", k.resource, l.user, answer.Total, err, want, body)
		}
	}
}

// watch opens a watch of a kind that may be read, takes the grants away, and
// wants every object gone from it.
func (l *leakCheck) watch(takeBack func()) {
	l.t.Helper()
	var kind leakKind
	want := 0
	for _, k := range leakKinds {
		n := 0
		for i := range leakMembers {
			if l.rights[right{i, k.resource}] {
				n += leakNamespaces
			}
		}
		if n > want {
			kind, want = k, n
		}
	}
	plural, _, _ := strings.Cut(kind.resource, ".")
	prefix := []string{"/fleet", "/flat"}[l.rng.IntN(2)]
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.s.api.host+prefix+kind.path+"/"+plural+"?watch=1&labelSelector=l", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	held := map[string]bool{}
	for revoked := false; ; {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&event); err != nil {
			if revoked { // it may also be ended: nothing can be seen any more
				return
			}
			l.t.Fatalf("watch of %s: %v", kind.resource, err)
		}
		if !revoked {
			l.look("watch", resp.Header, event.Object)
		}
		var object struct {
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(event.Object, &object); err != nil {
			l.t.Fatal(err)
		}
		switch event.Type {
		case "ADDED":
			held[object.Metadata.Name] = true
		case "DELETED":
			delete(held, object.Metadata.Name)
		}
		if len(held) == want && !revoked {
			revoked = true
			takeBack()
		}
		if revoked && len(held) == 0 {
			return
		}
	}
}
