package mcp_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"federator.dev/federator/pkg/mcp"
)

// silentAPI answers when it is not asked any more.
type silentAPI struct{ asked, left chan struct{} }

func (a silentAPI) Get(ctx context.Context, _ string, _ url.Values, _ string) ([]byte, error) {
	a.asked <- struct{}{}
	<-ctx.Done()
	close(a.left)
	return nil, context.Cause(ctx)
}

// TestRun_EndsItsCalls where the client leaves, and where the context ends.
func TestRun_EndsItsCalls(t *testing.T) {
	for name, leave := range map[string]func(*sdk.ClientSession, io.Closer, context.CancelFunc){
		"the client leaves": func(_ *sdk.ClientSession, to io.Closer, _ context.CancelFunc) { to.Close() },
		"the context ends":  func(_ *sdk.ClientSession, _ io.Closer, cancel context.CancelFunc) { cancel() },
	} {
		server, err := mcp.New(mcp.Options{Version: "1", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		api := silentAPI{make(chan struct{}), make(chan struct{})}
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- server.Run(ctx, api, in, out) }()
		s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
		if err != nil {
			t.Fatal(err)
		}
		called := make(chan error, 1)
		go func() {
			r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "members"})
			if err == nil && !r.IsError {
				err = errors.New("it is answered")
			}
			called <- err
		}()
		<-api.asked
		leave(s, toServer, cancel)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		<-api.left
		s.Close()
		<-called
		cancel()
	}
}
