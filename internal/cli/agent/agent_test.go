package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/test/clitest"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: t}}]
`

// TestCommand_BadInput: what cannot work is said at once, and no text that may be a token is repeated.
func TestCommand_BadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	t.Setenv(tokenVariable, "")
	config, secret := write("kubeconfig", kubeconfig), "federator-join-v1.secret"
	here := []string{"--hub", "a.example:9443", "--kubeconfig", config, "--state-dir", dir}
	with := func(more ...string) []string { return append(here[:len(here):len(here)], more...) }
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no hub":              {[]string{"--kubeconfig", config, "--state-dir", dir}, "Hubs is required"},
		"a hub that is none":  {[]string{"--hub", "a.example", "--kubeconfig", config, "--state-dir", dir}, "is not an address"},
		"no cluster":          {[]string{"--hub", "a.example:9443", "--kubeconfig", filepath.Join(dir, "none"), "--state-dir", dir}, "credentials for this cluster"},
		"nowhere to keep it":  {[]string{"--hub", "a.example:9443", "--kubeconfig", config}, "--state-dir or --namespace"},
		"a token that is not": {with("--token-file", write("token", secret)), "no token"},
		"a Secret of where":   {with("--token-secret", "a"), "--namespace"},
		"no address":          {with("--health-listen", "nowhere"), "--health-listen"},
		"a proxy of mail":     {with("--proxy", "smtp://u:"+secret+"@a.example"), "http, https or socks5"},
		"no proxy's URL":      {with("--proxy", "http://u:"+secret+"@a.example:port"), "not a URL"},
		"a proxy nowhere":     {with("--proxy", "http://"), "no host"},
		"a loud log":          {with("--log-level", "loud"), "loud"},
		"no token's member":   {[]string{"token"}, "arg"},
		"not a member":        {[]string{"token", "shop-17", "--kubeconfig", config}, "NAMESPACE/NAME"},
		"more than a member":  {[]string{"token", "a/b/c", "--kubeconfig", config}, "NAMESPACE/NAME"},
	} {
		_, err := clitest.Run(t, Command("v1"), tc.args...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if name != "no token's member" && exit.Code(err) != exit.CodeUsage {
			t.Errorf("%s: exits with %d", name, exit.Code(err))
		}
	}
}

// TestToken_MayBeGone: the Secret of a token is deleted once the agent has joined.
func TestToken_MayBeGone(t *testing.T) {
	f := flags{tokenFile: filepath.Join(t.TempDir(), "none")}
	if token, err := f.token(); err != nil || token != "" {
		t.Errorf("%q %v", token, err)
	}
	f = flags{}
	t.Setenv(tokenVariable, " a \n")
	if token, err := f.token(); err != nil || token != "a" {
		t.Errorf("%q %v", token, err)
	}
}

// TestProxy_IsTheNamedOne, and else that of the environment, which has exceptions.
func TestProxy_IsTheNamedOne(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://everybody.example:3128")
	t.Setenv("NO_PROXY", "near.example")
	for _, tc := range []struct{ flag, variable, hub, want string }{
		{"", "", "far.example:9443", "http://everybody.example:3128"},
		{"", "", "near.example:9443", ""},
		{"", "http://agent:secret@own.example:3128", "near.example:9443", "http://agent:secret@own.example:3128"},
		{"socks5://flag.example", "http://own.example:3128", "near.example:9443", "socks5://flag.example"},
	} {
		t.Setenv(proxyVariable, tc.variable)
		of, err := (&flags{proxy: tc.flag}).proxyOf()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if u, err := of(tc.hub); err != nil {
			t.Error(err)
		} else if u != nil {
			got = u.String()
		}
		if got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// TestProxy_OfTheEnvironmentIsOne: an agent that leaves out a proxy that it cannot read would go to the hub directly.
func TestProxy_OfTheEnvironmentIsOne(t *testing.T) {
	for text, want := range map[string]string{
		"http://u:secret@a.example:port": "not a URL",
		"smtp://u:secret@a.example":      "http, https or socks5",
		"http://":                        "no host",
	} {
		t.Setenv("HTTPS_PROXY", text)
		if _, err := (&flags{}).proxyOf(); err == nil || !strings.Contains(err.Error(), "HTTPS_PROXY: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	t.Setenv("HTTPS_PROXY", "a.example:3128") // which is common, and http
	if of, err := (&flags{}).proxyOf(); err != nil {
		t.Error(err)
	} else if u, err := of("far.example:9443"); err != nil || u == nil || u.String() != "http://a.example:3128" {
		t.Errorf("%v %v", u, err)
	}
}

// TestHealth_SaysWhetherTheAgentIsConnected for as long as it runs.
func TestHealth_SaysWhetherTheAgentIsConnected(t *testing.T) {
	log, w := strings.Builder{}, httptest.NewRecorder()
	address, ready := "", true
	ended := errors.New("ended")
	err := serveHealth(t.Context(), "127.0.0.1:0", func() bool { return ready }, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error {
		_, address, _ = strings.Cut(strings.TrimSpace(log.String()), "address=")
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusNotFound} {
			resp, err := http.Get("http://" + address + path)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
		return ended
	})
	if !errors.Is(err, ended) {
		t.Error(err)
	}
	if resp, err := http.Get("http://" + address + "/readyz"); err == nil {
		resp.Body.Close()
		t.Error("it is served on")
	}
	ready = false
	health(func() bool { return ready }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("where it is not: %d", w.Code)
	}
}
