package sinks

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"federator.dev/federator/pkg/notify/internal/webhook"
)

// WebhookOptions configure a Webhook. URL and Keys are required.
type WebhookOptions struct {
	URL        string   // https; http for loopback only
	Keys       [][]byte // that sign, of at least 16 bytes each: several while one takes the place of another
	CA         []byte   // PEM; nil: the system's roots
	ClientCert []byte   // PEM, with ClientKey; nil: none
	ClientKey  []byte
	Dial       Dial          // nil: that of a net.Dialer
	Timeout    time.Duration // of each request; 0: 10 s
}

// Webhook posts messages, one by one, as Standard Webhooks says. It is safe for concurrent use.
type Webhook struct {
	url     string
	keys    [][]byte
	timeout time.Duration
	client  *http.Client
}

// NewWebhook returns a Webhook, or a FieldError.
func NewWebhook(opts WebhookOptions) (*Webhook, error) {
	if err := webhook.CheckURL(opts.URL); err != nil {
		return nil, err
	}
	if err := webhook.CheckKeys(opts.Keys); err != nil {
		return nil, err
	}
	config, err := tlsConfig(opts.CA, opts.ClientCert, opts.ClientKey)
	if err != nil {
		return nil, err
	}
	timeout, err := timeoutOr(opts.Timeout)
	if err != nil {
		return nil, err
	}
	return &Webhook{url: opts.URL, keys: opts.Keys, timeout: timeout, client: httpClient(opts.Dial, config)}, nil
}

// Send posts messages in their order and returns how many were answered 2xx; err is why no more: a RefusedError
// where the receiver has answered, a FieldError where the message cannot be sent.
func (w *Webhook) Send(ctx context.Context, messages []Message) (sent int, err error) {
	for i := range messages {
		if err := w.post(ctx, &messages[i]); err != nil {
			return i, fmt.Errorf("message %q: %w", messages[i].ID, err)
		}
	}
	return len(messages), nil
}

func (w *Webhook) post(ctx context.Context, m *Message) error {
	body, err := m.body()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return webhook.PostEvent(ctx, w.client, w.url, m.ID, body, w.keys)
}

// Close closes the connections that are kept open.
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}
