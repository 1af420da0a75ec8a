package exchange_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
)

// Process a judges a member, and process b needs what policies read of it.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	own, _ := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	_ = own.PutMember(aggregate.Member{Name: "fleet/one", UID: "u"})
	pods, _ := own.OpenScopeAs("fleet/one", "Pod", "the projection's digest", "pods")
	_, _ = pods.Replace([]aggregate.Item{pods.Item(&aggregate.Record{Namespace: "ns", Name: "web", Body: []byte(`{"o":{}}`)})}, aggregate.Status{State: aggregate.Synced})

	a, _ := exchange.NewExporter(exchange.ExporterOptions{Process: "a", Epoch: uint64(own.First()), Logger: slog.New(slog.DiscardHandler)})
	running.Go(func() { _ = a.Run(ctx) })
	a.Changed(export{own.Snapshot()}, exchange.Changes{All: true}) // in the product, policy.State's
	server := httptest.NewUnstartedServer(http.Handler(a))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer server.CloseClientConnections()
	defer cancel()

	peers, _ := aggregate.New(aggregate.Options{Revisions: aggregate.Block(2)})
	b, _ := exchange.NewImporter(exchange.ImporterOptions{Index: peers, Logger: slog.New(slog.DiscardHandler)})
	running.Go(func() { _ = b.Run(ctx) })
	b.SetPeers([]exchange.Peer{{ID: "a", URL: server.URL, Client: server.Client()}})
	_ = b.SetFleet([]exchange.FleetMember{{Name: "fleet/one", UID: "u", Judge: "a"}})
	for !b.Complete("fleet/one") {
		time.Sleep(time.Millisecond)
	}
	scope, _ := peers.Snapshot().Scope("fleet/one", "Pod")
	fmt.Println(scope.Status.State, scope.Objects)
	// Output: Synced 1
}
