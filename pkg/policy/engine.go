package policy

import (
	"context"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/engine"
	"federator.dev/federator/pkg/policy/internal/fleetview"
)

// ErrReset is returned after a call that was interrupted, and for batches that do not
// start where the engine's state ends: Reset recovers from it.
var ErrReset = engine.ErrReset

// ErrPreviewMemory is returned for a preview whose views take more than they may.
var ErrPreviewMemory = engine.ErrPreviewMemory

// Unmatched begins what Gatekeeper says of an object of which it is not known whether a
// constraint selects it.
const Unmatched = engine.Unmatched

// The engine, and what it reports.
type (
	// Engine keeps the verdicts of bindings on a fleet exact, at a cost proportional
	// to what changes: Reset, Apply and Configure.
	Engine = engine.Engine
	// EngineOptions configure an Engine.
	EngineOptions = engine.Options
	// Limits bound what policies may take. 0 means the default.
	Limits = engine.Limits
	// Stats are counters of an engine's work since it was created, and its present
	// size.
	Stats = engine.Stats
	// Changes is how a call changed the verdicts.
	Changes = engine.Changes
	// SeenChange is a violation that was first seen, or is gone.
	SeenChange = engine.SeenChange
	// Preview judges other policies beside those of a state, and keeps nothing.
	Preview = engine.Preview
	// PreviewOptions are how a Preview goes.
	PreviewOptions = engine.PreviewOptions
	// PreviewCost is what a preview of a binding took.
	PreviewCost = engine.PreviewCost
	// Cause is an object whose change verdicts were evaluated for.
	Cause = engine.Cause
	// Change is a verdict that differs.
	Change = engine.Change
	// KeyOwner says which keys of views a process judges, where several share a fleet.
	KeyOwner = fleetview.KeyOwner
	// ExportedChanges are what a call has changed of what is exported to other processes.
	ExportedChanges = engine.ExportedChanges
	// ExportedScope names a scope of these.
	ExportedScope = completeness.Scope
	// Memory is what an earlier process knew of its verdicts.
	Memory = engine.Memory
	// KeptQuarantine is a quarantine as it outlasts a process.
	KeptQuarantine = engine.KeptQuarantine
)

// NewEngine returns an engine without a snapshot: Reset gives it one.
func NewEngine(opts EngineOptions) (*Engine, error) { return engine.New(opts) }

// NewPreview returns a preview of a candidate that has evaluated nothing yet.
func NewPreview(s *State, candidate EngineOptions) (*Preview, error) {
	return engine.NewPreview(s, candidate)
}

// Evaluate returns the verdicts of bindings on one snapshot.
func Evaluate(ctx context.Context, opts EngineOptions, s *aggregate.Snapshot) (*State, error) {
	return engine.Evaluate(ctx, opts, s)
}

// EvaluateFleet returns the verdicts of bindings on one snapshot of what this process reads, and one of what its
// peers have told.
func EvaluateFleet(ctx context.Context, opts EngineOptions, own, peers *aggregate.Snapshot) (*State, error) {
	return engine.EvaluateFleet(ctx, opts, own, peers)
}

// Compare returns how other policies and bindings would change the verdicts of a state,
// on its snapshot. It evaluates the bindings that differ, at the cost of Configure.
// Changes.After has only these; Changes.Before has these and those that opts.Bindings no
// longer has.
func Compare(ctx context.Context, s *State, opts EngineOptions) (*Changes, error) {
	return engine.Compare(ctx, s, opts)
}
