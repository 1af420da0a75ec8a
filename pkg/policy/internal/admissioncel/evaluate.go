package admissioncel

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	plugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Input is what is evaluated. Its maps are JSON with whole numbers as int64, and are
// not changed.
type Input struct {
	Object map[string]any
	// Params are the parameters, for Gatekeeper the whole Constraint; nil: null.
	Params map[string]any
	// Namespace is the Namespace that the object is in; nil if it is in none, or none is
	// read.
	Namespace map[string]any
	// Resource is the object's resource, such as "pods"; only read if ReadsResource.
	// Gatekeeper's audit knows none.
	Resource string
	// Stopped is asked before each expression, and ends the evaluation: what it decided is
	// not to be used then. Nil never does.
	Stopped func() bool
}

// Decision is why an object would be denied.
type Decision struct {
	// Validation is the index of what failed, or -1 for the match conditions or the whole.
	Validation int
	Message    string
	Reason     metav1.StatusReason
	// Error is set where an expression failed, and failurePolicy makes it a denial.
	Error bool
}

// Evaluate returns why the object would be denied: nothing if it would be admitted, or
// if the policy's match conditions do not select it. The error is the context's.
func (p *Program) Evaluate(ctx context.Context, in *Input) ([]Decision, error) {
	decisions := p.evaluate(ctx, in)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("evaluate CEL: %w", err)
	}
	return decisions, nil
}

// Misconfigured returns what it amounts to that a binding cannot be applied to an object.
func (p *Program) Misconfigured(err error) []Decision {
	return p.failed(-1, "failed to configure binding: "+err.Error())
}

// Conditions returns which of the match conditions are true of an object: it is evaluated
// if all are. What cannot be evaluated is not true.
func (p *Program) Conditions(ctx context.Context, in *Input) []bool {
	out := make([]bool, len(p.conditions))
	results, _, err := p.run(ctx, p.activation(in), p.conditions, celconfig.RuntimeCELCostBudgetMatchConditions)
	for i := range results {
		out[i] = err == nil && results[i].value == types.True
	}
	return out
}

func (p *Program) evaluate(ctx context.Context, in *Input) []Decision {
	a := p.activation(in)
	matches, err := p.match(ctx, a)
	if err != nil {
		return p.failed(-1, err.Error())
	}
	if !matches {
		return nil
	}
	a.namespace = namespaceObject(in.Namespace)
	results, remaining, err := p.run(ctx, a, p.validations, p.policy.Dialect.budget())
	if err != nil {
		return p.failed(-1, err.Error())
	}
	if allTrue(results) {
		return nil
	}
	messages, _, err := p.run(ctx, a, p.messages, remaining)
	if err != nil {
		messages = nil
	}
	var out []Decision
	for i, r := range results {
		switch {
		case r.err != nil:
			out = append(out, p.failed(i, r.err.Error())...)
		case err != nil:
			out = append(out, p.failed(i, fmt.Sprintf("failed messageExpression: %s", err))...)
		case r.value != types.True:
			var message result
			if messages != nil {
				message = messages[i]
			}
			out = append(out, p.denied(i, message))
		}
	}
	return out
}

// failed is what an error amounts to.
func (p *Program) failed(validation int, message string) []Decision {
	if p.policy.Ignore {
		return nil
	}
	return []Decision{{Validation: validation, Message: message, Error: true}}
}

func (p *Program) denied(i int, message result) Decision {
	v := &p.policy.Validations[i]
	d := Decision{Validation: i, Reason: v.Reason}
	if d.Reason == "" {
		d.Reason = metav1.StatusReasonInvalid
	}
	if message.err == nil && message.value != nil {
		if s, ok := message.value.Value().(string); ok {
			d.Message = strings.TrimSpace(s)
		}
		// So the API server has it: such messages do not come from well-meant expressions.
		if len(d.Message) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(d.Message, "\n") {
			d.Message = ""
		}
	}
	if d.Message == "" {
		d.Message = strings.TrimSpace(v.Message)
	}
	if d.Message == "" {
		d.Message = "failed expression: " + strings.TrimSpace(v.Expression)
	}
	return d
}

// match evaluates the match conditions. They do not see the Namespace, and have a budget
// of their own.
func (p *Program) match(ctx context.Context, a *activation) (bool, error) {
	if len(p.conditions) == 0 {
		return true, nil
	}
	results, _, err := p.run(ctx, a, p.conditions, celconfig.RuntimeCELCostBudgetMatchConditions)
	if err != nil {
		return false, err
	}
	var failed []error
	for _, r := range results {
		if r.value == types.False {
			return false, nil
		}
		if r.err != nil {
			failed = append(failed, r.err)
		}
	}
	if len(failed) > 0 {
		return false, utilerrors.NewAggregate(failed)
	}
	return true, nil
}

type result struct {
	value ref.Val // nil for an expression that is not there
	err   error
}

func allTrue(results []result) bool {
	for _, r := range results {
		if r.err != nil || r.value != types.True {
			return false
		}
	}
	return true
}

// run evaluates expressions with one budget, and with variables that are evaluated once,
// when one is first read. An error of it all is the budget's.
func (p *Program) run(ctx context.Context, a *activation, expressions []plugin.CompilationResult, remaining int64) ([]result, int64, error) {
	composition := p.compiler.CreateContext(ctx)
	a.variables = composition.Variables(a)
	out := make([]result, len(expressions))
	for i, e := range expressions {
		if e.Program == nil {
			continue
		}
		if a.stopped != nil && a.stopped() {
			return nil, -1, outOfBudget()
		}
		value, details, err := e.Program.ContextEval(composition, a)
		cost := composition.GetAndResetCost()
		if details == nil || details.ActualCost() == nil {
			return nil, -1, costUnknown(e)
		}
		actual := *details.ActualCost()
		if actual > math.MaxInt64 || cost > remaining || int64(actual) > remaining-cost {
			return nil, -1, outOfBudget()
		}
		remaining -= cost + int64(actual)
		if err != nil {
			out[i].err = &apiservercel.Error{
				Type:   apiservercel.ErrorTypeInvalid,
				Detail: fmt.Sprintf("expression '%v' resulted in error: %v", e.ExpressionAccessor.GetExpression(), err),
			}
			continue
		}
		out[i].value = value
	}
	return out, remaining, nil
}

func costUnknown(e plugin.CompilationResult) error {
	return &apiservercel.Error{
		Type:   apiservercel.ErrorTypeInternal,
		Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", e.ExpressionAccessor.GetExpression()),
	}
}

func outOfBudget() error {
	return &apiservercel.Error{
		Type:   apiservercel.ErrorTypeInvalid,
		Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
		Cause:  apiservercel.ErrOutOfBudget,
	}
}
