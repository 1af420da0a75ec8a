package memberclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/clusterinformers/connection"
)

// WrapRequest names the request that an answer was given to: what a server says
// often does not.
func WrapRequest(path string, err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return err // the network's errors name it
	}
	return fmt.Errorf("GET %s: %w", path, err)
}

// ReasonFor says why a member was not reached, from the error of a request.
// Unreachable is only what has not answered.
func ReasonFor(err error) connection.Reason {
	var status apierrors.APIStatus
	var untrusted *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var answered *MalformedError
	var plugin *pluginError
	switch {
	case connection.AsRefusal(err) != nil:
		return connection.AsRefusal(err).Reason
	case apierrors.IsUnauthorized(err):
		return connection.Unauthorized
	case errors.As(err, &plugin):
		return connection.ExecPluginFailed
	case errors.As(err, &status), errors.As(err, &record), errors.As(err, &answered):
		return connection.ServerError
	case errors.As(err, &untrusted), errors.As(err, &authority), errors.As(err, &host):
		return connection.UntrustedServer
	}
	return connection.Unreachable
}

// MalformedError is of an answer that makes no sense.
type MalformedError struct{ err error }

func (e *MalformedError) Error() string { return e.err.Error() }

func (e *MalformedError) Unwrap() error { return e.err }

// pluginError is of an exec plugin that gave no credentials: nothing was sent.
type pluginError struct{ err error }

func (e *pluginError) Error() string { return e.err.Error() }

func (e *pluginError) Unwrap() error { return e.err }

type sentFlagKey struct{}

// sentMarker notes that a request has left for the network.
type sentMarker struct{ base http.RoundTripper }

func (s sentMarker) RoundTrip(r *http.Request) (*http.Response, error) {
	if was, ok := r.Context().Value(sentFlagKey{}).(*atomic.Bool); ok {
		was.Store(true)
	}
	return s.base.RoundTrip(r)
}

// pluginErrorMarker separates the errors of plugins, which client-go runs before it sends a
// request, from those of servers.
type pluginErrorMarker struct{ next http.RoundTripper }

func (p pluginErrorMarker) RoundTrip(r *http.Request) (*http.Response, error) {
	was := new(atomic.Bool)
	resp, err := p.next.RoundTrip(r.WithContext(context.WithValue(r.Context(), sentFlagKey{}, was)))
	if err != nil && !was.Load() {
		return nil, &pluginError{err}
	}
	return resp, err
}
