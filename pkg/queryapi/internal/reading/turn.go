package reading

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/access"
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
	looked := false
	for d := range batch.Members() {
		if w.byLabels && !looked {
			w.roster.look(batch.After)
			looked = true
		}
		if d.After == nil || !w.concerns(d.After.Name) {
			continue
		}
		if err := w.memberChanged(*d.After); err != nil {
			return err
		}
	}
	return nil
}

func (w *watching) memberChanged(after aggregate.Member) error {
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
	return w.regrant() // grants name the members that there were
}

// regrant asks again what may be read, and tells of what that changes.
func (w *watching) regrant() error {
	grants, err := w.caller.Grants(w.r.Context(), selection.Watch, w.resource.Kind)
	if err != nil {
		return errors.Join(errEnd, err) // nobody says any more that it may be read
	}
	before := w.grants
	for name, m := range w.members {
		if sameReach(before.Member(name), grants.Member(name)) {
			continue
		}
		if err := w.turn(m, m, before, grants); err != nil {
			return err
		}
	}
	w.grants = grants
	return nil
}

func sameReach(a, b access.Reach) bool {
	return a.All == b.All && slices.Equal(a.Namespaces, b.Namespaces)
}

// turn tells of the objects of a member that come into sight or leave it with a
// change of the member or of the grants, as of the last step: of all of them, even
// while the watch is ending. A client that has a part of them, and comes back to the
// revision that it has, would never hear of the others.
func (w *watching) turn(before, after aggregate.Member, was, is *access.Grants) error {
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
func (w *watching) sees(m aggregate.Member, o aggregate.Object, grants *access.Grants) (bool, error) {
	if o.IsZero() || w.namespace != "" && o.Namespace() != w.namespace || !grants.Member(m.Name).Allows(o.Namespace()) {
		return false, nil
	}
	return w.matcher.MatchObject(m, o, &w.scratch)
}
