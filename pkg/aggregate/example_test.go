package aggregate_test

import (
	"fmt"
	"log"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
)

func Example() {
	index, err := aggregate.New(aggregate.Options{
		Revisions: aggregate.Block(1), // a real process reserves one of its own
		Fields:    map[aggregate.Kind][]string{"Pod": {"spec.nodeName"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	cursor := index.Cursor(nil)

	// A member joins, and its Pods are listed.
	if err := index.PutMember(aggregate.Member{Name: "fleet/eu-1", UID: "5b1c"}); err != nil {
		log.Fatal(err)
	}
	pods, err := index.OpenScope("fleet/eu-1", "Pod", "v1")
	if err != nil {
		log.Fatal(err)
	}
	list := []aggregate.Item{pods.Item(&aggregate.Record{
		Namespace: "shop", Name: "web-1", UID: "0e3f", ResourceVersion: "17",
		Labels: []aggregate.Label{{Key: "app", Value: "web"}},
		Body:   []byte(`{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"node-1"}}`),
	})}
	if _, err := pods.Replace(list, aggregate.Status{State: aggregate.Synced}); err != nil {
		log.Fatal(err)
	}

	snap := index.Snapshot()
	found, err := snap.List(aggregate.Query{
		Kind:   "Pod",
		Labels: labels.SelectorFromSet(labels.Set{"app": "web"}),
		Fields: map[string]string{"spec.nodeName": "node-1"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for o := range found {
		body, err := o.AppendBody(nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s at version %s: %s\n", o.Ref(), o.ResourceVersion(), body)
	}

	// The Pod goes. The snapshot still has it; the cursor reports it.
	pods.Delete("shop", "web-1")
	if _, err := pods.Commit(); err != nil {
		log.Fatal(err)
	}
	old, _ := snap.Count(aggregate.Query{Kind: "Pod"})
	now, _ := index.Snapshot().Count(aggregate.Query{Kind: "Pod"})
	fmt.Println("then", old, "now", now)
	if batch, ok := cursor.Poll(); ok {
		for d := range batch.Deltas() {
			fmt.Println("changed:", d.Ref)
		}
		for d := range batch.Members() {
			fmt.Println("joined:", d.After.Name)
		}
	}
	// Output:
	// fleet/eu-1 Pod shop/web-1 at version 17: {"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"node-1"}}
	// then 1 now 0
	// joined: fleet/eu-1
}
