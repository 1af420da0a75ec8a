package policyquery_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// reviews is a hub that knows everybody by the token, and allows all or nothing, or
// what may says.
type reviews struct {
	allows   atomic.Bool
	requests atomic.Int64 // access reviews
	may      func(user, resource string) bool
	where    func(*authorizationv1.ResourceAttributes) bool
	who      func(*authorizationv1.SubjectAccessReviewSpec) bool
	fails    func(*authorizationv1.SubjectAccessReviewSpec) bool // nil: it always answers
}

func (h *reviews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Authenticated, review.Status.User.Username, review.Status.Audiences = true, review.Spec.Token, review.Spec.Audiences
		write(w, review)
		return
	}
	h.requests.Add(1)
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.fails != nil && h.fails(&review.Spec) {
		http.Error(w, "not now", http.StatusInternalServerError)
		return
	}
	review.Status.Allowed = h.allows.Load()
	if h.may != nil {
		review.Status.Allowed = h.may(review.Spec.User, review.Spec.ResourceAttributes.Resource)
	}
	if h.where != nil {
		review.Status.Allowed = h.where(review.Spec.ResourceAttributes)
	}
	if h.who != nil {
		review.Status.Allowed = h.who(&review.Spec)
	}
	write(w, review)
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(v)
}

// hubbed is a fleet whose callers are identified by their tokens, and whose grants are
// reviewed by a hub and cached for a second.
func hubbed(t *testing.T, change func(*queryapi.Options, *policyquery.Violations)) (*testServer, *reviews) {
	t.Helper()
	hub := &reviews{}
	hub.allows.Store(true)
	at := httptest.NewServer(hub)
	t.Cleanup(at.Close)
	j := start(t, func(o *queryapi.Options, q *policyquery.Violations) {
		o.Local, o.Hub = false, &rest.Config{Host: at.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		o.Authorization.AllowTTL, o.Authorization.DenyTTL = time.Second, time.Second
		if change != nil {
			change(o, q)
		}
	})
	j.token = "ann"
	return j, hub
}

// TestViolationsWatch_EndsWithItsGrants, also for callers who may read everything. Renewing
// unchanged grants sends nothing.
func TestViolationsWatch_EndsWithItsGrants(t *testing.T) {
	j, hub := hubbed(t, func(_ *queryapi.Options, q *policyquery.Violations) { q.BookmarkInterval = 20 * time.Millisecond })
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	s := j.watch("policy=replicas", nil)
	reach := func() {
		j.awaitEvaluation()
		found, _ := j.list("policy=replicas")
		s.reach(found.ResourceVersion)
	}
	reach()
	first := hub.requests.Load()
	j.until(func() error {
		if n := hub.requests.Load(); n < first+3 {
			return errNoRequest
		}
		return nil
	})
	j.put("fleet/a", "db", 1, "")
	reach()
	types := slices.DeleteFunc(slices.Clone(s.eventTypes), func(kind string) bool { return kind == "BOOKMARK" })
	if got := strings.Join(types, " "); got != "ADDED ADDED" {
		t.Errorf("while the grants stay what they are: events %q", got)
	}
	hub.allows.Store(false)
	for len(s.knows) > 0 {
		if _, err := s.next(); err != nil {
			t.Fatalf("after the revocation the watch still knows %v: %v", s.knows, err)
		}
	}
	j.put("fleet/a", "later", 1, "")
	reach()
	if len(s.knows) > 0 {
		t.Errorf("after the revocation the watch reports %v", s.knows)
	}
}

// tiersAndReplicas are a policy on members and one on Deployments.
func tiersAndReplicas(t *testing.T) *policy.Set {
	t.Helper()
	return loaded(t, `# METADATA
# title: Members have a tier
# custom: {severity: low, subject: member}
package tiers

violation contains {"msg": "no tier"} if not input.member.labels.tier
`, `# METADATA
# title: Replicas
# custom: {severity: low, kinds: ["Deployment.apps"]}
package replicas

violation contains {"msg": "too few"} if input.object.spec.replicas < 3
`)
}

// TestViolationsWatch_RevocationsReachQuietWatches: a watch without other events renews its
// grants, of objects and of members, when they expire, and not with its next bookmark.
func TestViolationsWatch_RevocationsReachQuietWatches(t *testing.T) {
	set := tiersAndReplicas(t)
	for _, name := range []string{"replicas", "tiers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, hub := hubbed(t, nil)
			if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: name, Package: name}}); err != nil {
				t.Fatal(err)
			}
			j.join("fleet/a")
			j.put("fleet/a", "web", 1, "")
			j.awaitEvaluation()
			s := j.watch("", nil)
			for !s.mark.InitialEnd {
				if _, err := s.next(); err != nil {
					t.Fatal(err)
				}
			}
			if len(s.knows) != 1 {
				t.Fatalf("the watch begins with %v", s.knows)
			}
			hub.allows.Store(false)
			// Grants are kept for a second here; what is requested on other intervals takes 30 s and more.
			late := time.AfterFunc(20*time.Second, s.stop)
			defer late.Stop()
			for len(s.knows) > 0 {
				if _, err := s.next(); err != nil {
					t.Fatalf("long after the revocation the watch still knows %v: %v", s.knows, err)
				}
			}
		})
	}
}

// TestViolations_AreAuthorizedByTheResourcesOfTheirSnapshot: a member that leaves while
// policies are evaluated is still in the snapshot of the verdicts. Callers who may read
// everything get all of them.
func TestViolations_AreAuthorizedByTheResourcesOfTheirSnapshot(t *testing.T) {
	j, _ := hubbed(t, nil)
	for _, member := range []string{"fleet/a", "fleet/b", "fleet/c"} {
		j.join(member)
		j.put(member, "web", 1, "")
	}
	j.awaitEvaluation()
	before, _ := j.list("")
	s := j.watch("", nil)
	s.reach(before.ResourceVersion)
	j.endLoop()
	if !j.index.RemoveMember("fleet/c") {
		t.Fatal("no such member")
	}
	after, _ := j.list("")
	if len(before.Items) != 4 || len(before.Withheld) > 0 || !reflect.DeepEqual(before, after) {
		t.Errorf("before:\n%+v\nafter:\n%+v", before, after)
	}
	again := j.watch("", nil)
	again.reach(before.ResourceVersion)
	if len(again.knows) != len(before.Items) {
		t.Errorf("a watch knows %v", again.knows)
	}
}

// TestViolationsWatch_ResumesOnlyIfGrantsAreKnown: if the hub fails once in the review of
// the verdicts that the client has, that is no denial: else the client would never learn of
// the ones that are gone since.
func TestViolationsWatch_ResumesOnlyIfGrantsAreKnown(t *testing.T) {
	for name, large := range map[string]bool{"small": false, "larger than what is sent at once": true} {
		t.Run(name, func(t *testing.T) {
			j, hub := hubbed(t, nil)
			var fails, failed atomic.Int64
			hub.fails = func(spec *authorizationv1.SubjectAccessReviewSpec) bool {
				if spec.User != "bob" || spec.ResourceAttributes.Resource != "deployments.apps" || fails.Add(-1) < 0 {
					return false
				}
				failed.Add(1)
				return true
			}
			j.join("fleet/a")
			j.put("fleet/a", "web", 1, "")
			for n := range 3 {
				if large {
					j.put("fleet/a", fmt.Sprint("large-", n), 3, strings.Repeat("y", 100_000))
				}
			}
			j.awaitEvaluation()
			before, knows := j.list("")
			j.put("fleet/a", "web", 3, "") // enough
			j.awaitEvaluation()
			after, want := j.list("")
			j.token = "bob" // may read what ann may, of which no answer is kept
			fails.Store(1)
			j.refused("watch=true&resourceVersion="+before.ResourceVersion, http.StatusServiceUnavailable)
			if failed.Load() != 1 {
				t.Fatalf("the hub failed %d times", failed.Load())
			}
			s := j.watch("resourceVersion="+before.ResourceVersion, knows)
			s.reach(after.ResourceVersion)
			if !maps.Equal(s.knows, want) {
				t.Errorf("a watch knows\n%v\nthe list has\n%v", s.knows, want)
			}
		})
	}
}

// TestViolationsWatch_ResumesOnlyWithTheGrantsOfTheList: grants that change between a list
// and the watch that resumes from it change no verdict, and would cause no event. The client
// must list again, but not if the grants are the same, whatever else changed.
func TestViolationsWatch_ResumesOnlyWithTheGrantsOfTheList(t *testing.T) {
	set := tiersAndReplicas(t)
	for name, subject := range map[string]string{"replicas": "fleet/b web", "tiers": "fleet/b "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, hub := hubbed(t, nil)
			if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: name, Package: name}}); err != nil {
				t.Fatal(err)
			}
			var wide atomic.Bool
			hub.where = func(a *authorizationv1.ResourceAttributes) bool {
				if name == "replicas" && a.Resource == "*" {
					return true // members are seen: what is granted of Deployments alone is other
				}
				return a.Namespace == "fleet" && (a.Name == "a" || wide.Load() && a.Name == "b")
			}
			for _, member := range []string{"fleet/a", "fleet/b"} {
				j.join(member)
				j.put(member, "web", 1, "")
			}
			j.awaitEvaluation()
			sees := func(both bool) (*policyquery.ViolationList, table) {
				t.Helper()
				wide.Store(both)
				var found *policyquery.ViolationList
				var knows table
				j.until(func() error { // answers are kept for a second
					found, knows = j.list("")
					if got := knows[name+" "+subject] != ""; got != both || len(knows) == 0 {
						return fmt.Errorf("%s is seen: %v, of %v", subject, got, knows)
					}
					return nil
				})
				return found, knows
			}
			for _, both := range []bool{false, true} {
				before, knows := sees(both)
				j.put("fleet/a", fmt.Sprint("also-", both), 1, "")
				j.awaitEvaluation()
				after, want := j.list("")
				s := j.watch("resourceVersion="+before.ResourceVersion, knows)
				s.reach(after.ResourceVersion)
				if !maps.Equal(s.knows, want) {
					t.Errorf("with the same grants a watch knows\n%v\nthe list has\n%v", s.knows, want)
				}
				s.close()
				sees(!both)
				for _, version := range []string{before.ResourceVersion, after.ResourceVersion, s.mark.ResourceVersion} {
					if status := j.refused("watch=true&resourceVersion="+version, http.StatusGone); status.Reason != metav1.StatusReasonExpired {
						t.Errorf("resourceVersion %s with other grants: %+v", version, status)
					}
				}
			}
		})
	}
}
