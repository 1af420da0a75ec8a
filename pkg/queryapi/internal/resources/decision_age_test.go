package resources_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// kept is a caller whose grants a hub reviews, and whose reviews are cached, each of
// its own age.
type kept struct {
	authority *authz.Authorizer

	mu       sync.Mutex
	may      map[string][]string // members by verb
	requests int
}

func newKept(t *testing.T, may map[string][]string) *kept {
	t.Helper()
	c := &kept{may: may}
	var err error
	c.authority, err = authz.New(authz.Options{Reviewer: c, Resources: func() []authz.Resource { return nil }})
	ok(t, err)
	return c
}

// both grants lists and watches of the same members.
func both(members ...string) map[string][]string {
	return map[string][]string{selection.List: members, selection.Watch: members}
}

func (c *kept) grant(may map[string][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.may = may
}

func (c *kept) reviews() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Create implements authz.Reviewer.
func (c *kept) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	of := review.Spec.ResourceAttributes
	out := review.DeepCopy()
	out.Status.Allowed = slices.Contains(c.may[of.Verb], of.Namespace+"/"+of.Name)
	return out, nil
}

func (c *kept) User() user.Info { return &user.DefaultInfo{Name: "bob"} }

func (c *kept) Grants(ctx context.Context, verb string, _ aggregate.Kind, at *aggregate.Snapshot) (*authz.Grants, error) {
	var members []string
	for m := range at.Members() {
		members = append(members, m.Name)
	}
	return c.authority.Grants(ctx, c.User(), verb, schema.GroupResource{Resource: "pods"}, members, "", "")
}

// TestWatch_GrantsThatChangeBetweenAnswersAreNotLost: answers about lists and about watches
// are kept apart, so that a client may list by those from before a change of its grants
// and watch by those from after it, or the other way round.
func TestWatch_GrantsThatChangeBetweenAnswersAreNotLost(t *testing.T) {
	few, more := both("a/east"), both("a/east", "a/west")
	for name, may := range map[string][2]map[string][]string{"given": {few, more}, "taken": {more, few}} {
		for _, first := range []string{selection.List, selection.Watch} {
			for _, busy := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s first, busy %t", name, first, busy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { changedBetween(t, may[0], may[1], first, busy) })
				})
			}
		}
	}
}

func changedBetween(t *testing.T, before, after map[string][]string, first string, busy bool) {
	f := newFleet(t, settings{clock: time.Now, bookmark: time.Hour})
	for _, m := range memberNames[:2] {
		f.join(m)
		f.put(pod(m, "blue", "p0"), pod(m, "blue", "p1"))
	}
	f.commit()
	c := newKept(t, before)
	if first == selection.List { // of another client, say
		f.clientState(c, fleetPods)
	} else {
		f.watch(c, fleetPods, nil, "").end()
	}
	time.Sleep(time.Second)
	c.grant(after)
	time.Sleep(time.Second)
	client := f.clientState(c, fleetPods)
	byOld := len(client.keys) == 2*len(before[selection.List])
	if byOld != (first == selection.List) {
		t.Fatalf("listed %q: the answers about lists are not of the age that this is about", client.keys)
	}
	if busy {
		f.remove(f.objects[pods]["a/west blue p0"])
		f.commit()
	}
	client = client.resume(f, c, fleetPods)
	want := map[string]string{}
	for key, o := range f.objects[pods] {
		if slices.Contains(after[selection.List], o.member) {
			want[key] = o.version
		}
	}
	if !maps.Equal(client.keys, want) {
		t.Errorf("%q is known, want %q", client.keys, want)
	}
}

// TestWatch_WhoMayListMoreMayWatch, from a list of any age and without end, and costs the hub
// no more than answers that are as new as each other.
func TestWatch_WhoMayListMoreMayWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, settings{clock: time.Now, bookmark: time.Hour})
		for _, m := range memberNames[:2] {
			f.join(m)
			f.put(pod(m, "blue", "p0"))
		}
		f.commit()
		may := map[string][]string{selection.List: {"a/east", "a/west"}, selection.Watch: {"a/east"}}
		c := newKept(t, may)
		from := values("resourceVersion", f.clientState(c, fleetPods).revision)
		f.put(pod("a/east", "blue", "p1"), pod("a/west", "blue", "p1"))
		f.commit()
		// Who lists and watches asks about the fleet, a namespace and two members each.
		for _, age := range []time.Duration{0, time.Second, 12 * time.Second, 25 * time.Second, time.Hour} {
			time.Sleep(age)
			before := c.reviews()
			for range 5 {
				wantEvents(t, "a watch of less than a list", f.watch(c, fleetPods, from, "").end(), "ADDED a/east blue p1")
			}
			if n := c.reviews() - before; n > 8 {
				t.Errorf("after %s more, %d reviews for 5 watches, want 8 at most", age, n)
			}
		}
		c.grant(map[string][]string{selection.List: may[selection.List]})
		time.Sleep(time.Hour)
		if a := f.ask(c, fleetPods, values("watch", "1", "resourceVersion", from.Get("resourceVersion")), ""); a.code != http.StatusForbidden {
			t.Errorf("who may not watch at all: %d", a.code)
		}
	})
}
