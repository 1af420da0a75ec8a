package webui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"federator.dev/federator/internal/hubrequests"
	"federator.dev/federator/pkg/queryapi"
)

// Bounds of the relay. The outcome of a rollback takes the leader a while.
const (
	maxRelayed      = 32
	relayTimeout    = 45 * time.Second
	rollbackTimeout = 30 * time.Second
	dialTimeout     = 10 * time.Second
)

// relay sends a fixed list of requests to the hub, with the token of their caller and no other
// credentials.
type relay struct {
	config    *rest.Config // address and CA of the hub, without credentials
	tls       *tls.Config
	namespace string
	log       *slog.Logger
	now       func() time.Time
	slots     *semaphore.Weighted
	mux       *http.ServeMux
}

func newRelay(hub *rest.Config, namespace string, log *slog.Logger, now func() time.Time) (*relay, error) {
	anonymous := rest.AnonymousClientConfig(hub)
	anonymous.QPS = -1 // a person's requests are few
	anonymous.UserAgent = "federator/ui"
	secure, err := rest.TLSConfigFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	l := &relay{config: anonymous, tls: secure, namespace: namespace, log: log, now: now, slots: semaphore.NewWeighted(maxRelayed), mux: http.NewServeMux()}
	for pattern, call := range map[string]relayCall{
		"POST /ui/relay/approvals":                    l.approve,
		"POST /ui/relay/actions/{name}/rollback":      l.rollBackAction,
		"POST /ui/relay/rollbacks":                    l.rollBack,
		"POST /ui/relay/stops":                        l.stop,
		"DELETE /ui/relay/stops":                      l.resume,
		"POST /ui/relay/fleetpolicies/{name}/suspend": l.suspend,
	} {
		l.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { l.send(w, r, call) })
	}
	return l, nil
}

// relayCall sends one request to the hub. It returns the answer, and what the request is of.
type relayCall func(r *http.Request, hub hubrequests.Client) (answer any, object string, err error)

type callerKey struct{}

func (l *relay) serve(w http.ResponseWriter, r *http.Request, caller queryapi.UICaller) {
	l.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
}

// send relays a request, and answers what the hub does.
func (l *relay) send(w http.ResponseWriter, r *http.Request, call relayCall) {
	caller, _ := r.Context().Value(callerKey{}).(queryapi.UICaller)
	if !l.slots.TryAcquire(1) {
		writeStatus(w, apierrors.NewTooManyRequests("too many requests are being relayed to the hub", 1).Status())
		return
	}
	defer l.slots.Release(1)
	ctx, cancel := context.WithTimeout(r.Context(), relayTimeout)
	defer cancel()
	var answer any
	var object string
	connections := l.connections()
	defer connections.CloseIdleConnections()
	hub, err := l.client(caller.Token, connections)
	if err == nil {
		answer, object, err = call(r.WithContext(ctx), hub)
	}
	code := http.StatusOK
	if err != nil {
		status, known := relayStatus(err)
		if !known {
			l.log.Error("web UI: relaying a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
		code = int(status.Code)
		writeStatus(w, status)
	} else {
		writeJSON(w, code, answer)
	}
	l.log.Info("web UI: request relayed to the hub", "user", caller.User.GetName(), "method", r.Method, "path", r.URL.Path, "object", object, "code", code)
}

// connections are those of one caller's request: no token shares one with another.
func (l *relay) connections() *http.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: l.tls.Clone(),
		TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
	}
	if l.config.Proxy != nil {
		t.Proxy = l.config.Proxy
	}
	if l.config.Dial != nil {
		t.DialContext = l.config.Dial
	}
	return t
}

// client returns a client of the hub with a token.
func (l *relay) client(token string, connections http.RoundTripper) (hubrequests.Client, error) {
	client, err := kubernetes.NewForConfigAndClient(l.config, &http.Client{
		Transport:     transport.NewBearerAuthRoundTripper(token, connections),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // which would get the token
	})
	return hubrequests.Client{Interface: client}, err
}

// relayStatus returns the Status of an error: the hub's where it is of the hub.
func relayStatus(err error) (status metav1.Status, known bool) {
	var ofHub apierrors.APIStatus
	var network net.Error
	switch {
	case errors.As(err, &ofHub):
		status = ofHub.Status()
		if apierrors.IsNotFound(err) {
			status.Message = err.Error() // which tells a missing object from a missing API
		}
		return status, true
	case errors.Is(err, hubrequests.ErrInput):
		return apierrors.NewBadRequest(err.Error()).Status(), true
	case errors.Is(err, hubrequests.ErrConflict):
		return newStatus(http.StatusConflict, metav1.StatusReasonConflict, err.Error()).Status(), true
	case errors.Is(err, hubrequests.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return newStatus(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, err.Error()).Status(), true
	case errors.As(err, &network):
		return apierrors.NewServiceUnavailable("the hub does not answer").Status(), true
	}
	return apierrors.NewInternalError(errors.New("see the server's log")).Status(), false
}
