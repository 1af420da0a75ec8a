package aggregate

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Part is how far a member has been read for a part of a scope: whoever holds the scope as it
// is resumes from there and misses nothing.
type Part struct {
	Namespace       string // "" for the entire scope
	ResourceVersion string // of the member
	// Served says, in the words of who reads the member, what else determines the content of what
	// it serves, as its version does. What was read otherwise cannot be continued.
	Served string
}

// reach is the parts of one root of a scope. It goes on after the root was published for as
// long as nothing in the scope changes.
type reach struct {
	parts atomic.Pointer[[]Part] // the slice is immutable
}

func (r *reach) list() []Part {
	if r == nil {
		return nil
	}
	if p := r.parts.Load(); p != nil {
		return *p
	}
	return nil
}

// Reached says that the scope has, with the changes that were made and not committed, all that
// the member had at the resourceVersion of the part. The next Commit or Replace records it, in
// one step with these changes; it is no change of its own and takes no revision. Without a
// resourceVersion it says that this is not known.
func (s *Scope) Reached(p Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := slices.BinarySearchFunc(s.parts, p.Namespace, func(p Part, namespace string) int { return strings.Compare(p.Namespace, namespace) })
	switch {
	case known && s.parts[i] == p, !known && p.ResourceVersion == "":
		return
	case known && p.ResourceVersion == "":
		s.parts = slices.Delete(slices.Clone(s.parts), i, i+1)
	default:
		p.ResourceVersion = strings.Clone(p.ResourceVersion)
		if s.parts = slices.Clone(s.parts); known {
			s.parts[i] = p
		} else {
			s.parts = slices.Insert(s.parts, i, p)
		}
	}
	s.moved = true
}

// advance records what was reached without a change of the scope. s.mu must be held, and
// nothing be left to commit.
func (s *Scope) advance() {
	if !s.moved || s.last == nil {
		return
	}
	parts := s.parts
	s.last.reach.parts.Store(&parts)
	s.moved = false
}

// newReach returns what was reached, for the next root. s.mu must be held.
func (s *Scope) newReach() *reach {
	r := &reach{}
	if parts := s.parts; len(parts) > 0 {
		r.parts.Store(&parts)
	}
	s.moved = false
	return r
}

// Reached returns how far the member had been read for a scope of the snapshot, by namespace.
// It goes on while the scope does not change. The slice is shared and must not be changed.
func (s *Snapshot) Reached(member string, kind Kind) []Part {
	r, ok := s.scope(member, kind)
	if !ok {
		return nil
	}
	return r.reach.list()
}
