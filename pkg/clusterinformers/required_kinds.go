package clusterinformers

import (
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// requiredKinds are the kinds that are read, in addition to those that the rules of the options
// select, and since when each is.
type requiredKinds struct {
	mu    sync.RWMutex
	since map[aggregate.Kind]time.Time
}

// set exchanges the kinds and reports whether there are others than before, and
// whether some are new.
func (w *requiredKinds) set(kinds []aggregate.Kind, now time.Time) (changed, added bool) {
	next := make(map[aggregate.Kind]time.Time, len(kinds))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kind := range kinds {
		since, known := w.since[kind]
		if !known {
			since, added = now, true
		}
		next[kind] = since
	}
	changed = added || len(next) != len(w.since)
	w.since = next
	return changed, added
}

// sinceWhen returns since when a kind has been required, and whether it is.
func (w *requiredKinds) sinceWhen(kind aggregate.Kind) (time.Time, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	since, ok := w.since[kind]
	return since, ok
}

func (w *requiredKinds) kinds() []aggregate.Kind {
	w.mu.RLock()
	defer w.mu.RUnlock()
	kinds := make([]aggregate.Kind, 0, len(w.since))
	for kind := range w.since {
		kinds = append(kinds, kind)
	}
	return kinds
}

// RequireKinds sets the kinds that are read, such as by the policies that are loaded;
// kinds that are not named any more are no longer required. They are
// held as though rules for them came after those of Options.Kinds: one that
// excludes a kind, or narrows it, holds. In a member that does not serve a kind
// that is required, or that a rule names without *, the kind's scope is NotServed,
// which means known to be empty; it is so once the member was discovered after
// the kind was required. Scopes of kinds that are not required and no rule selects are
// taken out of the index. RequireKinds may be called before Run, and at any time.
func (m *Manager) RequireKinds(kinds []aggregate.Kind) {
	changed, added := m.required.set(kinds, time.Now())
	if !changed {
		return
	}
	m.catalog.Notify()
	if !added {
		return
	}
	for _, mb := range m.sortedMembers() {
		mb.triggerDiscovery()
	}
}

// rule returns the rule that decides on a kind, and whether the kind is kept.
func (m *Manager) rule(kind aggregate.Kind) (KindRule, bool) {
	if r, ok := m.opts.matchRule(kind); ok {
		return r, !r.Exclude
	}
	_, wanted := m.required.sinceWhen(kind)
	return KindRule{}, wanted || m.opts.keepsUnmatched(kind)
}

// namedKinds are the kinds that must have a scope in every member, served or not.
func (m *Manager) namedKinds() []aggregate.Kind {
	kinds := m.required.kinds()
	for _, r := range m.opts.Kinds {
		if kind := aggregate.Kind(r.Kind); r.Kind[0] != '*' && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
