package policy_test

import (
	"context"
	"fmt"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Ask which members have a namespace.
func ExampleQuery() {
	index, err := aggregate.New(aggregate.Options{Epoch: 1})
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
