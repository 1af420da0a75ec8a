package policyquery_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// sharer is one of two processes that share a fleet.
type sharer struct {
	*testServer
	id         string
	peers      *aggregate.Index // what the other one has told
	assignment atomic.Pointer[queryapi.Assignment]
	listener   *httptest.Server
	judges     []string
}

// Assignment implements queryapi.Peers.
func (p *sharer) Assignment() *queryapi.Assignment { return p.assignment.Load() }

// servedKinds are what the members of one process serve.
type servedKinds []aggregate.Kind

func (s servedKinds) Resources() (out []queryapi.ServedResource, changed <-chan struct{}) {
	for _, kind := range s {
		name, group := kind.Split()
		out = append(out, queryapi.ServedResource{
			Kind: kind, Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(name) + "s"}, Namespaced: true,
		})
	}
	return out, nil
}

func (s servedKinds) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	out := map[aggregate.Kind]bool{}
	for _, kind := range s {
		out[kind] = true
	}
	return out, nil
}

func (servedKinds) LastContact(string, aggregate.Kind) time.Time { return time.Now() }

// pair starts two processes that share a fleet: the first judges fleet/a and fleet/c, the second fleet/b. Their members serve
// Deployments, those of the second also what else is named.
func pair(t *testing.T, set *policy.Set, bindings []policy.Binding, also ...aggregate.Kind) (processes []*sharer, hub *reviews) {
	t.Helper()
	hub = &reviews{}
	hub.allows.Store(true)
	at := httptest.NewServer(hub)
	t.Cleanup(at.Close)
	return pairOf(t, at.URL, set, bindings, nil, also...), hub
}

// pairOf is pair with a hub, and with queries of a process that has an index and a loop.
func pairOf(t *testing.T, hub string, set *policy.Set, bindings []policy.Binding, queries func(*aggregate.Index, *enforce.Loop, policyquery.Kinds) map[string]queryapi.Query, also ...aggregate.Kind) (processes []*sharer) {
	t.Helper()
	changed := make(chan struct{})
	processes = []*sharer{{id: "p-0", judges: []string{"fleet/a", "fleet/c"}}, {id: "p-1", judges: []string{"fleet/b"}}}
	publish := func() {
		for _, p := range processes {
			a := &queryapi.Assignment{Self: p.id, Judges: map[string]string{}, Changed: changed}
			for _, o := range processes {
				for _, member := range o.judges {
					a.Judges[member] = o.id
				}
				if o != p && o.listener != nil {
					a.Peers = append(a.Peers, queryapi.Peer{ID: o.id, Epoch: o.index.First(), URL: o.listener.URL, Client: o.listener.Client()})
				}
			}
			p.assignment.Store(a)
		}
	}
	publish()
	for i, p := range processes {
		var err error
		if p.peers, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(8)}); err != nil {
			t.Fatal(err)
		}
		kinds := servedKinds{"Deployment.apps"}
		if i == 1 {
			kinds = append(kinds, also...)
		}
		p.testServer = startWith(t, func(o *enforce.Options) {
			o.Peers, o.Exports, o.Set, o.Bindings = p.peers, true, set, bindings
		}, func(o *queryapi.Options, q *policyquery.Violations) {
			o.Local, o.Hub = false, &rest.Config{Host: hub, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			o.Authorization.AllowTTL, o.Authorization.DenyTTL = time.Second, time.Second
			o.Peers, o.Minted = p, aggregate.Block(uint64(9+i))
			o.Fleet, q.Kinds, q.BookmarkInterval = kinds, kinds.Kinds, 20*time.Millisecond
			if queries != nil {
				o.Queries = queries(o.Index, q.Loop, kinds.Kinds)
			}
		})
		p.token = "ann"
		p.listener = httptest.NewUnstartedServer(p.server.PeersHandler())
		p.listener.EnableHTTP2 = true
		p.listener.StartTLS()
		t.Cleanup(p.listener.Close)
		t.Cleanup(p.listener.CloseClientConnections)
		for _, member := range p.judges {
			p.join(member)
			if err := p.index.PutMember(aggregate.Member{Name: member, UID: member, Serves: slices.Sorted(slices.Values(kinds))}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.loop.SetKeyOwner(t.Context(), policy.KeyOwner{Self: p.id, Now: []string{"p-0", "p-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	return processes
}

// tell has each process know what the other one exports, and evaluate it.
func tell(t *testing.T, processes []*sharer) {
	t.Helper()
	for i, p := range processes {
		p.awaitEvaluation()
		to := processes[1-i].peers
		x := p.loop.State().Export()
		for m := range x.Members() {
			if err := to.PutMember(m); err != nil {
				t.Fatal(err)
			}
			for info := range x.Scopes(m.Name) {
				scope, err := to.OpenScopeAs(m.Name, info.Kind, info.Version, info.Resource)
				if err != nil {
					t.Fatal(err)
				}
				var items []aggregate.Item
				if err := x.Records(m.Name, info.Kind, func(r *aggregate.Record) error {
					items = append(items, scope.Item(r))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if _, err := scope.Replace(items, info.Status); err != nil {
					t.Fatal(err)
				}
				scope.Close()
			}
		}
	}
}

// TestShared_PagesAreOneList: the pages of a list of what several processes find are that list, each finding once and in order.
func TestShared_PagesAreOneList(t *testing.T) {
	processes, _ := pair(t, load(t, "high"), bindings)
	for _, p := range processes {
		for _, member := range p.judges {
			for n := range 7 {
				p.put(member, fmt.Sprint("web-", n), 1, "")
			}
		}
	}
	tell(t, processes)
	for _, query := range []string{"", "orderBy=severity"} {
		var all *policyquery.ViolationList
		processes[0].until(func() error {
			if all, _ = processes[0].list(query); len(all.Items) != 7+21 {
				return fmt.Errorf("%q: %d findings", query, len(all.Items))
			}
			return nil
		})
		for limit := 1; limit < 30; limit += 3 {
			var got []policyquery.Finding
			for more := ""; ; {
				page, _ := processes[len(got)%2].list(query + fmt.Sprintf("&limit=%d", limit) + more)
				got = append(got, page.Items...)
				if page.Continue == "" || len(got) > len(all.Items) {
					break
				}
				more = "&continue=" + page.Continue
			}
			if !slices.EqualFunc(got, all.Items, func(a, b policyquery.Finding) bool { return a.Policy == b.Policy && a.Subject == b.Subject }) {
				t.Fatalf("%q by %d: %d findings, not those of the list", query, limit, len(got))
			}
		}
	}
}

// readsMaps has findings that say what other members have, of a kind that only some serve.
const readsMaps = `# METADATA
# title: Maps
# custom: {severity: low, kinds: ["Deployment.apps"]}
package maps

violation contains {"msg": sprintf("maps of %s", [m])} if {
	some m in data.fleet.names
	data.fleet.objects.ConfigMap[m].shop.secret
}
`

// TestShared_WithholdsWhatPoliciesReadElsewhere: who may not read the members of another process gets no finding that follows from
// them, from no process and in no form; who may read all of them gets all.
func TestShared_WithholdsWhatPoliciesReadElsewhere(t *testing.T) {
	set := loaded(t, `# METADATA
# title: Replicas
# custom: {severity: high, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "too few"} if input.object.spec.replicas < 3
`, `# METADATA
# title: Names are of one member
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.names}
package names

view.names[input.ref.name] contains input.ref.member

violation contains {"msg": sprintf("%s is in %d members", [input.key, count(input.entries)])} if count(input.entries) > 1
`, readsMaps)
	processes, hub := pair(t, set, []policy.Binding{{Name: "maps", Package: "maps"}, {Name: "names", Package: "names"}, {Name: "replicas", Package: "replicas"}}, "ConfigMap")
	hub.who = func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		switch s.User {
		case "ann": // all
			return true
		case "bob": // one member of one process
			return a.Namespace == "fleet" && a.Name == "a"
		case "eve": // Deployments, everywhere
			return a.Resource == "deployments.apps"
		}
		return false
	}
	for _, p := range processes {
		for _, member := range p.judges {
			p.put(member, "web", 1, "")
		}
	}
	maps, err := processes[1].index.OpenScopeAs("fleet/b", "ConfigMap", "v1", "configmaps")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Replace([]aggregate.Item{maps.Item(&aggregate.Record{
		Namespace: "shop", Name: "secret", UID: "s", ResourceVersion: "1", Body: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"secret","namespace":"shop"},"data":{"a":"b"}}`),
	})}, aggregate.Status{State: aggregate.Synced}); err != nil {
		t.Fatal(err)
	}
	tell(t, processes)
	for _, c := range []struct {
		user, withheld, members string
		items                   int
	}{
		{"ann", "[]", "[fleet/a fleet/b fleet/c]", 3 + 1 + 3},
		{"bob", "[maps names]", "[fleet/a]", 1},
		{"eve", "[maps]", "[fleet/a fleet/b fleet/c]", 1 + 3},
	} {
		for _, p := range processes {
			p.token = c.user
			var found *policyquery.ViolationList
			p.until(func() error {
				if found, _ = p.list(""); len(found.Items) != c.items || fmt.Sprint(found.Withheld) != c.withheld {
					return fmt.Errorf("%s asks %s: withheld %v, failed %v, absent %v, %d findings: %+v", c.user, p.id, found.Withheld, found.Failed, found.Absent, len(found.Items), found.Items)
				}
				return nil
			})
			groups, _ := p.list("groupBy=member")
			var members []string
			for _, g := range groups.Groups {
				if g.Key[0] != "" {
					members = append(members, g.Key[0])
				}
			}
			slices.Sort(members)
			if fmt.Sprint(members) != c.members || fmt.Sprint(groups.Withheld) != c.withheld {
				t.Errorf("%s asks %s for groups: %+v, withheld %v", c.user, p.id, groups.Groups, groups.Withheld)
			}
			var policies policyquery.PolicyList
			p.into("/query/v1/policies", &policies)
			for _, item := range policies.Items {
				withheld := strings.Contains(c.withheld, item.Name)
				if item.Withheld != withheld || (item.Violations == nil) != withheld && c.user == "ann" || withheld && item.Subjects != nil {
					t.Errorf("%s asks %s: policy %s: %+v", c.user, p.id, item.Name, item)
				}
			}
			p.fails("/query/v1/explain?policy=maps&member=fleet/b&kind=Deployment.apps&namespace=shop&name=web", map[bool]int{true: 200, false: 403}[c.user == "ann"])
			p.fails("/query/v1/explain?policy=names&key=web", map[bool]int{true: 403, false: 200}[c.user == "bob"])
			p.fails("/query/v1/explain?policy=names&key=none", map[bool]int{true: 403, false: 404}[c.user == "bob"])
			p.fails("/query/v1/explain?policy=replicas&member=fleet/a&kind=Deployment.apps&namespace=shop&name=web", 200)
		}
	}
}

// TestShared_IsNotSyncedWithoutWhatOthersHaveToTell: a verdict that waits for it is none, and says nothing of what another process knew.
func TestShared_IsNotSyncedWithoutWhatOthersHaveToTell(t *testing.T) {
	set := loaded(t, `# METADATA
# title: One has it
# custom: {severity: high, kinds: ["Deployment.apps"]}
package once

view.names[input.object.metadata.name] contains true

violation contains {"msg": sprintf("%s has it, too", [claim.ref.member])} if {
	some claim in data.fleet.views.once.names[input.object.metadata.name]
	claim.ref.member != input.ref.member
}
`, `# METADATA
# title: Replicas
# custom: {severity: low, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "too few"} if input.object.spec.replicas < 3
`)
	processes, _ := pair(t, set, []policy.Binding{{Name: "once", Package: "once"}, {Name: "replicas", Package: "replicas"}})
	for _, p := range processes {
		p.put(p.judges[0], "web", 1, "")
	}
	tell(t, processes)
	synced := func(query string, want bool, findings int) {
		t.Helper()
		processes[1].until(func() error {
			if found, _ := processes[0].list(query); found.Synced != want || len(found.Items) != findings {
				return fmt.Errorf("%q: synced is %t with %d findings, want %t with %d", query, found.Synced, len(found.Items), want, findings)
			}
			return nil
		})
	}
	synced("", true, 4)
	was, _ := processes[1].peers.Snapshot().Scope("fleet/a", "Deployment.apps")
	of, err := processes[1].peers.OpenScopeAs("fleet/a", "Deployment.apps", was.Version, was.Resource)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of.Replace(nil, aggregate.Status{State: aggregate.Stale, Unread: true}); err != nil {
		t.Fatal(err)
	}
	synced("", false, 3)
	synced("policy=once", false, 1)
}
