package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"federator.dev/federator/internal/clip"
)

// ContentType is that of a CloudEvent in the structured mode of JSON.
const ContentType = "application/cloudevents+json; charset=UTF-8"

const (
	minKey    = 16  // bytes of a key of signatures
	maxAnswer = 256 // bytes of a refusal that are shown
)

// FieldError is what is wrong with a field of a configuration, or of a message.
type FieldError struct {
	Field   string // as it is written in JSON, such as url or key
	Problem string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// RefusedError is the answer of a receiver that has not taken what was posted.
type RefusedError struct {
	Status int
	Body   string // the beginning of it, on one line
	After  time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the receiver answered %d %s: %q", e.Status, http.StatusText(e.Status), e.Body)
}

// RetryAfter returns how long the receiver wants to be left alone; 0: it did not say.
func (e *RefusedError) RetryAfter() time.Duration { return e.After }

// CheckURL returns what is wrong with a URL, a FieldError without a password or token that the URL may hold.
func CheckURL(text string) error {
	if problem := urlProblem(text); problem != "" {
		return &FieldError{"url", problem}
	}
	return nil
}

func urlProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "it is not a URL"
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return "it is not an http or https URL"
	case u.User != nil:
		return "it has a user: events are authenticated by their signature"
	case u.Scheme == "http" && !IsLoopback(u.Hostname()):
		return "http is for addresses of this machine only"
	}
	return ""
}

// IsLoopback tells whether a host of a URL is this machine.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckKeys returns what is wrong with keys, a FieldError: there is at least one, and each is long enough.
func CheckKeys(keys [][]byte) error {
	if len(keys) == 0 {
		return &FieldError{"key", "there is none"}
	}
	for _, key := range keys {
		if len(key) < minKey {
			return &FieldError{"key", fmt.Sprintf("it has %d bytes, at least %d are required", len(key), minKey)}
		}
	}
	return nil
}

// NewClient returns a client that follows no redirect.
func NewClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// PostEvent posts a CloudEvent with a signature of each key: the receiver accepts any of them.
func PostEvent(ctx context.Context, client *http.Client, to, id string, body []byte, keys [][]byte) error {
	now := time.Now()
	signature, err := sign(keys, id, now, body)
	if err != nil {
		return err
	}
	return Post(ctx, client, to, body, http.Header{
		"Content-Type": {ContentType},
		http.CanonicalHeaderKey(standardwebhooks.HeaderWebhookID):        {id},
		http.CanonicalHeaderKey(standardwebhooks.HeaderWebhookTimestamp): {strconv.FormatInt(now.Unix(), 10)},
		http.CanonicalHeaderKey(standardwebhooks.HeaderWebhookSignature): {signature},
	})
}

// Post posts a body. Only an answer of 2xx is success; another one is a RefusedError. Errors are without the URL.
func Post(ctx context.Context, client *http.Client, to string, body []byte, header http.Header) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return withoutURL(err)
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) //nolint:errcheck // The status decides.
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return &RefusedError{resp.StatusCode, clip.Line(string(text), maxAnswer), retryAfter(resp.Header.Get("Retry-After"))}
}

// withoutURL returns an error without the URL, which may hold a token.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func sign(keys [][]byte, id string, at time.Time, body []byte) (string, error) {
	signatures := make([]string, 0, len(keys))
	for _, key := range keys {
		signer, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return "", err
		}
		signature, err := signer.Sign(id, at, body)
		if err != nil {
			return "", err
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}

// retryAfter parses the header as seconds; its other form, a date, is rare.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
