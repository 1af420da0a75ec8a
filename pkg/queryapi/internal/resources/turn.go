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

// watched returns the members of a snapshot that may be seen.
func (w *watching) watched(s *aggregate.Snapshot) map[string]aggregate.Member {
	out := map[string]aggregate.Member{}
	for m := range s.Members() {
		if w.concerns(m.Name) {
			out[m.Name] = m
		}
	}
	return out
}

// membersChanged takes note of members that joined, changed or left, before
// the changes of objects are told. Those that left stay known until then.
func (w *watching) membersChanged(batch *aggregate.Batch) error {
	if kind := w.resource.Kind; !slices.Equal(batch.Before.Resources(kind), batch.After.Resources(kind)) {
		if err := w.regrant(batch.After); err != nil {
			return err
		}
	}
	looked := false
	for d := range batch.Members() {
		if w.byLabels && !looked {
			w.roster.look(batch.After)
			looked = true
		}
		if d.After == nil || !w.concerns(d.After.Name) {
			continue
		}
		if err := w.memberChanged(*d.After, batch.After); err != nil {
			return err
		}
	}
	return nil
}

func (w *watching) memberChanged(after aggregate.Member, at *aggregate.Snapshot) error {
	before, known := w.members[after.Name]
	w.members[after.Name] = after
	if known && w.selector.MatchMember(before) != w.selector.MatchMember(after) {
		if err := w.turn(before, after, w.grants, w.grants); err != nil {
			return err
		}
	}
	if known && before.UID == after.UID || w.grants.Everything() {
		return nil
	}
	return w.regrant(at) // grants name the members that there were
}

// regrant asks again what may be read up to a snapshot, and tells of what that
// changes. What is held by then may have been read under other resources than what
// was held at the last step: both are judged by their own.
func (w *watching) regrant(at *aggregate.Snapshot) error {
	grants, err := w.caller.Grants(w.r.Context(), selection.Watch, w.resource.Kind, at)
	if err != nil {
		return errors.Join(errEnd, err) // nobody says any more that it may be read
	}
	w.granted.release(w.history, w.grants)
	w.history, w.version = w.granted.look(w.historyKey(selection.Watch), grants)
	w.hold()
	before, resources := w.grants, w.behind.Resources(w.resource.Kind)
	grants = grants.Beside(before, resources)
	if len(resources) == 0 {
		resources = []string{""}
	}
	for _, name := range slices.Sorted(maps.Keys(w.members)) { // the same each time
		m := w.members[name]
		if !slices.ContainsFunc(resources, func(of string) bool { return !before.SameIn(name, of, grants) }) {
			continue
		}
		if err := w.turn(m, m, before, grants); err != nil {
			return err
		}
	}
	w.grants = grants
	return nil
}

// sameGrants reports whether the client was told what it has by what is granted now, be
// it by a list or a watch; or else notes what has to be told again. The error is that it
// has to list.
func (w *watching) sameGrants() error {
	listed, err := w.listed()
	if err != nil {
		return err
	}
	histories := []*history{w.history}
	if listed != nil {
		histories = append(histories, listed)
	}
	for _, h := range histories {
		was, ok := h.resume(w.sent, w.snapshot.Revision())
		if !ok {
			return expired(w.sent)
		}
		w.was = append(w.was, was...)
	}
	return nil
}

// listed is the history of what the caller's lists are granted, nil if there is none.
//
// Where that is something else than what the watch is granted, it may always be so, or a
// grant has come or gone between the two answers, each of which is kept for a while. A
// watch that takes the one for the other never tells what was there before. So the
// watch's must have been asked for after lists were first granted what they are, and
// these once more after it.
func (w *watching) listed() (*history, error) {
	key := w.historyKey(selection.List)
	listed, known := w.granted.recall(key, w.sent)
	switch {
	case !known:
		return nil, expired(w.sent)
	case listed == nil || listed.same(w.grants):
		return listed, nil
	}
	first, last := listed.span()
	if asked, _ := w.grants.Asked(); asked.Before(first) {
		grants, err := w.caller.Grants(authz.AskedSince(w.r.Context(), first), selection.Watch, w.resource.Kind, w.snapshot)
		if err != nil {
			return nil, err
		}
		w.take(grants)
		switch {
		case grants.None():
			return nil, w.forbidden()
		case listed.same(grants):
			return listed, nil
		}
	}
	_, answered := w.grants.Asked()
	if !answered.IsZero() && !last.Before(answered) {
		return listed, nil
	}
	grants, err := w.caller.Grants(authz.AskedSince(w.r.Context(), answered), selection.List, w.resource.Kind, w.snapshot)
	if err != nil {
		return nil, err
	}
	listed, _ = w.granted.look(key, grants)
	return listed, nil
}

// take has the watch go by these grants.
func (w *watching) take(grants *authz.Grants) {
	w.granted.release(w.history, w.grants)
	w.grants = grants
	w.history, w.version = w.granted.look(w.historyKey(selection.Watch), grants)
	w.hold()
}

// hold keeps the history while the watch uses it. One that was forgotten is looked for
// again before anything more is told.
func (w *watching) hold() {
	if !w.granted.hold(w.history) {
		w.version = -1
	}
}

// retell tells what changes of grants brought and took of what there is at the revision
// that the client has, as it may have been told by those before: what it has already it
// is told twice.
func (w *watching) retell() error {
	for _, was := range w.was {
		for _, name := range slices.Sorted(maps.Keys(w.members)) {
			m := w.members[name]
			if err := w.turn(m, m, was, w.grants); err != nil {
				return err
			}
		}
	}
	w.was = nil
	return w.turnedAt()
}

// turn tells of the objects of a member that come into sight or leave it with a
// change of the member or of the grants, as of the last step: of all of them, even
// while the watch is ending. A client that has a part of them, and comes back to the
// revision that it has, would never hear of the others.
func (w *watching) turn(before, after aggregate.Member, was, is *authz.Grants) error {
	objects, err := w.behind.List(aggregate.Query{Kind: w.resource.Kind, Members: []string{after.Name}, Namespace: w.namespace})
	if err != nil {
		return err
	}
	for o := range objects {
		saw, err := w.sees(before, o, was)
		if err != nil {
			return err
		}
		sees, err := w.sees(after, o, is)
		if err != nil {
			return err
		}
		if saw == sees {
			continue
		}
		w.turned = true
		st, kind := stampOf(o), watch.Added
		if saw {
			st.revision, kind = w.behind.Revision(), watch.Deleted
		}
		if err := w.event(kind, o, st); err != nil {
			return err
		}
	}
	return nil
}

// turnedAt says with a bookmark that all turns up to here have been told; one
// between them would let a client that is cut off miss the others.
func (w *watching) turnedAt() error {
	if !w.turned {
		return nil
	}
	w.turned = false
	return w.bookmark(nil)
}

// sees reports whether an object is watched.
func (w *watching) sees(m aggregate.Member, o aggregate.Object, grants *authz.Grants) (bool, error) {
	if o.IsZero() || w.namespace != "" && o.Namespace() != w.namespace || !grants.For(o.Resource()).Member(m.Name).Allows(o.Namespace()) {
		return false, nil
	}
	return w.matcher.MatchObject(m, o, &w.scratch)
}
