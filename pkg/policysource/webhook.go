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

	"federator.dev/federator/pkg/policysource/internal/checkout"
)

// WebhookOptions are a webhook's. Secrets are required.
type WebhookOptions struct {
	Secrets  []Secret // any of them serves, so that they can be rotated; of 16 bytes or more
	MaxBody  int64    // bytes; 0 means 1 MiB
	Parallel int      // requests that are read at a time, others get 503; 0 means 16

	// Pushed is told which sources to sync, in place of syncing them here: who else
	// follows them is to hear of it, too. It must not block. May be nil.
	Pushed func(sources []string)
}

const minSecret = 16

// Webhook returns a handler for what git hosts send when somebody pushed. It syncs
// the sources whose URLs are one of the repository's, and replies 202, whether there
// are any or not. What is lost is seen at the source's next interval.
//
// Requests prove themselves by HMAC-SHA256 of the body, as GitHub
// (X-Hub-Signature-256) and Gitea and Forgejo (X-Gitea-Signature) do, or by the
// secret, as GitLab does (X-Gitlab-Token).
func (m *Manager) Webhook(opts WebhookOptions) (http.Handler, error) {
	switch {
	case len(opts.Secrets) == 0:
		return nil, errors.New("policysource: webhook: there is no secret")
	case opts.MaxBody < 0 || opts.Parallel < 0:
		return nil, errors.New("policysource: webhook: MaxBody or Parallel is negative")
	}
	for _, s := range opts.Secrets {
		if len(s) < minSecret {
			return nil, fmt.Errorf("policysource: webhook: a secret has less than %d bytes", minSecret)
		}
	}
	if opts.MaxBody == 0 {
		opts.MaxBody = 1 << 20
	}
	if opts.Parallel == 0 {
		opts.Parallel = 16
	}
	return &webhook{m: m, opts: opts, slots: make(chan struct{}, opts.Parallel)}, nil
}

type webhook struct {
	m     *Manager
	opts  WebhookOptions
	slots chan struct{}
}

// ServeHTTP implements http.Handler.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "only POST is served", http.StatusMethodNotAllowed)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the body must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default: // bodies are read before anybody has proved anything
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests are being read", http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("the body has more than %d bytes", h.opts.MaxBody), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	case !h.proved(r.Header, body):
		http.Error(w, "the signature or token is missing or wrong", http.StatusUnauthorized)
		return
	}
	var p push
	if err := json.Unmarshal(body, &p); err != nil {
		http.Error(w, "the body is not the JSON of a push", http.StatusBadRequest)
		return
	}
	sources := h.m.following(p.identities())
	if h.opts.Pushed != nil {
		h.opts.Pushed(sources)
	} else {
		for _, name := range sources {
			_ = h.m.Sync(name) // one that has gone meanwhile is not followed any more
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

// proved says whether a request knows a secret. It takes as long for each of them.
func (h *webhook) proved(header http.Header, body []byte) bool {
	var check func(Secret) int
	switch {
	case header.Get("X-Hub-Signature-256") != "":
		given, ok := strings.CutPrefix(header.Get("X-Hub-Signature-256"), "sha256=")
		if !ok {
			return false
		}
		check = func(s Secret) int { return sameSum(s, body, given) }
	case header.Get("X-Gitea-Signature") != "":
		check = func(s Secret) int { return sameSum(s, body, header.Get("X-Gitea-Signature")) }
	case header.Get("X-Gitlab-Token") != "":
		// Sums are of one length, so that the secret's does not show.
		given := sha256.Sum256([]byte(header.Get("X-Gitlab-Token")))
		check = func(s Secret) int {
			want := sha256.Sum256([]byte(s))
			return subtle.ConstantTimeCompare(given[:], want[:])
		}
	default:
		return false
	}
	found := 0
	for _, s := range h.opts.Secrets {
		found |= check(s)
	}
	return found == 1
}

// sameSum returns 1 when a hexadecimal HMAC is that of a body.
func sameSum(s Secret, body []byte, given string) int {
	sum, err := hex.DecodeString(given)
	if err != nil {
		return 0
	}
	mac := hmac.New(sha256.New, []byte(s))
	mac.Write(body)
	return subtle.ConstantTimeCompare(mac.Sum(nil), sum)
}

// push is what is read of a payload: GitHub's, Gitea's and GitLab's names for the
// URLs of a repository.
type push struct {
	Repository place `json:"repository"`
	Project    place `json:"project"`
}

type place struct {
	CloneURL   string `json:"clone_url"`
	SSHURL     string `json:"ssh_url"`
	HTMLURL    string `json:"html_url"`
	GitHTTPURL string `json:"git_http_url"`
	GitSSHURL  string `json:"git_ssh_url"`
	WebURL     string `json:"web_url"`
}

// identities returns the repository by the names that sources have for it.
func (p push) identities() map[string]bool {
	out := map[string]bool{}
	for _, at := range []place{p.Repository, p.Project} {
		for _, raw := range []string{at.CloneURL, at.SSHURL, at.HTMLURL, at.GitHTTPURL, at.GitSSHURL, at.WebURL} {
			if rest, ok := strings.CutPrefix(raw, "http://"); ok {
				raw = "https://" + rest // it is a name here, nobody is asked
			}
			if r, err := checkout.ParseURL(raw); err == nil {
				out[r.Identity()] = true
			}
		}
	}
	return out
}

// following returns the sources that follow a repository, by name.
func (m *Manager) following(ids map[string]bool) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for name, r := range m.runners {
		if at, err := checkout.ParseURL(r.given.URL); err == nil && ids[at.Identity()] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
