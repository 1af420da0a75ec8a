package aggregate

import (
	"errors"
	"fmt"
	"slices"
)

// State is the state of a scope.
type State uint8

// The states of a scope. A scope that nobody has opened is Unknown.
const (
	Unknown    State = iota // nothing is known yet, or not any more
	NotServed               // fresh discovery says the member does not serve the kind: known to be empty
	Forbidden               // the member refuses list or watch
	Syncing                 // the first list is under way
	Synced                  // the scope holds all the member has, and follows
	Partial                 // as Synced, but narrowed by configuration: Reason says of what
	Stale                   // the member is out of reach: objects are as of the last contact
	OverBudget              // the scope was given up on: it exceeds a budget
	stateCount
)

var stateNames = [stateCount]string{
	"Unknown", "NotServed", "Forbidden", "Syncing", "Synced", "Partial", "Stale", "OverBudget",
}

func (s State) String() string {
	if s < stateCount {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("scope state %q is not known", b)
	}
	*s = State(i)
	return nil
}

// Complete reports whether a scope in this state is known to hold all that the
// member has of the kind.
func (s State) Complete() bool { return s == Synced || s == NotServed }

// Status is what is known of a scope beside its objects.
type Status struct {
	State  State
	Reason string // why, in words; what a Partial scope leaves out
}

// Member is what is known of a member beside its objects.
type Member struct {
	Name    string  // <namespace>/<name>
	UID     string  // of its Cluster
	Labels  []Label // of its Cluster, sorted by key
	Version string  // of its API server, e.g. "v1.36.3"; "" when never reached
	APIs    []string

	// Serves are the kinds that it serves, held or not, sorted, as fresh discovery
	// says; nil when that is not known. Silent are the groups that discovery could
	// not tell of.
	Serves []Kind
	Silent []string
}

// lacks reports whether a member is known not to serve a kind: such kinds need no
// scope in it.
func (m *memberRoot) lacks(kind Kind) bool {
	if m.Serves == nil {
		return false
	}
	if _, serves := slices.BinarySearch(m.Serves, kind); serves {
		return false
	}
	_, group := kind.Split()
	return !slices.Contains(m.Silent, group)
}

// Errors that callers branch on.
var (
	// ErrNoMember is returned for a scope of a member that has not joined.
	ErrNoMember = errors.New("member is not in the index")
	// ErrIdentity is returned for a member that joins under the name of
	// another that has not left.
	ErrIdentity = errors.New("another member holds this name")
	// ErrScopeOpen is returned for a scope that already has a writer.
	ErrScopeOpen = errors.New("scope already has a writer")
	// ErrClosed is returned by a writer whose scope or member has left.
	ErrClosed = errors.New("scope is closed")
	// ErrExpired is returned for a revision that the change log no longer
	// holds, or that another process gave.
	ErrExpired = errors.New("revision is too old")
	// ErrFuture is returned for a revision that has not been reached.
	ErrFuture = errors.New("revision is in the future")
	// ErrNotIndexed is returned for a field that the kind does not declare.
	ErrNotIndexed = errors.New("field is not indexed")
)

// memberRoot is a member in a snapshot. Immutable.
type memberRoot struct {
	Member
	kinds []Kind // kinds of its scopes, sorted
}

func lessMember(a, b *memberRoot) bool { return a.Name < b.Name }

func (m *memberRoot) with(kind Kind) *memberRoot {
	i, found := slices.BinarySearch(m.kinds, kind)
	if found {
		return m
	}
	return &memberRoot{Member: m.Member, kinds: slices.Insert(slices.Clone(m.kinds), i, kind)}
}

func (m *memberRoot) without(kind Kind) *memberRoot {
	i, found := slices.BinarySearch(m.kinds, kind)
	if !found {
		return m
	}
	return &memberRoot{Member: m.Member, kinds: slices.Delete(slices.Clone(m.kinds), i, i+1)}
}

func cloneMember(m Member) Member {
	m.Labels = slices.Clone(m.Labels)
	m.APIs, m.Serves, m.Silent = slices.Clone(m.APIs), slices.Clone(m.Serves), slices.Clone(m.Silent)
	return m
}

func equalMembers(a, b Member) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Version == b.Version &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.APIs, b.APIs) &&
		(a.Serves == nil) == (b.Serves == nil) && slices.Equal(a.Serves, b.Serves) && slices.Equal(a.Silent, b.Silent)
}
