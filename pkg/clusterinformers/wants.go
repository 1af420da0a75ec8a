package clusterinformers

import (
	"slices"
	"sync"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// wants are the kinds that are read, beside those that the rules of the options
// select, and since when each is.
type wants struct {
	mu    sync.RWMutex
	since map[aggregate.Kind]time.Time
}

// set exchanges the kinds and reports whether there are others than before, and
// whether some are new.
func (w *wants) set(kinds []aggregate.Kind, now time.Time) (changed, added bool) {
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

// at returns since when a kind has been wanted, and whether it is.
func (w *wants) at(kind aggregate.Kind) (time.Time, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	since, ok := w.since[kind]
	return since, ok
}

func (w *wants) kinds() []aggregate.Kind {
	w.mu.RLock()
	defer w.mu.RUnlock()
	kinds := make([]aggregate.Kind, 0, len(w.since))
	for kind := range w.since {
		kinds = append(kinds, kind)
	}
	return kinds
}

// Want sets the kinds that somebody reads, such as the policies that are loaded;
// what was wanted before and is not named any more is not wanted now. They are
// followed as though rules for them came after those of Options.Kinds: one that
// excludes a kind, or narrows it, holds. In a member that does not serve a kind
// that is wanted, or that a rule names without *, the kind's scope is NotServed,
// which means known to be empty; it is so once the member has been asked after
// the kind was wanted. Scopes of kinds that nobody wants and no rule selects are
// taken out of the index. Want may be called before Run, and at any time.
func (m *Manager) Want(kinds []aggregate.Kind) {
	changed, added := m.wants.set(kinds, time.Now())
	if !changed {
		return
	}
	m.catalog.Notify()
	if !added {
		return
	}
	for _, mb := range m.list() {
		mb.nudge()
	}
}

// rule returns the rule that decides on a kind, and whether the kind is kept.
func (m *Manager) rule(kind aggregate.Kind) (KindRule, bool) {
	if r, ok := m.opts.match(kind); ok {
		return r, !r.Exclude
	}
	_, wanted := m.wants.at(kind)
	return KindRule{}, wanted || m.opts.keepsRest(kind)
}

// named are the kinds that must have a scope in every member, served or not.
func (m *Manager) named() []aggregate.Kind {
	kinds := m.wants.kinds()
	for _, r := range m.opts.Kinds {
		if kind := aggregate.Kind(r.Kind); r.Kind[0] != '*' && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
