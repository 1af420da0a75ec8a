package queries_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/queries"
	"federator.dev/federator/test/seed"
)

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

var (
	leakMembers    = []string{"a/one", "a/two", "b/one"}
	leakNamespaces = []string{"shop", "default"}
	leakNames      = []string{"n0", "n1", "n2"}
)

// randomObjects are objects with few names, so that they refer to each other a
// lot, in circles too.
func randomObjects(rng *rand.Rand) []testObject {
	var out []testObject
	name := func() string { return pick(rng, leakNames...) }
	uid := func(ref aggregate.Ref) string {
		return fmt.Sprintf("uid %s %s %s", ref.Kind, ref.Namespace, ref.Name) // shared by members, as restored ones do
	}
	kinds := slices.Sorted(maps.Keys(resources))
	for _, member := range leakMembers {
		for _, kind := range kinds {
			for range 14 {
				ref := aggregate.Ref{Member: member, Kind: kind, Name: name()}
				if resources[kind].Namespaced {
					ref.Namespace = pick(rng, leakNamespaces...)
				}
				if slices.ContainsFunc(out, func(o testObject) bool { return o.ref == ref }) {
					continue
				}
				o := testObject{ref: ref, uid: uid(ref), labels: map[string]string{"app": name()}, body: object{}}
				for range rng.IntN(3) {
					owner := aggregate.Ref{Kind: pick(rng, kinds...), Name: name(), Namespace: ref.Namespace}
					if !resources[owner.Kind].Namespaced {
						owner.Namespace = ""
					}
					k, group := owner.Kind.Split()
					o.owners = append(o.owners, aggregate.Owner{APIVersion: strings.TrimPrefix(group+"/v1", "/"), Kind: k, Name: owner.Name, UID: uid(owner)})
				}
				switch kind {
				case "Pod":
					o.body["spec"] = object{
						"nodeName": name(), "serviceAccountName": name(), "imagePullSecrets": []any{object{"name": name()}},
						"volumes": []any{
							object{"configMap": object{"name": name()}},
							object{"secret": object{"secretName": name()}},
							object{"persistentVolumeClaim": object{"claimName": name()}},
							object{"projected": object{"sources": []any{object{"configMap": object{"name": name()}}, object{"secret": object{"name": name()}}}}},
						},
						"containers": []any{object{"envFrom": []any{object{"secretRef": object{"name": name()}}}, "env": []any{object{"valueFrom": object{"configMapKeyRef": object{"name": name()}}}}}},
					}
				case "Service":
					o.body["spec"] = object{"selector": object{"app": name()}}
				case "EndpointSlice.discovery.k8s.io":
					o.labels["kubernetes.io/service-name"] = name()
					o.body["endpoints"] = []any{object{"targetRef": object{"kind": "Pod", "name": name()}}}
				}
				out = append(out, o)
			}
		}
	}
	return out
}

// randomGrants returns grants to list, and to get the root's kind.
func randomGrants(rng *rand.Rand) map[string]*authz.Grants {
	out := map[string]*authz.Grants{}
	for _, r := range resources {
		for _, verb := range []string{"get", "list"} {
			if rng.IntN(4) == 0 {
				out[verb+" "+r.GroupResource.String()] = authz.Everything(time.Time{})
				continue
			}
			reaches := map[string]authz.MemberGrant{}
			for _, m := range leakMembers {
				switch rng.IntN(6) {
				case 0, 1, 2:
					reaches[m] = authz.MemberGrant{All: true}
				case 3, 4:
					reaches[m] = authz.MemberGrant{Namespaces: []string{pick(rng, leakNamespaces...), pick(rng, leakNamespaces...)}}
				}
			}
			out[verb+" "+r.GroupResource.String()] = authz.NewGrants(reaches, time.Time{})
		}
	}
	return out
}

// TestQueries_HiddenObjectsMakeNoDifference compares every answer within random
// grants with that to a caller who may read everything of a fleet in which
// nothing else exists.
func TestQueries_HiddenObjectsMakeNoDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	related, refused, nodes := 0, 0, 0
	for range 25 {
		objects := randomObjects(rng)
		whole := newFleet(t)
		whole.join(leakMembers...)
		whole.put(objects...)
		whole.commit()
		for range 4 {
			grants := randomGrants(rng)
			root := objects[rng.IntN(len(objects))].ref
			kept := newFleet(t)
			kept.join(leakMembers...)
			for _, o := range objects {
				if may(grants, "list", o.ref) {
					kept.put(o)
				}
			}
			kept.commit()
			bound := queries.Options{MaxNodes: pick(rng, 3, 1000, 1000, 1000), MaxReads: pick(rng, 5, 50_000, 50_000)}
			query := url.Values{"member": {root.Member}, "resource": {resources[root.Kind].GroupResource.String()}, "name": {root.Name}, "depth": {fmt.Sprint(2 + rng.IntN(6))}}
			if root.Namespace != "" {
				query.Set("namespace", root.Namespace)
			}
			query.Set("direction", pick(rng, "up", "down", "both"))
			if rng.IntN(3) == 0 {
				query.Set("kinds", "pods,services,endpointslices.discovery.k8s.io,"+resources[root.Kind].GroupResource.String())
			}
			got, err := ask[queries.Graph](t, whole.server(bound), "related", query.Encode(), reader{grants: grants})
			if !may(grants, "get", root) {
				if code(err) != 403 {
					t.Fatalf("%s without a grant: %v, want a 403", root, err)
				}
				refused++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range got.Nodes[1:] {
				if !may(grants, "list", aggregate.Ref{Member: n.Member, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}) {
					t.Fatalf("%s?%s shows %+v, which may not be listed", "related", query.Encode(), n)
				}
			}
			if !may(grants, "list", root) {
				continue // a list would find the root again in the smaller fleet
			}
			want, err := ask[queries.Graph](t, kept.server(bound), "related", query.Encode(), reader{})
			if err != nil {
				t.Fatal(err)
			}
			if g, w := dump(t, got.Nodes, got.Edges, got.Truncated), dump(t, want.Nodes, want.Edges, want.Truncated); g != w {
				t.Fatalf("%s gave\n%s, want\n%s", query.Encode(), g, w)
			}
			related++
			nodes += len(got.Nodes)
		}
		sameCounts(t, rng, whole, objects)
	}
	t.Logf("%d graphs of %d nodes, %d refusals", related, nodes, refused)
	if related < 20 || refused < 3 || nodes < 3*related {
		t.Errorf("%d graphs of %d nodes, %d refusals: too few to say anything", related, nodes, refused)
	}
}

func may(grants map[string]*authz.Grants, verb string, ref aggregate.Ref) bool {
	return grants[verb+" "+resources[ref.Kind].GroupResource.String()].Member(ref.Member).Allows(ref.Namespace)
}

func dump(t *testing.T, v ...any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sameCounts(t *testing.T, rng *rand.Rand, whole *fleet, objects []testObject) {
	t.Helper()
	grants := randomGrants(rng)
	kept := newFleet(t)
	kept.join(leakMembers...)
	for _, o := range objects {
		if may(grants, "list", o.ref) {
			kept.put(o)
		}
	}
	kept.commit()
	for _, kind := range slices.Sorted(maps.Keys(resources)) {
		query := url.Values{"resource": {resources[kind].GroupResource.String()}}
		for range rng.IntN(3) {
			query.Add("groupBy", pick(rng, "member", "namespace", "kind", "label:app", "field:spec.nodeName", "memberLabel:env", "field:spec.volumes.configMap.name"))
		}
		switch rng.IntN(4) {
		case 0:
			query.Set("labelSelector", pick(rng, "app=n1", "app!=n1", "federator.dev/member=a.one", "member.federator.dev/env!=a"))
		case 1:
			query.Set("fieldSelector", pick(rng, "metadata.name=n1", "spec.nodeName=n2", "spec.selector.app!=n1"))
		case 2:
			query.Set("namespace", pick(rng, leakNamespaces...))
		}
		got, err := ask[queries.CountResult](t, whole.server(queries.Options{}), "count", query.Encode(), reader{grants: grants})
		if grants["list "+resources[kind].GroupResource.String()].Empty() {
			if code(err) != 403 {
				t.Fatalf("count without a grant: %v, want a 403", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want, err := ask[queries.CountResult](t, kept.server(queries.Options{}), "count", query.Encode(), reader{})
		if err != nil {
			t.Fatal(err)
		}
		if g, w := dump(t, got.Total, got.Groups), dump(t, want.Total, want.Groups); g != w {
			t.Fatalf("count?%s gave %s, want %s", query.Encode(), g, w)
		}
	}
	var all, some queries.MemberList
	var err error
	if all, err = ask[queries.MemberList](t, whole.server(queries.Options{}), "members", "", reader{grants: grants, seen: leakMembers}); err != nil {
		t.Fatal(err)
	}
	if some, err = ask[queries.MemberList](t, kept.server(queries.Options{}), "members", "", reader{seen: leakMembers}); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		if all.Items[i].Objects != some.Items[i].Objects {
			t.Fatalf("%s has %d objects, want %d", all.Items[i].Name, all.Items[i].Objects, some.Items[i].Objects)
		}
	}
}

func TestMembers_ShowWhatMayBeListed(t *testing.T) {
	f := smallFleet(t)
	f.scope("b/one", "Pod").SetStatus(aggregate.Status{State: aggregate.Stale})
	f.commit()
	s := f.server(queries.Options{})
	grants := map[string]*authz.Grants{
		"list pods": authz.NewGrants(map[string]authz.MemberGrant{"a/one": {Namespaces: []string{"shop"}}, "b/one": {All: true}}, time.Time{}),
	}
	got, err := ask[queries.MemberList](t, s, "members", "", reader{grants: grants, seen: []string{"a/one", "b/one", "c/gone"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Items) != 2 {
		t.Fatalf("%+v", got.Items)
	}
	one, b := got.Items[0], got.Items[1]
	if one.Name != "a/one" || one.Objects != 2 || one.Version != "v1.36.3" || one.Labels["env"] != "a" || one.Scopes[aggregate.Synced] != 1 || len(one.NotSynced) != 0 {
		t.Errorf("%+v", one)
	}
	if b.Name != "b/one" || b.Objects != 1 || b.Scopes[aggregate.Stale] != 1 || len(b.Scopes) != 1 || len(b.NotSynced) != 1 || b.NotSynced[0].Kind != "Pod" {
		t.Errorf("%+v", b)
	}
	only, err := ask[queries.MemberList](t, s, "members", "labelSelector="+url.QueryEscape("member.federator.dev/env=b"), reader{seen: []string{"a/one", "b/one"}})
	if err != nil || len(only.Items) != 1 || only.Items[0].Name != "b/one" {
		t.Errorf("%+v, %v", only.Items, err)
	}
	rows := table(t, s, "members", "").Rows
	if len(rows) != 2 || rows[0].Cells[0] != "a/one" {
		t.Errorf("%v", rows)
	}
}
