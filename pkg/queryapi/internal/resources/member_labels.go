package resources

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// memberLabels remembers what labels members had when somebody who selects by them
// last was told anything. The log of changes does not have them, so that a
// watch cannot be resumed across a change of theirs.
type memberLabels struct {
	mu       sync.Mutex
	revision aggregate.Revision // that labels are of
	labels   map[string][]aggregate.Label
	changed  aggregate.Revision // none has changed since, among the states looked at
}

// record takes note of the members of a snapshot that a client is told of.
func (r *memberLabels) record(s *aggregate.Snapshot) {
	seen := map[string][]aggregate.Label{}
	for m := range s.Members() {
		seen[m.Name] = m.Labels
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.labels == nil:
		r.revision, r.labels, r.changed = s.Revision(), seen, s.Revision()
	case s.Revision() > r.revision:
		if !unchanged(r.labels, seen) {
			r.changed = s.Revision()
		}
		r.revision, r.labels = s.Revision(), seen
	case !unchanged(seen, r.labels): // an older snapshot
		r.changed = r.revision
	}
}

// unchanged reports whether all members are still there, with the labels that
// they had. One that has joined was not told of before.
func unchanged(before, after map[string][]aggregate.Label) bool {
	for name, had := range before {
		if has, ok := after[name]; !ok || !slices.Equal(had, has) {
			return false
		}
	}
	return true
}

// changedSince reports whether labels of members may have changed since a
// client was told of a revision.
func (r *memberLabels) changedSince(told aggregate.Revision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed > told
}

// selectsByClusterLabels reports whether a selector, which is known to be valid, says
// anything of labels that members may change.
func selectsByClusterLabels(selector string) bool {
	requirements, err := labels.ParseToRequirements(selector)
	if err != nil {
		panic("reading: a selector that was compiled cannot be parsed: " + err.Error())
	}
	for _, r := range requirements {
		switch r.Key() {
		case selection.MemberKey, selection.MemberNamespaceKey, selection.MemberNameKey:
			continue
		}
		if selection.IsMemberLabel(r.Key()) {
			return true
		}
	}
	return false
}
