package shards

// Released reports whether a process has ended in order, and has not come back: it may answer for a moment still.
func (s *Shards) Released(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases.Released(id)
}
