package queryapi_test

import (
	"net/http"
	"testing"
	"time"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// asksWho answers each message with what the API says to it.
type asksWho struct{}

func (asksWho) ServeCaller(w http.ResponseWriter, r *http.Request, api http.Handler) {
	asked, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "/query/v1/whoami", http.NoBody)
	if err != nil {
		panic(err)
	}
	asked.Header.Set("Impersonate-User", "root")
	asked.Header.Set("Authorization", "Bearer another")
	api.ServeHTTP(w, asked)
}

// TestMCP_IsWhoBearsTheToken, whatever certificate the connection has, and whatever a tool asks with.
func TestMCP_IsWhoBearsTheToken(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		o.MCP, o.Authentication.ClientCAFile = asksWho{}, caFile(t, hub.RESTConfig().CAData)
	})
	name := fresh("assistant")
	token := tokenFor(t, name, "federator")
	certified := s.client(t, queryserver.Certificate(t, hub, "root", time.Hour, "system:masters"))
	if resp, body := s.ask(t, certified, "GET", "/query/v1/whoami", "", nil, nil); resp.StatusCode != http.StatusOK || body != "root system:masters,system:authenticated" {
		t.Fatalf("the certificate is of %d %s", resp.StatusCode, body)
	}
	resp, body := s.ask(t, certified, "POST", "/mcp", "", nil, []byte("{}"))
	wantStatus(t, "a certificate alone", resp, body, http.StatusUnauthorized)
	want := queryserver.UserOf(name) + " system:serviceaccounts,system:serviceaccounts:default,system:authenticated"
	for what, c := range map[string]*http.Client{"a token": s.client(t), "a token and a certificate": certified} {
		if resp, body := s.ask(t, c, "POST", "/mcp", token, nil, []byte("{}")); resp.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %d %s, want %s", what, resp.StatusCode, body, want)
		}
	}
	if resp, body := s.ask(t, certified, "POST", "/mcp", token, http.Header{"Cookie": {"x=y"}}, []byte("{}")); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("with a cookie: %d %s", resp.StatusCode, body)
	}
	hubs := tokenFor(t, name, "") // for another audience
	resp, body = s.ask(t, s.client(t), "POST", "/mcp", hubs, nil, []byte("{}"))
	wantStatus(t, "a token for the hub", resp, body, http.StatusUnauthorized)
}
