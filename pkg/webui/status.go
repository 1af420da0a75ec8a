package webui

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeJSON writes an answer that is the caller's alone.
func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		writeStatus(w, apierrors.NewInternalError(errors.New("the answer cannot be encoded")).Status())
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}

func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusInternalServerError
	}
	writeJSON(w, int(status.Code), status)
}

// writeError writes an error that is a Status; others are not sent.
func (u *UI) writeError(w http.ResponseWriter, r *http.Request, err error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		writeStatus(w, status.Status())
		return
	}
	u.log.Error("web UI: request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	writeStatus(w, apierrors.NewInternalError(errors.New("see the server's log")).Status())
}

func notFound(w http.ResponseWriter) {
	writeStatus(w, newStatus(http.StatusNotFound, metav1.StatusReasonNotFound, "nothing is served here").Status())
}

func methodNotAllowed(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	writeStatus(w, newStatus(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only "+allowed+" are supported").Status())
}

func forbidden(why string) *apierrors.StatusError {
	return newStatus(http.StatusForbidden, metav1.StatusReasonForbidden, why)
}

func newStatus(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}}
}

// checkOrigin refuses requests that the UI's own pages did not send. One without these headers is from no
// browser, and has its credentials in Authorization: cookies need them.
func (u *UI) checkOrigin(r *http.Request) *apierrors.StatusError {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" || u.origins.Check(r) != nil {
		return forbidden("the request is not from a page of this server")
	}
	return nil
}

// decode reads a body that is one JSON object with known fields only.
func decode(r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return newStatus(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the body must be application/json")
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return apierrors.NewBadRequest("the body: " + err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return apierrors.NewBadRequest("the body has more than one JSON object")
	}
	return nil
}
