package policy_test

import (
	"context"
	"fmt"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Find hosts that two members serve, and follow a change.
func ExampleEngine() {
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "host.rego", Data: []byte(`# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"]}
package host

view.hosts[host] contains true if some host in input.object.spec.hosts

violation contains {"msg": sprintf("%s is also served from %s", [host, claim.ref.member])} if {
	some host in input.object.spec.hosts
	some claim in data.fleet.views.host.hosts[host]
	claim.ref.member != input.ref.member
}
`)}}}}, policy.LoadOptions{})
	if err != nil {
		panic(err)
	}
	engine, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: []policy.Binding{{Name: "host", Package: "host"}}})
	if err != nil {
		panic(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		panic(err)
	}
	serve := func(member string) {
		if err := index.PutMember(aggregate.Member{Name: member, UID: member}); err != nil {
			panic(err)
		}
		scope, err := index.OpenScope(member, "Ingress.networking.k8s.io", "networking.k8s.io/v1")
		if err != nil {
			panic(err)
		}
		ingress := scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: member, ResourceVersion: "1", Body: []byte(
			`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"web","namespace":"shop"},"spec":{"hosts":["a.example"]}}`)})
		if _, err := scope.Replace([]aggregate.Item{ingress}, aggregate.Status{State: aggregate.Synced}); err != nil {
			panic(err)
		}
	}
	serve("fleet/eu-1")
	ctx := context.Background()
	if _, err := engine.Reset(ctx, index.Snapshot(), nil); err != nil {
		panic(err)
	}
	fmt.Println(engine.State().Total("host").Violations, "violations")

	cursor := index.Cursor(engine.State().Snapshot)
	serve("fleet/us-1")
	batch, _ := cursor.Poll()
	changes, err := engine.Apply(ctx, batch, nil)
	if err != nil {
		panic(err)
	}
	for change := range changes.All() {
		fmt.Println(change.After.Subject, change.After.State, change.After.Violations[0].Msg)
	}
	// Unordered output:
	// 0 violations
	// fleet/eu-1 Ingress.networking.k8s.io shop/web Known a.example is also served from fleet/us-1
	// fleet/us-1 Ingress.networking.k8s.io shop/web Known a.example is also served from fleet/eu-1
}

// Ask which members have a namespace.
func ExampleQuery() {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		panic(err)
	}
	for _, member := range []string{"fleet/eu-1", "fleet/us-1"} {
		if err := index.PutMember(aggregate.Member{Name: member, UID: member}); err != nil {
			panic(err)
		}
	}
	scope, err := index.OpenScope("fleet/eu-1", "Namespace", "v1")
	if err != nil {
		panic(err)
	}
	shop := scope.Item(&aggregate.Record{
		Name: "shop", UID: "1", ResourceVersion: "7",
		Body: []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`),
	})
	if _, err := scope.Replace([]aggregate.Item{shop}, aggregate.Status{State: aggregate.Synced}); err != nil {
		panic(err)
	}
	answer, err := policy.Query(context.Background(), policy.QueryOptions{
		Snapshot: index.Snapshot(), Reader: policy.Everything{},
	}, `some member; data.fleet.objects.Namespace[member][""].shop`)
	if err != nil {
		panic(err)
	}
	for _, row := range answer.Rows {
		fmt.Println(row.Bindings["member"])
	}
	// Output: fleet/eu-1
}
