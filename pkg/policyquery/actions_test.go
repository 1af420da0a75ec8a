package policyquery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-openapi/pkg/spec3"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/openapi"
)

// hubServer serves what a hubreader holds of a real hub.
type hubServer struct {
	*planServer
	reader *hubreader.Reader
}

func startHub(t *testing.T, opts hubreader.Options, more ...func(*queryapi.Options, *hubreader.Reader)) *hubServer {
	t.Helper()
	fleet := shared.Start(t)
	opts.Config, opts.Namespace = fleet.Hub.DirectRESTConfig(), "default"
	reader, err := hubreader.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &hubServer{reader: reader}
	s.planServer = startPlans(t, func(o *queryapi.Options) {
		o.Authorization.Members, o.Authorization.UserPrefix = teams{}, "team:"
		actions := policyquery.Actions{Kinds: planFleet{}.Kinds, Index: o.Index, Hub: reader}
		o.Queries["actions"], o.Queries["actions/{name}"] = actions, policyquery.Action{Actions: actions}
		o.Queries["halts"] = policyquery.Halts{Hub: reader}
		o.Queries["sources"], o.Queries["stops"] = policyquery.Sources{Hub: reader}, policyquery.Stops{Kinds: planFleet{}.Kinds, Index: o.Index, Hub: reader}
		for _, change := range more {
			change(o, reader)
		}
	})
	return s
}

// run has the reader read the hub.
func (s *hubServer) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.reader.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	})
}

// mayOnHub lets a user list federator's resources on the hub.
func (s *hubServer) mayOnHub(name string, resources ...string) {
	s.t.Helper()
	ctx, rbac, meta := s.t.Context(), shared.Fleet.Hub.Client().RbacV1(), metav1.ObjectMeta{Name: name + "-hub"}
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"federator.dev"}, Verbs: []string{"list"}, Resources: resources},
	}}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { // a user of another test may have the name
		_ = rbac.ClusterRoleBindings().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(context.Background(), meta.Name, metav1.DeleteOptions{})
	})
}

func (s *hubServer) ask(user *http.Client, path string, into any) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.address+"/query/v1/"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := user.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if into != nil && resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, into); err != nil {
			s.t.Fatal(err)
		}
	}
	return resp.StatusCode, string(text)
}

// list wants a list of Actions.
func (s *hubServer) list(user *http.Client, query string) (list policyquery.ActionList, names string) {
	s.t.Helper()
	if code, text := s.ask(user, "actions?"+query, &list); code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", query, code, text)
	}
	var all []string
	for _, a := range list.Items {
		all = append(all, a.Name)
	}
	return list, strings.Join(all, " ")
}

// act records an Action on the hub.
func (s *hubServer) act(name, member, namespace string, change func(*v1alpha1.Action)) {
	s.t.Helper()
	digest := v1alpha1.Digest(strings.Repeat("a", 64))
	a := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ActionSpec{
			Binding: "tier", Package: "acme.tier", Violation: "no tier", Revision: "1", Verb: "patch", PatchType: v1alpha1.MergePatch, PatchHash: digest,
			Patch: `{"spec":{"replicas":3},"metadata":{"labels":{"tier":"gold"}}}`,
			Target: v1alpha1.Target{
				Member: member, MemberUID: "uid-" + member, APIVersion: "apps/v1", Kind: "Deployment.apps", Namespace: namespace, Name: "here", UID: "u", ResourceVersion: "1",
			},
		},
		Inverse: &v1alpha1.Inverse{Verb: "patch", Patch: `{"spec":{"replicas":1},"metadata":{"labels":null}}`},
	}
	if change != nil {
		change(a)
	}
	a.APIVersion, a.Kind = "federator.dev/v1alpha1", "Action"
	text, err := json.Marshal(a)
	if err == nil {
		text = bytes.Replace(text, []byte(`"status":{}`), []byte(`"status":{"phase":"Pending"}`), 1)
		err = s.rest.Post().Resource("actions").Body(text).Do(s.t.Context()).Error()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.rest.Delete().Resource("actions").Name(name).Do(context.Background()).Error() })
}

// TestActions_AreWithinTheCallersGrants, also while they change; what a caller may not read is counted, whatever
// it selects, and nothing else is said of it.
func TestActions_AreWithinTheCallersGrants(t *testing.T) {
	s := startHub(t, hubreader.Options{})
	root, narrow, web, stranger := newName("root"), newName("narrow"), "web", newName("stranger")
	all, b, ofWeb, none := s.user(root, nil, "*"), s.user(narrow, []string{"b"}, "*"), s.user(web, nil), s.user(stranger, nil, "*")
	for _, name := range []string{root, narrow, web} {
		s.mayOnHub(name, "actions", "policysources", "fleetpolicies")
	}
	eventually(t, func() error {
		if code, text := s.ask(all, "actions", nil); code != http.StatusServiceUnavailable || !strings.Contains(text, "has not been read") {
			return fmt.Errorf("before the hub is read: %d %s", code, text)
		}
		return nil
	})
	s.act("a-shop", "fleet/a", "shop", nil)
	s.act("a-web", "fleet/a", "web", nil)
	s.act("b-web", "fleet/b", "web", nil)
	s.act("former", "fleet/b", "web", func(a *v1alpha1.Action) { a.Spec.Target.MemberUID = "another" })
	s.act("gone", "fleet/gone", "web", nil)
	s.run()
	names := func(user *http.Client, query string) (string, int) {
		list, names := s.list(user, query)
		return names, list.Hidden
	}
	eventually(t, func() error {
		if code, text := s.ask(all, "actions", nil); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	for _, c := range []struct {
		user   *http.Client
		query  string
		want   string
		hidden int
	}{
		{all, "member=fleet/a&member=fleet/b&policy=tier&phase=&kind=", "", 2},
		{all, "policy=tier", "a-shop a-web b-web", 2},
		{b, "", "b-web", 4},
		{b, "member=fleet/a", "", 4},
		{b, "namespace=shop", "", 4},
		{ofWeb, "", "a-web b-web", 3},
		{ofWeb, "name=none", "", 3},
		{ofWeb, "since=1h&until=0s&kind=Deployment.apps&name=here&member=fleet/a", "a-web", 3},
		{ofWeb, "until=1h", "", 3},
	} {
		if strings.Contains(c.query, "phase=&") {
			if code, _ := s.ask(c.user, "actions?"+c.query, nil); code != http.StatusBadRequest {
				t.Errorf("%s: %d", c.query, code)
			}
			continue
		}
		got, hidden := names(c.user, c.query)
		if sortedWords(got) != c.want || hidden != c.hidden {
			t.Errorf("%q: %q, %d hidden; want %q, %d", c.query, got, hidden, c.want, c.hidden)
		}
	}
	for _, path := range []string{"actions", "actions/a-web", "sources"} {
		if code, text := s.ask(none, path, nil); code != http.StatusForbidden || strings.Contains(text, "fleet/") || !strings.Contains(text, "you may not list") {
			t.Errorf("%s of one who may not list it on the hub: %d %s", path, code, text)
		}
	}
	for name, want := range map[string]int{"b-web": http.StatusOK, "a-web": http.StatusNotFound, "former": http.StatusNotFound, "gone": http.StatusNotFound, "none": http.StatusNotFound, "..": http.StatusBadRequest} {
		code, text := s.ask(b, "actions/"+strings.ReplaceAll(name, "..", "%2E%2E"), nil)
		if code != want && name != ".." || code == http.StatusNotFound && !strings.Contains(text, "there is no Action "+name+", or you may not read its target") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	changed := policyquery.Actions{Hub: s.reader}.Changes()
	s.act("new", "fleet/a", "web", nil)
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("nobody was told of a new Action")
	}
	eventually(t, func() error {
		if got, _ := names(ofWeb, "member=fleet/a"); sortedWords(got) != "a-web new" {
			return errors.New(got)
		}
		return nil
	})
	if err := s.rest.Delete().Resource("actions").Name("a-web").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got, _ := names(ofWeb, "member=fleet/a"); got != "new" {
			return errors.New(got)
		}
		return nil
	})
	s.pages(all)
	s.described(all)
}

// pages wants the pages of a list to be the list.
func (s *hubServer) pages(user *http.Client) {
	s.t.Helper()
	whole, want := s.list(user, "")
	var got []string
	query := "limit=1"
	for {
		page, names := s.list(user, query)
		if got = append(got, names); page.Continue == "" || page.Total != whole.Total {
			break
		}
		query = "limit=1&continue=" + page.Continue
	}
	if strings.Join(got, " ") != want || len(got) < 2 {
		s.t.Errorf("pages %q of %q", got, want)
	}
	for _, wrong := range []string{"limit=0", "limit=x", "continue=x", "since=x", "until=-1h", "phase=x", "x=y", "since=1h&since=2h"} {
		if code, text := s.ask(user, "actions?"+wrong, nil); code != http.StatusBadRequest {
			s.t.Errorf("%s: %d %s", wrong, code, text)
		}
	}
}

// described holds answers to their description.
func (s *hubServer) described(user *http.Client) {
	s.t.Helper()
	var details policyquery.ActionDetails
	if code, text := s.ask(user, "actions/b-web", &details); code != http.StatusOK {
		s.t.Fatalf("%d %s", code, text)
	}
	text, err := json.Marshal(details.Changes)
	if err != nil || string(text) != `[{"path":"/metadata/labels","after":{"tier":"gold"}},{"path":"/spec/replicas","before":1,"after":3}]` || details.Problem != "" || strings.Contains(fmt.Sprint(details.Action), "managedFields") {
		s.t.Errorf("%s, %+v, %v", text, details, err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.address+"/openapi/v3/query/v1", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := user.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc spec3.OpenAPI
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
		s.t.Fatal(err)
	}
	for path, at := range map[string]string{"actions": "actions", "actions?limit=1": "actions", "actions/b-web": "actions/{name}", "sources": "sources", "stops": "stops", "halts": "halts"} {
		code, body := s.ask(user, path, nil)
		media := doc.Paths.Paths["/query/v1/"+at].Get.Responses.StatusCodeResponses[http.StatusOK].Content["application/json"]
		if code != http.StatusOK {
			s.t.Errorf("%s: %d %s", path, code, body)
		} else if err := openapi.Conforms(&doc, media.Schema, []byte(body)); err != nil {
			s.t.Errorf("%s: %v: %s", path, err, body)
		}
	}
}

// TestStops_OfMembersAreOfThoseWhoMayReadThem, and PolicySources of those who may list them.
func TestStops_OfMembersAreOfThoseWhoMayReadThem(t *testing.T) {
	s := startHub(t, hubreader.Options{})
	root, narrow := newName("root"), newName("narrow")
	all, b := s.user(root, nil, "*"), s.user(narrow, []string{"b"}, "*")
	s.mayOnHub(root, "policysources")
	s.run()
	client := shared.Fleet.Hub.Client()
	s.stop(client, hub.StopScope{Scope: hub.StopMember, Name: "fleet/a"})
	s.stop(client, hub.StopScope{Scope: hub.StopPolicy, Name: "tier"})
	s.stop(client, hub.StopScope{Scope: hub.StopSource, Name: "git"})
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-odd", Namespace: "default"}, Data: map[string]string{"scope": "member", "name": "fleet/a", "reason": "fleet/a is odd"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), bad, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().ConfigMaps("default").Delete(context.Background(), bad.Name, metav1.DeleteOptions{})
	})
	if err := shared.Fleet.Hub.Apply(t.Context(), []byte("apiVersion: federator.dev/v1alpha1\nkind: PolicySource\nmetadata: {name: git}\nspec: {url: \"https://example.com/x.git\"}\n")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.rest.Delete().Resource("policysources").Name("git").Do(context.Background()).Error() })
	eventually(t, func() error {
		var list policyquery.StopList
		code, text := s.ask(all, "stops", &list)
		if code != http.StatusOK || len(list.Items) != 4 || list.Items[0].Name != "fleet/a" || list.Items[0].By != "ann" || list.Items[0].Reason != "why" || !strings.Contains(list.Items[1].Problem, "malformed") {
			return fmt.Errorf("%d %s", code, text)
		}
		var sources policyquery.SourceList
		if code, text := s.ask(all, "sources", &sources); code != http.StatusOK || len(sources.Items) != 1 || strings.Contains(text, "managedFields") {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	for user, want := range map[*http.Client][]string{all: {"list fleetpolicies.federator.dev", ""}, b: {"list fleetpolicies.federator.dev", "list policysources.federator.dev"}} {
		var list policyquery.StopList
		code, text := s.ask(user, "stops", &list)
		got := map[string]policyquery.Stop{}
		for _, i := range list.Items {
			got[i.Scope] = i
		}
		for i, scope := range []string{"policy", "source"} {
			stop, forbidden := got[scope], want[i]
			if code != http.StatusOK || stop.Name == "" || stop.HubForbidden != forbidden || (stop.Reason != "") != (forbidden == "") || (stop.By != "") != (forbidden == "") {
				t.Errorf("%s: %d %+v, want %q: %s", scope, code, stop, forbidden, text)
			}
		}
	}
	if code, text := s.ask(b, "stops", nil); code != http.StatusOK || strings.Contains(text, "fleet/a") || !strings.Contains(text, "tier") || !strings.Contains(text, "malformed") {
		t.Errorf("%d %s", code, text)
	}
	for _, wrong := range []string{"stops?x=y", "sources?x=y"} {
		if code, text := s.ask(all, wrong, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, code, text)
		}
	}
}

func (s *hubServer) stop(client kubernetes.Interface, of hub.StopScope) {
	s.t.Helper()
	if _, _, err := hub.CreateStop(s.t.Context(), client, "default", of, "ann", "why"); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _, _ = hub.DeleteStop(context.Background(), client, "default", of) })
}

// TestActions_TheNewestAreHeld where there are too many.
func TestActions_TheNewestAreHeld(t *testing.T) {
	s := startHub(t, hubreader.Options{MaxActions: 2})
	root := newName("root")
	all := s.user(root, nil, "*")
	s.mayOnHub(root, "actions")
	s.act("oldest", "fleet/a", "web", nil)
	awaitNextSecond(t) // creationTimestamp has seconds
	for _, name := range []string{"n1", "n2"} {
		s.act(name, "fleet/a", "web", nil)
	}
	s.run()
	wants := func(want string) {
		t.Helper()
		eventually(t, func() error {
			var list policyquery.ActionList
			code, text := s.ask(all, "actions", &list)
			if code != http.StatusOK || !list.Older || len(list.Items) != 2 || list.Items[0].Name+" "+list.Items[1].Name != want {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		})
	}
	wants("n1 n2")
	awaitNextSecond(t)
	s.act("n3", "fleet/a", "web", nil)
	wants("n3 n1")
}

// awaitNextSecond waits until what is recorded in seconds is recorded as later than what was so far.
func awaitNextSecond(t *testing.T) {
	t.Helper()
	second := time.Now().Unix()
	eventually(t, func() error {
		if time.Now().Unix() <= second {
			return errors.New("it is still the same second")
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	if err := kube.Until(t.Context(), patience, check); err != nil {
		t.Fatal(err)
	}
}

func sortedWords(text string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Fields(text))), " ")
}
