package policysource

import (
	"context"
	"errors"
	"fmt"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/policytest"
)

// runTests returns an Options.Test that runs a candidate's Rego tests and fleet fixtures
// with package policytest. A source without tests gets a warning. A candidate is tested
// alone: tests fail if they need the views of another source.
func runTests(opts policytest.Options) func(context.Context, Candidate) ([]policy.Finding, error) {
	opts.Name = "" // files are relative to the tree
	return func(ctx context.Context, c Candidate) ([]policy.Finding, error) {
		result, err := policytest.Run(ctx, c.Tree, opts)
		var broken policy.LoadErrors
		switch {
		case errors.Is(err, policytest.ErrNoTests):
			return []policy.Finding{{Code: "no-tests", Severity: policy.SeverityWarning, Message: "there are no tests"}}, nil
		case errors.As(err, &broken):
			return broken, nil
		case err != nil:
			return nil, err
		}
		var out []policy.Finding
		for _, t := range result.Cases {
			if t.Outcome != policytest.Failed && t.Outcome != policytest.Errored {
				continue
			}
			f := policy.Finding{Code: "test-" + string(t.Outcome), Severity: policy.SeverityError, File: t.File, Line: t.Line, Message: t.Name}
			if len(t.Failures) > 0 {
				f.Message = fmt.Sprintf("%s: %s", t.Name, t.Failures[0])
			}
			out = append(out, f)
		}
		return out, nil
	}
}
