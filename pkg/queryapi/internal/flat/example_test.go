package flat_test

import (
	"fmt"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
)

func Example() {
	nobody := func(aggregate.Kind) (namespaced, known bool) { return false, false }
	keys := flat.NewKeys("Pod", true, nobody)
	body := []byte(`{"metadata":{"name":"web-0","namespace":"shop"},"spec":{"nodeName":"n1"}}`)
	fmt.Printf("%s\n", keys.Append(nil, body, "fleet/eu.1"))
	fmt.Println(flat.Split("fleet.eu_1.shop"))
	// Output:
	// {"metadata":{"name":"web-0","namespace":"fleet.eu_1.shop","annotations":{"federator.dev/original-namespace":"shop"}},"spec":{"nodeName":"fleet.eu_1.n1"}}
	// fleet/eu.1 shop true
}
