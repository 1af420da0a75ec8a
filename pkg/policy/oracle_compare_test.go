package policy_test

import (
	"context"
	"fmt"
	"maps"

	"federator.dev/federator/pkg/policy"
)

// configure exchanges an engine's policies, and holds what Compare and a Preview say of that
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
	previewed, err := previewOf(ctx, engine.State(), set, bindings)
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
	if want := changesOf(changes); !maps.Equal(previewed, want) {
		return nil, fmt.Errorf("%w: previewed, it changes\n%s", errDiffers, difference(previewed, want))
	}
	return changes, nil
}

// previewOf are the verdicts that differ, by a Preview.
func previewOf(ctx context.Context, s *policy.State, set *policy.Set, bindings []policy.Binding) (map[string]textVerdict, error) {
	p, err := policy.NewPreview(s, policy.EngineOptions{Set: set, Bindings: bindings, Limits: oracleLimits})
	if err != nil {
		return nil, err
	}
	out := map[string]textVerdict{}
	waits := 0
	err = p.Run(ctx, policy.PreviewOptions{
		Wait: func(context.Context) error { waits++; return nil },
		Found: func(before, after *policy.Verdict) error {
			finds := func(v *policy.Verdict) bool { return v != nil && (len(v.Violations) > 0 || v.State == policy.Error) }
			if !finds(before) && !finds(after) {
				return nil // Changes tell of findings only, a preview also of what is not known
			}
			if before != nil && after != nil && textOf(*before) == textOf(*after) && before.Message == after.Message {
				return nil
			}
			for sign, v := range map[string]*policy.Verdict{"- ": before, "+ ": after} {
				if v != nil {
					at := sign + v.Binding + " | " + v.Subject.String()
					if _, twice := out[at]; twice {
						return fmt.Errorf("%w: %s was found twice", errDiffers, at)
					}
					out[at] = textOf(*v)
				}
			}
			return nil
		},
	})
	costs, _ := p.Costs()
	for name, c := range costs {
		if c.Evaluations < 0 || c.Errors < c.Overruns {
			return nil, fmt.Errorf("%w: %s costs %+v", errDiffers, name, c)
		}
	}
	return out, err
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
