package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/internal/kubeconfigfile"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/webui"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/queryserver"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// serve runs a server without a hub, and returns a kubeconfig for it.
func serve(t *testing.T) string {
	t.Helper()
	s := queryserver.Start(t, queryapi.Options{Local: true, UI: pages(t), Fleet: queryserver.Fleet{
		{Kind: "Pod", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Singular: "pod", Namespaced: true},
	}})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfigfile.WriteLocal(file, s.Address, s.Token(), s.CertificateAuthority()); err != nil {
		t.Fatal(err)
	}
	return file
}

func pages(t *testing.T) *webui.UI {
	t.Helper()
	u, err := webui.New(webui.Options{Logger: slog.New(slog.DiscardHandler), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// browser asks a proxy as a page does, or as something else does.
type browser struct {
	t      *testing.T
	client *http.Client
	root   string
	cookie *http.Cookie
}

func (b *browser) ask(method, path, body string, header ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.root+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", b.root)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(text)
}

// start runs the command, and returns the address that it prints, and its end.
func start(t *testing.T, kubeconfig string) (address string, ended <-chan error) {
	t.Helper()
	out, in := io.Pipe()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		done <- clitest.Execute(ctx, clitest.Root(Command("v1")), in, io.Discard, "ui", "--no-browser", "--kubeconfig", kubeconfig)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return strings.TrimSpace(line[strings.Index(line, "http://"):]), done
}

func TestUI_OneBrowserGetsInByItsCode(t *testing.T) {
	address, ended := start(t, serve(t))
	root, code, _ := strings.Cut(address, "/ui/#code=")
	b := &browser{t: t, client: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}, root: root}
	t.Cleanup(b.client.CloseIdleConnections)

	if resp, body := b.ask("GET", "/ui/", "", "Sec-Fetch-Site", "none"); resp.StatusCode != http.StatusOK || !strings.Contains(body, "<html") || resp.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("the page: %s %.100s", resp.Status, body)
	}
	if resp, body := b.ask("GET", "/ui/session", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"user":""`) || !strings.Contains(body, `"proxy"`) {
		t.Errorf("nobody's session: %s %s", resp.Status, body)
	}
	for _, path := range []string{"/query/v1/members", "/ui/relay/stops", "/ui/oidc/login", "/fleet/api/v1/pods"} {
		if resp, body := b.ask("GET", path, ""); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a session: %s %s", path, resp.Status, body)
		}
	}
	for what, ask := range map[string]func() (*http.Response, string){
		"a wrong code": func() (*http.Response, string) { return b.ask("POST", "/ui/session", `{"code":"x"}`) },
		"no code":      func() (*http.Response, string) { return b.ask("POST", "/ui/session", `{}`) },
		"another site": func() (*http.Response, string) {
			return b.ask("POST", "/ui/session", `{"code":"`+code+`"}`, "Sec-Fetch-Site", "cross-site")
		},
		"no site": func() (*http.Response, string) {
			return b.ask("POST", "/ui/session", `{"code":"`+code+`"}`, "Sec-Fetch-Site", "")
		},
		"a rebound name": func() (*http.Response, string) {
			return b.ask("POST", "/ui/session", `{"code":"`+code+`"}`, "Host", "evil.example.com")
		},
		"a log-out of any": func() (*http.Response, string) { return b.ask("DELETE", "/ui/session", "") },
	} {
		if resp, body := ask(); resp.StatusCode < 400 || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %s %s", what, resp.Status, body)
		}
	}

	resp, body := b.ask("POST", "/ui/session", `{"code":"`+code+`"}`)
	var session struct{ User string }
	if err := json.Unmarshal([]byte(body), &session); err != nil || resp.StatusCode != http.StatusOK || session.User != queryapi.LocalUser || len(resp.Cookies()) != 1 {
		t.Fatalf("the code: %s %s %v", resp.Status, body, resp.Cookies())
	}
	if c := resp.Cookies()[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", c)
	}
	if again, body := b.ask("POST", "/ui/session", `{"code":"`+code+`"}`); again.StatusCode != http.StatusUnauthorized {
		t.Errorf("the code a second time: %s %s", again.Status, body)
	}
	b.cookie = resp.Cookies()[0]
	if resp, body := b.ask("GET", "/query/v1/members", "", "Authorization", "Bearer mine"); resp.StatusCode != http.StatusOK || !strings.Contains(body, "MemberList") && !strings.Contains(body, "items") {
		t.Errorf("the members: %s %s", resp.Status, body)
	}
	if resp, body := b.ask("GET", "/ui/session", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, queryapi.LocalUser) {
		t.Errorf("the session: %s %s", resp.Status, body)
	}
	for what, header := range map[string][]string{"another site": {"Sec-Fetch-Site", "cross-site"}, "a rebound name": {"Host", "evil.example.com"}} {
		if resp, _ := b.ask("GET", "/query/v1/members", "", header...); resp.StatusCode < 400 {
			t.Errorf("%s reads with the cookie", what)
		}
	}
	if resp, body := b.ask("DELETE", "/ui/session", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("the log-out: %s %s", resp.Status, body)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the command goes on after a log-out")
	}
}

func TestUI_ListensOnLoopbackOnly(t *testing.T) {
	file := serve(t)
	for _, address := range []string{"0.0.0.0:0", ":0", "nonsense"} {
		_, err := clitest.Run(t, clitest.Root(Command("v1")), "ui", "--no-browser", "--kubeconfig", file, "--listen", address)
		if err == nil || !strings.Contains(err.Error(), "--listen") || clitest.ExitCode(err) != 2 {
			t.Errorf("--listen %s: %v", address, err)
		}
	}
}

// TestUI_ClientCertificate: the page shows the user whom the kubeconfig's certificate names.
func TestUI_ClientCertificate(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	dir := t.TempDir()
	ca := filepath.Join(dir, "clients.crt")
	issued, err := hub.IssueCert("carl", time.Hour, "sre")
	if err == nil {
		err = os.WriteFile(ca, hub.RESTConfig().CAData, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := queryserver.Start(t, queryapi.Options{Hub: hub.RESTConfig(), UI: pages(t), Authentication: queryapi.Authentication{ClientCAFile: ca}})
	config := clientcmdapi.NewConfig()
	config.Clusters["fleet"] = &clientcmdapi.Cluster{Server: "https://" + s.Address + "/fleet", CertificateAuthorityData: s.CertificateAuthority()}
	config.AuthInfos["carl"] = &clientcmdapi.AuthInfo{ClientCertificateData: issued.Cert, ClientKeyData: issued.Key}
	config.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "carl"}
	config.CurrentContext = "fleet"
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	address, ended := start(t, file)
	root, code, _ := strings.Cut(address, "/ui/#code=")
	b := &browser{t: t, client: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}, root: root}
	t.Cleanup(b.client.CloseIdleConnections)
	resp, body := b.ask("POST", "/ui/session", `{"code":"`+code+`"}`)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"user":"carl"`) || !strings.Contains(body, `"canWrite":false`) || len(resp.Cookies()) != 1 {
		t.Fatalf("the code: %s %s", resp.Status, body)
	}
	b.cookie = resp.Cookies()[0]
	if resp, body := b.ask("GET", "/ui/session", ""); !strings.Contains(body, `"user":"carl"`) {
		t.Errorf("the session: %s %s", resp.Status, body)
	}
	if resp, body := b.ask("GET", "/query/v1/whoami", ""); body != "carl sre,system:authenticated" {
		t.Errorf("a query: %s %s", resp.Status, body)
	}
	if resp, body := b.ask("DELETE", "/ui/session", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("the log-out: %s %s", resp.Status, body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
