package mcp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"federator.dev/federator/pkg/mcp"
)

// twoPods is a query API with two Pods.
type twoPods struct{}

func (twoPods) Get(_ context.Context, path string, query url.Values, _ string) ([]byte, error) {
	fmt.Println("asked:", path+"?"+query.Encode())
	return []byte(`{"revision":"7","total":2,"notSynced":[]}`), nil
}

// A client calls a tool, over a connection that is its caller's alone.
func Example() {
	server, err := mcp.New(mcp.Options{Version: "1.0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ctx := context.Background()
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, twoPods{}, in, out) }()

	client := sdk.NewClient(&sdk.Implementation{Name: "example", Version: "1"}, nil)
	session, err := client.Connect(ctx, &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		panic(err)
	}
	answer, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "count", Arguments: map[string]any{"resource": []string{"pods"}}})
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Content[0].(*sdk.TextContent).Text)
	session.Close()
	fmt.Println(<-done)
	// Output:
	// asked: /query/v1/count?resource=pods
	// {"revision":"7","total":2,"freshness":{"fresh":true},"untrusted":{}}
	// <nil>
}
