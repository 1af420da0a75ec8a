package policy

import (
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Results of policies.
type (
	// State is the verdicts of all bindings on one snapshot: immutable, for any number
	// of goroutines. Keeping it keeps the snapshot.
	State = state.State
	// Basis is what is known in one process of an object that perhaps another one judges.
	Basis = state.Basis
	// Export is what other processes that share a fleet need to know of the members that are judged here.
	Export = state.Export
	// ReadScope is what the verdicts of a binding may reveal besides their subjects.
	ReadScope = state.ReadScope
	// Verdict is all violations of one binding on one subject at one revision.
	Verdict = verdict.Verdict
	// VerdictState says how reliable a verdict is.
	VerdictState = verdict.State
	// Subject is what a verdict is about: an object, a member or a key of a view.
	Subject = verdict.Subject
	// Gap is an incomplete scope, or one with an object whose contribution to a view
	// failed.
	Gap = verdict.Gap
	// Violation is one violation of a policy.
	Violation = verdict.Violation
	// Seen is when a violation was first seen.
	Seen = state.Seen
	// Remedy is the change that a violation proposes.
	Remedy = verdict.Remedy
	// Comparison is how the verdicts of a version differ from those of the one whose place it is to take.
	Comparison = state.Comparison
	// Counts are the verdicts of a binding, of one member or of all.
	Counts = verdict.Counts
	// LineCost is what a line of a policy takes of the time of its evaluations.
	LineCost = state.LineCost
	// Health is the health of a binding's policy.
	Health = verdict.Health
)

// The states of a verdict.
const (
	Known   = verdict.Known   // all that it read was complete
	Unknown = verdict.Unknown // it read an incomplete scope and may be wrong
	Error   = verdict.Error   // there is no verdict
)

// SameVerdict reports whether two verdicts say the same, whenever that was found.
func SameVerdict(a, b *Verdict) bool { return verdict.Same(a, b) }

// MaxGaps is how many gaps a verdict names.
const MaxGaps = verdict.MaxGaps

// Names in verdicts and remedies, for packages that may not import the index.
type (
	Ref      = aggregate.Ref
	Kind     = aggregate.Kind
	Revision = aggregate.Revision
)
