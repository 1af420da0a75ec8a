package policysource_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

const hookSecret = "0123456789abcdef-hook"

func sum(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(mac, body)
	return hex.EncodeToString(mac.Sum(nil))
}

// post sends a payload to a webhook and returns its status.
func post(t *testing.T, h http.Handler, body string, header map[string]string) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if strings.Contains(w.Body.String(), hookSecret) {
		t.Errorf("the secret is in %q", w.Body)
	}
	return w.Code
}

func github(body string) map[string]string {
	return map[string]string{"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=" + sum(hookSecret, body)}
}

func newHook(t *testing.T, m *policysource.Manager, opts policysource.WebhookOptions) http.Handler {
	t.Helper()
	opts.Secrets = append(opts.Secrets, hookSecret)
	h, err := m.Webhook(opts)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestWebhook_PushSyncsAtOnce(t *testing.T) {
	root := t.TempDir()
	r, bystander := newRepo(t, root, "org/repo"), newRepo(t, root, "org/other")
	hash := commit(t, r, good("zero"))
	otherHash := commit(t, bystander, plus(nil, "policies/o.rego", rule("other", "x")))
	web, err := git.ServeHTTPS(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	src, other := source("team", r), source("other", bystander)
	for s, name := range map[*policysource.Source]string{&src: "repo", &other: "other"} {
		s.URL, s.Auth.CA = web.URL+"/org/"+name, web.CA
	}
	m := start(t, options(), src, other)
	active(t, m, "team", hash)
	contact := active(t, m, "other", otherHash).Status["other"].Contact
	h := newHook(t, m, policysource.WebhookOptions{Secrets: []policysource.Secret{"an-older-secret-of-it"}})
	host := strings.TrimPrefix(web.URL, "https://")
	for name, c := range map[string]struct {
		body   string
		header func(string) map[string]string
	}{
		"GitHub":      {fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"full_name":"org/repo","clone_url":"https://%s/Org/Repo.git","ssh_url":"x"}}`, host), github},
		"GitHub, ssh": {`{"repository":{"ssh_url":"git@127.0.0.1:org/repo.git"}}`, github},
		"the older secret": {fmt.Sprintf(`{"repository":{"html_url":"%s/org/repo"}}`, web.URL), func(body string) map[string]string {
			return map[string]string{"X-Hub-Signature-256": "sha256=" + sum("an-older-secret-of-it", body)}
		}},
		"Gitea": {fmt.Sprintf(`{"repository":{"clone_url":"http://%s/org/repo.git"}}`, host), func(body string) map[string]string {
			return map[string]string{"X-Gitea-Signature": sum(hookSecret, body)}
		}},
		"GitLab": {fmt.Sprintf(`{"object_kind":"push","project":{"git_http_url":"%s/org/repo.git"}}`, web.URL), func(string) map[string]string {
			return map[string]string{"X-Gitlab-Token": hookSecret}
		}},
	} {
		next := commit(t, r, good("label_"+strings.NewReplacer(" ", "_", ",", "").Replace(strings.ToLower(name))))
		if code := post(t, h, c.body, c.header(c.body)); code != http.StatusAccepted {
			t.Errorf("%s: %d", name, code)
			continue
		}
		active(t, m, "team", next)
	}
	if s, _ := m.Status("other"); !s.Contact.Equal(contact) {
		t.Errorf("the other source was triggered, too: %+v", s)
	}
}

func TestWebhook_AuthenticatesRequests(t *testing.T) {
	m, err := policysource.NewManager(options())
	if err != nil {
		t.Fatal(err)
	}
	h := newHook(t, m, policysource.WebhookOptions{MaxBody: 100})
	const body = `{"repository":{"clone_url":"https://example.com/r"}}`
	large := `{"x":"` + strings.Repeat("x", 100) + `"}`
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		want   int
	}{
		"right":                 {body, github(body), http.StatusAccepted},
		"no repository":         {`{"zen":"x"}`, github(`{"zen":"x"}`), http.StatusAccepted},
		"nothing":               {body, nil, http.StatusUnauthorized},
		"another body":          {body + " ", github(body), http.StatusUnauthorized},
		"another secret":        {body, map[string]string{"X-Hub-Signature-256": "sha256=" + sum("another-secret-here", body)}, http.StatusUnauthorized},
		"SHA-1":                 {body, map[string]string{"X-Hub-Signature": "sha1=" + sum(hookSecret, body)}, http.StatusUnauthorized},
		"no algorithm":          {body, map[string]string{"X-Hub-Signature-256": sum(hookSecret, body)}, http.StatusUnauthorized},
		"not hexadecimal":       {body, map[string]string{"X-Hub-Signature-256": "sha256=zz"}, http.StatusUnauthorized},
		"cut":                   {body, map[string]string{"X-Hub-Signature-256": "sha256=" + sum(hookSecret, body)[:32]}, http.StatusUnauthorized},
		"Gitea's, wrong":        {body, map[string]string{"X-Gitea-Signature": sum("x", body)}, http.StatusUnauthorized},
		"GitLab's, wrong":       {body, map[string]string{"X-Gitlab-Token": hookSecret + "x"}, http.StatusUnauthorized},
		"one right, one wrong":  {body, map[string]string{"X-Hub-Signature-256": "sha256=00", "X-Gitlab-Token": hookSecret}, http.StatusUnauthorized},
		"too large":             {large, github(large), http.StatusRequestEntityTooLarge},
		"not JSON":              {"hello", github("hello"), http.StatusBadRequest},
		"of another shape":      {`{"repository":[]}`, github(`{"repository":[]}`), http.StatusBadRequest},
		"of another type":       {body, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, http.StatusUnsupportedMediaType},
		"before JSON is looked": {"hello", nil, http.StatusUnauthorized},
	} {
		if code := post(t, h, c.body, c.header); code != c.want {
			t.Errorf("%s: %d, want %d", name, code, c.want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hook", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d", w.Code)
	}
	for name, opts := range map[string]policysource.WebhookOptions{
		"no secret": {}, "short": {Secrets: []policysource.Secret{"short"}}, "body": {Secrets: []policysource.Secret{hookSecret}, MaxBody: -1},
		"parallel": {Secrets: []policysource.Secret{hookSecret}, MaxConcurrent: -1},
	} {
		if _, err := m.Webhook(opts); err == nil || strings.Contains(err.Error(), "short") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWebhook_LimitsSlowRequests(t *testing.T) {
	m, err := policysource.NewManager(options())
	if err != nil {
		t.Fatal(err)
	}
	h := newHook(t, m, policysource.WebhookOptions{MaxConcurrent: 1})
	reading, writing := io.Pipe()
	slow := httptest.NewRequest(http.MethodPost, "/hook", reading)
	slow.Header.Set("Content-Type", "application/json")
	done := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, slow)
		done <- w.Code
	}()
	if _, err := writing.Write([]byte("{")); err != nil { // it is being read
		t.Fatal(err)
	}
	if code := post(t, h, "{}", github("{}")); code != http.StatusServiceUnavailable {
		t.Errorf("beside a slow one: %d", code)
	}
	writing.Close()
	if code := <-done; code != http.StatusUnauthorized {
		t.Errorf("the slow one: %d", code)
	}
	if code := post(t, h, "{}", github("{}")); code != http.StatusAccepted {
		t.Errorf("after it: %d", code)
	}
}
