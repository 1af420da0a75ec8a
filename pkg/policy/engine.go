package policy

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/engine"
)

// ErrReset is returned after a call that was interrupted, and for batches that do not
// start where the engine's state ends: Reset recovers from it.
var ErrReset = engine.ErrReset

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
