package enforce_test

import (
	"context"
	"fmt"
	"log"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// A loop keeps the verdicts of policies at what the index holds.
func Example() {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "region.rego", Data: []byte(`# METADATA
# title: Members say where they are
# custom: {severity: low, subject: member}
package region

violation contains {"msg": "no region"} if not input.member.labels.region
`)}}}}, policy.LoadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	loop, err := enforce.New(enforce.Options{
		Index: index, Set: set, Bindings: []policy.Binding{{Name: "region", Package: "region"}},
		Changed: func(c *policy.Changes, _ *aggregate.Batch) {
			for change := range c.All() {
				fmt.Println(change.After.Subject, change.After.Violations[0].Msg)
				cancel()
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/eu-1", UID: "1"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(loop.Run(ctx))
	// Output:
	// fleet/eu-1 no region
	// context canceled
}
