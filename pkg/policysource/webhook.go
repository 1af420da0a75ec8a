package policysource

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/semaphore"

	"federator.dev/federator/pkg/policysource/internal/checkout"
)

// WebhookOptions configure a webhook. Secrets are required.
type WebhookOptions struct {
	Secrets       []Secret // any of them is accepted, so that they can be rotated; at least 16 bytes each
	MaxBody       int64    // bytes; 0 means 1 MiB
	MaxConcurrent int      // requests that are read at a time; others get 503; 0 means 16

	// Pushed is called with the sources to sync instead of syncing them here, so that it
	// can inform other processes, too. It must not block. May be nil.
	Pushed func(sources []string)
}

const minSecret = 16

// Webhook returns a handler for push events of git hosts. It syncs the sources that have
// one of the repository's URLs, and replies 202 whether there are any or not. A lost event
// is made up for at the source's next interval.
//
// Requests are authenticated by an HMAC-SHA256 of the body, as GitHub
// (X-Hub-Signature-256), Gitea and Forgejo (X-Gitea-Signature) send it, or by the secret
// itself, as GitLab sends it (X-Gitlab-Token).
func (m *Manager) Webhook(opts WebhookOptions) (http.Handler, error) {
	switch {
	case len(opts.Secrets) == 0:
		return nil, errors.New("policysource: webhook: no secret is configured")
	case opts.MaxBody < 0 || opts.MaxConcurrent < 0:
		return nil, errors.New("policysource: webhook: MaxBody or MaxConcurrent is negative")
	}
	for _, s := range opts.Secrets {
		if len(s) < minSecret {
			return nil, fmt.Errorf("policysource: webhook: secrets must have at least %d bytes", minSecret)
		}
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 1 << 20
	}
	if opts.MaxConcurrent == 0 {
		opts.MaxConcurrent = 16
	}
	return &webhook{m: m, opts: opts, slots: semaphore.NewWeighted(int64(opts.MaxConcurrent))}, nil
}

type webhook struct {
	m     *Manager
	opts  WebhookOptions
	slots *semaphore.Weighted
}

// ServeHTTP implements http.Handler.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST is allowed", http.StatusMethodNotAllowed)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the body must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	if !h.slots.TryAcquire(1) { // bodies are read before requests are authenticated
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many concurrent requests", http.StatusServiceUnavailable)
		return
	}
	defer h.slots.Release(1)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the body has more than %d bytes", h.opts.MaxBody), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	case !h.authenticated(r.Header, body):
		http.Error(w, "the signature or token is missing or wrong", http.StatusUnauthorized)
		return
	}
	var p push
	if err := json.Unmarshal(body, &p); err != nil {
		http.Error(w, "the body is not the JSON of a push", http.StatusBadRequest)
		return
	}
	sources := h.m.sourcesOf(p.identities())
	if h.opts.Pushed != nil {
		h.opts.Pushed(sources)
	} else {
		for _, name := range sources {
			_ = h.m.Sync(name) // it may have been removed meanwhile
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

// authenticated reports whether a request proves knowledge of a secret, in constant time.
func (h *webhook) authenticated(header http.Header, body []byte) bool {
	var check func(Secret) int
	switch {
	case header.Get("X-Hub-Signature-256") != "":
		given, ok := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		if !ok {
			return false
		}
		check = func(s Secret) int { return validMAC(s, body, given) }
	case header.Get("X-Gitea-Signature") != "":
		check = func(s Secret) int { return validMAC(s, body, header.Get("X-Gitea-Signature")) }
	case header.Get("X-Gitlab-Token") != "":
		// Compare sums, so that the time does not reveal the secret's length.
		given := sha256.Sum256([]byte(header.Get("X-Gitlab-Token")))
		check = func(s Secret) int {
			want := sha256.Sum256([]byte(s))
			return subtle.ConstantTimeCompare(given[:], want[:])
		}
	default:
		return false
	}
	match := 0
	for _, s := range h.opts.Secrets {
		match |= check(s)
	}
	return match == 1
}

// validMAC returns 1 if a hexadecimal HMAC of a body is correct.
func validMAC(s Secret, body []byte, given string) int {
	sum, err := hex.DecodeString(given)
	if err != nil {
		return 0
	}
	mac := hmac.New(sha256.New, []byte(s))
	mac.Write(body)
	return subtle.ConstantTimeCompare(mac.Sum(nil), sum)
}

// push has the URLs of the repository in the payloads of GitHub, Gitea and GitLab.
type push struct {
	Repository repositoryURLs `json:"repository"`
	Project    repositoryURLs `json:"project"`
}

type repositoryURLs struct {
	CloneURL   string `json:"clone_url"`
	SSHURL     string `json:"ssh_url"`
	HTMLURL    string `json:"html_url"`
	GitHTTPURL string `json:"git_http_url"`
	GitSSHURL  string `json:"git_ssh_url"`
	WebURL     string `json:"web_url"`
}

// identities returns the identities of the repository's URLs.
func (p push) identities() map[string]bool {
	out := map[string]bool{}
	for _, at := range []repositoryURLs{p.Repository, p.Project} {
		for _, raw := range []string{at.CloneURL, at.SSHURL, at.HTMLURL, at.GitHTTPURL, at.GitSSHURL, at.WebURL} {
			if rest, ok := strings.CutPrefix(raw, "http://"); ok {
				raw = "https://" + rest // for comparison only
			}
			if r, err := checkout.ParseURL(raw); err == nil {
				out[r.Identity()] = true
			}
		}
	}
	return out
}

// sourcesOf returns the names of the sources of a repository, sorted.
func (m *Manager) sourcesOf(ids map[string]bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for name, r := range m.runners {
		if at, err := checkout.ParseURL(r.source.URL); err == nil && ids[at.Identity()] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
