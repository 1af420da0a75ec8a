package queryapi_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
)

// A server on one's own machine, without a hub, and a question of our own.
func Example() {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server, err := queryapi.New(queryapi.Options{
		Index: index, Fleet: served, Logger: slog.New(slog.DiscardHandler),
		Listener: listener, Local: true,
		Queries: map[string]queryapi.Query{"whoami": whoami},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.CertificateAuthority())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	request, err := http.NewRequest(http.MethodGet, "https://"+listener.Addr().String()+"/query/v1/whoami", nil)
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "Bearer "+server.Token())
	answer, err := client.Do(request)
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	client.CloseIdleConnections()
	fmt.Println(answer.StatusCode, string(body))

	cancel()
	fmt.Println(<-done)
	// Output:
	// 200 federator:local system:authenticated
	// <nil>
}
