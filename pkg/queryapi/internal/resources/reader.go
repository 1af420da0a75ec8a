package resources

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// byFederator reports whether another federator reads a member: then what it gets is complete, or an error, and
// says in which state the scope is. See package federation.
func (q *request) byFederator() bool {
	return q.target.Member != "" && q.r.Header.Get(federation.ReaderHeader) != "" && q.info.Verb != selection.Get
}

// checkWhole refuses another federator what it may read only some of: the rest would look as if it were not there.
func (q *request) checkWhole(grants *authz.Grants) error {
	if !q.byFederator() {
		return nil
	}
	grant := grants.Member(q.target.Member)
	if grant.All || q.namespace != "" && grant.Allows(q.namespace) {
		return nil
	}
	return apierrors.NewForbidden(q.resource.Resource.GroupResource(), "",
		fmt.Errorf("user %q, a federator, may not %s all of it in member %q", q.caller.User().GetName(), q.info.Verb, q.target.Member))
}

// scopeStatus is the state of the scope in a snapshot, with a reason for other federators.
func (q *request) scopeStatus(s *aggregate.Snapshot) aggregate.Status {
	info, _ := s.Scope(q.target.Member, q.resource.Kind)
	status := aggregate.Status{State: info.Status.State}
	if !status.State.Complete() {
		status.Reason = selection.NewNotSynced(info, nil, q.options.Now()).Reason
	}
	return status
}

// setScopeHeader says in the answer in which state the scope is.
func (q *request) setScopeHeader() {
	if q.byFederator() {
		q.w.Header().Set(federation.ScopeHeader, federation.FormatStatus(q.scopeStatus(q.snapshot)))
	}
}

// tellScope sends the state of the scope, where it is another. One that takes something away comes before the events
// of its time, any other after them.
func (w *watchStream) tellScope(at *aggregate.Snapshot, before bool) error {
	if !w.byFederator() {
		return nil
	}
	is := w.scopeStatus(at)
	if is == w.told || before && is.State.Complete() {
		return nil
	}
	w.told = is
	if err := w.sendBookmark(map[string]string{federation.ScopeAnnotation: federation.FormatStatus(is)}); err != nil {
		return err
	}
	return w.flush() // however much follows
}

// checkMember ends the watch of another federator where the member has left, or is another: what it had
// was not deleted.
func (w *watchStream) checkMember(before, after *aggregate.Snapshot) error {
	if !w.byFederator() {
		return nil
	}
	was, _ := before.Member(w.target.Member)
	is, there := after.Member(w.target.Member)
	if there && is.UID == was.UID {
		return nil
	}
	err := w.notFound()
	err.ErrStatus.Message = fmt.Sprintf("member %q has left", w.target.Member)
	return err
}
