package answers

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Rego answers /query/v1/rego?query=…: over what the caller may list. It is safe for
// concurrent use.
type Rego struct {
	Index     *aggregate.Index
	Resources func() ([]queryapi.Served, <-chan struct{}) // of the query API's Fleet
	State     func() *policy.State                        // of the policies; nil without
}

// Bounds of one query: somebody else waits for the same processors.
const (
	timeout = 5 * time.Second
	maxRead = 64 << 20
	maxRows = 10_000
)

// Answer implements queryapi.Question.
func (q Rego) Answer(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	for name := range values {
		if !slices.ContainsFunc(regoParameters, func(p queryapi.Parameter) bool { return p.Name == name }) {
			return apierrors.NewBadRequest("parameter " + name + " is not supported")
		}
	}
	if len(values["query"]) != 1 || values.Get("query") == "" {
		return apierrors.NewBadRequest("parameter query is required, once: the Rego to evaluate")
	}
	reader, err := newReader(r.Context(), caller, q.Resources)
	if err != nil {
		return err
	}
	snapshot, views := q.of()
	answer, err := policy.Query(r.Context(), policy.QueryOptions{
		Snapshot: snapshot, Views: views, Reader: reader, Timeout: timeout, MaxRead: maxRead, MaxRows: maxRows,
	}, values.Get("query"))
	switch {
	case reader.err != nil: // what was denied for want of an answer is no answer
		return reader.err
	case errors.Is(err, policy.ErrQuery):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, policy.ErrQueryLimit):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return err
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the caller may be gone
	return nil
}

// of returns what is asked: the newest verdicts' snapshot and views, or the newest
// snapshot where there are no policies.
func (q Rego) of() (*aggregate.Snapshot, policy.Views) {
	if q.State != nil {
		if s := q.State(); s != nil {
			return s.Snapshot, s.Views()
		}
	}
	return q.Index.Snapshot(), nil
}
