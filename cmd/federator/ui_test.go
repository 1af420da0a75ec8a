package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/test/clitest"
)

func TestConfig_UIIsChecked(t *testing.T) {
	const hub = "sources:\n  hub: {enabled: true, name: fleet/hub}\nui:\n  "
	const oidc = hub + "oidc:\n    "
	for yaml, want := range map[string]string{
		hub + "enabled: maybe":           `FILE:4: `,
		hub + "hubTokens: [{issuer: a}]": `FILE:4: ui.hubTokens: number 0 needs an issuer and an audience`,
		"sources:\n  contexts: {names: [a]}\nui:\n  oidc: {issuer: \"https://a\", clientID: a}": `FILE:3: ui: hubTokens and oidc need a hub: see sources`,
		oidc + "issuer: http://a\n    clientID: a":                                              `FILE:5: ui.oidc.issuer: "http://a" is not an https URL without a query`,
		oidc + "issuer: https://a?b=c\n    clientID: a":                                         `FILE:5: ui.oidc.issuer: "https://a?b=c" is not an https URL without a query`,
		oidc + "issuer: https://a":                                                              `FILE:4: ui.oidc.clientID: is required`,
		oidc + "issuer: https://a\n    clientID: a\n    scopes: [\"a b\"]":                      `FILE:7: ui.oidc.scopes: a scope must not be empty or have blanks`,
		oidc + "issuer: https://a\n    clientID: a\n    redirectURL: https://a/ui":              `FILE:7: ui.oidc.redirectURL: "https://a/ui" is not an https URL with the path /ui/oidc/callback`,
		oidc + "issuer: https://a\n    clientID: a\n    secret: a":                              `FILE:7: unknown key "secret"`,
	} {
		path := clitest.WriteFile(t, "config.yaml", yaml+"\n")
		_, err := command(t, "serve", "--config", path, "--print-config")
		if err == nil || !slices.ContainsFunc(strings.Split(strings.ReplaceAll(err.Error(), path, "FILE"), "\n"), func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("%s: %v, want %q", yaml, err, want)
		}
	}
	path := clitest.WriteFile(t, "config.yaml", oidc+"issuer: https://a\n    clientID: a\n")
	out, err := command(t, "serve", "--config", path, "--print-config")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ui:\n", "enabled: true\n", "sessionKeyFile: \"\"\n", "hubTokens: []\n", "issuer: https://a\n", "clientSecretFile: \"\"\n", "caFile: \"\"\n", "- email\n", "redirectURL: \"\"\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestOIDCOptions_ReadFiles(t *testing.T) {
	secret := clitest.WriteFile(t, "secret", "hush\n")
	o, err := oidcOptions(&config.OIDC{Issuer: "https://a", ClientID: "b", ClientSecretFile: secret})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := o.ClientSecret(); got != "hush" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for want, c := range map[string]config.OIDC{
		"ui.oidc.clientSecretFile: open ":                   {ClientSecretFile: secret + ".none"},
		"ui.oidc.caFile: open ":                             {CAFile: secret + ".none"},
		"ui.oidc.caFile: " + secret + " has no certificate": {CAFile: secret},
	} {
		if _, err := oidcOptions(&c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestServe_HasTheUI: without a hub, the token that is written for kubectl logs in.
func TestServe_HasTheUI(t *testing.T) {
	_, kubeconfig := clitest.RealFleet(t, "one")
	server := start(t, "--kubeconfig", kubeconfig, "--contexts", "one", "--kinds", "ConfigMap")
	fleet, err := clientcmd.BuildConfigFromFlags("", server.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(fleet.Host, "/fleet")
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(fleet))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	if client.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if code, text := ask("GET", "/ui/", ""); code != http.StatusOK || !strings.HasPrefix(text, "<!doctype html>") {
		t.Errorf("the page: %d %s", code, text)
	}
	if code, text := ask("GET", "/query/v1/members", ""); code != http.StatusUnauthorized {
		t.Errorf("without a session: %d %s", code, text)
	}
	body, err := json.Marshal(map[string]string{"token": fleet.BearerToken})
	if err != nil {
		t.Fatal(err)
	}
	if code, text := ask("POST", "/ui/session", string(body)); code != http.StatusOK || !strings.Contains(text, `"user":"federator:local"`) || !strings.Contains(text, `"methods":["token"]`) {
		t.Errorf("log-in: %d %s", code, text)
	}
	clitest.Eventually(t, "the answer with a session", func() error {
		if code, text := ask("GET", "/query/v1/members", ""); code != http.StatusOK { // 429 while the index is loaded
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

func TestServe_WithoutTheUI(t *testing.T) {
	_, kubeconfig := clitest.RealFleet(t, "one")
	path := clitest.WriteFile(t, "config.yaml", "ui: {enabled: false}\n")
	server := start(t, "--config", path, "--kubeconfig", kubeconfig, "--contexts", "one", "--kinds", "ConfigMap")
	fleet, err := clientcmd.BuildConfigFromFlags("", server.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(fleet))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	base, _, _ := strings.Cut(fleet.Host, "/fleet")
	answer, err := client.Get(base + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("Content-Security-Policy") != "" {
		t.Errorf("%d %v", answer.StatusCode, answer.Header)
	}
}
