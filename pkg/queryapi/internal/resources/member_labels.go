package resources

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// memberLabels records the labels of members when a list or watch that selects by them was
// last sent anything. The change log does not have them, so a watch cannot be resumed
// across a change of labels.
type memberLabels struct {
	mu       sync.Mutex
	revision aggregate.Revision // of labels
	labels   map[string][]aggregate.Label
	changed  aggregate.Revision // no label has changed since, among the recorded snapshots
}

// record records the members of a snapshot that a client is sent.
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

// unchanged reports whether all members are still there with the same labels. Members that
// have joined were not sent before.
func unchanged(before, after map[string][]aggregate.Label) bool {
	for name, had := range before {
		if has, ok := after[name]; !ok || !slices.Equal(had, has) {
			return false
		}
	}
	return true
}

// changedSince reports whether labels of members may have changed since a client was sent
// a revision.
func (r *memberLabels) changedSince(sent aggregate.Revision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed > sent
}

// selectsByClusterLabels reports whether a selector, which is known to be valid, uses labels
// of Clusters, which may change.
func selectsByClusterLabels(selector string) bool {
	requirements, err := labels.ParseToRequirements(selector)
	if err != nil {
		panic("resources: cannot parse a selector that was compiled: " + err.Error())
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
