// Package explain says how a verdict came about, and what evaluations take. It
// evaluates again, apart from the engine that made the state.
package explain

import (
	"context"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/engine"
	"federator.dev/federator/pkg/policy/internal/linetrace"
)

// ErrSubject is a subject that a binding does not evaluate.
var ErrSubject = engine.ErrSubject

type (
	// Explanation is how a verdict came about.
	Explanation = engine.Explanation
	// Line is one line of a policy and what became of it in an evaluation.
	Line = linetrace.Line
	// Read is one document that an evaluation read.
	Read = engine.Read
	// Scope is a scope that a document shows objects of, or would.
	Scope = engine.ReadScope
	// Cost is the total cost of evaluations.
	Cost = engine.Cost
)

// Explain evaluates a binding for one subject again, on the state's snapshot and
// views, and says what was read and what became of each line. opts.Set is that of
// the state; of other options only Limits count. A subject that the binding does not
// evaluate is ErrSubject, a binding that is not there policy.ErrBinding.
func Explain(ctx context.Context, opts policy.EngineOptions, s *policy.State, binding string, subject policy.Subject) (*Explanation, error) {
	return engine.Explain(ctx, opts, s, binding, subject)
}

// Measure evaluates all subjects of a binding of a state again, several times, on
// the caller's goroutine, and returns what that cost. opts are as Explain's. An
// evaluation that fails counts like others, until the binding is quarantined,
// which is an error.
func Measure(ctx context.Context, opts policy.EngineOptions, s *policy.State, binding string, times int) (Cost, error) {
	return engine.Measure(ctx, opts, s, binding, times)
}
