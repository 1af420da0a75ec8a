// Package rego answers Rego questions of the query API: what a caller may list, of
// one State of the policies. It is between the query API, which knows no policies,
// and the policies, which know no callers.
package rego

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/queryapi"
)

// Question answers /query/v1/rego?query=…. It is safe for concurrent use.
type Question struct {
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
func (q Question) Answer(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	values := r.URL.Query()
	for name := range values {
		if name != "query" {
			return apierrors.NewBadRequest("parameter " + name + " is not supported")
		}
	}
	if len(values["query"]) != 1 || values.Get("query") == "" {
		return apierrors.NewBadRequest("parameter query is required, once: the Rego to evaluate")
	}
	reader, err := q.reader(r.Context(), caller)
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
func (q Question) of() (*aggregate.Snapshot, policy.Views) {
	if q.State != nil {
		if s := q.State(); s != nil {
			return s.Snapshot, s.Views()
		}
	}
	return q.Index.Snapshot(), nil
}

// grantedReader is a policy.Reader of what a caller of the query API may list.
// It asks for the grants of a kind when the kind is first read.
type grantedReader struct {
	ctx     context.Context //nolint:containedctx // lives for one request, in methods that take none
	caller  queryapi.Caller
	visible []string // members, sorted
	kinds   map[aggregate.Kind]schema.GroupResource
	grants  map[aggregate.Kind]*queryapi.Grants
	err     error // the first of asking
}

func (q Question) reader(ctx context.Context, caller queryapi.Caller) (*grantedReader, error) {
	visible, err := caller.Visible(ctx)
	if err != nil {
		return nil, err
	}
	r := &grantedReader{
		ctx: ctx, caller: caller, visible: visible,
		kinds: map[aggregate.Kind]schema.GroupResource{}, grants: map[aggregate.Kind]*queryapi.Grants{},
	}
	served, _ := q.Resources()
	for _, s := range served {
		r.kinds[s.Kind] = s.Resource.GroupResource()
	}
	return r, nil
}

// Member implements policy.Reader.
func (r *grantedReader) Member(member string) bool {
	_, ok := slices.BinarySearch(r.visible, member)
	return ok
}

// Scope implements policy.Reader.
func (r *grantedReader) Scope(member string, kind aggregate.Kind) bool {
	g := r.of(kind)
	return g != nil && !g.Member(member).None()
}

// Objects implements policy.Reader.
func (r *grantedReader) Objects(member string, kind aggregate.Kind, namespace string) bool {
	g := r.of(kind)
	return g != nil && g.Member(member).Allows(namespace)
}

// of returns the grants of a kind, nil when nobody can tell.
func (r *grantedReader) of(kind aggregate.Kind) *queryapi.Grants {
	if g, asked := r.grants[kind]; asked {
		return g
	}
	var g *queryapi.Grants
	if resource, known := r.kinds[kind]; known && r.err == nil {
		g, r.err = r.caller.Grants(r.ctx, "list", resource)
	}
	r.grants[kind] = g
	return g
}
