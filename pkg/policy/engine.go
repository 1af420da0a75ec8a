package policy

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/engine"
	"federator.dev/federator/pkg/policy/internal/linetrace"
)

// Errors of the engine that callers branch on.
var (
	// ErrReset is returned after a call that was interrupted, and for batches that
	// do not follow on the engine's state: Reset brings it back.
	ErrReset = engine.ErrReset
	// ErrBusy is returned for a call beside another one.
	ErrBusy = engine.ErrBusy
	// ErrSubject is a subject that a binding does not judge.
	ErrSubject = engine.ErrSubject
)

// What keeps verdicts exact, and what it tells.
type (
	// Engine keeps the verdicts of bindings on a fleet, exact, at a cost that follows
	// what changes: Reset, Apply and Configure.
	Engine = engine.Engine
	// EngineOptions configure an Engine.
	EngineOptions = engine.Options
	// Limits bound what policies may take. 0 means the default.
	Limits = engine.Limits
	// Stats are counters of an engine's work since it was made, and its present size.
	Stats = engine.Stats
	// Changes is what a call did to the verdicts.
	Changes = engine.Changes
	// Change is a verdict that differs.
	Change = engine.Change
)

// NewEngine returns an engine without a snapshot: Reset gives it one.
func NewEngine(opts EngineOptions) (*Engine, error) { return engine.New(opts) }

// Evaluate returns the verdicts of bindings on one snapshot.
func Evaluate(ctx context.Context, opts EngineOptions, s *aggregate.Snapshot) (*State, error) {
	return engine.Evaluate(ctx, opts, s)
}

// Compare returns what other policies and bindings would change in the verdicts of a
// state, on its snapshot. It evaluates the bindings of which something differs, and
// costs what Configure does; Changes.After has these only, and Changes.Before has
// these and those that opts.Bindings have no more.
func Compare(ctx context.Context, s *State, opts EngineOptions) (*Changes, error) {
	return engine.Compare(ctx, s, opts)
}

// How a verdict came about, and what evaluations take.
type (
	// Explanation is how a verdict came about.
	Explanation = engine.Explanation
	// Read is one document that an evaluation read.
	Read = engine.Read
	// ReadScope is a scope that a document shows objects of, or would.
	ReadScope = engine.ReadScope
	// Line is one line of a policy and what became of it in an evaluation.
	Line = linetrace.Line
	// Lines traces an evaluation by lines: it is a topdown.QueryTracer.
	Lines = linetrace.Lines
	// Cost is what evaluations took, in sum.
	Cost = engine.Cost
)

// Explain evaluates a binding for one subject again, on the state's snapshot and
// views, and says what was read and what became of each line. opts.Set is that of
// the state; of other options only Limits count. A subject that the binding does not
// judge is ErrSubject, a binding that is not there ErrBinding.
func Explain(ctx context.Context, opts EngineOptions, s *State, binding string, subject Subject) (*Explanation, error) {
	return engine.Explain(ctx, opts, s, binding, subject)
}

// Measure evaluates all subjects of a binding of a state again, several times, on
// the caller's goroutine, and says what that took. opts are as Explain's. An
// evaluation that fails counts like others, until the binding is quarantined,
// which is an error.
func Measure(ctx context.Context, opts EngineOptions, s *State, binding string, times int) (Cost, error) {
	return engine.Measure(ctx, opts, s, binding, times)
}
