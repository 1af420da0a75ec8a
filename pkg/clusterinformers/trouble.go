package clusterinformers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requestError names the request that an answer was given to: what a server says
// often does not.
func requestError(path string, err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return err // the network's errors name it
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

// contactReason says why a member was not reached, from the error of a request.
// Unreachable is only what has not answered.
func contactReason(err error) Reason {
	var status apierrors.APIStatus
	var untrusted *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var answered *answerError
	var plugin *pluginError
	switch {
	case asRefusal(err) != nil:
		return asRefusal(err).Reason
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case errors.As(err, &plugin):
		return ExecPluginFailed
	case errors.As(err, &status), errors.As(err, &record), errors.As(err, &answered):
		return ServerError
	case errors.As(err, &untrusted), errors.As(err, &authority), errors.As(err, &host):
		return UntrustedServer
	}
	return Unreachable
}

// answerError is of an answer that makes no sense.
type answerError struct{ err error }

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// pluginError is of an exec plugin that gave no credentials: nothing was sent.
type pluginError struct{ err error }

func (e *pluginError) Error() string { return e.err.Error() }
func (e *pluginError) Unwrap() error { return e.err }

type sentKey struct{}

// sent notes that a request has left for the network.
type sent struct{ base http.RoundTripper }

func (s sent) RoundTrip(r *http.Request) (*http.Response, error) {
	if was, ok := r.Context().Value(sentKey{}).(*atomic.Bool); ok {
		was.Store(true)
	}
	return s.base.RoundTrip(r)
}

// pluginErrors tells the errors of plugins, which client-go runs before it sends a
// request, from those of servers.
type pluginErrors struct{ next http.RoundTripper }

func (p pluginErrors) RoundTrip(r *http.Request) (*http.Response, error) {
	was := new(atomic.Bool)
	resp, err := p.next.RoundTrip(r.WithContext(context.WithValue(r.Context(), sentKey{}, was)))
	if err != nil && !was.Load() {
		return nil, &pluginError{err}
	}
	return resp, err
}

// maxDiscovery bounds all answers to one discovery together: servers that do not
// aggregate are asked for each group and version, and all is kept until the last has come.
const maxDiscovery = maxBody

// failures remembers which path a call of the discovery client failed at, as its
// errors do not say, and bounds what it reads.
type failures struct {
	base http.RoundTripper
	left atomic.Int64 // bytes that may be read

	mu   sync.Mutex
	path string
}

// RoundTrip notes a request that is answered with an error.
func (f *failures) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.left.Load() <= 0 {
		return nil, errBodyTooLarge
	}
	resp, err := f.base.RoundTrip(r)
	if err == nil {
		resp.Body = &shared{resp.Body, &f.left}
	}
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		f.mu.Lock()
		f.path = r.URL.Path
		f.mu.Unlock()
	}
	return resp, err
}

// shared is one of several bodies that have a limit in sum.
type shared struct {
	io.ReadCloser
	left *atomic.Int64
}

// Read implements io.Reader.
func (s *shared) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.left.Add(-int64(n)) < 0 {
		return n, errBodyTooLarge
	}
	return n, err
}

func (f *failures) name(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return err
	}
	return requestError(f.path, err)
}

// ended reports whether an error is of a request that we have given up ourselves.
func ended(err error) bool { return errors.Is(err, context.Canceled) }
