// Package evidence is how the verdicts of versions that roll out differ from those of the versions whose place they are
// to take, as one process finds on what it judges, and as the sum of what several do. What is summed are numbers of
// subjects, violations and evaluations, never parts of these.
package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// enough is how many evaluations of each version there are before their costs are compared.
const enough = 20

// Part is the evidence on one binding, of one process or of several.
type Part struct {
	// Complete says that all was read and evaluated that the versions read. Verdicts that are Unknown are counted aside.
	Complete bool `json:"complete,omitempty"`
	// First says that there is no former version, and Known how many verdicts of it are known, or failed.
	First bool  `json:"first,omitempty"`
	Known int64 `json:"known,omitempty"`
	// The following are as in RolloutEvidence. Unknown has all verdicts of a first version that are.
	Subjects int64 `json:"subjects,omitempty"`
	New      int64 `json:"new,omitempty"`
	Gone     int64 `json:"gone,omitempty"`
	Errors   int64 `json:"errors,omitempty"`
	Unknown  int64 `json:"unknown,omitempty"`
	// Former and Next are what evaluating both has taken.
	Former Cost `json:"former,omitzero"`
	Next   Cost `json:"next,omitzero"`
}

// Cost is what a number of evaluations has taken.
type Cost struct {
	Evaluations int64 `json:"evaluations"`
	Nanoseconds int64 `json:"nanoseconds"`
}

func costOf(h *policy.Health) Cost { return Cost{h.Evaluations, h.Nanoseconds} }

func (c *Cost) add(o Cost) {
	c.Evaluations += o.Evaluations
	c.Nanoseconds += o.Nanoseconds
}

// OfVersions returns how two versions differ.
func OfVersions(c *policy.Comparison) Part {
	return Part{
		Complete: c.Complete, Unknown: int64(c.Unknown + c.Unsettled), Subjects: int64(c.Subjects), New: int64(c.New), Gone: int64(c.Gone), Errors: int64(c.Errors),
		Former: costOf(&c.Former), Next: costOf(&c.Next),
	}
}

// OfFirst returns what a version finds that has no former one.
func OfFirst(s *policy.State, binding string) Part {
	n := s.Total(binding)
	return Part{
		First: true, Complete: s.Synced && s.BindingSynced(binding), Known: int64(n.Known + n.Errors), Subjects: int64(n.Known + n.Unknown + n.Errors),
		New: int64(n.Violations), Errors: int64(n.Errors), Unknown: int64(n.Unknown),
	}
}

// Add adds what another process has found on the same binding.
func (p *Part) Add(o *Part) {
	p.Complete, p.First = p.Complete && o.Complete, p.First || o.First
	p.Known += o.Known
	p.count(o)
}

func (p *Part) count(o *Part) {
	p.Subjects += o.Subjects
	p.New += o.New
	p.Gone += o.Gone
	p.Errors += o.Errors
	p.Unknown += o.Unknown
	p.Former.add(o.Former)
	p.Next.add(o.Next)
}

// Status returns evidence as a status has it. While no verdict of a first version is known it was judged on nothing; a
// member that is away for days holds up none of which others are known.
func (p *Part) Status() v1alpha1.RolloutEvidence {
	out := v1alpha1.RolloutEvidence{Subjects: p.Subjects, New: p.New, Gone: p.Gone, Errors: p.Errors, Unknown: p.Unknown, Cost: p.cost()}
	if p.First && p.Known > 0 {
		out.Unknown = 0
	}
	out.Complete = p.Complete && out.Unknown == 0
	return out
}

// cost returns the CPU time of an evaluation in percent of the former version's: nil until each was evaluated often
// enough.
func (p *Part) cost() *int64 {
	if p.Former.Evaluations < enough || p.Next.Evaluations < enough || p.Former.Nanoseconds <= 0 {
		return nil
	}
	per := func(c Cost) float64 { return float64(c.Nanoseconds) / float64(c.Evaluations) }
	cost := int64(100 * per(p.Next) / per(p.Former))
	return &cost
}

// Commit is the evidence on what a commit changes that has no FleetPolicy.
type Commit struct {
	Of string `json:"of"` // what was compared
	Share
	// Older says that what is evaluated is not of the commit yet.
	Older bool                  `json:"older,omitempty"`
	Parts map[string]CommitPart `json:"parts,omitempty"` // by binding
}

// CommitPart is the evidence on a binding.
type CommitPart struct {
	Part

	Added bool `json:"added,omitempty"` // it is of a package that is new
}

// Any reports whether there is anything to judge.
func (c *Commit) Any() bool { return c.Older || len(c.Parts) > 0 }

// Status returns the sum over all bindings as a status has it, and what of that is of packages that are new.
func (c *Commit) Status() (all, added v1alpha1.RolloutEvidence) {
	var sum, ofAdded Part
	complete := c.Any() && !c.Older
	for _, p := range c.Parts {
		is := p.Status()
		p.Unknown, complete = is.Unknown, complete && is.Complete
		sum.count(&p.Part)
		if p.Added {
			ofAdded.count(&p.Part)
		}
	}
	all, added = sum.Status(), ofAdded.Status()
	all.Complete, added.Complete = complete, false // of a part nothing is concluded
	return all, added
}

// Statement is what a process has found of the versions of a policy.
type Statement struct {
	Of string `json:"of"` // which versions these are, of which policy
	Share
	Part
}

// Said is all that a process says.
type Said struct {
	Policies map[string]Statement `json:"policies,omitempty"` // by FleetPolicy
	Commits  map[string]Commit    `json:"commits,omitempty"`  // by PolicySource
}

// Share is which part of a fleet a process judges.
type Share struct {
	Members string `json:"members,omitempty"` // see Digest
	// Keys are the processes that share the keys of views, and Moving says that a key may be judged by two of them.
	Keys   []string `json:"keys,omitempty"`
	Moving bool     `json:"moving,omitempty"`
}

// ShareOf returns what the verdicts of a state are of.
func ShareOf(s *policy.State) Share {
	owner := s.KeyOwner()
	return Share{Members: Digest(judged(s)), Keys: owner.Now, Moving: len(owner.Before) > 0}
}

func judged(s *policy.State) iter.Seq[string] {
	return func(yield func(string) bool) {
		for m := range s.Snapshot.Members() {
			if m.Role == aggregate.Judge && !yield(m.Name) {
				return
			}
		}
	}
}

// Digest returns a digest of members, in whatever order they come.
func Digest(members iter.Seq[string]) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(members) {
		sum.Write([]byte(name + "\n")) // no name has a line break
	}
	return hex.EncodeToString(sum.Sum(nil)[:12])
}
