package queries_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/queries"
)

func at(kind aggregate.Kind, name string) aggregate.Ref {
	ref := aggregate.Ref{Member: "a/one", Kind: kind, Name: name}
	if resources[kind].Namespaced {
		ref.Namespace = "shop"
	}
	return ref
}

func ownedBy(apiVersion, kind, name, uid string) []aggregate.Owner {
	return []aggregate.Owner{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: true}}
}

// webFleet is a Deployment with all that belongs to it.
func webFleet(t testing.TB, pods int) *fleet {
	f := newFleet(t)
	f.join("a/one", "a/two")
	f.put(
		testObject{ref: at("Deployment.apps", "web"), uid: "d"},
		testObject{ref: at("ReplicaSet.apps", "web-1"), uid: "r", owners: ownedBy("apps/v1", "Deployment", "web", "d")},
		testObject{ref: at("ReplicaSet.apps", "web-0"), uid: "r0", owners: ownedBy("apps/v1", "Deployment", "web", "another web, of before")},
		testObject{ref: at("Service", "web"), uid: "s", body: object{"spec": object{"selector": object{"app": "web"}}}},
		testObject{ref: at("Service", "bare"), uid: "s2", body: object{"spec": object{"type": "ExternalName"}}},
		testObject{ref: at("Node", "n1"), uid: "n"}, testObject{ref: at("Node", "n2"), uid: "n2"},
		testObject{ref: at("ConfigMap", "conf"), uid: "c"}, testObject{ref: at("ConfigMap", "other"), uid: "c2"}, testObject{ref: at("Secret", "key"), uid: "k"},
		testObject{ref: at("Secret", "pull"), uid: "k2"}, testObject{ref: at("PersistentVolumeClaim", "data"), uid: "v"}, testObject{ref: at("ServiceAccount", "web"), uid: "a"},
	)
	var endpoints []any
	for i := range pods {
		name := fmt.Sprintf("web-%d", i)
		f.put(testObject{
			ref: at("Pod", name), uid: "p" + name, labels: map[string]string{"app": "web"}, owners: ownedBy("apps/v1", "ReplicaSet", "web-1", "r"),
			body: object{"spec": object{
				"nodeName": "n1", "serviceAccountName": "web", "imagePullSecrets": []any{object{"name": "pull"}},
				"volumes":        []any{object{"configMap": object{"name": "conf"}}, object{"persistentVolumeClaim": object{"claimName": "data"}}},
				"initContainers": []any{object{"env": []any{object{"valueFrom": object{"secretKeyRef": object{"name": "key"}}}}}},
			}},
		})
		endpoints = append(endpoints, object{"nodeName": "n1", "targetRef": object{"kind": "Pod", "name": name}})
	}
	f.put(
		testObject{ref: at("Pod", "other"), uid: "po", labels: map[string]string{"app": "db"}, body: object{"spec": object{"nodeName": "n2", "volumes": "broken"}}},
		testObject{ref: at("EndpointSlice.discovery.k8s.io", "web-x"), uid: "e", labels: map[string]string{"kubernetes.io/service-name": "web"}, owners: ownedBy("v1", "Service", "web", "s"), body: object{"endpoints": endpoints}},
	)
	f.commit()
	return f
}

// edges writes a graph's edges, sorted.
func edges(g queries.Graph) string {
	var out []string
	for _, e := range g.Edges {
		out = append(out, g.Nodes[e.From].Name+" "+string(e.Relation)+" "+g.Nodes[e.To].Name)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func TestRelated_RelationsAreFoundFromBothEnds(t *testing.T) {
	s := webFleet(t, 1).server(queries.Options{})
	const pod = "web-0 mounts conf; web-0 mounts data; web-0 pullsWith pull; web-0 readsEnv key; web-0 runsAs web; web-0 runsOn n1"
	for _, c := range []struct{ query, want string }{
		{"resource=deployments.apps&namespace=shop&name=web&direction=down&depth=2", "web owns web-1; web-1 owns web-0"},
		{"resource=deployments.apps&namespace=shop&name=web&direction=down&depth=3", "web owns web-1; " + pod + "; web-1 owns web-0"},
		{"resource=pods&namespace=shop&name=web-0&direction=down&depth=1", pod},
		{"resource=pods&namespace=shop&name=web-0&direction=up&depth=1", "web selects web-0; web-1 owns web-0; web-x targets web-0"},
		{"resource=services&namespace=shop&name=web&direction=down&depth=2&kinds=endpointslices,pods,nodes", "web owns web-x; web publishes web-x; web selects web-0; web-0 runsOn n1; web-x targets web-0"},
		{"resource=services&namespace=shop&name=bare", ""},
		{"resource=nodes&name=n1&depth=1", "web-0 runsOn n1"},
		{"resource=nodes&name=n1&direction=down", ""},
		{"resource=configmaps&namespace=shop&name=conf&direction=up&depth=3", "web owns web-1; web owns web-x; web publishes web-x; web selects web-0; web-0 mounts conf; web-1 owns web-0; web-x targets web-0"},
		{"resource=configmaps&namespace=shop&name=other", ""},
		{"resource=secrets&namespace=shop&name=pull&depth=1", "web-0 pullsWith pull"},
		{"resource=secrets&namespace=shop&name=key&depth=1", "web-0 readsEnv key"},
		{"resource=persistentvolumeclaims&namespace=shop&name=data&depth=1", "web-0 mounts data"},
		{"resource=serviceaccounts&namespace=shop&name=web&depth=1", "web-0 runsAs web"},
		{"resource=endpointslices&namespace=shop&name=web-x&direction=up", "web owns web-x; web publishes web-x"},
		{"resource=replicasets&namespace=shop&name=web-0&depth=10", ""}, // its owner is of another UID
		{"resource=pods&namespace=shop&name=other&depth=1", "other runsOn n2"},
	} {
		got, err := ask[queries.Graph](t, s, "related", "member=a/one&"+c.query, reader{})
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if have := edges(got); have != c.want || got.Truncated {
			t.Errorf("%s gave\n%s, want\n%s", c.query, have, c.want)
		}
	}
}

func TestRelated_TerminatesOnCycles(t *testing.T) {
	f := newFleet(t)
	f.join("a/one")
	f.put(
		testObject{ref: at("ConfigMap", "x"), uid: "x", owners: ownedBy("v1", "ConfigMap", "y", "y")},
		testObject{ref: at("ConfigMap", "y"), uid: "y", owners: ownedBy("v1", "ConfigMap", "x", "x")},
		testObject{ref: at("Secret", "self"), uid: "self", owners: ownedBy("v1", "Secret", "self", "self")},
	)
	f.commit()
	s := f.server(queries.Options{})
	got, err := ask[queries.Graph](t, s, "related", "member=a/one&resource=configmaps&namespace=shop&name=x&depth=10", reader{})
	if err != nil || edges(got) != "x owns y; y owns x" || len(got.Nodes) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = ask[queries.Graph](t, s, "related", "member=a/one&resource=secrets&namespace=shop&name=self&depth=10", reader{})
	if err != nil || edges(got) != "self owns self" || len(got.Nodes) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRelated_GraphsAreBounded(t *testing.T) {
	f := webFleet(t, 40)
	got, err := ask[queries.Graph](t, f.server(queries.Options{MaxNodes: 10}), "related", "member=a/one&resource=deployments.apps&namespace=shop&name=web", reader{})
	if err != nil || !got.Truncated || len(got.Nodes) != 10 {
		t.Errorf("%d nodes, truncated %t, %v", len(got.Nodes), got.Truncated, err)
	}
	got, err = ask[queries.Graph](t, f.server(queries.Options{MaxReads: 5}), "related", "member=a/one&resource=configmaps&namespace=shop&name=conf&depth=1", reader{})
	if err != nil || !got.Truncated || len(got.Nodes) > 6 {
		t.Errorf("%d nodes, truncated %t, %v", len(got.Nodes), got.Truncated, err)
	}
	got, err = ask[queries.Graph](t, f.server(queries.Options{}), "related", "member=a/one&resource=deployments.apps&namespace=shop&name=web&depth=10", reader{})
	if err != nil || got.Truncated || len(got.Nodes) != 2+40+9-1 {
		t.Errorf("%d nodes, truncated %t, %v", len(got.Nodes), got.Truncated, err)
	}
}

func TestRelated_GraphsSayWhatIsNotSynced(t *testing.T) {
	f := webFleet(t, 1)
	f.scope("a/one", "Pod").SetStatus(aggregate.Status{State: aggregate.Forbidden})
	f.scope("a/two", "Pod").SetStatus(aggregate.Status{State: aggregate.Stale})
	f.commit()
	s := f.server(queries.Options{})
	got, err := ask[queries.Graph](t, s, "related", "member=a/one&resource=nodes&name=n1", reader{})
	if err != nil || len(got.NotSynced) != 1 || got.NotSynced[0].Kind != "Pod" || got.NotSynced[0].State != aggregate.Forbidden {
		t.Errorf("%+v, %v", got.NotSynced, err)
	}
	if _, err := send(s, "related", "member=a/one&resource=nodes&name=n1&require=synced", "", reader{}); code(err) != 503 {
		t.Errorf("required to be synced: %v", err)
	}
	if _, err := send(s, "related", "member=a/one&resource=nodes&name=n1&require=synced&kinds=services", "", reader{}); err != nil {
		t.Errorf("of other kinds: %v", err)
	}
	rows := table(t, s, "related", "member=a/one&resource=nodes&name=n1&depth=1").Rows
	if len(rows) != 2 || rows[1].Cells[3] != "web-0" {
		t.Errorf("%v", rows)
	}
}

// BenchmarkRelated starts from one of 10,000 pods of a member of 100.
func BenchmarkRelated(b *testing.B) {
	s := millions(b, 100, 10_000).server(queries.Options{})
	for b.Loop() {
		if _, err := send(s, "related", "member=fleet/m050&resource=pods&namespace=ns-07&name=pod-000007&depth=3", "", reader{}); err != nil {
			b.Fatal(err)
		}
	}
}
