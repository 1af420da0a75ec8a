package queryapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/pkg/queryapi/internal/route"
)

// chain builds the handler: a request passes the filters from the last of this
// function to the first, as in k8s.io/apiserver's own chain.
func (s *Server) chain() http.Handler {
	h := http.Handler(http.HandlerFunc(s.dispatch))
	h = s.withWatchEnd(h)
	h = s.withAssignment(h)
	h = s.withLoading(h)
	h = s.withLimits(h)
	h = s.withoutImpersonation(h)
	h = genericapifilters.WithAudit(h, s.audit.sink, s.audit.rules, longRunning)

	if s.options.Traces != nil { // after authentication: callers that are trusted say themselves what is sampled
		h = genericapifilters.WithTracing(withTraceLabel(h), s.options.Traces)
	}

	stranger := genericapifilters.WithFailedAuthenticationAudit(http.HandlerFunc(s.unauthenticated), s.audit.sink, s.audit.rules)
	h = genericapifilters.WithAuthentication(h, s.authenticator, stranger, nil, nil) // audiences: see tokenReviews
	h = withCredentials(h)
	h = withHubError(h)
	h = s.withSession(h)
	h = s.withBearerOnly(h)
	h = s.withUI(h)

	h = s.withTracking(h)
	h = genericapifilters.WithWarningRecorder(h)
	h = withAnswerDone(genericfilters.WithTimeoutForNonLongRunningRequests(h, longRunning))
	h = genericapifilters.WithRequestDeadline(h, s.audit.sink, s.audit.rules, longRunning, scheme.Codecs, s.options.Limits.Request)
	h = genericapifilters.WithCacheControl(h)
	h = genericapifilters.WithLatencyTrackers(h)
	h = s.withWriteDeadline(h)
	h = route.Filter(h, func(w http.ResponseWriter, r *http.Request, err error) { writeError(w, r, s.log, err) })
	h = genericapifilters.WithRequestReceivedTimestamp(h)
	h = genericapifilters.WithAuditInit(h)
	h = s.withUIHeaders(h)
	return s.withObservation(h)
}

func longRunning(r *http.Request, info *apirequest.RequestInfo) bool {
	return info.Verb == "watch" && (info.IsResourceRequest || r.Method == http.MethodGet) || isPost(r, info)
}

// isPost reports whether a request may be one for a Poster, which lasts as a watch does.
func isPost(r *http.Request, info *apirequest.RequestInfo) bool {
	return r.Method == http.MethodPost && !info.IsResourceRequest && strings.HasPrefix(info.Path, route.Query+"/")
}

// poster returns the query that takes a POST request, nil if there is none.
func (s *Server) poster(r *http.Request) Poster {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	if !ok || !isPost(r, info) {
		return nil
	}
	q, _ := s.queryAt(strings.TrimPrefix(info.Path, route.Query+"/")).(Poster)
	return q
}

func isWatch(r *http.Request) bool {
	info, ok := apirequest.RequestInfoFrom(r.Context())
	return ok && longRunning(r, info)
}

// withLimits admits requests by the hub's API priority and fairness, or by number, and
// watches by number: priority and fairness bounds how fast they start, not how many are open.
func (s *Server) withLimits(next http.Handler) http.Handler {
	plain := s.withShares(next)
	if s.fairness == nil {
		return plain
	}
	return s.fairness.filter(s.withShare(next, s.watchShares, isWatch, "watches"), plain)
}

// withShares admits requests and watches by number.
func (s *Server) withShares(next http.Handler) http.Handler {
	next = s.withShare(next, s.watchShares, isWatch, "watches")
	return s.withShare(next, s.requestShares, func(r *http.Request) bool { return !isWatch(r) }, "requests")
}

// loadedAfter is after how many seconds clients ask again.
const loadedAfter = 1

// withLoading asks clients to come again while the index is being loaded. It is 429 and not 503:
// client-go keeps the resourceVersion that it continues from.
func (s *Server) withLoading(next http.Handler) http.Handler {
	loading := s.options.Loading
	if loading == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsIndex(r) && loading() {
			writeStatus(w, apierrors.NewTooManyRequests("federator has started and is loading its index", loadedAfter).ErrStatus)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// needsIndex reports whether a request is answered from the index: probes, and a stop, need none.
func needsIndex(r *http.Request) bool {
	probe := r.URL.Path == "/healthz" || r.URL.Path == "/livez" || r.URL.Path == "/readyz"
	return !probe && !strings.HasPrefix(r.URL.Path, uiRelay) && r.URL.Path != mcpPath // what a tool asks needs it
}

// withAssignment asks clients to come again while it is not known who shares the fleet: what this process judges is not all.
func (s *Server) withAssignment(next http.Handler) http.Handler {
	if s.options.Peers == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if needsIndex(r) && s.options.Peers.Assignment().Judges == nil {
			writeStatus(w, apierrors.NewTooManyRequests("federator has started and does not know yet which process judges which member", loadedAfter).ErrStatus)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withoutImpersonation refuses impersonation: federator does not know who may impersonate.
func (s *Server) withoutImpersonation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				writeStatus(w, newStatusError(http.StatusForbidden, metav1.StatusReasonForbidden,
					"impersonation is not supported: use that user's own credentials").ErrStatus)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

type shutdownKey struct{}

// baseContext makes a context that of every request.
func baseContext(ctx context.Context) func(net.Listener) context.Context {
	return func(net.Listener) context.Context { return ctx }
}

// withWatchEnd counts watches, ends them when the server shuts down, and reports to
// priority and fairness when one is initialized.
func (s *Server) withWatchEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		s.metrics.watches.Inc()
		defer s.metrics.watches.Dec()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if ending, ok := ctx.Value(shutdownKey{}).(context.Context); ok {
			defer context.AfterFunc(ending, cancel)()
		}
		w = responsewriter.WrapForHTTP1Or2(&firstWriteNotifier{ResponseWriter: w, onWrite: func() { utilflowcontrol.WatchInitialized(ctx) }})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// firstWriteNotifier calls onWrite when the header is written.
type firstWriteNotifier struct {
	http.ResponseWriter
	onWrite func()
}

func (b *firstWriteNotifier) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *firstWriteNotifier) WriteHeader(code int) {
	b.ResponseWriter.WriteHeader(code)
	b.onWrite()
}

func (b *firstWriteNotifier) Write(p []byte) (int, error) {
	n, err := b.ResponseWriter.Write(p)
	b.onWrite()
	return n, err
}

// answeredKey is for the context that ends once a response has been written.
type answeredKey struct{}

// withAnswerDone wraps the timeout filter. Handlers inside of it are cancelled once the
// filter has responded (see withTracking), not at the same deadline: else one would start a
// response that the other cuts off.
func withAnswerDone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, _ := apirequest.RequestInfoFrom(r.Context()); longRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		over, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
		defer func() { end(context.Cause(r.Context())) }()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answeredKey{}, over)))
	})
}

// withTracking counts the goroutine of the timeout filter, which may outlive the request.
func (s *Server) withTracking(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.inflight.add()
		defer s.inflight.done()
		over, ok := r.Context().Value(answeredKey{}).(context.Context)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
		defer end(nil)
		defer context.AfterFunc(over, func() { end(context.Cause(over)) })()
		if deadline, ok := r.Context().Deadline(); ok {
			// Later than the filter's, but set: nested calls derive their own timeouts from it.
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline.Add(writeGrace))
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// writeGrace is how much longer than its timeout a request may take to write.
const writeGrace = time.Second

// withWriteDeadline bounds the time for writing the response, and labels the request. A
// watch sets its own deadlines.
func (s *Server) withWriteDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := apirequest.RequestInfoFrom(r.Context())
		watch := longRunning(r, info)
		var deadline time.Time // none
		if !watch {
			deadline = time.Now().Add(s.options.Limits.Request + writeGrace)
		}
		if err := http.NewResponseController(w).SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
			writeError(w, r, s.log, err)
			return
		}
		if label := labelsOf(r.Context()); label != nil {
			label.setVerb(knownVerb(info.Verb), watch)
		}
		next.ServeHTTP(w, r)
	})
}

func knownVerb(verb string) string {
	switch verb {
	case "get", "list", "watch", "create":
		return verb
	}
	return "other"
}

// requestLabels are the labels of a request in metrics. A request that has timed out is
// counted while its handler still runs, so they are safe for concurrent use.
type requestLabels struct {
	mu             sync.Mutex
	verb, resource string
	watch          bool
	trace          string // its ID, if the request is traced; "" otherwise
}

func (l *requestLabels) setVerb(verb string, watch bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verb, l.watch = verb, watch
}

func (l *requestLabels) setResource(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resource = resource
}

func (l *requestLabels) setTrace(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trace = id
}

func (l *requestLabels) get() (verb, resource string, watch bool, trace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verb, l.resource, l.watch, l.trace
}

// withTraceLabel notes the trace of a request that is traced.
func withTraceLabel(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if label, of := labelsOf(r.Context()), trace.SpanContextFromContext(r.Context()); label != nil && of.IsSampled() {
			label.setTrace(of.TraceID().String())
		}
		next.ServeHTTP(w, r)
	})
}

type labelsKey struct{}

func labelsOf(ctx context.Context) *requestLabels {
	l, _ := ctx.Value(labelsKey{}).(*requestLabels)
	return l
}

// observe counts how long a request took, as an exemplar if it is traced.
func observe(seconds prometheus.Observer, took time.Duration, trace string) {
	if o, can := seconds.(prometheus.ExemplarObserver); can && trace != "" {
		o.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	seconds.Observe(took.Seconds())
}

// withObservation is the outermost filter: it counts and logs requests, recovers panics,
// and bounds what a client may send.
func (s *Server) withObservation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.inflight.start() {
			w.Header().Set("Connection", "close")
			writeStatus(w, apierrors.NewServiceUnavailable("the server is shutting down").Status())
			return
		}
		defer s.inflight.done()
		began := time.Now()
		answer := &statusWriter{ResponseWriter: w}
		counted := &requestLabels{verb: "other"}
		r = r.WithContext(context.WithValue(r.Context(), labelsKey{}, counted))
		s.metrics.inFlight.Inc()
		defer s.metrics.inFlight.Dec()
		defer func() {
			code := strconv.Itoa(answer.code)
			verb, resource, watch, id := counted.get()
			s.metrics.requests.WithLabelValues(verb, resource, code).Inc()
			if !watch {
				observe(s.metrics.seconds.WithLabelValues(verb, resource), time.Since(began), id)
			}
			s.log.Debug("query API: request served", "method", r.Method, "path", r.URL.Path, "code", code, "took", time.Since(began))
		}()
		defer s.recoverPanic(answer, r)
		s.serveBounded(next, answer, r)
		answer.finish()
	})
}

// serveBounded bounds the request body, and serves the request.
func (s *Server) serveBounded(next http.Handler, answer *statusWriter, r *http.Request) {
	w := responsewriter.WrapForHTTP1Or2(answer)
	if r.ContentLength != 0 {
		limit := int64(s.options.Limits.BodyBytes)
		if q := s.poster(r); q != nil {
			limit = q.MaxBody()
		}
		err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.options.Limits.Header))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			writeError(w, r, s.log, err)
			return
		}
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			w.Header().Set("Connection", "close") // rather than reading it
			writeError(w, r, s.log, apierrors.NewBadRequest("GET and HEAD requests must not have a body"))
			return
		case r.ContentLength > limit:
			w.Header().Set("Connection", "close")
			writeError(w, r, s.log, apierrors.NewRequestEntityTooLargeError("the limit is "+strconv.FormatInt(limit, 10)+" bytes"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, limit)
	}
	next.ServeHTTP(w, r)
}

// recoverPanic turns a panic into a 500, or closes the connection when the response has
// started.
func (s *Server) recoverPanic(answer *statusWriter, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) { // on purpose: a response that cannot be completed
		panic(cause)
	}
	s.metrics.panics.Inc()
	s.log.Error("query API: panic", "method", r.Method, "path", r.URL.Path, "cause", cause, "stack", string(debug.Stack()))
	if answer.code != 0 && !answer.plain {
		panic(http.ErrAbortHandler)
	}
	answer.code, answer.plain = 0, false
	writeStatus(answer, apierrors.NewInternalError(errors.New("see the server's log")).Status())
}
