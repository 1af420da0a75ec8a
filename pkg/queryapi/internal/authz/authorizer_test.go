package authz_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// hubFunc is a hub whose answers a test decides.
type hubFunc func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error)

func (f hubFunc) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	allowed, err := f(ctx, &r.Spec)
	out := r.DeepCopy()
	out.Status.Allowed = allowed
	return out, err
}

var ann = &user.DefaultInfo{Name: "ann"}

// everywhere has resources that several members have.
func everywhere(resources []schema.GroupResource) func() []authz.Resource {
	return func() []authz.Resource {
		out := make([]authz.Resource, len(resources))
		for i, r := range resources {
			out[i].GroupResource = r
		}
		return out
	}
}

func TestAuthorizer_OptionsAreValidated(t *testing.T) {
	hub := hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) { return false, nil })
	kinds := everywhere(nil)
	namespaces := func(string) []string { return nil }
	for name, o := range map[string]authz.Options{
		"without a hub":         {Resources: kinds},
		"without resources":     {Reviewer: hub},
		"allow for too long":    {Reviewer: hub, Resources: kinds, AllowTTL: time.Minute},
		"deny for too long":     {Reviewer: hub, Resources: kinds, DenyTTL: 31 * time.Second},
		"negative":              {Reviewer: hub, Resources: kinds, DenyTTL: -1},
		"negative bound":        {Reviewer: hub, Resources: kinds, Parallel: -1},
		"members, no prefix":    {Reviewer: hub, Resources: kinds, MemberReviewer: &memberServer{}, Namespaces: namespaces},
		"members, no namespace": {Reviewer: hub, Resources: kinds, MemberReviewer: &memberServer{}, UserPrefix: "fed:"},
		"prefix of the system":  {Reviewer: hub, Resources: kinds, MemberReviewer: &memberServer{}, Namespaces: namespaces, UserPrefix: "system:x"},
	} {
		if _, err := authz.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAuthorizer_DeduplicatesReviewsInFlight(t *testing.T) {
	var reviews atomic.Int64
	gate, first := make(chan struct{}), make(chan struct{})
	registry := prometheus.NewRegistry()
	a := newAuthorizer(t, authz.Options{Metrics: registry, Reviewer: hubFunc(func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		if reviews.Add(1) == 1 {
			close(first)
		}
		<-gate
		return true, nil
	})})
	const callers = 20
	var wg sync.WaitGroup
	var started atomic.Int64
	for range callers {
		wg.Go(func() {
			started.Add(1)
			if g, err := a.Grants(t.Context(), ann, "list", resources[0], hubMembers, "", ""); err != nil || !g.Everything() {
				t.Errorf("%+v, %v", g, err)
			}
		})
	}
	<-first
	until(t, "all have begun", func() bool { return started.Load() == callers })
	close(gate)
	wg.Wait()
	if n := reviews.Load(); n != 1 {
		t.Errorf("the hub received %d reviews, want one", n)
	}
	if n, err := testutil.GatherAndCount(registry, "federator_query_access_review_seconds", "federator_query_access_answers_total"); err != nil || n != 3 {
		t.Errorf("%d series, %v; want one of reviews and two of answers", n, err)
	}
}

func TestAuthorizer_CallerThatGivesUpDoesNotFailOthers(t *testing.T) {
	var reviews atomic.Int64
	began := make(chan struct{})
	a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		if reviews.Add(1) > 1 {
			return true, nil
		}
		close(began)
		<-ctx.Done()
		return false, ctx.Err()
	})})
	leaving, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := a.Grants(leaving, ann, "list", resources[0], hubMembers, "", ""); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left: %v", err)
		}
	})
	<-began
	wg.Go(func() {
		if g, err := a.Grants(t.Context(), ann, "list", resources[0], hubMembers, "", ""); err != nil || !g.Everything() {
			t.Errorf("the caller that stayed: %+v, %v", g, err)
		}
	})
	leave()
	wg.Wait()
}

func TestAuthorizer_DistinguishesCallers(t *testing.T) {
	type extra = map[string][]string
	different := []*user.DefaultInfo{
		{Name: "a"},
		{Name: "a", UID: "1"},
		{Name: "a", Groups: []string{"1"}},
		{Name: "a", Groups: []string{"1", "2"}},
		{Name: "a", Groups: []string{"12"}},
		{Name: "a", Extra: extra{"1": nil}},
		{Name: "a", Extra: extra{"1": {"2"}}},
		{Name: "a", Extra: extra{"1": {"2", "3"}}},
		{Name: "a", Extra: extra{"1": {"2"}, "3": nil}},
		{Name: "a1"},
	}
	var reviews atomic.Int64
	a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		reviews.Add(1)
		return true, nil
	})})
	ask := func(u user.Info) {
		t.Helper()
		if _, err := a.Grants(t.Context(), u, "get", resources[0], nil, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range different {
		ask(u)
	}
	if n := reviews.Load(); n != int64(len(different)) {
		t.Errorf("%d questions for %d callers", n, len(different))
	}
	ask(&user.DefaultInfo{Name: "a", Groups: []string{"2", "1"}})
	if n := reviews.Load(); n != int64(len(different)) {
		t.Error("the order of groups made another caller")
	}
}

func TestAuthorizer_CacheIsBounded(t *testing.T) {
	var reviews atomic.Int64
	a := newAuthorizer(t, authz.Options{CacheSize: 2, Reviewer: hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		reviews.Add(1)
		return true, nil
	})})
	for _, name := range []string{"a", "b", "c", "a"} {
		if _, err := a.Grants(t.Context(), &user.DefaultInfo{Name: name}, "get", resources[0], nil, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := reviews.Load(); n != 4 {
		t.Errorf("%d questions, want 4: two answers are kept", n)
	}
}

func TestAuthorizer_ReviewsAreBoundedInNumberAndTime(t *testing.T) {
	var now, most atomic.Int64
	arrived := make(chan struct{}, 100)
	a := newAuthorizer(t, authz.Options{Parallel: 3, Timeout: 50 * time.Millisecond, Reviewer: hubFunc(func(ctx context.Context, s *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if s.User == "slow" {
			<-ctx.Done()
			return false, ctx.Err()
		}
		arrived <- struct{}{}
		return false, nil
	})})
	var wg sync.WaitGroup
	for _, u := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			if _, err := a.Grants(t.Context(), &user.DefaultInfo{Name: u}, "get", resources[0], hubMembers, "", ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > 3 {
		t.Errorf("%d questions at once, want at most 3", n)
	}
	if n := len(arrived); n != 4*(1+3+6) {
		t.Errorf("%d questions, want 10 for each of 4 callers", n)
	}
	_, err := a.Grants(t.Context(), &user.DefaultInfo{Name: "slow"}, "get", resources[0], hubMembers, "", "")
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a hub that does not answer: %v, want 503", err)
	}
}

func TestAuthorizer_HubThatRefusesReviewsIsAnError(t *testing.T) {
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "subjectaccessreviews"}, "", errors.New("no"))
	a := newAuthorizer(t, authz.Options{Reviewer: hubFunc(func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		return true, refusal
	})})
	g, err := a.Grants(t.Context(), ann, "get", resources[0], hubMembers, "", "")
	if !apierrors.IsInternalError(err) || !g.Empty() {
		t.Errorf("%+v, %v; want 500 and nothing granted", g, err)
	}
}

// TestAuthorizer_VisibleAgreesWithGrants grants something to a caller who is remembered as one
// who may read nothing: as soon as they have read, they see the member, too.
func TestAuthorizer_VisibleAgreesWithGrants(t *testing.T) {
	for _, place := range []struct{ namespace, name string }{{"", ""}, {"red", ""}, {"red", "eu-1"}} {
		var granted atomic.Bool
		a := newAuthorizer(t, authz.Options{DenyTTL: time.Nanosecond, Reviewer: hubFunc(func(_ context.Context, s *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
			at := s.ResourceAttributes
			return granted.Load() && at.Verb == "list" && at.Resource == resources[0].Resource && at.Namespace == place.namespace && at.Name == place.name, nil
		})})
		sees := func() bool {
			t.Helper()
			any, err := a.AnyGrant(t.Context(), ann, "red/eu-1")
			if err != nil {
				t.Fatal(err)
			}
			visible, _, err := a.Visible(t.Context(), ann, []string{"red/eu-1"})
			if err != nil {
				t.Fatal(err)
			}
			if any != (len(visible) > 0) {
				t.Errorf("any grant: %v, visible: %q", any, visible)
			}
			return any
		}
		if sees() {
			t.Fatal("sees a member without a grant")
		}
		granted.Store(true)
		if sees() {
			t.Fatal("that they may read nothing is not remembered") // and the rest of the test is about nothing
		}
		g, err := a.Grants(t.Context(), ann, "list", resources[0], []string{"red/eu-1"}, "", "")
		if err != nil || g.Empty() {
			t.Fatalf("%+v, %v", g, err)
		}
		if !sees() {
			t.Errorf("reads what is granted at %q/%q, and does not see the member", place.namespace, place.name)
		}
	}
}

// TestAuthorizer_InventedResourcesCauseNoReviewsOfOthers: a caller without grants is reviewed
// once for each resource that only one member has, and a caller who is granted one of them
// anywhere sees this member.
func TestAuthorizer_InventedResourcesCauseNoReviewsOfOthers(t *testing.T) {
	const invented = 1000
	var reviews atomic.Int64
	var at atomic.Pointer[authorizationv1.ResourceAttributes] // what is granted, as RBAC grants it
	at.Store(&authorizationv1.ResourceAttributes{})
	hub := hubFunc(func(_ context.Context, s *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		reviews.Add(1)
		g, r := at.Load(), s.ResourceAttributes
		return r.Verb == "list" && r.Resource == g.Resource && (g.Namespace == "" || g.Namespace == r.Namespace) && (g.Name == "" || g.Name == r.Name), nil
	})
	members := []string{"blue/ap-1", "red/eu-1", "red/us-1"}
	visible := func() []string {
		t.Helper()
		a := newAuthorizer(t, authz.Options{Reviewer: hub, Resources: func() []authz.Resource {
			out := everywhere(resources)()
			for i := range invented {
				out = append(out, authz.Resource{GroupResource: schema.GroupResource{Resource: fmt.Sprint("things", i)}, OnlyMember: "red/eu-1"})
			}
			return out
		}})
		names, _, err := a.Visible(t.Context(), ann, members)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if names := visible(); len(names) > 0 {
		t.Errorf("%q are seen without grants", names)
	}
	// The fleet, two namespaces, three members; a wildcard beside the resources.
	if most := int64(invented + 6*(len(resources)+1)); reviews.Load() > most {
		t.Errorf("%d reviews, want %d at most", reviews.Load(), most)
	}
	for _, granted := range []authorizationv1.ResourceAttributes{
		{Resource: "things999"},
		{Resource: "things999", Namespace: "red"},
		{Resource: "things999", Namespace: "red", Name: "eu-1"},
	} {
		at.Store(&granted)
		if names := visible(); len(names) != 1 || names[0] != "red/eu-1" {
			t.Errorf("%+v: sees %q, want red/eu-1 alone", granted, names)
		}
	}
	at.Store(&authorizationv1.ResourceAttributes{Resource: "things999", Namespace: "blue"})
	if names := visible(); len(names) > 0 {
		t.Errorf("sees %q by a grant for what is not there", names)
	}
}

func TestAuthorizer_Unrestricted(t *testing.T) {
	a := authz.Unrestricted()
	g, err := a.Grants(t.Context(), ann, "get", resources[0], hubMembers, "", "")
	if err != nil || !g.Everything() || !g.Expires().After(time.Now()) {
		t.Errorf("%+v, %v", g, err)
	}
	if ok, err := a.AnyGrant(t.Context(), ann, "red/eu-1"); !ok || err != nil {
		t.Errorf("sees a member: %v, %v", ok, err)
	}
}

func TestGrants(t *testing.T) {
	var none *authz.Grants
	if !none.Empty() || none.Everything() || none.Member("a/b").All || !none.Expires().IsZero() || none.Members() != nil {
		t.Error("nil grants something")
	}
	at := time.Unix(1, 0)
	g := authz.NewGrants(map[string]authz.MemberGrant{
		"b/b": {All: true, Namespaces: []string{"x"}}, "a/a": {Namespaces: []string{"z", "y", "z"}}, "c/c": {},
	}, at)
	if got := strings.Join(g.Members(), " "); got != "a/a b/b" {
		t.Errorf("members %s", got)
	}
	if r := g.Member("a/a"); r.Allows("") || !r.Allows("y") || r.Allows("x") || len(r.Namespaces) != 2 {
		t.Errorf("reach %+v", r)
	}
	if r := g.Member("b/b"); !r.Allows("") || !r.Allows("x") || r.Namespaces != nil {
		t.Errorf("reach %+v", r)
	}
	if g.Empty() || !g.Expires().Equal(at) || !g.Member("c/c").Empty() {
		t.Errorf("grants %+v", g)
	}
	all := authz.Everything(at)
	again := authz.NewGrants(map[string]authz.MemberGrant{"b/b": {All: true}, "a/a": {Namespaces: []string{"y", "z"}}}, at.Add(time.Hour))
	narrower := authz.NewGrants(map[string]authz.MemberGrant{"b/b": {All: true}, "a/a": {Namespaces: []string{"y"}}}, at)
	fewer := authz.NewGrants(map[string]authz.MemberGrant{"a/a": {Namespaces: []string{"y", "z"}}}, at)
	for i, x := range []struct {
		a, b *authz.Grants
		want bool
	}{
		{g, again, true},
		{g, narrower, false},
		{g, fewer, false},
		{g, all, false},
		{all, authz.Everything(at.Add(time.Hour)), true},
		{none, authz.NewGrants(nil, at), true},
		{none, g, false},
		{none, all, false},
	} {
		if x.a.Equal(x.b) != x.want || x.b.Equal(x.a) != x.want {
			t.Errorf("%d: want the same: %v", i, x.want)
		}
	}
}

func TestGrants_JoinWithinTheirMembers(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(9, 0)
	vaults := authz.NewGrants(map[string]authz.MemberGrant{"a/a": {All: true}, "b/b": {All: true}, "c/c": {Namespaces: []string{"x"}}}, late)
	widgets := authz.Everything(early)
	g := authz.Join([]authz.ResourceGrants{{"vaults", []string{"b/b", "c/c", "n/n"}, vaults}, {"widgets", []string{"d/d"}, widgets}}, late)
	if got := strings.Join(g.Members(), " "); got != "b/b c/c d/d" || g.Everything() || !g.Expires().Equal(early) {
		t.Errorf("%s, everything %t, until %s", got, g.Everything(), g.Expires())
	}
	if g.Member("c/c").All || !g.Member("c/c").Allows("x") || !g.Member("d/d").All || !g.Member("a/a").Empty() {
		t.Errorf("%+v", g)
	}
	if !g.ForResource("vaults").Member("d/d").Empty() || !g.ForResource("vaults").Member("a/a").All || !g.ForResource("widgets").Everything() || !g.ForResource("pods").Empty() || g.ForResource("") != g {
		t.Error("each object is checked by its own resource, wherever it is")
	}
	if g := authz.Join(nil, late); !g.Empty() || !g.Expires().Equal(late) {
		t.Errorf("nothing is granted for ever: %+v", g)
	}
	one := vaults.ServedAs("vaults")
	if !one.ForResource("vaults").Equal(vaults) || !one.ForResource("widgets").Empty() || one.Covers("widgets") || !one.Covers("vaults") || !one.Covers("") {
		t.Error("grants of one resource are of no other")
	}
	if both := one.FillFrom(g, []string{"vaults", "widgets"}); !both.ForResource("widgets").Everything() || !both.ForResource("vaults").Equal(vaults) || one.Covers("widgets") {
		t.Error("a resource held as another is checked by its own grants")
	}
	if !one.EqualIn("a/a", "vaults", g) || one.EqualIn("a/a", "widgets", g) || one.Equal(widgets.ServedAs("vaults")) || one.Equal(vaults.ServedAs("widgets")) {
		t.Error("grants are the same where they give the same of the same resources")
	}
}
