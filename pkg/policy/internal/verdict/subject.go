package verdict

import (
	"cmp"
	"fmt"
	"strings"

	"federator.dev/federator/pkg/aggregate"
)

// Subject is what a verdict is about: an object, a member or a key of a view.
// The package decides which of them.
type Subject struct {
	Ref aggregate.Ref `json:"ref,omitzero"` // of a member only Member is set
	Key string        `json:"key,omitempty"`
}

// String returns the subject for messages.
func (s Subject) String() string {
	switch {
	case s.Ref.Kind != "":
		return s.Ref.String()
	case s.Ref.Member != "":
		return s.Ref.Member
	}
	return fmt.Sprintf("%q", s.Key)
}

// Compare orders subjects by member, kind, namespace, name and key.
func (s Subject) Compare(o Subject) int {
	// Most that are compared are of one member and kind: each step ends it.
	if s.Ref.Member != o.Ref.Member {
		return strings.Compare(s.Ref.Member, o.Ref.Member)
	}
	if s.Ref.Kind != o.Ref.Kind {
		return cmp.Compare(s.Ref.Kind, o.Ref.Kind)
	}
	if s.Ref.Namespace != o.Ref.Namespace {
		return strings.Compare(s.Ref.Namespace, o.Ref.Namespace)
	}
	if c := strings.Compare(s.Ref.Name, o.Ref.Name); c != 0 {
		return c
	}
	return strings.Compare(s.Key, o.Key)
}
