package policysource

// ErrInvalidName is exported for tests.
var ErrInvalidName = errInvalidName

// Active returns the active policies of each source that has any.
func (m *Manager) Active() map[string]Policies { return m.State().Policies }

// Status returns the status of a source, and whether there is one.
func (m *Manager) Status(name string) (Status, bool) {
	s, ok := m.State().Status[name]
	return s, ok
}
