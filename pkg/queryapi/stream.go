package queryapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/queryapi/internal/multiplex"
	"federator.dev/federator/pkg/queryapi/internal/queries"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// streamQuery serves /query/v1/stream: many reads in one response.
type streamQuery struct {
	*multiplex.Handler
}

// newStream returns the query that carries others.
func (s *Server) newStream() (streamQuery, error) {
	h := http.Handler(http.HandlerFunc(s.serveSubscription))
	h = s.withLoading(h)
	h = s.withStreamLimits(h)
	h = genericapifilters.WithWarningRecorder(h)
	watches := genericapifilters.WithAudit(h, s.audit.sink, s.audit.rules, longRunning)
	m, err := multiplex.New(multiplex.Options{
		Handler: s.subscriptions(watches), Questions: s.subscriptions(h), Audit: s.withQuestionAudit,
		Caller:  func(stream *http.Request) string { return s.callerOf(stream.Context()).user.GetName() },
		Changes: s.changes, Elsewhere: s.elsewhere, Check: s.checkSession, CheckInterval: s.options.Authentication.TokenTTL,
	})
	return streamQuery{m}, err
}

// withQuestionAudit audits a question as a watch, which it is: once when it is first answered, and once when it
// is not asked any more, with the code of the refusal where that is why.
func (s *Server) withQuestionAudit(next http.Handler) http.Handler {
	next = withLastCode(next)
	next = genericapifilters.WithAudit(next, s.audit.sink, s.audit.rules, func(*http.Request, *apirequest.RequestInfo) bool { return true })
	next = route.Filter(next, func(w http.ResponseWriter, r *http.Request, err error) { writeError(w, r, s.log, err) })
	next = genericapifilters.WithRequestReceivedTimestamp(next)
	return withOwnAudit(next)
}

// withOwnAudit is WithAuditInit for requests within another one, whose event theirs is not.
func withOwnAudit(next http.Handler) http.Handler {
	next = genericapifilters.WithAuditInit(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(unaudited{r.Context()}))
	})
}

// unaudited is a context without its audit event.
type unaudited struct{ context.Context }

func (c unaudited) Value(key any) any {
	v := c.Context.Value(key)
	if _, is := v.(*audit.AuditContext); is {
		return nil
	}
	return v
}

// withLastCode audits the last code of a response, not the first.
func withLastCode(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(lastCode{w, audit.AuditContextFrom(r.Context())}, r)
	})
}

type lastCode struct {
	http.ResponseWriter
	audit *audit.AuditContext
}

func (l lastCode) WriteHeader(code int) {
	if l.audit.Enabled() {
		l.audit.SetEventResponseStatusCode(int32(code))
	}
	l.ResponseWriter.WriteHeader(code)
}

// withStreamLimits is withLimits for what a stream carries: each question is a request as any other. A
// watch is admitted by number only: priority and fairness has admitted the stream, as a watch.
func (s *Server) withStreamLimits(next http.Handler) http.Handler {
	watches, questions := s.withShares(next), s.withLimits(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			watches.ServeHTTP(w, r)
			return
		}
		questions.ServeHTTP(w, r)
	})
}

// subscriptions returns the handler of requests that a stream makes for its caller, who is
// authenticated.
func (s *Server) subscriptions(h http.Handler) http.Handler {
	h = route.Filter(h, func(w http.ResponseWriter, r *http.Request, err error) { writeError(w, r, s.log, err) })
	h = genericapifilters.WithRequestReceivedTimestamp(h)
	h = withOwnAudit(h)
	return s.withObservation(h)
}

// serveSubscription serves one of them. Watches last as long as the stream.
func (s *Server) serveSubscription(w http.ResponseWriter, r *http.Request) {
	info, _ := apirequest.RequestInfoFrom(r.Context())
	watch := longRunning(r, info)
	if label := labelsOf(r.Context()); label != nil {
		label.setVerb(knownVerb(info.Verb), watch)
	}
	if watch {
		s.metrics.watches.Inc()
		defer s.metrics.watches.Dec()
		s.serveOrFail(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.options.Limits.Request)
	defer cancel()
	s.serveOrFail(w, r.WithContext(ctx))
}

// Serve implements Query.
func (streamQuery) Serve(http.ResponseWriter, *http.Request, Caller) error {
	return apierrors.NewBadRequest("parameter watch must be true: " + route.Query + "/stream is one response that goes on")
}

// Watch implements Watchable.
func (q streamQuery) Watch(w http.ResponseWriter, r *http.Request, _ Caller) error {
	return q.Handler.Serve(w, r)
}

// Describe implements Describer.
func (streamQuery) Describe() Operation { return queries.Describe("stream") }

// changes returns a channel that is closed when the answer to a question may have changed.
func (s *Server) changes(path string) <-chan struct{} {
	if name, ok := strings.CutPrefix(path, route.Query+"/"); ok {
		if q, ok := s.queryAt(name).(Notifier); ok {
			return q.Changes()
		}
	}
	if s.pulse != nil {
		return s.pulse.Next()
	}
	return s.options.Index.Newer(s.options.Index.Snapshot())
}

// elsewhere is changes of the parts of an answer that are of other processes: a Notifier knows only its own.
func (s *Server) elsewhere(path string) <-chan struct{} {
	name, ok := strings.CutPrefix(path, route.Query+"/")
	if !ok || s.pulse == nil {
		return nil
	}
	if _, shared := s.queryAt(name).(Sharer); !shared {
		return nil
	}
	return s.pulse.Next()
}

// credentialsKey is for a request as it was before it was authenticated, which takes its
// credentials away.
type credentialsKey struct{}

// withCredentials keeps the credentials of streams, which outlive them.
func withCredentials(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.TrimSuffix(r.URL.Path, "/") == route.Query+"/stream" {
			r = r.WithContext(context.WithValue(r.Context(), credentialsKey{}, r.Clone(r.Context())))
		}
		next.ServeHTTP(w, r)
	})
}

// checkSession returns why the credentials of a stream do not count any more, "" while they do or
// the hub does not say.
func (s *Server) checkSession(stream *http.Request) string {
	ctx := stream.Context()
	given, ok := ctx.Value(credentialsKey{}).(*http.Request)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*tokenReviewTimeout)
	defer cancel()
	answer, ok, err := s.authenticator.AuthenticateRequest(given.Clone(ctx))
	switch was := s.callerOf(stream.Context()).user; {
	case !ok && hubFailure(err) != nil:
		return ""
	case !ok:
		return "the credentials are not valid any more"
	case answer.User.GetName() != was.GetName() || answer.User.GetUID() != was.GetUID():
		return fmt.Sprintf("the credentials are not those of %s any more", was.GetName())
	case !slices.Equal(slices.Sorted(slices.Values(answer.User.GetGroups())), slices.Sorted(slices.Values(was.GetGroups()))):
		return fmt.Sprintf("%s is in other groups than before", was.GetName()) // of which its reads still are
	}
	return ""
}

// mcpPath is where MCP is served.
const mcpPath = "/mcp"

// MCP serves the Model Context Protocol, whose tools are answered by requests to this API.
type MCP interface {
	// ServeCaller serves a request of an authenticated caller, who has sent a bearer token. api serves GET requests as the
	// server does those of this caller, whatever else they carry: each is audited, within the request's place among others.
	// ServeCaller returns when it asks api no more.
	ServeCaller(w http.ResponseWriter, r *http.Request, api http.Handler)
}

// withBearerOnly has a bearer token be the only credentials that count for MCP, as nothing but an assistant sends one there: cookies,
// which browsers send by themselves, are refused, and client certificates ignored.
func (s *Server) withBearerOnly(next http.Handler) http.Handler {
	if s.options.MCP == nil {
		return next
	}
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != mcpPath {
			next.ServeHTTP(w, r)
			return
		}
		switch {
		case r.Header.Get("Cookie") != "":
			s.metrics.refused.WithLabelValues("cookie").Inc()
			writeStatus(w, apierrors.NewBadRequest("cookies are not accepted at "+mcpPath+": send a token in the header Authorization, and nothing else").ErrStatus)
			return
		case origins.Check(r) != nil:
			s.metrics.refused.WithLabelValues("origin").Inc()
			writeStatus(w, newStatusError(http.StatusForbidden, metav1.StatusReasonForbidden, "requests of web pages on other sites are refused").ErrStatus)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		r = withBearer(r, token)
		if !strings.EqualFold(scheme, "Bearer") {
			r.Header.Del("Authorization")
		}
		r.Header.Del("Sec-WebSocket-Protocol") // where browsers send tokens
		next.ServeHTTP(w, r)
	})
}

// toolRequests returns the handler of requests that tools make for their caller, who is authenticated. They need no admission:
// their message has been admitted, and makes them one after the other.
func (s *Server) toolRequests() http.Handler {
	h := http.Handler(http.HandlerFunc(s.serveSubscription))
	h = s.withAssignment(h)
	h = s.withLoading(h)
	h = genericapifilters.WithWarningRecorder(h)
	return s.subscriptions(genericapifilters.WithAudit(h, s.audit.sink, s.audit.rules, longRunning))
}

// serveMCP serves a message to MCP.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) error {
	if l := labelsOf(r.Context()); l != nil {
		l.setResource("mcp")
	}
	s.options.MCP.ServeCaller(w, r, http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		// Who asks is who has sent the message: of what a tool brings, its end and what it asks for count.
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(asked.Context(), func() { cancel(context.Cause(asked.Context())) })()
		inner := r.Clone(ctx)
		inner.Method, inner.URL, inner.RequestURI = http.MethodGet, asked.URL, asked.URL.RequestURI()
		inner.Body, inner.ContentLength, inner.Form, inner.PostForm, inner.MultipartForm = http.NoBody, 0, nil, nil, nil
		inner.Header = http.Header{"Accept": asked.Header["Accept"]}
		if agent := r.Header.Get("User-Agent"); agent != "" {
			inner.Header.Set("User-Agent", agent)
		}
		s.tools.ServeHTTP(w, inner)
	}))
	return nil
}
