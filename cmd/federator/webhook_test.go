package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/clitest"
)

// TestWebhook_SecretCanBeRotated changes the file between requests.
func TestWebhook_SecretCanBeRotated(t *testing.T) {
	git, err := policysource.NewManager(policysource.Options{
		Test: func(context.Context, policysource.Candidate) ([]policy.Finding, error) { return nil, nil },
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("there is no network") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- git.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if err := git.SetSources([]policysource.Source{{Name: "team", URL: "https://git.example/team/policies"}}); err != nil {
		t.Fatal(err)
	}
	var pushed []string
	h := &pushHook{
		manager: git, pushed: func(names []string) { pushed = append(pushed, names...) }, file: clitest.WriteFile(t, "secret", "the first of the secrets\n"), log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	post := func(secret string, want int) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, hookPath, strings.NewReader(`{"project":{"git_http_url":"https://git.example/team/policies.git"}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Gitlab-Token", secret)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d: %s, want %d", secret, w.Code, w.Body, want)
		}
	}
	clitest.Eventually(t, "the source is followed", func() error {
		if _, ok := git.State().Status["team"]; !ok {
			return clitest.ErrNotYet
		}
		return nil
	})
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(h.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	post("the first of the secrets", http.StatusAccepted)
	post("the second of the secrets", http.StatusUnauthorized)
	write("the second of the secrets\n\nthe first of the secrets\n")
	post("the first of the secrets", http.StatusAccepted)
	post("the second of the secrets", http.StatusAccepted)
	write("the second of the secrets")
	post("the first of the secrets", http.StatusUnauthorized)
	for _, bad := range []string{"", "short", strings.Repeat("a secret of a file that is too long\n", 2000)} {
		write(bad)
		post("the second of the secrets", http.StatusServiceUnavailable)
	}
	if err := os.Remove(h.file); err != nil {
		t.Fatal(err)
	}
	post("the second of the secrets", http.StatusServiceUnavailable)
	if !slices.Equal(pushed, []string{"team", "team", "team"}) {
		t.Errorf("pushed: %v", pushed)
	}
}

func TestWebhook_ConfigurationIsValidated(t *testing.T) {
	const hub = "sources: {hub: {enabled: true}}\npolicies:\n  hub: true\n"
	for text, want := range map[string]string{
		hub + "  webhook: {listen: \":0\"}\n":                            "policies.webhook.secretFile: is required with policies.webhook.listen",
		hub + "  webhook: {secretFile: /nowhere}\n":                      "policies.webhook.secretFile: is set, but policies.webhook.listen is not",
		"policies:\n  webhook: {listen: \":0\", secretFile: /nowhere}\n": "policies.webhook.listen: is set, but policies.hub is false",
	} {
		_, err := command(t, "serve", "--config", clitest.WriteFile(t, "config.yaml", text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%v, want %s", text, err, want)
		}
	}
}
