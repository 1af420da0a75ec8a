package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
)

// leakHubNamespace has the stops.
const leakHubNamespace = "leak-hub"

// kind is as policies and Actions name it.
func (k leakKind) kind() string {
	kind := reflect.TypeOf(k.object(metav1.ObjectMeta{Labels: map[string]string{}})).Elem().Name()
	if _, group, ok := strings.Cut(k.resource, "."); ok {
		return kind + "." + group
	}
	return kind
}

// leakOnHub puts an Action for each kind of each member on the hub, and a stop of each member, and
// adds the queries that what a process holds of the hub answers.
func leakOnHub(t *testing.T, on *kube.Hub, o *queryapi.Options, loop *enforce.Loop) {
	t.Helper()
	ctx := t.Context()
	err := on.InstallCRDs(ctx, "../../charts/federator/crds")
	if err == nil {
		err = on.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+leakHubNamespace+"}\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(on.DirectRESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	actions := client.Resource(v1alpha1.SchemeGroupVersion().WithResource("actions"))
	for i := range leakMembers {
		for n, k := range leakKinds {
			name := leakAction(i, n)
			_, err := actions.Create(ctx, leakActionOf(t, name, i, k), metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = actions.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		}
		of := hub.StopScope{Scope: hub.StopMember, Name: leakMember(i)}
		if _, _, err := hub.CreateStop(ctx, on.Client(), leakHubNamespace, of, "ann", fmt.Sprintf("hidden%d is odd", i)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = hub.DeleteStop(context.Background(), on.Client(), leakHubNamespace, of) })
	}
	reader, err := hubreader.New(hubreader.Options{Config: on.DirectRESTConfig(), Namespace: leakHubNamespace, Loop: loop, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	kinds := o.Fleet.(served).Kinds
	series := policyquery.NewSeries(policyquery.SeriesOptions{Kinds: kinds, Loop: loop, Index: o.Index, Hub: reader})
	for _, run := range []func(context.Context) error{reader.Run, series.Run} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	rego, _ := o.Queries["rego"].(*policyquery.Rego)
	all := policyquery.Actions{Kinds: kinds, Index: o.Index, Hub: reader}
	o.Queries["actions"], o.Queries["actions/{name}"] = all, policyquery.Action{Actions: all}
	o.Queries["sources"], o.Queries["stops"] = policyquery.Sources{Hub: reader}, policyquery.Stops{Kinds: kinds, Index: o.Index, Hub: reader}
	o.Queries["policies"], o.Queries["series"] = &policyquery.Policies{Kinds: kinds, Loop: loop, Hub: reader}, series
	o.Queries["explain"] = policyquery.Explain{Kinds: kinds, Loop: loop, Rego: rego, Hub: reader}
}

// leakGrantOnHub lets a user list what is federator's on the hub.
func (s *story) leakGrantOnHub(t *testing.T, user string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-hub-%d", s.user(user), time.Now().UnixNano())}
	rule := rbacv1.PolicyRule{APIGroups: []string{"federator.dev"}, Resources: []string{"*"}, Verbs: []string{"list"}}
	rbac := s.hub.Client().RbacV1()
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.user(user)}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// leakAction is the name of an Action, which says nothing of its target.
func leakAction(member, kind int) string { return fmt.Sprintf("leak-%d-%d", member, kind) }

func leakActionOf(t *testing.T, name string, member int, k leakKind) *unstructured.Unstructured {
	t.Helper()
	version := strings.TrimPrefix(strings.TrimPrefix(k.path, "/apis/"), "/api/")
	text, err := json.Marshal(&v1alpha1.Action{
		TypeMeta:   metav1.TypeMeta{APIVersion: "federator.dev/v1alpha1", Kind: "Action"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ActionSpec{
			Binding: "own", Package: "own", Violation: marker(member, k) + " is there", Revision: "1", Verb: "patch", PatchType: v1alpha1.MergePatch, PatchHash: v1alpha1.Digest(strings.Repeat("a", 64)),
			Patch: v1alpha1.JSONText(fmt.Sprintf(`{"metadata":{"labels":{"l":%q}}}`, marker(member, k))),
			Target: v1alpha1.Target{
				Member: leakMember(member), MemberUID: fmt.Sprintf("uid-%d", member), APIVersion: version, Kind: v1alpha1.Kind(k.kind()), Namespace: "ns1", Name: marker(member, k) + "-1", UID: "u", ResourceVersion: "1",
			},
		},
		Inverse: &v1alpha1.Inverse{Verb: "patch", Patch: `{"metadata":{"labels":null}}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(bytes.Replace(text, []byte(`"status":{}`), []byte(`"status":{"phase":"Pending"}`), 1)); err != nil {
		t.Fatal(err)
	}
	return u
}

// hubQuery is a random question that the pages of the web UI ask. What is looked for in the answer is
// not in it, unless a member is named.
func (l *leakCheck) hubQuery() string {
	rng := l.rng
	n, i := rng.IntN(len(leakKinds)), rng.IntN(leakMembers)
	k, ns := leakKinds[n], rng.IntN(leakNamespaces)
	return "/query/v1/" + []func() string{
		func() string { return "policies" },
		func() string { return "policies?policy=" + []string{"leak", "own"}[rng.IntN(2)] },
		func() string {
			return "explain?" + url.Values{"policy": {[]string{"leak", "own"}[rng.IntN(2)]}, "member": {leakMember(i)}, "kind": {k.kind()}, "namespace": {fmt.Sprintf("ns%d", ns)}, "name": {fmt.Sprintf("%s-%d", marker(i, k), ns)}}.Encode()
		},
		func() string { return "actions" },
		func() string { return "actions?limit=3&policy=own&phase=Pending" },
		func() string { return "actions?" + url.Values{"member": {leakMember(i)}, "kind": {k.kind()}}.Encode() },
		func() string { return "actions/" + leakAction(i, n) },
		func() string { return "sources" },
		func() string { return "stops" },
		func() string { return "series" },
		func() string { return "series?" + url.Values{"member": {leakMember(i)}, "policy": {"own"}}.Encode() },
		func() string { return "violations?groupBy=member&groupBy=kind&groupBy=state&firstSeenSince=24h" },
		func() string { return "violations?groupBy=policy&search=marked" },
		func() string { return "violations?firstSeenSince=24h&search=is+there&limit=7" },
		func() string { return "members?details=true" },
		func() string { return "members?summary=true&details=true" },
		func() string { return "find?limit=100&namePrefix=marked&resource=" + k.resource + "&resource=pods" },
	}[rng.IntN(17)]()
}

// askHub asks one of them, by itself.
func (l *leakCheck) askHub() {
	l.t.Helper()
	what := l.hubQuery()
	code, header, body := l.fetch(l.t.Context(), what, "application/json")
	if code != http.StatusOK && code != http.StatusForbidden && code != http.StatusNotFound {
		l.t.Errorf("%s: %d %s", what, code, body)
	}
	l.look(unescape(l.t, what), header, body)
}

// askStream asks several of them by one stream, with a watch beside, until each was answered.
func (l *leakCheck) askStream() {
	l.t.Helper()
	k := leakKinds[l.rng.IntN(len(leakKinds))]
	plural, _, _ := strings.Cut(k.resource, ".")
	asked := map[string]string{"watch": "/fleet" + k.path + "/" + plural + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=l", "count": "/query/v1/count?groupBy=member&resource=" + k.resource}
	for n := range 8 {
		asked[fmt.Sprint("q", n)] = l.hubQuery()
	}
	q := url.Values{"watch": {"true"}}
	for id, path := range asked {
		q.Add("s", id+" "+path)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.s.api.host+"/query/v1/stream?"+q.Encode(), nil)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		l.t.Fatalf("the stream: %d %s", resp.StatusCode, text)
	}
	lines, answered := bufio.NewReader(resp.Body), map[string]bool{}
	for len(answered) < len(asked) {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			l.t.Fatalf("the stream, before all of %v was answered: %v", asked, err)
		}
		var one struct{ ID string }
		if err := json.Unmarshal(line, &one); err != nil {
			l.t.Fatalf("%v: %s", err, line)
		}
		l.look(unescape(l.t, asked[one.ID]), resp.Header, line)
		if asked[one.ID] != "" {
			answered[one.ID] = true
		}
	}
}

func unescape(t *testing.T, text string) string {
	t.Helper()
	plain, err := url.QueryUnescape(text)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// searches wants what a search counts to be of what may be read: a marker of something else is found nowhere.
func (l *leakCheck) searches() {
	l.t.Helper()
	for i := range leakMembers {
		for _, k := range leakKinds {
			_, header, body := l.fetch(l.t.Context(), "/query/v1/violations?groupBy=policy&search="+marker(i, k)+"-", "application/json")
			l.look("a search", header, body)
			var found struct{ Groups []struct{ Violations int } }
			if err := json.Unmarshal(body, &found); err != nil {
				l.t.Fatalf("%v: %s", err, body)
			}
			n, want := 0, 0
			for _, g := range found.Groups {
				n += g.Violations
			}
			if l.rights[right{i, k.resource}] {
				want = leakNamespaces
			}
			if n != want {
				l.t.Errorf("a search for %s counts %d for %s, want %d: %s", marker(i, k), n, l.user, want, body)
			}
		}
	}
	for _, k := range leakKinds {
		want := 0
		for i := range leakMembers {
			if l.rights[right{i, k.resource}] {
				want += leakNamespaces
			}
		}
		_, header, body := l.fetch(l.t.Context(), "/query/v1/find?limit=100&namePrefix=marked&resource="+k.resource, "application/json")
		l.look("find", header, body)
		var found struct {
			Items     []struct{ Members int }
			Truncated bool
			Forbidden []string
		}
		if err := json.Unmarshal(body, &found); err != nil || len(found.Items) != want || found.Truncated || (len(found.Forbidden) > 0) != (want == 0) {
			l.t.Errorf("%d %s are found for %s, %v, want %d: %.500s", len(found.Items), k.resource, l.user, err, want, body)
		}
	}
	_, _, body := l.fetch(l.t.Context(), "/query/v1/policies", "application/json")
	var policies policyquery.PolicyList
	if err := json.Unmarshal(body, &policies); err != nil {
		l.t.Fatalf("%v: %s", err, body)
	}
	for _, p := range policies.Items {
		if want := len(l.rights) * leakNamespaces; p.Name == "own" && (p.Violations == nil || *p.Violations != want || p.Cost != nil) {
			l.t.Errorf("policies count %v violations of own for %s, who may read %d: %s", p.Violations, l.user, want, body)
		}
		if p.Name == "leak" && (!p.Withheld || p.Violations != nil) {
			l.t.Errorf("policies count what is withheld from %s: %s", l.user, body)
		}
	}
}
