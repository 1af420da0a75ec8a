package clusterinformers

import (
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// Resources returns what members serve, kept or not, by kind and version, and a
// channel that is closed when it may have changed. The slice is shared and must
// not be changed.
func (m *Manager) Resources() ([]Resource, <-chan struct{}) {
	return m.catalog.Resources()
}

// Kinds returns the kinds that members serve, kept or not, and a channel that is
// closed when one is new or gone: not when it is only served otherwise, or called by
// another name. The map is shared and must not be changed.
func (m *Manager) Kinds() (map[aggregate.Kind]bool, <-chan struct{}) {
	return m.catalog.Kinds()
}

// Heard returns when a member last said anything of a kind, by which a member that is
// connected says that nothing of a kind that is followed has changed; the zero time when
// it has not, or is not asked.
func (m *Manager) Heard(member string, kind aggregate.Kind) time.Time {
	m.mu.Lock()
	mb := m.members[member]
	m.mu.Unlock()
	if mb == nil {
		return time.Time{}
	}
	mb.mu.Lock()
	r := mb.informers[kind]
	mb.mu.Unlock()
	if r == nil {
		return time.Time{}
	}
	if heard := r.details().since(mb.lastContact()); heard != nil {
		return *heard
	}
	return time.Time{}
}
