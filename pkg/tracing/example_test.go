package tracing_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"federator.dev/federator/pkg/tracing"
)

// A change is committed, judged and corrected; its trace is sent when the tracer ends.
func Example() {
	exporter := &kept{InMemoryExporter: tracetest.NewInMemoryExporter()} // tracing.NewExporter sends to a receiver
	tracer, err := tracing.New(tracing.Options{Exporter: exporter, Installation: "fleet", Judged: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = tracer.Run(ctx) })

	now := tracing.At(time.Now())
	tracer.Committed(&tracing.Commit{Member: "fleet/eu-1", Kind: "Deployment.apps", Revision: 42, Changes: 1, At: now}, []tracing.Stamp{
		{Namespace: "shop", Name: "web", Version: "1001", Position: 1, Read: now, Began: now, Decoded: now},
	})
	tracer.Evaluated(tracing.Batch{Before: 41, After: 42, Started: now, Viewed: now, Evaluated: now, Published: now})

	target := tracing.Object{Member: "fleet/eu-1", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}
	requests, attempt := tracer.Begin(ctx, tracer.Cause(42, target), tracing.Correction{Policy: "replicas", Name: "replicas-1", Target: target})
	end := tracing.Start(requests, tracing.DryRun)
	fmt.Println("the request has a traceparent:", tracing.Traceparent(requests) != "")
	end(nil)
	attempt.End(tracing.Ended{Action: "replicas-1", Phase: "Superseded"})

	cancel()
	wg.Wait()
	id, _ := tracer.TraceOf("fleet/eu-1", "Deployment.apps", 42)
	for _, name := range exporter.names {
		fmt.Println(name)
	}
	fmt.Println("it is the trace of the change:", attempt != nil && id.IsValid())
	// Output:
	// the request has a traceparent: true
	// batch
	// view
	// evaluation
	// change
	// read
	// decode
	// commit
	// batch
	// view
	// evaluation
	// correction
	// intent
	// gate
	// dry run
	// it is the trace of the change: true
}
