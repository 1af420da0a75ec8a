package remediate

import (
	"cmp"
	"maps"
)

// Stops are what must not be written to. Each value says who has stopped it, since when and
// why; an empty one counts as a stop, too.
type Stops struct {
	All      string            // everything; "" for no such stop. Unknown stops are one of everything.
	Policies map[string]string // by name
	Members  map[string]string
	Sources  map[string]string // PolicySources, by name
}

func (s Stops) clone() Stops {
	s.Policies, s.Members, s.Sources = maps.Clone(s.Policies), maps.Clone(s.Members), maps.Clone(s.Sources)
	return s
}

// policy returns why nothing is written for a policy of a source, "" if something may be.
func (s *Stops) policy(name, source string) string {
	if s.All != "" {
		return "all actions are stopped: " + s.All
	}
	if why, ok := s.Policies[name]; ok {
		return "the policy is stopped: " + cmp.Or(why, "for no given reason")
	}
	if why, ok := s.Sources[source]; ok && source != "" {
		return "its source " + source + " is stopped: " + cmp.Or(why, "for no given reason")
	}
	return ""
}

// member returns why nothing is written to a member, "" if something may be.
func (s *Stops) member(name string) string {
	if why, ok := s.Members[name]; ok {
		return "member " + name + " is stopped: " + cmp.Or(why, "for no given reason")
	}
	return ""
}
