// Package serverurls knows which member's API server a URL is of, as long as it is of one only.
package serverurls

import "sync"

// Set has the URLs of members' API servers. The zero Set is of no members. Its methods are safe
// for concurrent use, and take the same time however many members there are.
type Set[M comparable] struct {
	mu      sync.Mutex
	urls    map[M]string   // of all members; "" as long as it is not known
	members map[string]int // how many members have a URL
}

// Add adds a member whose URL is not known yet.
func (s *Set[M]) Add(member M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.urls == nil {
		s.urls, s.members = map[M]string{}, map[string]int{}
	}
	if _, added := s.urls[member]; !added {
		s.urls[member] = ""
	}
}

// Put sets the URL of a member, "" for none. One that was removed, or never added, stays out:
// it may still be connecting while it leaves.
func (s *Set[M]) Put(member M, url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, added := s.urls[member]; !added {
		return
	}
	s.releaseLocked(member)
	s.urls[member] = url
	if url != "" {
		s.members[url]++
	}
}

// Remove removes a member.
func (s *Set[M]) Remove(member M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(member)
	delete(s.urls, member)
}

// releaseLocked no longer counts a member's URL as the member's.
func (s *Set[M]) releaseLocked(member M) {
	url := s.urls[member]
	if url == "" {
		return
	}
	if s.members[url]--; s.members[url] == 0 {
		delete(s.members, url)
	}
}

// Unique returns the URL of a member, "" where it is not known or another member has the same.
func (s *Set[M]) Unique(member M) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if url := s.urls[member]; s.members[url] == 1 {
		return url
	}
	return ""
}
