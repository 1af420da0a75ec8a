package main

import (
	"context"
	"io"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/clitest"
)

// answersTools about a fleet in which ConfigMap one was corrected twice, to the ServiceAccount ann: over HTTP, and on standard input
// and output.
func answersTools(t *testing.T, r *running, hubFile string) {
	t.Helper()
	kubeconfig := queryKubeconfig(t, r, hubFile, "ann")
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	endpoint := strings.TrimSuffix(config.Host, "/fleet") + "/mcp"
	overHTTP := &sdk.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client, MaxRetries: -1}

	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		root := newCommand()
		root.SetArgs([]string{"mcp", "--kubeconfig", kubeconfig})
		root.SetIn(in)
		root.SetOut(out)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(context.Background())
		out.Close()
		ended <- err
	}()
	for name, transport := range map[string]sdk.Transport{"HTTP": overHTTP, "stdio": &sdk.IOTransport{Reader: fromServer, Writer: toServer}} {
		s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range []struct {
			tool string
			args map[string]any
			want []string
		}{
			{"members", nil, []string{`"total":1`, `"name":"fleet/eu-1"`}},
			{"count", map[string]any{"resource": []string{"configmaps"}, "namespace": "default", "fieldSelector": "metadata.name=one"}, []string{`"total":1`, `"fresh":true`}},
			{"query", map[string]any{"resource": "cm", "namespace": "default", "name": "one", "fields": []string{".metadata.labels.tier"}}, []string{`"values":["gold"]`}},
			{"violations", map[string]any{"policy": []string{"tier"}}, []string{`"violations":0`, `"synced":true`}},
			{"explain", map[string]any{"policy": "tier", "member": "fleet/eu-1", "kind": "ConfigMap", "namespace": "default", "name": "one"}, []string{`"state":"Known"`, `"actions":{"total":2,"shown":2}`, `"commit":"git `}},
			{"actions", map[string]any{"policy": []string{"tier"}, "phase": []string{"Succeeded"}}, []string{`"total":2`, `"violation":"no tier"`}},
		} {
			clitest.Eventually(t, name+" "+c.tool, func() error {
				answer, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: c.args})
				if err != nil {
					return err
				}
				text := answer.Content[0].(*sdk.TextContent).Text
				for _, want := range c.want {
					if answer.IsError || !strings.Contains(text, want) {
						return &wrongAnswer{text, want}
					}
				}
				return nil
			})
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("federator mcp: %v", err)
	}
}

// wrongAnswer is one in which something is missing.
type wrongAnswer struct{ text, want string }

func (e *wrongAnswer) Error() string { return "no " + e.want + " in " + e.text }
