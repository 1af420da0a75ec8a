package aggregate

import (
	"errors"
	"fmt"
	"slices"
)

// State is the state of a scope.
type State uint8

// The states of a scope. A scope that has not been opened is Unknown.
const (
	Unknown    State = iota // nothing is known yet, or no longer
	NotServed               // not served by the member, by fresh discovery: known to be empty
	Forbidden               // the member forbids list or watch
	Syncing                 // the first list is in progress
	Synced                  // the scope holds all that the member has, and watches it
	Partial                 // as Synced, but restricted by configuration, as Reason says
	Stale                   // the member is unreachable: objects are as of the last contact
	OverBudget              // the scope was dropped: it exceeds a budget
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

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	i := slices.Index(stateNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("scope state %q is not known", b)
	}
	*s = State(i)
	return nil
}

// Complete reports whether a scope in this state is known to hold all of the member's
// objects of the kind.
func (s State) Complete() bool { return s == Synced || s == NotServed }

// Status is the status of a scope.
type Status struct {
	State  State
	Reason string // why, as text; what a Partial scope omits
	// Unread is whether some of it was not read yet, or by an earlier process only: other parts of it may
	// have another state.
	Unread bool
}

// Read reports whether all of what is held was read, or cannot be, by this process.
func (s Status) Read() bool { return s.State != Unknown && s.State != Syncing && !s.Unread }

// Member is what is known of a member, apart from its objects.
type Member struct {
	Name    string  // <namespace>/<name>
	UID     string  // of its Cluster
	Labels  []Label // of its Cluster, sorted by key
	Cluster Cluster
	Version string // of its API server, e.g. "v1.36.3"; "" when never reached
	APIs    []string
	// Discovery is what it served when it was last discovered, in the words of who discovers it,
	// who reads it again after a restart. Equal texts should be one string.
	Discovery string

	// Serves are the kinds that it serves, collected or not, sorted, by fresh discovery; nil
	// when that is not known. Silent are the groups for which discovery failed.
	Serves []Kind
	Silent []string

	// GivenUp is whether it had the time to be read and was not, all of it: who waits for all that
	// the fleet has does not wait for it. It is not kept over a restart.
	GivenUp bool

	// Role is what this process is to the member. It is not kept over a restart.
	Role Role
}

// Role is what a process is to a member, where several share a fleet. One that has a fleet alone judges all
// members.
type Role uint8

// The roles of a process.
const (
	Judge         Role = iota // reads the member, and judges its objects
	Standby                   // reads the member, which another process judges
	Joining                   // begins to read the member: another process judges it, and knows more of it
	StandbyUnread             // is a Standby that has not read all of the member yet: as Joining, the judge knows more of it
)

// StandsBy reports whether a process with the role answers for the member while the one that judges it does not.
func (r Role) StandsBy() bool { return r == Standby || r == StandbyUnread }

// KnowsLess reports whether a process with the role has read less of the member than the one that judges it.
func (r Role) KnowsLess() bool { return r == Joining || r == StandbyUnread }

// Cluster is what is known of a member's Cluster besides its labels: nothing, where there is
// none. Its size is bounded by the code that fills it in.
type Cluster struct {
	Annotations []Label     `json:",omitempty"` // sorted by key
	Paused      bool        `json:",omitempty"` // by its spec or an annotation
	Conditions  []Condition `json:",omitempty"` // sorted by type, each type once
	// Class and Version are those of its topology; both are "" where it has none.
	Class   string `json:",omitempty"`
	Version string `json:",omitempty"`
}

// Condition is one of a Cluster's conditions.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         string // as in RFC 3339; "" where it does not say
}

// Equal reports whether the same is known of two Clusters.
func (c *Cluster) Equal(o *Cluster) bool {
	return c.Paused == o.Paused && c.Class == o.Class && c.Version == o.Version &&
		slices.Equal(c.Annotations, o.Annotations) && slices.Equal(c.Conditions, o.Conditions)
}

// Plain returns what is known of a Cluster without what people and controllers write in
// their own words: annotations, and messages of conditions.
func (c *Cluster) Plain() Cluster {
	plain := *c
	plain.Annotations, plain.Conditions = nil, slices.Clone(c.Conditions)
	for i := range plain.Conditions {
		plain.Conditions[i].Message = ""
	}
	return plain
}

// SameMember reports whether a member is the same in another snapshot, with all that it has.
func (s *Snapshot) SameMember(name string, in *Snapshot) bool {
	is, ok := s.members.Get(&memberRoot{Member: Member{Name: name}})
	was, had := in.members.Get(&memberRoot{Member: Member{Name: name}})
	if ok != had || is != was {
		return false
	}
	return !ok || !slices.ContainsFunc(is.kinds, func(kind Kind) bool {
		now, _ := s.scope(name, kind)
		before, _ := in.scope(name, kind)
		return now != before
	})
}

// lacks reports whether a member is known not to serve a kind, which then needs no scope.
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
	// ErrNoMember is returned for a scope of a member that is not in the index.
	ErrNoMember = errors.New("member is not in the index")
	// ErrIdentity is returned for a member with the name of another that has not been
	// removed.
	ErrIdentity = errors.New("another member holds this name")
	// ErrScopeOpen is returned for a scope that already has a writer.
	ErrScopeOpen = errors.New("scope already has a writer")
	// ErrClosed is returned by a writer whose scope or member has been removed.
	ErrClosed = errors.New("scope is closed")
	// ErrExpired is returned for a revision that the change log no longer holds, or that
	// another process issued.
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
	return &memberRoot{Member: m.Member, kinds: slices.Concat(m.kinds[:i], []Kind{kind}, m.kinds[i:])}
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
	m.Cluster.Annotations, m.Cluster.Conditions = slices.Clone(m.Cluster.Annotations), slices.Clone(m.Cluster.Conditions)
	m.APIs, m.Serves, m.Silent = slices.Clone(m.APIs), slices.Clone(m.Serves), slices.Clone(m.Silent)
	return m
}

// memberSize returns about how many bytes a member has of its own.
func memberSize(m *Member) int64 {
	n := 512 + 16*(len(m.APIs)+len(m.Serves)+len(m.Silent))
	for _, labels := range [...][]Label{m.Labels, m.Cluster.Annotations} {
		for _, l := range labels {
			n += 32 + len(l.Key) + len(l.Value)
		}
	}
	for _, c := range m.Cluster.Conditions {
		n += 64 + len(c.Type) + len(c.Status)
	}
	return int64(n)
}

func equalMembers(a, b Member) bool {
	return a.Name == b.Name && a.UID == b.UID && a.Discovery == b.Discovery && a.Version == b.Version && a.GivenUp == b.GivenUp && a.Role == b.Role &&
		slices.Equal(a.Labels, b.Labels) && a.Cluster.Equal(&b.Cluster) && slices.Equal(a.APIs, b.APIs) &&
		(a.Serves == nil) == (b.Serves == nil) && slices.Equal(a.Serves, b.Serves) && slices.Equal(a.Silent, b.Silent)
}
