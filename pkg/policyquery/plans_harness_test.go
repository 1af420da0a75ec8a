package policyquery_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/remediate/planreader"
	"federator.dev/federator/pkg/remediate/plantest"
)

// planFleet is what the members of these tests serve.
type planFleet struct{}

func (planFleet) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	return []queryapi.ServedResource{
		{Kind: "Deployment.apps", Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Namespaced: true},
		{Kind: "ConfigMap", Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true},
	}, nil
}

func (planFleet) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	return map[aggregate.Kind]bool{"Deployment.apps": true, "ConfigMap": true}, nil
}

func (planFleet) LastContact(string, aggregate.Kind) time.Time { return time.Now() }

// teams is the RBAC of all members: users may list what is in the namespace of their name.
type teams struct{}

func (teams) Review(_ context.Context, _ string, r *authorizationv1.SubjectAccessReview) (bool, error) {
	namespace := r.Spec.ResourceAttributes.Namespace
	return namespace != "" && r.Spec.User == "team:"+namespace, nil
}

// planReader is how main wires the Plans.
type planReader struct{ *planreader.Reader }

func (r planReader) Groups(ctx context.Context, plan *v1alpha1.Plan, part int) ([]v1alpha1.PlanGroup, error) {
	groups, err := r.Reader.Groups(ctx, plan, part)
	if errors.Is(err, planreader.ErrDamaged) {
		return nil, fmt.Errorf("%w: %w", policyquery.ErrPlanDamaged, err)
	}
	return groups, err
}

// planServer serves the Plans of a real hub, whose RBAC says who may read what.
type planServer struct {
	t       *testing.T
	rest    rest.Interface
	index   *aggregate.Index
	address string
	roots   *x509.CertPool
}

// planners numbers what tests must not have in common.
var planners atomic.Int64

func newName(what string) string { return fmt.Sprintf("%s-%d", what, planners.Add(1)) }

func startPlans(t *testing.T, change func(*queryapi.Options)) *planServer {
	t.Helper()
	fleet := shared.Start(t)
	client, err := hub.NewRESTClient(fleet.Hub.DirectRESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, fleet.Hub.RESTConfig().CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	o := queryapi.Options{
		Authentication: queryapi.Authentication{ClientCAFile: authority},
		Index:          index, Fleet: planFleet{}, Logger: slog.New(slog.DiscardHandler), Listener: l, Hub: fleet.Hub.DirectRESTConfig(),
		Queries: map[string]queryapi.Query{
			"plans/{policy}": policyquery.Plans{Kinds: planFleet{}.Kinds, Index: index, Reader: planReader{planreader.New(client)}},
		},
	}
	if change != nil {
		change(&o)
	}
	server, err := queryapi.New(o)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.CertificateAuthority())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s := &planServer{t, client, index, "https://" + l.Addr().String(), roots}
	for _, m := range []string{"fleet/a", "fleet/b"} {
		s.join(m, "uid-"+m)
	}
	return s
}

// join adds a member with the namespaces shop and web, and an object of each other kind in them.
func (s *planServer) join(member, uid string) {
	s.t.Helper()
	if err := s.index.PutMember(aggregate.Member{Name: member, UID: uid}); err != nil {
		s.t.Fatal(err)
	}
	for kind, resource := range map[aggregate.Kind]string{"Deployment.apps": "deployments", "ConfigMap": "configmaps", "Namespace": "namespaces"} {
		scope, err := s.index.OpenScopeAs(member, kind, "v1", resource)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, namespace := range []string{"shop", "web"} {
			r := &aggregate.Record{Namespace: namespace, Name: "here", UID: "u", ResourceVersion: "1", Body: []byte(`{"metadata":{"name":"here"}}`)}
			if kind == "Namespace" {
				r.Namespace, r.Name = "", namespace
			}
			scope.Upsert(scope.Item(r))
		}
		scope.SetStatus(aggregate.Status{State: aggregate.Synced})
		if _, err := scope.Commit(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// user returns a client for a user of the hub who may list resources, in some members or all.
func (s *planServer) user(name string, members []string, resources ...string) *http.Client {
	s.t.Helper()
	if len(resources) > 0 {
		ctx, rbac, meta := s.t.Context(), shared.Fleet.Hub.Client().RbacV1(), metav1.ObjectMeta{Name: name}
		rules := []rbacv1.PolicyRule{{APIGroups: []string{"members.federator.dev"}, Verbs: []string{"list"}, Resources: resources, ResourceNames: members}}
		_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		if err == nil {
			_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			s.t.Fatal(err)
		}
		s.awaitGrant(name, members, resources)
	}
	cred, err := shared.Fleet.Hub.IssueCert(name, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cred.Cert, cred.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, Certificates: []tls.Certificate{pair}}, ForceAttemptHTTP2: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// awaitGrant waits until the hub knows of a grant.
func (s *planServer) awaitGrant(name string, members, resources []string) {
	s.t.Helper()
	attributes := &authorizationv1.ResourceAttributes{Group: "members.federator.dev", Resource: resources[0], Verb: "list", Namespace: "fleet"}
	if len(members) > 0 {
		attributes.Name = members[0]
	}
	deadline := time.Now().Add(patience)
	for {
		r, err := shared.Fleet.Hub.Client().AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err == nil && r.Status.Allowed {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the hub knows of no grant: %+v, %v", r, err)
		}
	}
}

func (s *planServer) get(user *http.Client, path string) (int, []byte) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.address+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := user.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, body
}

// plans returns one page.
func (s *planServer) plans(user *http.Client, policy, query string) *policyquery.PlanList {
	s.t.Helper()
	code, body := s.get(user, "/query/v1/plans/"+policy+"?"+query)
	list := &policyquery.PlanList{}
	if err := json.Unmarshal(body, list); err != nil || code != http.StatusOK {
		s.t.Fatalf("%s: %d %s", query, code, body)
	}
	return list
}

// refused wants a Status with a code.
func (s *planServer) refused(user *http.Client, path string, want int) {
	s.t.Helper()
	code, body := s.get(user, path)
	status := metav1.Status{}
	if err := json.Unmarshal(body, &status); err != nil || code != want || int(status.Code) != want {
		s.t.Errorf("%s: %d %s, want %d", path, code, body, want)
	}
}

// create records a Plan.
func (s *planServer) create(policy string, state v1alpha1.PlanState, change func(*v1alpha1.PlanSpec), groups ...v1alpha1.PlanGroup) *v1alpha1.Plan {
	s.t.Helper()
	spec := v1alpha1.PlanSpec{Policy: v1alpha1.PolicyName(policy)}
	if change != nil {
		change(&spec)
	}
	since := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	p, err := plantest.Create(s.t.Context(), s.rest, spec, v1alpha1.PlanStatus{
		State: state, Since: &since, Required: 2, Written: 1, Message: "not for everybody",
		Approvals: []v1alpha1.GivenApproval{{Name: "x", By: "somebody", At: since, Expires: since}},
	}, groups...)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// group is targets of one kind in a member, by namespace.
func group(member, uid, kind string, verb v1alpha1.Verb, names map[string][]string) v1alpha1.PlanGroup {
	g := v1alpha1.PlanGroup{Member: member, MemberUID: uid, APIVersion: "v1", Kind: kind, Verb: verb}
	for namespace, all := range names {
		for _, name := range all {
			g.Targets = append(g.Targets, v1alpha1.PlannedTarget{
				Namespace: namespace, Name: name, UID: "uid-" + name, Diff: "diff of " + name, Message: fmt.Sprintf("%q was seen", name),
				Irreversible: map[bool]string{true: "it is gone"}[verb == v1alpha1.Delete], DryRun: v1alpha1.DryRunPassed,
			})
		}
	}
	return g
}

// fleetTargets are targets in members that are there, that have another UID, and that are not there.
func fleetTargets() []v1alpha1.PlanGroup {
	return []v1alpha1.PlanGroup{
		group("fleet/a", "uid-fleet/a", "ConfigMap", v1alpha1.Delete, map[string][]string{"shop": {"a-c-shop-1", "a-c-shop-2"}, "web": {"a-c-web"}}),
		group("fleet/a", "uid-fleet/a", "Deployment.apps", v1alpha1.Patch, map[string][]string{"shop": {"a-d-shop"}, "web": {"a-d-web-1", "a-d-web-2"}}),
		group("fleet/a", "another", "ConfigMap", v1alpha1.Patch, map[string][]string{"shop": {"of-before"}}),
		group("fleet/b", "uid-fleet/b", "ConfigMap", v1alpha1.Patch, map[string][]string{"shop": {"b-c-shop"}}),
		group("fleet/b", "uid-fleet/b", "Unserved.example.com", v1alpha1.Patch, map[string][]string{"shop": {"unserved"}}),
		group("fleet/left", "left", "ConfigMap", v1alpha1.Patch, map[string][]string{"shop": {"of-left"}}),
	}
}

const allTargets = 10
