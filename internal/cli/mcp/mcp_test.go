package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"federator.dev/federator/internal/cli/mcp"
	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session runs the command with a kubeconfig, and is one of the SDK's own client with it.
func session(t *testing.T, kubeconfig string) *sdk.ClientSession {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	cmd := mcp.Command("test")
	cmd.SetArgs([]string{"--kubeconfig", kubeconfig})
	cmd.SetIn(in)
	cmd.SetOut(out)
	var messages bytes.Buffer
	cmd.SetErr(&messages)
	done := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(context.Background())
		out.Close()
		done <- err
	}()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Errorf("the command ends with %v", err)
		}
	})
	return s
}

func call(t *testing.T, s *sdk.ClientSession, tool string, args any) (text string, failed bool) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// TestCommand_AsksTheServerOfTheKubeconfig.
func TestCommand_AsksTheServerOfTheKubeconfig(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/eu-1", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	server := queryserver.Start(t, queryapi.Options{Index: index, Local: true})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfigfile.WriteLocal(path, server.Address, server.Token(), server.CertificateAuthority()); err != nil {
		t.Fatal(err)
	}
	s := session(t, path)
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 8 {
		t.Fatalf("%+v, %v", tools, err)
	}
	if text, failed := call(t, s, "members", nil); failed || !strings.Contains(text, `"name":"fleet/eu-1"`) {
		t.Errorf("%v %s", failed, text)
	}
	if text, failed := call(t, s, "query", map[string]any{"resource": "pods"}); !failed || !strings.Contains(text, "which is not known") {
		t.Errorf("%v %s", failed, text)
	}
}

// asked records what a server was asked, and by whom.
type asked struct {
	mu    sync.Mutex
	paths []string
	http.Handler
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.paths = append(a.paths, r.Method+" "+r.Host+" "+r.URL.EscapedPath()+" "+r.Header.Get("Authorization"))
	a.mu.Unlock()
	a.Handler.ServeHTTP(w, r)
}

// hostile are arguments that try to change what is asked, or whom.
var hostile = []string{
	"../../../api/v1/secrets", "..", "https://evil.example.com/", "//evil.example.com/x", "@evil.example.com", ":x@evil.example.com/", "%2e%2e%2f", "x%00", "a/one?watch=true", "a/one#x",
	"x\r\nHost: evil.example.com", "x&labelSelector=", "*", "\\..\\..", strings.Repeat("a", 5000), "a\u202e", ".", "/", "/fleet/api",
}

// TestCommand_SendsTheTokenToNobodyElse, whatever the arguments are, and whatever the server answers.
func TestCommand_SendsTheTokenToNobodyElse(t *testing.T) {
	evil := &asked{Handler: http.NotFoundHandler()}
	other := httptest.NewServer(evil)
	defer other.Close()
	answers := map[string]http.Handler{
		"a redirect": http.RedirectHandler(other.URL, http.StatusFound),
		"discovery that leads elsewhere": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/fleet/api") {
				fmt.Fprint(w, "{}")
				return
			}
			fmt.Fprintf(w, `{"items":[{"metadata":{"name":"x/../../../api"},"versions":[{"version":"v1","resources":[{"resource":"pods","verbs":["list"],"scope":"Namespaced"}]}]},
				{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"../../%s","singularResource":"deployments","verbs":["list"],"scope":"Namespaced"}]}]}]}`, other.URL)
		}),
	}
	good := regexp.MustCompile(`^GET (127\.0\.0\.1:[0-9]+) (/query/v1/(rego|count|related|violations|explain|actions|history|members)|/query/v1/actions/[-a-z0-9.]+|/fleet/apis?|/fleet/apis?/[a-z0-9./-]+) Bearer secret$`)
	for name, answer := range answers {
		at := &asked{Handler: answer}
		server := httptest.NewTLSServer(at)
		path := filepath.Join(t.TempDir(), "kubeconfig")
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		if err := kubeconfigfile.WriteLocal(path, server.Listener.Addr().String(), "secret", ca); err != nil {
			t.Fatal(err)
		}
		s := session(t, path)
		for _, h := range append(hostile, "pods", "deployments") {
			for _, c := range []struct {
				tool string
				args map[string]any
			}{
				{"query", map[string]any{"resource": h}},
				{"query", map[string]any{"resource": "pods", "namespace": h}},
				{"query", map[string]any{"resource": "deployments", "member": h, "name": h, "continue": "1." + h}},
				{"query", map[string]any{"rego": h}},
				{"count", map[string]any{"resource": []string{h}, "member": h, "namespace": h}},
				{"related", map[string]any{"member": h, "resource": h, "name": h, "namespace": h, "direction": h}},
				{"violations", map[string]any{"policy": []string{h}, "member": []string{h}}},
				{"explain", map[string]any{"policy": h, "key": h}},
				{"actions", map[string]any{"action": h}},
				{"history", map[string]any{"member": []string{h}, "source": []string{h}, "path": []string{h}, "order": h, "continue": "1." + h}},
				{"members", map[string]any{"namePrefix": h, "labelSelector": h}},
			} {
				text, _ := call(t, s, c.tool, c.args)
				if strings.Contains(text, "secret\"") {
					given, _ := json.Marshal(c.args)
					t.Errorf("%s: %s %s: %s", name, c.tool, given, text)
				}
			}
		}
		for _, was := range at.paths {
			if !good.MatchString(was) || strings.Contains(was, "..") || !strings.Contains(was, server.Listener.Addr().String()) {
				t.Errorf("%s: the server was asked %s", name, was)
			}
		}
		if len(at.paths) == 0 {
			t.Errorf("%s: the server was asked nothing", name)
		}
		server.CloseClientConnections()
		server.Close()
	}
	if len(evil.paths) != 0 {
		t.Errorf("another server was asked %q", evil.paths)
	}
}
