package gitops_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub/internal/gitops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is an index with its writers.
type fleet struct {
	t      testing.TB
	index  *aggregate.Index
	scopes map[aggregate.Ref]*aggregate.Scope // by member and kind
	rv     int
}

func newFleet(t testing.TB, members ...string) *fleet {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	ok(t, err)
	f := &fleet{t: t, index: index, scopes: map[aggregate.Ref]*aggregate.Scope{}}
	for _, m := range members {
		ok(t, index.PutMember(aggregate.Member{Name: m, UID: m}))
		for _, kind := range []aggregate.Kind{gitops.Application, gitops.Kustomization, gitops.HelmRelease} {
			f.state(m, kind, aggregate.NotServed)
		}
	}
	return f
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) scope(member string, kind aggregate.Kind) *aggregate.Scope {
	f.t.Helper()
	at := aggregate.Ref{Member: member, Kind: kind}
	if f.scopes[at] == nil {
		s, err := f.index.OpenScope(member, kind, "v1")
		ok(f.t, err)
		f.scopes[at] = s
	}
	return f.scopes[at]
}

func (f *fleet) state(member string, kind aggregate.Kind, state aggregate.State) {
	f.t.Helper()
	s := f.scope(member, kind)
	s.SetStatus(aggregate.Status{State: state})
	_, err := s.Commit()
	ok(f.t, err)
}

// put writes an object, or deletes it with "".
func (f *fleet) put(ref aggregate.Ref, body string) {
	f.t.Helper()
	s := f.scope(ref.Member, ref.Kind)
	f.rv++
	if body == "" {
		s.Delete(ref.Namespace, ref.Name)
	} else {
		s.Upsert(s.Item(&aggregate.Record{Namespace: ref.Namespace, Name: ref.Name, UID: ref.String(), ResourceVersion: fmt.Sprint(f.rv), Body: []byte(body)}))
	}
	_, err := s.Commit()
	ok(f.t, err)
}

func owners(t testing.TB, f *fleet, servers map[string]string, trust ...gitops.Trust) *gitops.Owners {
	t.Helper()
	x, err := gitops.New(gitops.Options{Index: f.index, Trust: trust, ServerOf: func(m string) string { return servers[m] }})
	ok(t, err)
	return x
}

var everything = []gitops.Trust{
	{Kind: gitops.Application, Members: []string{"fleet/mgmt"}, Namespaces: []string{"argocd"}, Names: []string{"team-*"}},
	{Kind: gitops.Kustomization, Members: []string{"fleet/*"}, Namespaces: []string{"flux-system"}},
	{Kind: gitops.HelmRelease, Members: []string{"fleet/*"}, Namespaces: []string{"*"}},
}

func app(name, destination, resources string) (aggregate.Ref, string) {
	return aggregate.Ref{Member: "fleet/mgmt", Kind: gitops.Application, Namespace: "argocd", Name: name}, fmt.Sprintf(
		`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":%q,"namespace":"argocd"},"spec":{"destination":%s,"project":"default","source":{"repoURL":"https://git.example/shop","path":"apps/web"}},"status":{"resources":%s}}`,
		name, destination, resources)
}

const web = `[{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"web","status":"Synced"},{"version":"v1","kind":"Service","namespace":"shop","name":"web"}]`

func deployment(member string) aggregate.Ref {
	return aggregate.Ref{Member: member, Kind: "Deployment.apps", Namespace: "shop", Name: "web"}
}

func TestOwners_ApplicationsByTheirDestination(t *testing.T) {
	f := newFleet(t, "fleet/mgmt", "fleet/a", "fleet/b")
	f.state("fleet/mgmt", gitops.Application, aggregate.Synced)
	x := owners(t, f, map[string]string{"fleet/a": "https://A.example:443/", "fleet/b": "https://b.example:6443"}, everything...)
	expect := func(what, owned string) {
		t.Helper()
		for _, m := range []string{"fleet/mgmt", "fleet/a", "fleet/b"} {
			a := x.Of(deployment(m))
			if a.Unknown != "" || (a.Owner != nil) != (m == owned) {
				t.Errorf("%s: in %s: %v %q", what, m, a.Owner, a.Unknown)
			}
			if a.Owner != nil {
				for _, part := range []string{"Argo CD Application argocd/team-web", "fleet/mgmt", "repository https://git.example/shop", "path apps/web"} {
					if !strings.Contains(a.Owner.String(), part) {
						t.Errorf("%s: %q does not name %s", what, a.Owner, part)
					}
				}
			}
		}
	}
	expect("nothing", "")
	for _, c := range [][2]string{
		{`{"server":"https://a.example"}`, "fleet/a"},
		{`{"server":"https://a.example/","namespace":"shop"}`, "fleet/a"},
		{`{"server":"https://b.example:6443"}`, "fleet/b"},
		{`{"server":"https://b.example"}`, ""},
		{`{"server":"https://elsewhere.example"}`, ""},
		{`{"server":"https://kubernetes.default.svc"}`, "fleet/mgmt"},
		{`{"name":"in-cluster"}`, "fleet/mgmt"},
		{`{"name":"a"}`, ""}, // the Secret that says which server this is holds values
		{`{}`, ""},
	} {
		f.put(app("team-web", c[0], web))
		expect(c[0], c[1])
	}
	f.put(app("team-web", `{"server":"https://a.example"}`, `[]`))
	expect("an Application that lists nothing", "")
	f.put(app("other", `{"server":"https://a.example"}`, web))
	expect("an Application that is not trusted", "")
	ref, body := app("team-web", `{"server":"https://a.example"}`, web)
	ref.Namespace = "shop"
	f.put(ref, body)
	expect("in a namespace that is not trusted", "")
	f.put(app("team-web", `{"server":"https://a.example"}`, `{"not":"a list"}`))
	expect("one that is not understood", "")
	f.put(app("team-web", `{"server":"https://a.example"}`, web))
	expect("listed again", "fleet/a")
	ref.Namespace = "argocd"
	f.put(ref, "")
	expect("deleted", "")
}

func TestOwners_FluxByInventory(t *testing.T) {
	f := newFleet(t, "fleet/a", "fleet/b", "other/c")
	for _, m := range []string{"fleet/a", "fleet/b", "other/c"} {
		f.state(m, gitops.Kustomization, aggregate.Synced)
		f.state(m, gitops.HelmRelease, aggregate.Synced)
	}
	x := owners(t, f, nil, everything[1:]...)
	kustomization := func(member, namespace, spec, entries string) {
		f.put(aggregate.Ref{Member: member, Kind: gitops.Kustomization, Namespace: namespace, Name: "apps"}, fmt.Sprintf(
			`{"apiVersion":"kustomize.toolkit.fluxcd.io/v1","kind":"Kustomization","metadata":{"name":"apps","namespace":%q},"spec":{"path":"./apps","sourceRef":{"kind":"GitRepository","name":"repo"}%s},"status":{"inventory":{"entries":[%s]}}}`, namespace, spec, entries))
	}
	owned := func(ref aggregate.Ref) string {
		a := x.Of(ref)
		if a.Unknown != "" {
			t.Errorf("%s: %s", ref, a.Unknown)
		}
		if a.Owner == nil {
			return ""
		}
		return a.Owner.String()
	}
	const entry = `{"id":"shop_web_apps_Deployment","v":"v1"},{"id":"_system__node__x_rbac.authorization.k8s.io_ClusterRole","v":"v1"},{"id":"shop_web__Service","v":"v1"},{"id":"nonsense","v":"v1"}`
	kustomization("fleet/a", "flux-system", "", entry)
	if got := owned(deployment("fleet/a")); !strings.Contains(got, "Flux Kustomization flux-system/apps of member fleet/a, repository GitRepository.source.toolkit.fluxcd.io flux-system/repo, path ./apps") {
		t.Errorf("owner %q", got)
	}
	repo := aggregate.Ref{Member: "fleet/a", Kind: "GitRepository.source.toolkit.fluxcd.io", Namespace: "flux-system", Name: "repo"}
	f.put(repo, `{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","metadata":{"name":"repo","namespace":"flux-system"},"spec":{"url":"ssh://git@git.example/fleet"}}`)
	if got := owned(deployment("fleet/a")); !strings.Contains(got, "repository ssh://git@git.example/fleet, path ./apps") {
		t.Errorf("owner %q", got)
	}
	for ref, want := range map[aggregate.Ref]bool{
		deployment("fleet/b"): false,
		{Member: "fleet/a", Kind: "ClusterRole.rbac.authorization.k8s.io", Name: "system:node:x"}: true,
		{Member: "fleet/a", Kind: "Service", Namespace: "shop", Name: "web"}:                      true,
		{Member: "fleet/a", Kind: "Service", Namespace: "shop", Name: "other"}:                    false,
	} {
		if got := owned(ref); (got != "") != want {
			t.Errorf("%s: %q", ref, got)
		}
	}
	kustomization("other/c", "flux-system", "", entry)
	kustomization("fleet/b", "tenant", "", entry)
	for _, m := range []string{"other/c", "fleet/b"} {
		if got := owned(deployment(m)); got != "" {
			t.Errorf("%s: %s is not trusted", m, got)
		}
	}
	kustomization("fleet/a", "flux-system", `,"kubeConfig":{"secretRef":{"name":"b"}}`, entry)
	if got := owned(deployment("fleet/a")); got != "" {
		t.Errorf("what applies to another cluster owns %s", got)
	}
	release := func(status string) {
		f.put(aggregate.Ref{Member: "fleet/b", Kind: gitops.HelmRelease, Namespace: "shop", Name: "web"},
			`{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{"name":"web","namespace":"shop"},"spec":{"chart":{"spec":{"chart":"web","sourceRef":{"kind":"HelmRepository","name":"charts"}}}},"status":`+status+`}`)
	}
	release(`{"history":[]}`)
	if got := owned(deployment("fleet/b")); got != "" {
		t.Errorf("a HelmRelease without an inventory owns %s", got)
	}
	release(`{"inventory":{"entries":[{"id":"shop_web_apps_Deployment","v":"v1"}]}}`)
	if got := owned(deployment("fleet/b")); !strings.Contains(got, "Flux HelmRelease shop/web of member fleet/b, repository HelmRepository.source.toolkit.fluxcd.io shop/charts, path web") {
		t.Errorf("owner %q", got)
	}
}

// What nobody has read may own anything that it could.
func TestOwners_IncompleteScopesAreUnknown(t *testing.T) {
	f := newFleet(t, "fleet/mgmt", "fleet/a", "other/c")
	x := owners(t, f, map[string]string{"fleet/a": "https://a.example"}, everything...)
	expect := func(what string, unknown ...string) {
		t.Helper()
		for _, m := range []string{"fleet/mgmt", "fleet/a", "other/c"} {
			a, why := x.Of(deployment(m)), x.Unknown(m)
			if (why != "") != slices.Contains(unknown, m) || a.Owner == nil && a.Unknown != why {
				t.Errorf("%s: in %s: %q, %+v", what, m, why, a)
			}
		}
	}
	expect("NotServed is known to be empty")
	f.state("fleet/a", gitops.Kustomization, aggregate.Stale)
	expect("a Kustomization owns in its own member", "fleet/a")
	f.state("other/c", gitops.Kustomization, aggregate.Stale)
	expect("nobody is trusted there", "fleet/a")
	f.state("fleet/a", gitops.Kustomization, aggregate.Synced)
	f.state("fleet/a", gitops.Application, aggregate.Forbidden)
	expect("nobody is trusted there either")
	for _, state := range []aggregate.State{aggregate.Unknown, aggregate.Syncing, aggregate.Partial, aggregate.Stale, aggregate.Forbidden, aggregate.OverBudget} {
		f.state("fleet/mgmt", gitops.Application, state)
		expect("an Application owns anywhere, "+state.String(), "fleet/mgmt", "fleet/a", "other/c")
	}
	f.put(app("team-web", `{"server":"https://a.example"}`, web))
	if a := x.Of(deployment("fleet/a")); a.Owner == nil {
		t.Errorf("what is listed is owned: %+v", a)
	}
	f.state("fleet/mgmt", gitops.Application, aggregate.Synced)
	expect("Synced")
	ok(t, f.index.PutMember(aggregate.Member{Name: "fleet/new", UID: "new"}))
	if x.Unknown("fleet/new") == "" {
		t.Error("a member that was not discovered yet is known")
	}
	f.index.RemoveMember("fleet/mgmt")
	expect("the member that is trusted has left", "fleet/mgmt", "fleet/a", "other/c")
}

// TestOwners_EqualModel compares with a plain reading of all objects, over random histories.
func TestOwners_EqualModel(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		members := []string{"fleet/mgmt", "fleet/a", "fleet/b"}
		f := newFleet(t, members...)
		for _, m := range members {
			for _, kind := range []aggregate.Kind{gitops.Application, gitops.Kustomization} {
				f.state(m, kind, aggregate.Synced)
			}
		}
		servers := map[string]string{"fleet/a": "https://a", "fleet/b": "https://b"}
		x := owners(t, f, servers, everything[:2]...)
		lists := map[aggregate.Ref]map[aggregate.Ref]bool{} // by object
		for step := range 60 {
			var own []string
			target := func(m string) map[aggregate.Ref]bool {
				out := map[aggregate.Ref]bool{}
				own = nil
				for range r.IntN(4) {
					name := fmt.Sprint("x", r.IntN(4))
					own = append(own, name)
					out[aggregate.Ref{Member: m, Kind: "ConfigMap", Namespace: "shop", Name: name}] = true
				}
				return out
			}
			m := members[r.IntN(3)]
			if r.IntN(2) == 0 {
				ref := aggregate.Ref{Member: "fleet/mgmt", Kind: gitops.Application, Namespace: "argocd", Name: fmt.Sprint([]string{"team-", "other-"}[r.IntN(2)], r.IntN(3))}
				to := target(m)
				var resources []string
				for _, n := range own {
					resources = append(resources, fmt.Sprintf(`{"kind":"ConfigMap","namespace":"shop","name":%q}`, n))
				}
				destination := fmt.Sprintf(`{"server":%q}`, servers[m])
				if servers[m] == "" {
					destination = `{"server":"https://kubernetes.default.svc"}`
				}
				_, body := app(ref.Name, destination, "["+strings.Join(resources, ",")+"]")
				if lists[ref] != nil && r.IntN(3) == 0 {
					body, to = "", nil
				}
				f.put(ref, body)
				delete(lists, ref)
				if to != nil && strings.HasPrefix(ref.Name, "team-") {
					lists[ref] = to
				}
			} else {
				ref := aggregate.Ref{Member: m, Kind: gitops.Kustomization, Namespace: []string{"flux-system", "tenant"}[r.IntN(2)], Name: fmt.Sprint("k", r.IntN(3))}
				to := target(m)
				var entries []string
				for _, n := range own {
					entries = append(entries, fmt.Sprintf(`{"id":"shop_%s__ConfigMap","v":"v1"}`, n))
				}
				f.put(ref, fmt.Sprintf(`{"kind":"Kustomization","metadata":{"name":%q},"spec":{},"status":{"inventory":{"entries":[%s]}}}`, ref.Name, strings.Join(entries, ",")))
				delete(lists, ref)
				if ref.Namespace == "flux-system" {
					lists[ref] = to
				}
			}
			if r.IntN(4) != 0 {
				continue // several changes in one batch
			}
			for _, m := range members {
				for n := range 4 {
					ref := aggregate.Ref{Member: m, Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("x", n)}
					var want []string
					for owner, targets := range lists {
						if targets[ref] {
							want = append(want, owner.Namespace+"/"+owner.Name)
						}
					}
					a := x.Of(ref)
					if (a.Owner != nil) != (len(want) > 0) || a.Owner != nil && !slices.Contains(want, a.Owner.Ref.Namespace+"/"+a.Owner.Ref.Name) {
						t.Fatalf("seed %d, step %d: %s is owned by %v, want one of %q", seed, step, ref, a.Owner, want)
					}
					if a.Owner != nil {
						found++
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("nothing was owned")
	}
}

func TestOwners_RunReportsChanges(t *testing.T) {
	f := newFleet(t, "fleet/a")
	f.state("fleet/a", gitops.Kustomization, aggregate.Synced)
	var reports atomic.Int64
	x, err := gitops.New(gitops.Options{Index: f.index, Trust: everything[1:2], Changed: func() { reports.Add(1) }})
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- x.Run(ctx) }()
	await := func(n int64) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); reports.Load() < n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d reports", reports.Load())
			}
		}
	}
	await(1)
	f.put(aggregate.Ref{Member: "fleet/a", Kind: gitops.Kustomization, Namespace: "flux-system", Name: "k"}, `{"status":{"inventory":{"entries":[{"id":"shop_x__ConfigMap"}]}}}`)
	await(2)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := x.Kinds(); !slices.Contains(got, gitops.Kustomization) || slices.Contains(got, gitops.Application) || !slices.Contains(got, "GitRepository.source.toolkit.fluxcd.io") {
		t.Errorf("kinds %q", got)
	}
}

func TestTrust_Validate(t *testing.T) {
	for _, bad := range []gitops.Trust{
		{Kind: "Deployment.apps", Members: []string{"*"}, Namespaces: []string{"*"}},
		{Kind: gitops.Application, Namespaces: []string{"*"}},
		{Kind: gitops.Application, Members: []string{"*"}},
		{Kind: gitops.Application, Members: []string{"*"}, Namespaces: []string{""}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	for i := range everything {
		ok(t, everything[i].Validate())
	}
	if _, err := gitops.New(gitops.Options{}); err == nil {
		t.Error("owners without an index")
	}
}

// BenchmarkOwners_Of is what the gate of a write pays while trusted objects list 100,000
// targets, and BenchmarkOwners_Change what a change of one of 1,000 objects does.
func BenchmarkOwners_Of(b *testing.B) {
	x, _ := listing(b)
	ref := aggregate.Ref{Member: "fleet/a", Kind: "ConfigMap", Namespace: "shop", Name: "x500-50"}
	if x.Of(ref).Owner == nil {
		b.Fatal("not owned")
	}
	for b.Loop() {
		x.Of(ref)
	}
}

func BenchmarkOwners_Change(b *testing.B) {
	x, f := listing(b)
	for n := 0; b.Loop(); n++ {
		f.list(n%1000, n)
		x.Unknown("fleet/a")
	}
}

// listing is 1,000 Kustomizations with 100 targets each.
func listing(b *testing.B) (*gitops.Owners, *fleet) {
	b.Helper()
	f := newFleet(b, "fleet/a")
	for n := range 1000 {
		f.list(n, 0)
	}
	f.state("fleet/a", gitops.Kustomization, aggregate.Synced)
	x := owners(b, f, nil, everything[1])
	x.Unknown("fleet/a")
	return x, f
}

func (f *fleet) list(n, version int) {
	var entries []string
	for i := range 100 {
		entries = append(entries, fmt.Sprintf(`{"id":"shop_x%d-%d__ConfigMap","v":"v1"}`, n, i))
	}
	f.put(aggregate.Ref{Member: "fleet/a", Kind: gitops.Kustomization, Namespace: "flux-system", Name: fmt.Sprint("k", n)},
		fmt.Sprintf(`{"metadata":{"generation":%d},"spec":{},"status":{"inventory":{"entries":[%s]}}}`, version, strings.Join(entries, ",")))
}
