package verdict

import (
	"cmp"
	"fmt"

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
	return cmp.Or(
		cmp.Compare(s.Ref.Member, o.Ref.Member), cmp.Compare(s.Ref.Kind, o.Ref.Kind),
		cmp.Compare(s.Ref.Namespace, o.Ref.Namespace), cmp.Compare(s.Ref.Name, o.Ref.Name),
		cmp.Compare(s.Key, o.Key))
}
