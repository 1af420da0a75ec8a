package resources

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// targetMembers returns the members of a snapshot that the request is about.
func (w *watchStream) targetMembers(s *aggregate.Snapshot) map[string]aggregate.Member {
	out := map[string]aggregate.Member{}
	for m := range s.Members() {
		if w.answers(&m) {
			out[m.Name] = m
		}
	}
	return out
}

// sendMemberChanges handles members that joined, changed or left, before changes of objects
// are sent. Those that left stay in members until then.
func (w *watchStream) sendMemberChanges(batch *aggregate.Batch) error {
	if kind := w.resource.Kind; !slices.Equal(batch.Before.Resources(kind), batch.After.Resources(kind)) {
		if err := w.regrant(batch.After); err != nil {
			return err
		}
	}
	checked := false
	for d := range batch.Members() {
		if w.moved(d) {
			return w.endExpired()
		}
		if w.selectsByClusterLabels && !checked {
			w.memberLabels.record(batch.After)
			checked = true
		}
		if d.After == nil || !w.answers(d.After) {
			continue
		}
		if err := w.sendMemberChange(*d.After, batch.After); err != nil {
			return err
		}
	}
	return nil
}

func (w *watchStream) sendMemberChange(after aggregate.Member, at *aggregate.Snapshot) error {
	before, known := w.members[after.Name]
	w.members[after.Name] = after
	if known && w.selector.MatchesMember(before) != w.selector.MatchesMember(after) {
		if err := w.sendVisibilityChange(before, after, w.grants, w.grants); err != nil {
			return err
		}
	}
	if known && before.UID == after.UID || w.grants.Everything() {
		return nil
	}
	return w.regrant(at) // the grants list the members of their time
}

// regrant renews the grants as of a snapshot, and sends the changes of visibility. Objects
// may now be read under other resources than at the last step: each is authorized by its
// own.
func (w *watchStream) regrant(at *aggregate.Snapshot) error {
	grants, err := w.caller.Grants(w.r.Context(), selection.Watch, w.resource.Kind, at)
	if err != nil {
		return errors.Join(errWatchEnded, err) // grants are unknown
	}
	if err := w.checkWhole(grants); err != nil {
		return err
	}
	w.histories.release(w.history, w.grants)
	w.history, w.version = w.histories.record(w.historyKey(selection.Watch), grants)
	w.retainHistory()
	before, resources := w.grants, w.last.Resources(w.resource.Kind)
	grants = grants.FillFrom(before, resources)
	if len(resources) == 0 {
		resources = []string{""}
	}
	for _, name := range slices.Sorted(maps.Keys(w.members)) { // in a stable order
		m := w.members[name]
		if !slices.ContainsFunc(resources, func(of string) bool { return !before.EqualIn(name, of, grants) }) {
			continue
		}
		if err := w.sendVisibilityChange(m, m, before, grants); err != nil {
			return err
		}
	}
	w.grants = grants
	return nil
}

// checkGrantHistory checks that the client was sent what it has under the present grants, by
// a list or a watch; else it sets priorGrants, whose effects have to be sent again. The
// error says that the client has to list.
func (w *watchStream) checkGrantHistory() error {
	listed, err := w.listHistory()
	if err != nil {
		return err
	}
	histories := []*grantHistory{w.history}
	if listed != nil {
		histories = append(histories, listed)
	}
	for _, h := range histories {
		was, ok := w.histories.resume(h, w.sent, w.snapshot.Revision())
		if !ok {
			return Expired(w.sent)
		}
		w.priorGrants = append(w.priorGrants, was...)
	}
	return nil
}

// listHistory is the history of the grants of the caller's lists, nil if there is none.
//
// Where these differ from the grants of the watch, either they always do, or a grant has
// changed between the two decisions, each of which is cached. A watch that mistook one
// for the other would never send what was there before. So the grants of the watch must
// have been requested after those of lists were first decided, and these once more after
// that.
func (w *watchStream) listHistory() (*grantHistory, error) {
	key := w.historyKey(selection.List)
	listed, known := w.histories.getSince(key, w.sent)
	if !known {
		return nil, Expired(w.sent)
	}
	if listed == nil {
		var err error
		if listed, err = w.recallList(key); err != nil {
			return nil, err
		}
	}
	switch {
	case listed == nil || listed.equal(w.grants):
		return listed, nil
	}
	first, last := listed.reviewTimes()
	if requested, _ := w.grants.ReviewTimes(); requested.Before(first) {
		grants, err := w.caller.Grants(authz.WithDecisionsSince(w.r.Context(), first), selection.Watch, w.resource.Kind, w.snapshot)
		if err != nil {
			return nil, err
		}
		w.setGrants(grants)
		switch {
		case grants.Empty() && w.ask == nil:
			return nil, w.forbidden()
		case listed.equal(grants):
			return listed, nil
		}
	}
	_, decided := w.grants.ReviewTimes()
	if !decided.IsZero() && !last.Before(decided) {
		return listed, nil
	}
	grants, err := w.caller.Grants(authz.WithDecisionsSince(w.r.Context(), decided), selection.List, w.resource.Kind, w.snapshot)
	if err != nil {
		return nil, err
	}
	listed, _ = w.histories.record(key, grants)
	return listed, nil
}

// setGrants sets the grants of the watch.
func (w *watchStream) setGrants(grants *authz.Grants) {
	w.histories.release(w.history, w.grants)
	w.grants = grants
	w.history, w.version = w.histories.record(w.historyKey(selection.Watch), grants)
	w.retainHistory()
}

// retainHistory keeps the history while the watch uses it. If it was evicted, the grants are
// renewed before anything more is sent.
func (w *watchStream) retainHistory() {
	if !w.histories.retain(w.history) {
		w.version = -1
	}
}

// resendGrantChanges sends the effects of changes from prior grants at the revision that the
// client has. Events that it already has are sent twice.
func (w *watchStream) resendGrantChanges() error {
	for _, was := range w.priorGrants {
		for _, name := range slices.Sorted(maps.Keys(w.members)) {
			m := w.members[name]
			if err := w.sendVisibilityChange(m, m, was, w.grants); err != nil {
				return err
			}
		}
	}
	w.priorGrants = nil
	return w.sendDueBookmark()
}

// sendVisibilityChange sends ADDED and DELETED for objects of a member that become visible
// or hidden by a change of the member or of the grants, as of the last step: for all of
// them, even while the watch is ending. A client that had only some of them, and resumed
// from its revision, would never get the others.
func (w *watchStream) sendVisibilityChange(before, after aggregate.Member, was, is *authz.Grants) error {
	objects, err := w.last.List(aggregate.Query{Kind: w.resource.Kind, Members: []string{after.Name}, Namespace: w.namespace})
	if err != nil {
		return err
	}
	for o := range objects {
		saw, err := w.isVisible(before, o, was)
		if err != nil {
			return err
		}
		sees, err := w.isVisible(after, o, is)
		if err != nil {
			return err
		}
		if saw == sees {
			continue
		}
		w.bookmarkDue = true
		added, kind := addedMetadataOf(o), watch.Added
		if saw {
			added.revision, kind = w.last.Revision(), watch.Deleted
		}
		if err := w.send(kind, o, added); err != nil {
			return err
		}
	}
	return nil
}

// sendDueBookmark sends a bookmark once all visibility changes up to here are sent; one
// between them would let an interrupted client miss the others.
func (w *watchStream) sendDueBookmark() error {
	if !w.bookmarkDue {
		return nil
	}
	w.bookmarkDue = false
	return w.sendBookmark(nil)
}

// isVisible reports whether an object is selected and may be read.
func (w *watchStream) isVisible(m aggregate.Member, o aggregate.Object, grants *authz.Grants) (bool, error) {
	if o.IsZero() || w.namespace != "" && o.Namespace() != w.namespace || !grants.ForResource(o.Resource()).Member(m.Name).Allows(o.Namespace()) {
		return false, nil
	}
	return w.matcher.Matches(m, o, &w.scratch)
}
