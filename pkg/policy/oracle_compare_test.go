package policy_test

import (
	"context"
	"fmt"
	"maps"

	"federator.dev/federator/pkg/policy"
)

// configure exchanges an engine's policies, and holds what Compare says of that
// before to what comes of it.
func (*history) configure(ctx context.Context, engine *policy.Engine, set *policy.Set, bindings []policy.Binding, present bool) (*policy.Changes, error) {
	if !present { // Compare is as of the state's time, Configure as of now
		return engine.Configure(ctx, set, bindings)
	}
	before, err := policy.Compare(ctx, engine.State(), policy.EngineOptions{
		Set: set, Bindings: bindings, Parallelism: 1, Limits: oracleLimits,
	})
	if err != nil {
		return nil, err
	}
	changes, err := engine.Configure(ctx, set, bindings)
	if err != nil {
		return nil, err
	}
	if got, want := changesOf(before), changesOf(changes); !maps.Equal(got, want) {
		return nil, fmt.Errorf("%w: compared, it changes\n%s", errDiffers, difference(got, want))
	}
	return changes, nil
}

// changesOf are the verdicts that differ: each with what it was and what it is.
func changesOf(changes *policy.Changes) map[string]textVerdict {
	out := map[string]textVerdict{}
	for c := range changes.All() {
		for sign, v := range map[string]*policy.Verdict{"- ": c.Before, "+ ": c.After} {
			if v != nil {
				out[sign+v.Binding+" | "+v.Subject.String()] = textOf(*v)
			}
		}
	}
	return out
}
