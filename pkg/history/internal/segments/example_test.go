package segments_test

import (
	"fmt"
	"os"

	"federator.dev/federator/pkg/history/internal/segments"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	log, err := segments.Open(segments.Options{Directory: dir, MaxBytes: 1 << 30})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close() // log.Run(ctx) seals and expires meanwhile
	last, err := log.Append([]segments.Entry{
		{Member: "prod/eu-1", Kind: "Deployment.apps", Namespace: "shop", Name: "web", Payload: []byte(`{"replicas":[2,3]}`)},
		{Member: "prod/eu-1", Kind: "Node", Name: "n1", Payload: []byte(`{"ready":[true,false]}`)},
	})
	fmt.Println(last, err)
	for e, err := range log.Read(segments.Query{Kind: "Deployment.apps", Name: "web"}) {
		fmt.Println(e.Position, e.Member, string(e.Payload), err)
	}
	// Output:
	// 2 <nil>
	// 1 prod/eu-1 {"replicas":[2,3]} <nil>
}
