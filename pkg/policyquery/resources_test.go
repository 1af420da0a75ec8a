package policyquery_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// fakeFleet is what members serve, which a test may change.
type fakeFleet struct {
	mu      sync.Mutex
	served  []queryapi.ServedResource
	changed chan struct{}
}

func (t *fakeFleet) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.served, t.changed
}

// Kinds reports a change each time that the test changes the resources.
func (t *fakeFleet) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kinds := map[aggregate.Kind]bool{}
	for _, s := range t.served {
		kinds[s.Kind] = true
	}
	return kinds, t.changed
}

func (*fakeFleet) LastContact(string, aggregate.Kind) time.Time { return time.Now() }

// serve has members serve Deployments as such, or as something else.
func (t *fakeFleet) serve(served map[string][]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.served = nil
	defer t.notify()
	for _, plural := range []string{"deployments", "widgets"} {
		if members, ok := served[plural]; ok {
			t.served = append(t.served, queryapi.ServedResource{
				Kind: "Deployment.apps", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: plural},
				Namespaced: true, Members: members, Shadowed: plural == "widgets",
			})
		}
	}
}

// invent has members serve a kind beside the others.
func (t *fakeFleet) invent(kind aggregate.Kind, plural string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, group := kind.Split()
	t.served = append(slices.Clone(t.served), queryapi.ServedResource{Kind: kind, Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}})
	t.notify()
}

func (t *fakeFleet) notify() {
	if t.changed != nil {
		close(t.changed)
	}
	t.changed = make(chan struct{})
}

// text is an answer as text.
func (j *testServer) text(path string) (int, string) {
	j.t.Helper()
	resp := j.get(j.t.Context(), path)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		j.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestViolations_ObjectsAreAuthorizedByTheResourceTheyWereReadUnder: a member that starts to
// serve a kind under another resource neither grants nor revokes access to the objects that
// were read under the first one, until they are read again; callers with an older snapshot
// are authorized by that one.
func TestViolations_ObjectsAreAuthorizedByTheResourceTheyWereReadUnder(t *testing.T) {
	fleet := &fakeFleet{}
	fleet.serve(map[string][]string{"deployments": nil})
	j, hub := hubbed(t, func(o *queryapi.Options, q *policyquery.Violations) {
		o.Fleet, q.Kinds = fleet, fleet.Kinds
		q.BookmarkInterval = 20 * time.Millisecond
	})
	hub.may = func(user, resource string) bool { return resource == user+".apps" || user == "both" && resource != "*" }
	for _, m := range []string{"fleet/a", "fleet/b"} {
		j.join(m)
		j.put(m, "web", 1, "")
	}
	j.awaitEvaluation()

	const list = "/fleet/apis/apps/v1/deployments"
	rego := "/query/v1/rego?query=" + url.QueryEscape(`m = [x | data.fleet.objects["Deployment.apps"][x].shop.web]`)
	// sees holds a caller to the members whose objects are to be seen.
	sees := func(when, user string, members ...string) {
		t.Helper()
		j.token = user
		for _, path := range []string{list, rego, "/query/v1/violations?policy=replicas", "/query/v1/count?resource=deployments.apps&groupBy=member"} {
			code, body := j.text(path)
			if len(members) == 0 && code == http.StatusForbidden {
				continue
			}
			if code != http.StatusOK {
				t.Errorf("%s, %s, %s: %d %s", when, user, path, code, body)
			}
			for _, m := range []string{"fleet/a", "fleet/b"} {
				want := strings.Contains(strings.Join(members, " "), m)
				if got := strings.Contains(body, `"`+m+`"`); got != want {
					t.Errorf("%s, %s, %s: sees %s: %t, want %t: %s", when, user, path, m, got, want, body)
				}
			}
		}
	}
	sees("before", "deployments", "fleet/a", "fleet/b")
	sees("before", "widgets")

	j.token = "deployments"
	_, page := j.text(list + "?limit=1")
	var first struct {
		Metadata struct{ Continue string }
	}
	if err := json.Unmarshal([]byte(page), &first); err != nil || first.Metadata.Continue == "" {
		t.Fatalf("%v: %s", err, page)
	}
	watches := j.watch("policy=replicas", nil)
	has := func(want ...string) {
		t.Helper()
		j.until(func() error {
			if _, err := watches.next(); err != nil {
				return err
			}
			if len(watches.knows) != len(want) {
				return fmt.Errorf("a watch of violations knows %v, want %v", watches.knows, want)
			}
			return nil
		})
	}
	has("fleet/a", "fleet/b")
	objects := j.get(t.Context(), list+"?watch=1&timeoutSeconds=60")
	defer objects.Body.Close()
	events := json.NewDecoder(objects.Body)
	event := func(want string) {
		t.Helper()
		var e struct {
			Type   string
			Object struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		if err := events.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if got := e.Type + " " + e.Object.Metadata.Annotations["federator.dev/member"]; got != want {
			t.Errorf("a watch receives %s, want %s", got, want)
		}
	}
	event("ADDED fleet/a")
	event("ADDED fleet/b")

	fleet.serve(map[string][]string{"deployments": {"fleet/a"}, "widgets": {"fleet/b"}})
	sees("served as another", "deployments", "fleet/a", "fleet/b")
	sees("served as another", "widgets")

	j.serve("fleet/b", "widgets")
	j.put("fleet/b", "web", 2, "")
	j.awaitEvaluation()
	sees("read as another", "deployments", "fleet/a")
	sees("read as another", "widgets", "fleet/b")
	sees("read as another", "both", "fleet/a", "fleet/b")
	j.token = "deployments"
	if code, body := j.text(list + "?limit=1&continue=" + url.QueryEscape(first.Metadata.Continue)); code != http.StatusOK || !strings.Contains(body, `"fleet/b"`) {
		t.Errorf("the second page of what was read before: %d %s", code, body)
	}
	has("fleet/a")
	event("DELETED fleet/b")

	fleet.serve(map[string][]string{"deployments": nil})
	sees("served as before", "deployments", "fleet/a")
	sees("served as before", "widgets", "fleet/b")
	j.serve("fleet/b", "deployments")
	j.put("fleet/b", "web", 1, "")
	j.awaitEvaluation()
	sees("read as before", "deployments", "fleet/a", "fleet/b")
	sees("read as before", "widgets")
	has("fleet/a", "fleet/b")
	event("ADDED fleet/b")
}

// TestViolationsWatch_IgnoresKindsThatWereNotRead: however fast the resources of members
// change, no watch renews its grants, or compares all that it has sent, unless one of its
// policies reads such a kind.
func TestViolationsWatch_IgnoresKindsThatWereNotRead(t *testing.T) {
	fleet := &fakeFleet{}
	fleet.serve(map[string][]string{"deployments": nil})
	j := start(t, func(o *queryapi.Options, q *policyquery.Violations) { o.Fleet, q.Kinds = fleet, fleet.Kinds })
	j.join("fleet/a")
	s := j.watch("", nil)
	replicas := 0
	step := func() {
		t.Helper()
		replicas = replicas%2 + 1
		j.put("fleet/a", "web", replicas, "")
		j.awaitEvaluation()
		found, _ := j.list("")
		s.reach(found.ResourceVersion)
	}
	step()
	before := j.watched.requests.Load()
	for i := range 10 {
		fleet.invent(aggregate.MakeKind(fmt.Sprint("Thing", i), "acme.io"), fmt.Sprint("things", i))
		step()
	}
	step()
	if n := j.watched.requests.Load() - before; n > 3 { // every 30 s it does anyway
		t.Errorf("10 kinds that nobody requested: a watch requests its grants %d times", n)
	}
	before = j.watched.requests.Load()
	fleet.serve(map[string][]string{})
	step()
	step()
	if n := j.watched.requests.Load() - before; n == 0 {
		t.Error("a kind that policies look at is served no more: the watch does not request its grants")
	}
}
