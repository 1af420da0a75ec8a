package policysource

import (
	"io/fs"
	"maps"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Phase is how far a source's newest commit came.
type Phase string

// Phases: all but Pending, Active and Removed name the gate that was not passed.
const (
	Pending Phase = "Pending" // nothing was tried yet
	Invalid Phase = "Invalid" // the source itself makes no sense
	Fetch   Phase = "Fetch"
	Verify  Phase = "Verify"
	Content Phase = "Content"
	Compile Phase = "Compile"
	Lint    Phase = "Lint"
	Test    Phase = "Test"
	Diff    Phase = "Diff"
	Active  Phase = "Active"
	Removed Phase = "Removed" // it is gone, but others still need its policies
)

// Status is what there is to say about a source.
type Status struct {
	Source     string `json:"source"`
	Generation int64  `json:"generation"` // of the Source
	Phase      Phase  `json:"phase"`
	// Reason is a word in camel case: the phase's own, or what made it fail.
	Reason  string `json:"reason"`
	Message string `json:"message"` // bounded, without credentials
	// Findings are those of the newest commit, errors first, bounded. Files are paths in
	// the repository.
	Findings []policy.Finding `json:"findings,omitempty"`
	Newest   *Commit          `json:"newest,omitempty"` // the newest commit that was read
	Active   *Commit          `json:"active,omitempty"`
	Current  bool             `json:"current"` // as Policies.Current
	Diff     *Difference      `json:"diff,omitempty"`
	Contact  time.Time        `json:"contact"`  // when the remote last said which commit is newest
	Changed  time.Time        `json:"changed"`  // when Phase or Reason last changed
	Next     time.Time        `json:"next"`     // when the remote is asked again
	Failures int              `json:"failures"` // in a row, of what may pass by itself
	Fetches  int64            `json:"fetches"`  // commits that were read
}

// Policies are the active commit of a source.
type Policies struct {
	Commit Commit
	// Current says that the newest commit that was seen is this one. While it is
	// false, policies are to be observed, not enforced.
	Current  bool
	Since    time.Time // when it became active
	Files    policy.Source
	Tree     fs.FS    // below the path, immutable; with what is no policy, too
	Packages []string // names, sorted

	origin origin
}

// State is all sources at one moment. It is immutable.
type State struct {
	// Generation counts changes of Set, from 1.
	Generation uint64
	Set        *policy.Set // of all that is active, compiled together
	Policies   map[string]Policies
	Status     map[string]Status

	replaced chan struct{}
}

// Replaced is closed when there is a newer state.
func (s *State) Replaced() <-chan struct{} { return s.replaced }

// with returns a copy to change, before it is published.
func (s *State) with() *State {
	return &State{
		Generation: s.Generation, Set: s.Set, Policies: maps.Clone(s.Policies), Status: maps.Clone(s.Status),
		replaced: make(chan struct{}),
	}
}

// sources are what is active but for one, as Load takes it, in no order that
// matters to it.
func (s *State) sources(base []policy.Source, but string) []policy.Source {
	out := append([]policy.Source(nil), base...)
	for name, p := range s.Policies {
		if name != but {
			out = append(out, p.Files)
		}
	}
	return out
}

// packages returns the names of a source's packages.
func packages(set *policy.Set, source string) []string {
	var out []string
	for _, p := range set.Packages {
		if p.Source == source {
			out = append(out, p.Name)
		}
	}
	return out
}
