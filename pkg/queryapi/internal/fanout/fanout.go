package fanout

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Options configure a Handler. All but the times are required.
type Options struct {
	Assignment func() *Assignment
	// Own serves the part of this process of a request whose context has a part.Ask.
	Own       func(http.ResponseWriter, *http.Request) error
	Revisions *Revisions
	Tokens    *selection.TokenCodec
	// Objects holds what must be whole before it is sent.
	Objects *resources.Handler
	// Readable returns those of some members in which a user may read a resource.
	Readable func(ctx context.Context, u user.Info, verb string, resource schema.GroupResource, members []string) ([]string, error)
	Log      *slog.Logger

	// Answer is how long a peer may take to begin its part; 0 means 15 s. Silence is how long a
	// peer may send nothing of a watch; 0 means 150 s. WriteTimeout bounds each write to a
	// client of a watch, 0 means 30 s; BookmarkInterval is the time between bookmarks, 0 means 1 minute.
	Answer, Silence, WriteTimeout, BookmarkInterval time.Duration
}

// Handler answers requests for the whole fleet.
type Handler struct {
	options Options
	health  *health
}

// New returns a Handler.
func New(o Options) (*Handler, error) {
	if o.Assignment == nil || o.Own == nil || o.Revisions == nil || o.Tokens == nil || o.Objects == nil || o.Readable == nil || o.Log == nil {
		return nil, errors.New("fanout: all options but times are required")
	}
	if min(o.Answer, o.Silence, o.WriteTimeout, o.BookmarkInterval) < 0 {
		return nil, errors.New("fanout: times must not be negative")
	}
	for of, standard := range map[*time.Duration]time.Duration{
		&o.Answer: 15 * time.Second, &o.Silence: 150 * time.Second, &o.WriteTimeout: 30 * time.Second, &o.BookmarkInterval: time.Minute,
	} {
		if *of == 0 {
			*of = standard
		}
	}
	return &Handler{o, newHealth(o.Log, func() []Peer { return o.Assignment().Peers })}, nil
}

// Run finds out which processes do not answer, until ctx ends: without it, each request waits for them.
func (h *Handler) Run(ctx context.Context) { h.health.run(ctx) }

// request is a request for resources of the whole fleet.
type request struct {
	*Handler
	w      http.ResponseWriter
	r      *http.Request
	socket *http.Request // for a WebSocket, which is r otherwise; nil: it is for none
	target route.Target
	info   *apirequest.RequestInfo
	user   user.Info
	params *selection.Params
	asked  url.Values // parameters of a query, which mean something to it alone; nil: a request for resources
	posted []byte     // the body of a query that is posted; nil: none

	everyone bool // to be asked, also who judges no members
	watches  bool // parts may be silent for long

	at    *vector            // that the client names; nil: the newest
	token *selection.Token   // of a list that is continued
	as    aggregate.Revision // that the client was sent with the first page; 0: a new one
	g     *gathered
}

// Serve serves a get, list or watch of the whole fleet. An error is returned before anything is
// written.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, u user.Info) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	q := &request{Handler: h, w: w, r: r.WithContext(ctx), user: u}
	q.target, _ = route.TargetFrom(ctx)
	var ok bool
	if q.info, ok = apirequest.RequestInfoFrom(ctx); !ok {
		panic("fanout: a request without request info")
	}
	if q.info.Verb == selection.Watch && wsstream.IsWebSocketRequest(r) {
		if err := resources.CheckOrigin(r, u); err != nil {
			return err
		}
		q.socket, q.r = q.r, withoutSocket(q.r)
	}
	err := resources.Check(r, q.info, "")
	if err != nil {
		return err
	}
	if q.params, err = selection.Parse(r.URL.Query(), q.info.Verb); err != nil {
		return err
	}
	if err := q.setVector(); err != nil {
		return err
	}
	switch q.info.Verb {
	case selection.Watch:
		return q.watch()
	case selection.List:
		return q.list()
	}
	return q.get()
}

// NotImplemented is the error for what is not done for a fleet that several processes share.
func NotImplemented(what string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotImplemented, Reason: metav1.StatusReason("NotImplemented"),
		Message: what + " cannot be had of a fleet that several processes share, yet",
	}}
}

// unavailable is the error for a process that does not answer.
func unavailable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: message, Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}
}

// setVector sets what the client's revision or token stands for.
func (q *request) setVector() error {
	if q.params.Continue == "" {
		if q.params.Revision == 0 {
			return nil
		}
		if q.at = q.options.Revisions.vector(q.params.Revision); q.at == nil {
			return resources.Expired(q.params.Revision)
		}
		if q.params.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
			q.as = q.params.Revision // it is what the client has asked for
		}
		return nil
	}
	scope := q.tokenScope()
	token, err := q.options.Tokens.Decode(scope, q.params.Continue)
	if err != nil {
		return err
	}
	q.token = &token
	if token.Revision == 0 {
		return nil
	}
	q.as = token.Revision
	if q.at = q.options.Revisions.vector(token.Revision); q.at == nil {
		return q.options.Tokens.Expired(scope, token.After)
	}
	return nil
}

// tokenScope is what a continue token of this list is valid for.
func (q *request) tokenScope() selection.TokenScope {
	gvr := schema.GroupVersionResource{Group: q.info.APIGroup, Version: q.info.APIVersion, Resource: q.info.Resource}
	return selection.NewTokenScope(q.user, q.target.Prefix, gvr.String(), q.info.Namespace, q.params.LabelSelector, q.params.FieldSelector)
}

// expired is the error where what the client names is not known, or not to be had.
func (q *request) expired() error {
	if q.params == nil {
		return resources.Expired(q.as)
	}
	if q.token != nil {
		return q.options.Tokens.Expired(q.tokenScope(), q.token.After)
	}
	return resources.Expired(q.params.Revision)
}
