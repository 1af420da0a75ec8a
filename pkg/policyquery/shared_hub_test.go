package policyquery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/hubreader"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/remediate/planreader"
	"federator.dev/federator/pkg/remediate/plantest"
)

// storingHub is a hub that reviews access, and stores objects. Its watches never send anything.
type storingHub struct {
	*reviews

	mu      sync.Mutex
	objects map[string]map[string]map[string]any // by resource and name
}

// put stores an object as its manifest says.
func (h *storingHub) put(t *testing.T, resource, manifest string) {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(manifest), &o); err != nil {
		t.Fatalf("%v: %s", err, manifest)
	}
	h.store(resource, o)
}

func (h *storingHub) store(resource string, o map[string]any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.objects[resource] == nil {
		h.objects[resource] = map[string]map[string]any{}
	}
	meta := o["metadata"].(map[string]any)
	meta["uid"], meta["resourceVersion"] = fmt.Sprint("uid-", meta["name"]), "1"
	if meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = "2026-01-02T03:04:05Z"
	}
	h.objects[resource][fmt.Sprint(meta["name"])] = o
}

func (h *storingHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ours := strings.CutPrefix(r.URL.Path, "/apis/federator.dev/v1alpha1/")
	if !ours {
		if path, ours = strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/federator/"); !ours {
			h.reviews.ServeHTTP(w, r)
			return
		}
	}
	resource, name, _ := strings.Cut(path, "/")
	name, status := strings.CutSuffix(name, "/status")
	var given map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	case status:
		h.mu.Lock()
		o := maps.Clone(h.objects[resource][name])
		h.mu.Unlock()
		o["status"] = given["status"]
		h.store(resource, o)
		write(w, o)
		return
	case given != nil:
		h.store(resource, given)
		write(w, given)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.objects[resource][name]; o != nil {
		write(w, o)
		return
	} else if name != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		return
	}
	kind := map[string]string{"configmaps": "ConfigMapList", "actions": "ActionList", "plans": "PlanList", "fleetpolicies": "FleetPolicyList", "policysources": "PolicySourceList", "policystates": "PolicyStateList"}[resource]
	version := map[bool]string{true: "v1", false: "federator.dev/v1alpha1"}[resource == "configmaps"]
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(h.objects[resource])) {
		items = append(items, h.objects[resource][name])
	}
	write(w, map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{"resourceVersion": "1"}, "items": items})
}

// putAction stores an Action that has succeeded.
func (h *storingHub) putAction(t *testing.T, name, member, uid, kind string) {
	t.Helper()
	h.put(t, "actions", fmt.Sprintf(`{"apiVersion":"federator.dev/v1alpha1","kind":"Action","metadata":{"name":%q},
		"spec":{"binding":"replicas","package":"replicas","verb":"patch","target":{"member":%q,"memberUID":%q,"apiVersion":"v1","kind":%q,"namespace":"shop","name":"web","uid":"u"}},
		"status":{"phase":"Succeeded"}}`, name, member, uid, kind))
}

// hubPair are two processes that share a fleet, and what its hub has.
type hubPair struct {
	t         *testing.T
	processes []*sharer
	hub       *storingHub
	rest      rest.Interface
}

func startHubPair(t *testing.T) *hubPair {
	t.Helper()
	h := &storingHub{reviews: &reviews{}, objects: map[string]map[string]map[string]any{}}
	at := httptest.NewServer(h)
	t.Cleanup(at.Close)
	config := &rest.Config{Host: at.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, Transport: &http.Transport{}}
	t.Cleanup(config.Transport.(*http.Transport).CloseIdleConnections)
	client, err := hub.NewRESTClient(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &hubPair{t: t, hub: h, rest: client}
	h.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		if a.Group == "federator.dev" {
			return s.User != "sam"
		}
		switch s.User {
		case "ann", "sam": // all
			return true
		case "bob": // one member of one process
			return a.Namespace == "fleet" && a.Name == "a"
		case "eve": // Deployments, everywhere
			return a.Resource == "deployments.apps"
		}
		return false
	}
	p.fill(client)
	var readers []func(context.Context) error
	p.processes = pairOf(t, at.URL, load(t, "high"), bindings, func(index *aggregate.Index, loop *enforce.Loop, kinds policyquery.Kinds) map[string]queryapi.Query {
		reader, err := hubreader.New(hubreader.Options{Config: config, Namespace: "federator"})
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, reader.Run)
		actions := policyquery.Actions{Kinds: kinds, Index: index, Hub: reader}
		return map[string]queryapi.Query{
			"actions": actions, "actions/{name}": policyquery.Action{Actions: actions}, "halts": policyquery.Halts{Hub: reader}, "sources": policyquery.Sources{Hub: reader},
			"stops": policyquery.Stops{Kinds: kinds, Index: index, Hub: reader}, "policies": &policyquery.Policies{Kinds: kinds, Loop: loop, Hub: reader},
			"plans/{policy}": policyquery.Plans{Kinds: kinds, Index: index, Reader: planReader{planreader.New(client)}},
		}
	}, "ConfigMap")
	for _, run := range readers {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	maps, err := p.processes[1].index.OpenScopeAs("fleet/b", "ConfigMap", "v1", "configmaps")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	tell(t, p.processes)
	return p
}

// fill puts on the hub what is of members of both processes, of one that has another UID, and of one that there is not.
func (p *hubPair) fill(client rest.Interface) {
	p.t.Helper()
	for _, a := range [][3]string{{"a-1", "fleet/a", "fleet/a"}, {"b-1", "fleet/b", "fleet/b"}, {"c-1", "fleet/c", "fleet/c"}, {"left", "fleet/left", "left"}, {"other", "fleet/b", "another"}} {
		p.hub.putAction(p.t, a[0], a[1], a[2], "Deployment.apps")
	}
	p.hub.putAction(p.t, "b-map", "fleet/b", "fleet/b", "ConfigMap")
	p.hub.put(p.t, "fleetpolicies", `{"apiVersion":"federator.dev/v1alpha1","kind":"FleetPolicy","metadata":{"name":"replicas"},"spec":{"package":"replicas","mode":"Enforce"}}`)
	p.hub.put(p.t, "policysources", `{"apiVersion":"federator.dev/v1alpha1","kind":"PolicySource","metadata":{"name":"git"},"spec":{"url":"https://example.com/x.git"}}`)
	p.hub.put(p.t, "policystates", `{"apiVersion":"federator.dev/v1alpha1","kind":"PolicyState","metadata":{"name":"replicas"},"status":{"halts":[{"id":"h1","reason":"OverLimit","message":"too many","since":"2026-01-03T03:04:05.000000Z"}]}}`)
	p.hub.put(p.t, "configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"federator-stop-member-fleet.b","namespace":"federator","labels":{"federator.dev/stop":"member"}},"data":{"scope":"member","name":"fleet/b","reason":"why"}}`)
	groups := []v1alpha1.PlanGroup{
		group("fleet/a", "fleet/a", "Deployment.apps", v1alpha1.Patch, map[string][]string{"shop": {"p-a"}}),
		group("fleet/b", "fleet/b", "Deployment.apps", v1alpha1.Patch, map[string][]string{"shop": {"p-b"}}),
		group("fleet/b", "another", "Deployment.apps", v1alpha1.Patch, map[string][]string{"shop": {"p-other"}}),
		group("fleet/b", "fleet/b", "ConfigMap", v1alpha1.Delete, map[string][]string{"shop": {"p-map"}}),
		group("fleet/c", "fleet/c", "Deployment.apps", v1alpha1.Patch, map[string][]string{"shop": {"p-c"}}),
	}
	if _, err := plantest.Create(p.t.Context(), client, v1alpha1.PlanSpec{Policy: "replicas"}, v1alpha1.PlanStatus{State: v1alpha1.PlanWaiting, Required: 1}, groups...); err != nil {
		p.t.Fatal(err)
	}
}

// actions asks a process for Actions.
func (p *hubPair) actions(of *sharer, query string) (list policyquery.ActionList, names string) {
	p.t.Helper()
	of.into("/query/v1/actions?"+query, &list)
	var all []string
	for _, a := range list.Items {
		all = append(all, a.Name)
	}
	return list, strings.Join(all, " ")
}

// plans asks a process for Plans.
func (p *hubPair) plans(of *sharer, query string) (list policyquery.PlanList, names string) {
	p.t.Helper()
	of.into("/query/v1/plans/replicas?"+query, &list)
	var all []string
	for _, target := range list.Items {
		all = append(all, target.Name)
	}
	return list, strings.Join(all, " ")
}

// TestShared_HubIsOfTheWholeFleet: each process answers for all Actions, Plans, halts and stops, within what the caller may read of
// members that others judge.
func TestShared_HubIsOfTheWholeFleet(t *testing.T) {
	p := startHubPair(t)
	for _, of := range p.processes {
		of.until(func() error {
			resp := of.get(t.Context(), "/query/v1/actions")
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%d", resp.StatusCode)
			}
			return nil
		})
		for _, c := range []struct {
			user, actions, targets, stops string
			hidden, hiddenTargets         int
			corrected                     int
		}{
			{"ann", "a-1 b-1 b-map c-1", "p-a p-map p-b p-c", "fleet/b", 2, 1, 4},
			{"eve", "a-1 b-1 c-1", "p-a p-b p-c", "fleet/b", 3, 2, 3},
			{"bob", "a-1", "p-a", "", 5, 4, 1},
		} {
			of.token = c.user
			list, names := p.actions(of, "")
			if names != c.actions || list.Total != len(list.Items) || list.Hidden != c.hidden || len(list.Absent) != 0 {
				t.Errorf("%s asks %s: %q, %d hidden, absent %v, want %q and %d", c.user, of.id, names, list.Hidden, list.Absent, c.actions, c.hidden)
			}
			var paged []string
			for more := ""; ; {
				page, names := p.actions(p.as(len(paged)%2, c.user), "limit=1"+more)
				if paged = append(paged, names); page.Continue == "" || len(paged) > 9 {
					break
				}
				more = "&continue=" + page.Continue
			}
			if got := strings.Join(paged, " "); got != c.actions {
				t.Errorf("%s asks page by page: %q, want %q", c.user, got, c.actions)
			}
			for name, code := range map[string]int{"a-1": 200, "b-1": 200, "b-map": 200, "left": 404, "other": 404, "none": 404} {
				if !slices.Contains(strings.Split(c.actions, " "), name) {
					code = 404
				}
				of.fails("/query/v1/actions/"+name, code)
			}
			plans, targets := p.plans(of, "")
			if len(plans.Plans) != 1 || targets != c.targets || plans.Plans[0].Targets != 5 || plans.Plans[0].Hidden != c.hiddenTargets {
				t.Errorf("%s asks %s for plans: %q of %+v, want %q", c.user, of.id, targets, plans.Plans, c.targets)
			}
			paged = nil
			for more := ""; ; {
				page, names := p.plans(p.as(len(paged)%2, c.user), "limit=1"+more)
				if paged = append(paged, names); page.Continue == "" || len(paged) > 9 {
					break
				}
				more = "&continue=" + page.Continue
			}
			if got := strings.Join(paged, " "); got != c.targets {
				t.Errorf("%s asks for plans page by page: %q, want %q", c.user, got, c.targets)
			}
			var stops policyquery.StopList
			of.into("/query/v1/stops", &stops)
			if len(stops.Items) != len(strings.Fields(c.stops)) || c.stops != "" && stops.Items[0].Name != c.stops {
				t.Errorf("%s asks %s for stops: %+v", c.user, of.id, stops.Items)
			}
			var halts policyquery.HaltList
			of.into("/query/v1/halts", &halts)
			if len(halts.Items) != 1 || !halts.Items[0].Stands || halts.Items[0].ID != "h1" {
				t.Errorf("%s asks %s for halts: %+v", c.user, of.id, halts)
			}
			var policies policyquery.PolicyList
			of.into("/query/v1/policies?policy=replicas", &policies)
			if n := policies.Items[0].Corrected; n == nil || *n != c.corrected {
				t.Errorf("%s asks %s how many are corrected: %v, want %d", c.user, of.id, n, c.corrected)
			}
			of.into("/query/v1/sources", &policyquery.SourceList{})
		}
		of.token = "sam" // who may list nothing on the hub
		for _, path := range []string{"actions", "actions/a-1", "halts", "sources"} {
			of.fails("/query/v1/"+path, 403)
		}
	}
}

// as has a process asked by a user.
func (p *hubPair) as(process int, user string) *sharer {
	p.processes[process].token = user
	return p.processes[process]
}

// TestShared_SaysWhoseTargetsAreNotKnown: what is in members of a lost process is not shown, and that is said to those who may read
// them.
func TestShared_SaysWhoseTargetsAreNotKnown(t *testing.T) {
	p := startHubPair(t)
	p.processes[1].listener.CloseClientConnections()
	p.processes[1].listener.Close()
	of := p.as(0, "ann")
	of.until(func() error {
		resp := of.get(t.Context(), "/query/v1/actions")
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%d", resp.StatusCode)
		}
		return nil
	})
	for user, absent := range map[string]string{"ann": "[fleet/b]", "bob": "[]"} {
		of.token = user
		list, names := p.actions(of, "")
		if want := map[string]string{"ann": "a-1 c-1", "bob": "a-1"}[user]; fmt.Sprint(list.Absent) != absent || names != want || list.Hidden != 6-len(list.Items) {
			t.Errorf("%s: absent %v, %q, %d hidden", user, list.Absent, names, list.Hidden)
		}
		plans, targets := p.plans(of, "")
		if want := map[string]string{"ann": "p-a p-c", "bob": "p-a"}[user]; fmt.Sprint(plans.Absent) != absent || targets != want {
			t.Errorf("%s: absent %v, %q", user, plans.Absent, targets)
		}
		var stops policyquery.StopList
		of.into("/query/v1/stops", &stops)
		if fmt.Sprint(stops.Absent) != absent || len(stops.Items) != 0 {
			t.Errorf("%s: stops %+v", user, stops)
		}
		of.fails("/query/v1/actions/b-1", map[string]int{"ann": 503, "bob": 404}[user])
		of.fails("/query/v1/actions/a-1", 200)
	}
}
