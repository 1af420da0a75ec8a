package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/json"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/admissioncel"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// celParams is what the CEL of a template sees as params: the constraint, with whole
// numbers as the API server has them.
func celParams(b *binding.Binding) (map[string]any, error) {
	c := b.Applied()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": c.Body["apiVersion"], "kind": c.Kind, "metadata": c.Body["metadata"],
		"spec": map[string]any{"match": c.Match, "parameters": b.Parameters},
	})
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	spec, _ := out["spec"].(map[string]any)
	for _, field := range []string{"match", "parameters"} {
		if spec[field] == nil {
			delete(spec, field)
		}
	}
	return out, nil
}

// runCEL evaluates the CEL of a template on an object within the budget. What a failing
// expression would deny is an error here: the verdict is not known.
func (w *worker) runCEL(ctx context.Context, b *boundBinding, t *task) (out []verdict.Violation, took time.Duration, err error) {
	defer w.meter.LockThread()()
	ev := &w.evaluation
	ev.budget = w.meter.Start(w.e.opts.Limits.Evaluation, ctx.Done())
	err = guard(func() error {
		in, err := w.celInput(b, t)
		if err != nil {
			return err
		}
		decisions, err := b.pkg.CEL.Evaluate(ctx, in)
		if err != nil {
			return err
		}
		out, err = celViolations(decisions, &w.e.opts.Limits)
		return err
	})
	took, err = ev.budget.Elapsed(), ev.budget.Err(err)
	if err != nil {
		out = nil
	}
	return out, took, err
}

func (w *worker) celInput(b *boundBinding, t *task) (*admissioncel.Input, error) {
	in := &admissioncel.Input{Params: b.celParams}
	if err := decodeWhole(t.object, w.body, &in.Object); err != nil {
		return nil, err
	}
	if ref := &t.subject.Ref; b.pkg.CEL.ReadsNamespace() && ref.Namespace != "" {
		if o, ok := w.readNamespace(ref); ok {
			body, err := o.AppendBody(w.otherBody[:0])
			w.otherBody = body
			if err != nil {
				return nil, err
			}
			if err := w.evaluation.charge(int64(len(body))); err != nil {
				return nil, err
			}
			return in, decodeWhole(o, body, &in.Namespace)
		}
	}
	return in, nil
}

func decodeWhole(o aggregate.Object, body []byte, to *map[string]any) error {
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("%s: %w", o.Ref(), err)
	}
	return nil
}

func celViolations(decisions []admissioncel.Decision, l *Limits) ([]verdict.Violation, error) {
	if len(decisions) > l.Violations {
		return nil, budget.ResultError(fmt.Sprintf("it finds %d violations, more than %d", len(decisions), l.Violations))
	}
	var out []verdict.Violation
	size := 0
	for _, d := range decisions {
		if d.Error {
			return nil, errors.New(d.Message)
		}
		size += len(d.Message)
		out = append(out, verdict.Violation{Msg: d.Message})
	}
	if size > l.Result {
		return nil, budget.ResultError(fmt.Sprintf("its violations are larger than %d bytes", l.Result))
	}
	return out, nil
}
