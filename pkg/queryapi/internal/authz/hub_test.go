package authz_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/seed"
)

// patience is how long a test waits for what must happen soon.
const patience = 30 * time.Second

// fakeClock is set by hand.
type fakeClock struct{ ns atomic.Int64 }

func newClock() *fakeClock {
	c := &fakeClock{}
	c.ns.Store(time.Now().UnixNano())
	return c
}

func (c *fakeClock) Now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *fakeClock) Advance(d time.Duration) { c.ns.Add(int64(d)) }

// counted counts the reviews that reach the hub.
type counted struct {
	authz.Reviewer
	n atomic.Int64
}

func (c *counted) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	c.n.Add(1)
	return c.Reviewer.Create(ctx, r, o)
}

var resources = []schema.GroupResource{
	{Resource: "pods"}, {Resource: "secrets"}, {Group: "apps", Resource: "deployments"}, {Group: "example.com", Resource: "widgets"},
}

var verbs = []string{"get", "list", "watch"}

// hubName is a resource as grants on the hub write it.
func hubName(gr schema.GroupResource) string {
	return strings.TrimSuffix(gr.Resource+"."+gr.Group, ".")
}

// rule is one grant, as the oracle sees it.
type rule struct {
	subject   string // user or group
	group     bool
	namespace string // "": a ClusterRoleBinding
	names     []string
	verb      string
	resource  string // "*" for all
}

func (r rule) allows(u user.Info, verb string, gr schema.GroupResource, member string) bool {
	namespace, name, _ := strings.Cut(member, "/")
	mine := r.subject == u.GetName()
	if r.group {
		mine = slices.Contains(u.GetGroups(), r.subject)
	}
	return mine && (r.namespace == "" || r.namespace == namespace) &&
		(len(r.names) == 0 || slices.Contains(r.names, name)) &&
		r.verb == verb && (r.resource == "*" || r.resource == hubName(gr))
}

func (r rule) String() string { return fmt.Sprintf("%+v", struct{ rule }{r}) }

var (
	hubMembers = []string{"blue/eu-1", "blue/us-1", "green/eu-1", "green/eu-2", "red/ap-1", "red/eu-1"}
	users      = []user.Info{
		&user.DefaultInfo{Name: "ann", Groups: []string{"sre", "system:authenticated"}},
		&user.DefaultInfo{Name: "bob", Groups: []string{"dev", "system:authenticated"}, Extra: map[string][]string{"k": {"v"}}},
		&user.DefaultInfo{Name: "cid", UID: "1", Groups: []string{"sre", "dev"}},
		&user.DefaultInfo{Name: "dee"},
	}
)

func randomRule(r *rand.Rand) rule {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	out := rule{subject: pick("ann", "bob", "cid"), verb: verbs[r.IntN(3)]}
	if r.IntN(3) == 0 {
		out.subject, out.group = pick("sre", "dev"), true
	}
	if r.IntN(4) > 0 {
		out.namespace = pick("blue", "green", "red")
	}
	if r.IntN(2) == 0 {
		out.names = []string{pick("eu-1", "eu-2", "us-1", "ap-1")}
	}
	out.resource = hubName(resources[r.IntN(len(resources))])
	if r.IntN(8) == 0 {
		out.resource = "*"
	}
	return out
}

// grant writes a rule as a role and its binding.
func grant(ctx context.Context, t *testing.T, c kubernetes.Interface, name string, g rule) {
	t.Helper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{authz.Group}, Resources: []string{g.resource}, Verbs: []string{g.verb}, ResourceNames: g.names}}
	subject := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: g.subject}
	if g.group {
		subject.Kind = "Group"
	}
	meta := metav1.ObjectMeta{Name: name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	_, err := c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err == nil && g.namespace == "" {
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}, metav1.CreateOptions{})
	} else if err == nil {
		_, err = c.RbacV1().RoleBindings(g.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// waitFor polls the hub itself until its answer to a question is want.
func waitFor(ctx context.Context, t *testing.T, c kubernetes.Interface, name string, attributes authorizationv1.ResourceAttributes, want bool) {
	t.Helper()
	attributes.Group = authz.Group
	until(t, fmt.Sprintf("the hub says %v to %s", want, name), func() bool {
		r, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		return err == nil && r.Status.Allowed == want
	})
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

func newAuthorizer(t *testing.T, o authz.Options) *authz.Authorizer {
	t.Helper()
	if o.Resources == nil {
		o.Resources = everywhere(resources)
	}
	a, err := authz.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAuthorizer_OnARealHub shows on one real API server that grants are what its RBAC
// says, no more and no less.
func TestAuthorizer_OnARealHub(t *testing.T) {
	fleet := kube.StartTest(t, kube.Options{})
	client := fleet.Hub.Client()
	ctx := t.Context()
	for _, ns := range []string{"blue", "green", "red"} {
		if err := fleet.Hub.Apply(ctx, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n")); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("Model", func(t *testing.T) { testModel(t, client) })
	t.Run("Revocation", func(t *testing.T) { testRevocation(t, client) })
	t.Run("Members", func(t *testing.T) { testMembers(t, client) })
	t.Run("Outage", func(t *testing.T) { testOutage(t, fleet.Hub) })
}

func testModel(t *testing.T, client kubernetes.Interface) {
	random := rand.New(rand.NewPCG(seed.Of(t), 1))
	ctx := t.Context()
	var rules []rule
	for i := range 40 {
		g := randomRule(random)
		rules = append(rules, g)
		grant(ctx, t, client, fmt.Sprintf("model-%d", i), g)
	}
	// The server reads each kind of object in its order: what came before
	// these has been seen once these are.
	grant(ctx, t, client, "model-last-cluster", rule{subject: "last-cluster", verb: "get", resource: "pods"})
	grant(ctx, t, client, "model-last-red", rule{subject: "last-red", namespace: "red", verb: "get", resource: "pods"})
	waitFor(ctx, t, client, "last-cluster", authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}, true)
	waitFor(ctx, t, client, "last-red", authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "red"}, true)

	hub := &counted{Reviewer: client.AuthorizationV1().SubjectAccessReviews()}
	a := newAuthorizer(t, authz.Options{Reviewer: hub, Now: newClock().Now})
	var wg sync.WaitGroup
	for _, u := range users {
		wg.Go(func() { compare(ctx, t, a, rules, u) })
	}
	wg.Wait()
	reviews := hub.n.Load()
	for _, u := range users {
		compare(ctx, t, a, rules, u)
	}
	if again := hub.n.Load(); again != reviews {
		t.Errorf("the same questions cost %d more reviews while the answers were fresh", again-reviews)
	}
}

// compare asks everything about one user and holds it to the rules.
func compare(ctx context.Context, t *testing.T, a *authz.Authorizer, rules []rule, u user.Info) {
	allowed := func(verb string, gr schema.GroupResource, member string) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.allows(u, verb, gr, member) })
	}
	seen, listed := map[string]bool{}, map[string]bool{}
	for _, verb := range verbs {
		for _, gr := range resources {
			g, err := a.Grants(ctx, u, verb, gr, hubMembers, "", "")
			if err != nil {
				t.Error(err)
				return
			}
			for _, member := range hubMembers {
				want := allowed(verb, gr, member)
				seen[member] = seen[member] || want
				listed[member] = listed[member] || want && verb == "list"
				if got := g.Member(member); got.All != want || len(got.Namespaces) > 0 {
					t.Errorf("%s %s %s in %s: %+v, the rules say %v", u.GetName(), verb, gr, member, got, want)
				}
				one, err := a.Grants(ctx, u, verb, gr, hubMembers, member, "default")
				if err != nil {
					t.Error(err)
					return
				}
				if one.Member(member).All != want || one.Empty() == want {
					t.Errorf("%s %s %s in %s alone: %+v, the rules say %v", u.GetName(), verb, gr, member, one, want)
				}
			}
		}
	}
	visible, _, err := a.Visible(ctx, u, hubMembers)
	if err != nil {
		t.Error(err)
	}
	for _, member := range hubMembers {
		any, err := a.AnyGrant(ctx, u, member)
		if err != nil || any != seen[member] || slices.Contains(visible, member) != listed[member] {
			t.Errorf("%s sees %s: %v, among %v, err %v; the rules say %v and %v", u.GetName(), member, any, visible, err, seen[member], listed[member])
		}
	}
}

func testRevocation(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	clock := newClock()
	a := newAuthorizer(t, authz.Options{Reviewer: client.AuthorizationV1().SubjectAccessReviews(), Now: clock.Now})
	eve := &user.DefaultInfo{Name: "eve"}
	pods := resources[0]
	may := func() (bool, time.Time) {
		t.Helper()
		g, err := a.Grants(ctx, eve, "list", pods, hubMembers, "", "")
		if err != nil {
			t.Fatal(err)
		}
		any, err := a.AnyGrant(ctx, eve, "red/eu-1")
		if err != nil || any == g.Empty() {
			t.Fatalf("sees the member: %v, %v; grants %+v", any, err, g)
		}
		return g.Member("red/eu-1").All, g.Expires()
	}
	if ok, _ := may(); ok {
		t.Fatal("granted before anybody granted it")
	}
	attributes := authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "red"}
	grant(ctx, t, client, "eve", rule{subject: "eve", namespace: "red", verb: "list", resource: "pods"})
	waitFor(ctx, t, client, "eve", attributes, true)
	clock.Advance(20 * time.Second) // what is denied altogether is kept longest
	ok, until := may()
	if !ok {
		t.Fatal("a grant is not seen after 20 s")
	}
	if wait := until.Sub(clock.Now()); wait < time.Second || wait > 20*time.Second {
		t.Errorf("the next review in %v, want at most 20 s", wait)
	}
	if err := client.RbacV1().RoleBindings("red").Delete(ctx, "eve", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, client, "eve", attributes, false)
	if ok, _ := may(); !ok {
		t.Error("a cached answer was reviewed again")
	}
	clock.Advance(20 * time.Second)
	if ok, _ := may(); ok {
		t.Error("a revoked grant is honoured after 20 s")
	}
}

// memberServer answers reviews of members by a real API server.
type memberServer struct {
	client   kubernetes.Interface
	down     string
	subjects sync.Map // users and groups
}

func (m *memberServer) Review(ctx context.Context, member string, review *authorizationv1.SubjectAccessReview) (bool, error) {
	m.subjects.Store(review.Spec.User, true)
	for _, g := range review.Spec.Groups {
		m.subjects.Store(g, true)
	}
	if member == m.down {
		return true, fmt.Errorf("member %q does not answer", member)
	}
	r, err := m.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && r.Status.Allowed, err
}

func testMembers(t *testing.T, client kubernetes.Interface) {
	ctx := t.Context()
	role := func(name, namespace string, subject rbacv1.Subject) {
		t.Helper()
		subject.APIGroup = rbacv1.GroupName
		meta := metav1.ObjectMeta{Name: name}
		rules := []rbacv1.PolicyRule{{APIGroups: []string{"", "apps"}, Resources: []string{"pods", "deployments"}, Verbs: []string{"list"}}}
		if _, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
		var err error
		if namespace == "" {
			_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}, metav1.CreateOptions{})
		} else {
			_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: ref}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	role("member-frank", "", rbacv1.Subject{Kind: "User", Name: "fed:frank"})
	role("member-web", "green", rbacv1.Subject{Kind: "Group", Name: "fed:web"})
	role("member-system", "", rbacv1.Subject{Kind: "Group", Name: "fed:system:masters"})
	allowed := func(u string, groups []string, namespace string) func() bool {
		return func() bool {
			r, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: u, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: namespace},
			}}, metav1.CreateOptions{})
			return err == nil && r.Status.Allowed
		}
	}
	until(t, "frank is granted by the member", allowed("fed:frank", nil, ""))
	until(t, "the group is granted by the member", allowed("x", []string{"fed:web"}, "green"))
	until(t, "the other group is granted by the member", allowed("x", []string{"fed:system:masters"}, ""))

	server := &memberServer{client: client, down: "blue/us-1"}
	a := newAuthorizer(t, authz.Options{
		Reviewer: client.AuthorizationV1().SubjectAccessReviews(), MemberReviewer: server, UserPrefix: "fed:",
		Namespaces: func(string) []string { return []string{"blue", "green"} },
	})
	members := []string{"blue/eu-1", "blue/us-1"}
	reach := func(u user.Info, member, namespace string) authz.MemberGrant {
		t.Helper()
		g, err := a.Grants(ctx, u, "list", resources[0], members, "", namespace)
		if err != nil {
			t.Fatal(err)
		}
		r := g.Member(member)
		if any, err := a.AnyGrant(ctx, u, member); err != nil || any == r.Empty() && namespace == "" {
			t.Errorf("%s sees %s: %v, %v; reach %+v", u.GetName(), member, any, err, r)
		}
		return r
	}
	frank := &user.DefaultInfo{Name: "frank"}
	if r := reach(frank, "blue/eu-1", ""); !r.All {
		t.Errorf("frank, granted by the member itself: %+v", r)
	}
	if r := reach(frank, "blue/us-1", ""); !r.Empty() {
		t.Errorf("frank on a member that does not answer: %+v", r)
	}
	gil := &user.DefaultInfo{Name: "gil", Groups: []string{"web", "system:authenticated"}}
	if r := reach(gil, "blue/eu-1", ""); r.All || !slices.Equal(r.Namespaces, []string{"green"}) {
		t.Errorf("gil may read one namespace, got %+v", r)
	}
	if r := reach(gil, "blue/eu-1", "blue"); !r.Empty() {
		t.Errorf("gil may not read namespace blue, got %+v", r)
	}
	hal := &user.DefaultInfo{Name: "hal", Groups: []string{"system:masters-not", "system:authenticated"}}
	if r := reach(hal, "blue/eu-1", ""); !r.Empty() {
		t.Errorf("hal was granted nothing, got %+v", r)
	}
	account := &user.DefaultInfo{Name: "system:serviceaccount:a:b"}
	if r := reach(account, "blue/eu-1", ""); !r.Empty() {
		t.Errorf("a service account was granted nothing, got %+v", r)
	}
	server.subjects.Range(func(key, _ any) bool {
		if name := key.(string); !strings.HasPrefix(name, "fed:") || strings.Contains(name, "system:") {
			t.Errorf("a member received a review of %q", name)
		}
		return true
	})
}

func testOutage(t *testing.T, hub *kube.Hub) {
	clock := newClock()
	a := newAuthorizer(t, authz.Options{Reviewer: hub.Client().AuthorizationV1().SubjectAccessReviews(), Now: clock.Now})
	root := &user.DefaultInfo{Name: "root", Groups: []string{"system:masters"}}
	g, err := a.Grants(t.Context(), root, "get", resources[0], hubMembers, "", "")
	if err != nil || !g.Everything() {
		t.Fatalf("root: %+v, %v", g, err)
	}
	hub.APIServer.Kill()
	if g, err := a.Grants(t.Context(), root, "get", resources[0], hubMembers, "", ""); err != nil || !g.Everything() {
		t.Errorf("an answer that is kept needed the hub: %v", err)
	}
	clock.Advance(20 * time.Second)
	g, err = a.Grants(t.Context(), root, "get", resources[0], hubMembers, "", "")
	if !apierrors.IsServiceUnavailable(err) || !g.Empty() {
		t.Errorf("without a hub: %+v, %v; want 503 and nothing granted", g, err)
	}
	if _, err := a.AnyGrant(t.Context(), root, "red/eu-1"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without a hub: %v, want 503", err)
	}
}
