package queryapi

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// statusOf returns the Status for an error, and whether it has the error's text: other
// errors are logged, and not sent.
func statusOf(err error) (metav1.Status, bool) {
	var withStatus apierrors.APIStatus
	switch {
	case errors.As(err, &withStatus):
		return withStatus.Status(), true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the request timed out", 1).Status(), true
	}
	status := apierrors.NewInternalError(errors.New("see the server's log")).Status()
	status.Details = nil
	return status, false
}

// writeError writes an error as a Status.
func writeError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	status, shown := statusOf(err)
	if !shown {
		log.Error("query API: request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	writeStatus(w, status)
}

// writeStatus writes a Status, in JSON whatever the Accept header says, as API servers do
// where they cannot negotiate.
func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic("queryapi: a Status cannot be encoded: " + err.Error())
	}
	h := w.Header()
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Content-Length")
	w.WriteHeader(int(status.Code))
	// The client may be gone.
	_, _ = w.Write(append(body, '\n'))
}

// newStatusError returns an error with a code for which apierrors has no constructor.
func newStatusError(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}}
}

// statusWriter records the status code of a response, and turns errors in plain text, as
// some filters of k8s.io/apiserver write them, into Statuses.
type statusWriter struct {
	http.ResponseWriter
	code     int
	plain    bool // the body will be plain text to replace
	replaced bool // it has been replaced
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker where the connection can be had, for WebSockets.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.code = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

func (w *statusWriter) WriteHeader(code int) {
	if w.code != 0 {
		return
	}
	if code < http.StatusOK { // informational
		w.ResponseWriter.WriteHeader(code)
		return
	}
	w.code = code
	h := w.Header()
	kind := h.Get("Content-Type")
	if code >= http.StatusBadRequest && (kind == "" || strings.HasPrefix(kind, "text/plain")) {
		w.plain = true
		return // deferred until the body, which has the message
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.plain {
		return w.ResponseWriter.Write(b)
	}
	w.replaceText(b)
	return len(b), nil
}

// finish sends what has been deferred.
func (w *statusWriter) finish() {
	if w.plain {
		w.replaceText(nil)
	}
}

// replaceText writes a Status in place of text, once. Text may already be a Status without
// its type, as timeouts of k8s.io/apiserver are.
func (w *statusWriter) replaceText(text []byte) {
	if w.replaced {
		return
	}
	w.replaced = true
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && int(status.Code) == w.code {
		writeStatus(w.ResponseWriter, status)
		return
	}
	status = metav1.Status{
		Status: metav1.StatusFailure, Code: int32(w.code), Reason: statusReasons[w.code],
		Message: cmp.Or(strings.TrimSpace(string(text)), http.StatusText(w.code)),
	}
	if s := w.Header().Get("Retry-After"); s != "" {
		if n, err := strconv.ParseInt(s, 10, 32); err == nil {
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(n)}
		}
	}
	writeStatus(w.ResponseWriter, status)
}

// statusReasons are the reasons of codes that filters of k8s.io/apiserver write.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusNotAcceptable:       metav1.StatusReasonNotAcceptable,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// ReasonFor says to callers why a scope is not complete: what the member said of it may name addresses and credentials of others,
// and is for operators.
func ReasonFor(s aggregate.Status) string { return selection.ReasonFor(s) }
