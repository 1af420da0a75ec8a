package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	mcpcommand "federator.dev/federator/internal/cli/mcp"
	"federator.dev/federator/pkg/mcp"
	"federator.dev/federator/pkg/queryapi"
)

// withTools has a query API serve MCP.
func withTools(o *queryapi.Options) {
	tools, err := mcp.New(mcp.Options{Version: "e2e", Logger: o.Logger})
	if err != nil {
		panic(err)
	}
	o.MCP = tools
}

// account makes a ServiceAccount of the hub, which is the user of its name from then on.
func account(ctx context.Context, s *story, _ *testscript.TestScript, args []string) error {
	if s.accounts == nil {
		s.accounts = map[string]bool{}
	}
	s.accounts[args[0]] = true
	_, err := s.hub.Client().CoreV1().ServiceAccounts(s.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: args[0]}}, metav1.CreateOptions{})
	return err
}

// tool calls a tool as an account, with a token of its own for federator alone, by the SDK's own client: over HTTP, or over standard input
// and output of the command. It prints the answer, and fails as the tool does.
func tool(ctx context.Context, s *story, ts *testscript.TestScript, args []string) (err error) {
	var arguments map[string]any
	if len(args) > 3 {
		if err := json.Unmarshal([]byte(args[3]), &arguments); err != nil {
			return err
		}
	}
	api, err := s.queries()
	if err != nil {
		return err
	}
	review, err := s.hub.Client().CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, args[0], &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"federator"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	transport, end, err := s.toolTransport(ctx, api, args[1], review.Status.Token)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "e2e", Version: "1"}, nil).Connect(ctx, transport, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	answer, err := session.CallTool(ctx, &sdk.CallToolParams{Name: args[2], Arguments: arguments})
	if err != nil {
		return err
	}
	text := answer.Content[0].(*sdk.TextContent).Text
	if answer.IsError {
		fmt.Fprintln(ts.Stderr(), text)
		return errors.New(text)
	}
	fmt.Fprintln(ts.Stdout(), text)
	return nil
}

// toolTransport returns how a client reaches the tools, and what ends that.
func (s *story) toolTransport(ctx context.Context, api *queries, by, token string) (sdk.Transport, func() error, error) {
	config := &rest.Config{Host: api.host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: api.ca}}
	switch by {
	case "http":
		client, err := rest.HTTPClientFor(config)
		return &sdk.StreamableClientTransport{Endpoint: api.host + "/mcp", HTTPClient: client, MaxRetries: -1}, func() error {
			client.CloseIdleConnections()
			return nil
		}, err
	case "stdio":
		file := filepath.Join(s.dir, fmt.Sprintf("tools-%d", time.Now().UnixNano()))
		kubeconfig := clientcmdapi.NewConfig()
		kubeconfig.Clusters["fleet"] = &clientcmdapi.Cluster{Server: api.host + "/fleet", CertificateAuthorityData: api.ca}
		kubeconfig.AuthInfos["fleet"] = &clientcmdapi.AuthInfo{Token: token}
		kubeconfig.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "fleet"}
		if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
			return nil, nil, err
		}
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		cmd := mcpcommand.Command("e2e")
		cmd.SetArgs([]string{"--kubeconfig", file})
		cmd.SetIn(in)
		cmd.SetOut(out)
		cmd.SetErr(s.fed.log)
		done := make(chan error, 1)
		go func() {
			done <- errors.Join(cmd.ExecuteContext(ctx), out.Close())
		}()
		return &sdk.IOTransport{Reader: fromServer, Writer: toServer}, func() error { return <-done }, nil
	}
	return nil, nil, fmt.Errorf("%q is neither http nor stdio", by)
}
