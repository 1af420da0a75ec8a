package policysource

import (
	"io/fs"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/pkg/policy"
)

// Phase is how far a source's newest commit has come.
type Phase string

// Phases. All but Pending, Rollout, Active and Removed name the gate that failed.
const (
	Pending Phase = "Pending" // not checked yet
	Invalid Phase = "Invalid" // the source itself is invalid
	Fetch   Phase = "Fetch"
	Verify  Phase = "Verify"
	Content Phase = "Content"
	Compile Phase = "Compile"
	Lint    Phase = "Lint"
	Test    Phase = "Test"
	Diff    Phase = "Diff"
	Rollout Phase = "Rollout" // all other gates have passed: it is a candidate, or was taken back
	Active  Phase = "Active"
	Removed Phase = "Removed" // no longer listed, but others still need its policies
)

// Status is the status of a source.
type Status struct {
	Source     string `json:"source"`
	Generation int64  `json:"generation"` // of the Source
	Phase      Phase  `json:"phase"`
	// Reason is in CamelCase: the phase's own, or why the gate failed. That of Rollout is
	// ReasonInRollout or ReasonTakenBack.
	Reason  string `json:"reason"`
	Message string `json:"message"` // of limited length, without credentials
	// Findings are about the newest commit, errors first, of limited number. Files are
	// paths in the repository.
	Findings []policy.Finding `json:"findings,omitempty"`
	Newest   *Commit          `json:"newest,omitempty"` // the newest fetched commit
	Active   *Commit          `json:"active,omitempty"`
	Current  bool             `json:"current"` // as Policies.Current
	// Line leads to Newest, as far as this process has seen its commits.
	Line     lineage.Line `json:"-"`
	Diff     *Difference  `json:"diff,omitempty"`
	Contact  time.Time    `json:"contact"`  // last successful check of the remote
	Changed  time.Time    `json:"changed"`  // when Phase or Reason last changed
	Next     time.Time    `json:"next"`     // next check of the remote
	Failures int          `json:"failures"` // consecutive, of kinds that may be transient
	Fetches  int64        `json:"fetches"`  // number of fetched commits
}

// Policies are the active commit of a source.
type Policies struct {
	Commit Commit
	Line   lineage.Line // leads to Commit, as far as this process has seen its commits
	// Current is true if this is the newest known commit, or the one that is to be replaced by that,
	// which rolls out. Otherwise the policies are to be observed, not enforced.
	Current  bool
	Since    time.Time // when it became active
	Files    policy.Source
	Tree     fs.FS    // below the path, immutable; all files, not only policies
	Packages []string // names, sorted

	origin origin
}

// RollingOut is a commit that is to become active.
type RollingOut struct {
	Commit   Commit
	Line     lineage.Line // leads to Commit, as far as this process has seen its commits
	Set      *policy.Set  // with all other active sources
	Packages []string     // those that differ from the active ones, and that only one of both has, sorted
	Tree     fs.FS        // below the path
	// Former are the commits that this one has replaced while they rolled out, the newest first: some policies may have
	// come to the end with one of them, which stays in effect until this one takes its place. None has Former itself.
	Former []RollingOut
}

// maxFormer bounds the commits that are kept beside the one that rolls out.
const maxFormer = 2

// replaces returns the commits that another one replaces with c.
func (c RollingOut) replaces(by string) []RollingOut {
	if c.Set == nil || c.Commit.Hash == by { // none, or the same, compiled again
		return c.Former
	}
	former := c.Former
	c.Former = nil
	list := append([]RollingOut{c}, former...)
	list = slices.DeleteFunc(list, func(f RollingOut) bool { return f.Commit.Hash == by })
	return list[:min(len(list), maxFormer)]
}

// State is the state of all sources at one time. It is immutable.
type State struct {
	// Generation counts changes of Set, starting at 1.
	Generation uint64
	Set        *policy.Set // of all active commits, compiled together
	Policies   map[string]Policies
	Status     map[string]Status
	// Candidates are the commits that roll out, by source, and Beside is Set with their packages
	// beside the active ones: Set itself while there are none.
	Candidates map[string]RollingOut
	Beside     *policy.Set

	layout   uint64 // counts changes of Set and Candidates
	replaced chan struct{}
}

// Replaced is closed when there is a newer state.
func (s *State) Replaced() <-chan struct{} { return s.replaced }

// clone returns a copy to be changed before it is published.
func (s *State) clone() *State {
	return &State{
		Generation: s.Generation, Set: s.Set, Policies: maps.Clone(s.Policies), Status: maps.Clone(s.Status),
		Candidates: s.Candidates, Beside: s.Beside, layout: s.layout, replaced: make(chan struct{}),
	}
}

// sources returns the files of all active sources except one, for policy.Load, in no
// particular order.
func (s *State) sources(base []policy.Source, except string) []policy.Source {
	out := append([]policy.Source(nil), base...)
	for name, p := range s.Policies {
		if name != except {
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
