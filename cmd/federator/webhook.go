package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/enforcement"
	"federator.dev/federator/pkg/policysource"
)

// hookPath is where git hosts report pushes.
const hookPath = "/hooks/git"

// pushHook is the webhook of a manager, with the current secrets of a file: a mounted
// Secret can be rotated without a restart.
type pushHook struct {
	manager *policysource.Manager
	pushed  func(sources []string)
	file    string
	log     *slog.Logger

	mu   sync.Mutex
	text []byte // of the file, last
	hook http.Handler
}

// newPushHook returns the handler. The file must have a secret already.
func newPushHook(cfg config.Webhook, e *enforcement.Enforcement, log *slog.Logger) (http.Handler, error) {
	h := &pushHook{manager: e.Git, pushed: e.Sources.RecordPush, file: cfg.SecretFile, log: log}
	if _, err := h.current(); err != nil {
		return nil, fmt.Errorf("policies.webhook.secretFile: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(hookPath, h)
	return mux, nil
}

// current returns the handler with the secrets of the file.
func (h *pushHook) current() (http.Handler, error) {
	text, err := readSecrets(h.file)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hook != nil && bytes.Equal(text, h.text) {
		return h.hook, nil
	}
	var secrets []policysource.Secret
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			secrets = append(secrets, policysource.Secret(line))
		}
	}
	hook, err := h.manager.Webhook(policysource.WebhookOptions{Secrets: secrets, Pushed: h.pushed})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.file, err)
	}
	h.hook, h.text = hook, text
	return hook, nil
}

// ServeHTTP implements http.Handler.
func (h *pushHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hook, err := h.current()
	if err != nil {
		h.log.Error("push rejected: reading the webhook's secrets failed", "error", err)
		http.Error(w, "the webhook has no secret to verify requests with", http.StatusServiceUnavailable)
		return
	}
	hook.ServeHTTP(w, r)
}
