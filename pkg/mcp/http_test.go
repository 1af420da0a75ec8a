package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"federator.dev/federator/pkg/mcp"
	"federator.dev/federator/pkg/queryapi"
)

const countPods = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{"resource":["pods"]}}}`

// post sends a message as it is.
func (f *fleet) send(t *testing.T, method, body string, change func(*http.Request)) (code int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+f.server.Address+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer ann"}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if change != nil {
		change(r)
	}
	resp, err := f.server.Client(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(out)
}

// session of a web UI, for everybody who has a cookie.
type cookieUI struct{ asked atomic.Int64 }

func (*cookieUI) SetHeaders(http.Header)                                             {}
func (*cookieUI) ServePublic(http.ResponseWriter, *http.Request, queryapi.UICallers) {}
func (*cookieUI) ServeCaller(http.ResponseWriter, *http.Request, queryapi.UICaller)  {}
func (u *cookieUI) Bearer(http.ResponseWriter, *http.Request) (string, error) {
	u.asked.Add(1)
	return "ann", nil
}

// TestMCP_TakesBearerTokensOnly, and messages that are worth it.
func TestMCP_TakesBearerTokensOnly(t *testing.T) {
	ui := &cookieUI{}
	f := start(t, questionsWorld(), func(o *queryapi.Options) { o.UI = ui })
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
				if pairs[i+1] == "" {
					r.Header.Del(pairs[i])
				}
			}
		}
	}
	const post = http.MethodPost
	for name, c := range map[string]struct {
		method, body string
		change       func(*http.Request)
		code         int
		says         string
	}{
		"a bearer":                     {post, countPods, nil, 200, `"total":10`},
		"a bearer in lower case":       {post, countPods, header("Authorization", "bearer ann"), 200, `"total":10`},
		"nobody":                       {post, countPods, header("Authorization", ""), 401, "Unauthorized"},
		"a wrong token":                {post, countPods, header("Authorization", "Bearer wrong"), 401, "Unauthorized"},
		"a password":                   {post, countPods, header("Authorization", "Basic YW5uOmFubg=="), 401, "Unauthorized"},
		"a token where browsers do":    {post, countPods, header("Authorization", "", "Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.YW5u, x"), 401, "Unauthorized"},
		"a cookie":                     {post, countPods, header("Authorization", "", "Cookie", "session=x", "Sec-Fetch-Site", "same-origin"), 400, "cookies are not accepted"},
		"a cookie and a bearer":        {post, countPods, header("Cookie", "session=x"), 400, "cookies are not accepted"},
		"another site's page":          {post, countPods, header("Origin", "https://evil.example.com"), 403, "other sites"},
		"a host that was rebound":      {post, countPods, func(r *http.Request) { r.Host = "evil.example.com" }, 403, "invalid Host"},
		"one who would be another one": {post, countPods, header("Impersonate-User", "root"), 403, "impersonation"},
		"a stream":                     {http.MethodGet, "", nil, 405, ""},
		"the end of a session":         {http.MethodDelete, "", nil, 405, ""},
		"another method":               {http.MethodPut, countPods, nil, 405, ""},
		"a batch":                      {post, " [" + countPods + "," + countPods + "]", nil, 400, "batches"},
		"too much":                     {post, `{"x":"` + strings.Repeat("a", 64<<10) + `"}`, nil, 413, ""},
		"not JSON":                     {post, "{", nil, 400, ""},
		"nothing":                      {post, "", nil, 400, ""},
		"another type":                 {post, countPods, header("Content-Type", "text/plain"), 415, ""},
		"another protocol":             {post, countPods, header("Mcp-Protocol-Version", "2020-01-01"), 400, "protocol version"},
		"a subscription":               {post, `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x://y"}}`, nil, 200, "-32601"},
		"a subscription of a new client": {
			post, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"notifications":{"toolsListChanged":true}}}`,
			header("Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"), 404, "-32601",
		},
		"prompts":                  {post, `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, nil, 200, "-32601"},
		"a tool that there is not": {post, strings.Replace(countPods, `"count"`, `"delete"`, 1), nil, 200, "unknown tool"},
		"an argument that there is not": {
			post, strings.Replace(countPods, `"arguments":{`, `"arguments":{"token":"x",`, 1), nil, 200, "unexpected additional properties",
		},
	} {
		code, h, text := f.send(t, c.method, c.body, c.change)
		if code != c.code || !strings.Contains(text, c.says) || code == 401 && h.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%s: %d %v %s; want %d, %q", name, code, h, text, c.code, c.says)
		}
		if code != 200 && strings.Contains(text, `"total"`) || h.Get("Set-Cookie") != "" || h.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: %v %s", name, h, text)
		}
	}
	if n := ui.asked.Load(); n != 0 {
		t.Errorf("the web UI's sessions were asked for %d times", n)
	}
	if n := testutil.ToFloat64(countedCalls(t, f, "other", "invalid")); n != 1 {
		t.Errorf("%v calls of unknown tools are counted", n)
	}
}

// TestMCP_IsOffWithoutTheOption.
func TestMCP_IsOffWithoutTheOption(t *testing.T) {
	f := start(t, questionsWorld(), func(o *queryapi.Options) { o.MCP = nil })
	if code, _, text := f.send(t, http.MethodPost, countPods, nil); code != http.StatusMethodNotAllowed {
		t.Errorf("%d %s", code, text)
	}
	if code, _, text := f.send(t, http.MethodGet, "", nil); code != http.StatusNotFound {
		t.Errorf("%d %s", code, text)
	}
}

// TestMCP_NeedsOneSlot: a message has a caller's share, and what it asks needs no other one. Callers with none left are told.
func TestMCP_NeedsOneSlot(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	f := start(t, questionsWorld(), func(o *queryapi.Options) {
		o.Fairness.MaxInFlight = 1
		violations := o.Queries["violations"]
		o.Queries["violations"] = questionFunc(func(w http.ResponseWriter, r *http.Request, c queryapi.Caller) error {
			if r.URL.Query().Get("search") == "slow" {
				asked <- struct{}{}
				<-answer
			}
			return violations.Serve(w, r, c)
		})
	})
	s := f.session(t, "ann")
	into[mcp.CountOutput](t, s, "count", map[string]any{"resource": []string{"pods"}})
	done := make(chan string)
	go func() {
		r, err := s.CallTool(context.Background(), &sdk.CallToolParams{Name: "violations", Arguments: map[string]any{"search": "slow"}})
		if err != nil {
			done <- err.Error()
			return
		}
		done <- r.Content[0].(*sdk.TextContent).Text
	}()
	<-asked
	if code, _, text := f.send(t, http.MethodPost, countPods, nil); code != http.StatusTooManyRequests {
		t.Errorf("beside another call: %d %s", code, text)
	}
	close(answer)
	go func() {
		for range asked {
		}
	}()
	if text := <-done; !strings.Contains(text, `"total"`) {
		t.Errorf("the slow call: %s", text)
	}
	close(asked)
}

type questionFunc func(http.ResponseWriter, *http.Request, queryapi.Caller) error

func (q questionFunc) Serve(w http.ResponseWriter, r *http.Request, c queryapi.Caller) error {
	return q(w, r, c)
}

// TestMCP_SaysThatTheIndexIsLoaded, and is there before.
func TestMCP_SaysThatTheIndexIsLoaded(t *testing.T) {
	var loading atomic.Bool
	loading.Store(true)
	f := start(t, questionsWorld(), func(o *queryapi.Options) { o.Loading = loading.Load })
	s := f.session(t, "ann")
	if text, failed := call(t, s, "count", map[string]any{"resource": []string{"pods"}}); !failed || !strings.Contains(text, `"code":429`) || !strings.Contains(text, "loading its index") {
		t.Errorf("%v %s", failed, text)
	}
	loading.Store(false)
	into[mcp.CountOutput](t, s, "count", map[string]any{"resource": []string{"pods"}})
	for result, want := range map[string]float64{"limited": 1, "ok": 1} {
		if n := testutil.ToFloat64(countedCalls(t, f, "count", result)); n != want {
			t.Errorf("%v calls are counted as %s, want %v", n, result, want)
		}
	}
}

// TestMCP_IsAudited: each message, and each request that it leads to, by its caller.
func TestMCP_IsAudited(t *testing.T) {
	dir := t.TempDir()
	rules, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(rules, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := start(t, questionsWorld(), func(o *queryapi.Options) { o.Audit = queryapi.Audit{PolicyFile: rules, LogFile: log} })
	if code, _, text := f.send(t, http.MethodPost, countPods, nil); code != http.StatusOK {
		t.Fatal(code, text)
	}
	f.send(t, http.MethodPost, countPods, func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") })
	if err := f.server.End(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(text) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join([]string{e.User.Username, e.Verb, e.RequestURI, http.StatusText(int(e.ResponseStatus.Code))}, " "))
		if strings.Contains(string(line), "Bearer") {
			t.Errorf("a token is in %s", line)
		}
	}
	want := "ann get /query/v1/count?resource=pods OK\nann post /mcp OK\n post /mcp Unauthorized"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestMCP_BoundsACallInTime, and ends what it asks.
func TestMCP_BoundsACallInTime(t *testing.T) {
	ended := make(chan struct{}, 1)
	f := start(t, questionsWorld(), func(o *queryapi.Options) {
		o.Queries["violations"] = questionFunc(func(_ http.ResponseWriter, r *http.Request, _ queryapi.Caller) error {
			<-r.Context().Done()
			ended <- struct{}{}
			return context.Cause(r.Context())
		})
		tools, err := mcp.New(mcp.Options{Version: "test", Logger: slog.New(slog.DiscardHandler), Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		o.MCP = tools
	})
	text, failed := call(t, f.session(t, "ann"), "violations", nil)
	if !failed || !strings.Contains(text, "takes too long") {
		t.Errorf("%v %s", failed, text)
	}
	<-ended
}

// TestNew_RefusesOptions that are missing or wrong.
func TestNew_RefusesOptions(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, o := range []mcp.Options{{}, {Version: "1"}, {Logger: log}, {Version: "1", Logger: log, Timeout: -1}} {
		if s, err := mcp.New(o); err == nil {
			t.Errorf("%+v: %v", o, s)
		}
	}
}
