package memberclient

import (
	"context"
	"net"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/clusterinformers/connection"
)

// NewWriter returns a client that writes to a cluster which is read with other credentials.
// Before it is used, and again when clusterUID returns another UID, it verifies that they
// lead to the same cluster: requests that could not be verified are not sent, and refused is
// told when they do not, with the UID that clusterUID returned. A cluster whose UID either credentials may not read is
// taken for the same only at the same server.
func NewWriter(config, reader *rest.Config, o TransportOptions, clusterUID func() string, refused func(uid string, why *connection.Refusal)) (*Client, error) {
	client, err := NewHTTPClient(config, o)
	if err != nil {
		return nil, err
	}
	v := &verifying{
		bare: New(config, client), base: client.Transport, clusterUID: clusterUID, refused: refused,
		sameServer: config.Host == reader.Host && config.ServerName == reader.ServerName && string(config.CAData) == string(reader.CAData),
	}
	return New(config, &http.Client{Transport: v}), nil
}

// verifying sends requests to the cluster that is meant, and no other.
type verifying struct {
	bare       *Client
	base       http.RoundTripper
	sameServer bool // as the credentials that read have
	clusterUID func() string
	refused    func(string, *connection.Refusal)

	mu       sync.Mutex
	verified bool
	as       string // the UID that it was verified against
}

// RoundTrip implements http.RoundTripper.
func (v *verifying) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := v.verify(r.Context()); err != nil {
		// Nothing was sent, which is what an error of dialling says.
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return v.base.RoundTrip(r)
}

// verify returns why it is not the cluster that is meant, or that nobody knows.
func (v *verifying) verify(ctx context.Context) error {
	uid := v.clusterUID()
	v.mu.Lock()
	done := v.verified && v.as == uid
	v.mu.Unlock()
	if done {
		return nil
	}
	got, err := v.bare.ClusterUID(ctx, "")
	switch {
	case err == nil && got == uid && uid != "":
	case err == nil && uid != "":
		refusal := connection.Refuse(connection.WritesRefused, "these credentials lead to another cluster: its kube-system has UID %q, not %q", got, uid)
		v.refused(uid, refusal)
		return refusal
	case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
		return err
	case !v.sameServer:
		refusal := connection.Refuse(connection.WritesRefused, "nobody may read Namespace kube-system, so it is not known whether these credentials lead to the cluster that is read")
		v.refused(uid, refusal)
		return refusal
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.verified, v.as = true, uid
	return nil
}

// CloseIdleConnections lets go of connections that are idle, as http.Client does.
func (v *verifying) CloseIdleConnections() { v.bare.CloseIdleConnections() }
