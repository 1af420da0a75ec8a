package admissioncel

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Problem is what is wrong with a policy, and where in its manifest.
type Problem struct {
	Path, Message string
	Warning       bool // Gatekeeper evaluates the policy all the same
	Request       bool // the policy asks for what only a request has
}

func (p Problem) String() string { return p.Path + ": " + p.Message }

// Dialect is whose rules an expression follows.
type Dialect uint8

const (
	// Admission is a ValidatingAdmissionPolicy.
	Admission Dialect = iota
	// Gatekeeper is a template: params is its Constraint, and only variables see it;
	// variables.params are the Constraint's parameters, variables.anyObject the object.
	Gatekeeper
)

// Named is a variable or a match condition.
type Named struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// Validation is what must be true of an object.
type Validation struct {
	Expression, Message, MessageExpression string
	Reason                                 metav1.StatusReason
}

// Policy is what Compile compiles.
type Policy struct {
	Dialect     Dialect
	At          string // where its fields are in the manifest, such as "spec"
	HasParams   bool   // a paramKind is declared
	Ignore      bool   // failurePolicy: errors deny nothing
	Variables   []Named
	Conditions  []Named
	conditionAt string
	Validations []Validation
}

// FromAdmissionPolicy returns what is to be compiled of a ValidatingAdmissionPolicy.
// Audit annotations are left out: they are written into a request's audit event.
func FromAdmissionPolicy(of *admissionv1.ValidatingAdmissionPolicy) (Policy, []Problem) {
	p := Policy{At: "spec", HasParams: of.Spec.ParamKind != nil, conditionAt: "matchConditions"}
	var bad []Problem
	if f := of.Spec.FailurePolicy; f != nil {
		p.Ignore, bad = failurePolicy(string(*f), "spec.failurePolicy")
	}
	for _, v := range of.Spec.Variables {
		p.Variables = append(p.Variables, Named(v))
	}
	for _, c := range of.Spec.MatchConditions {
		p.Conditions = append(p.Conditions, Named(c))
	}
	for _, v := range of.Spec.Validations {
		to := Validation{Expression: v.Expression, Message: v.Message, MessageExpression: v.MessageExpression}
		if v.Reason != nil {
			to.Reason = *v.Reason
		}
		p.Validations = append(p.Validations, to)
	}
	return p, bad
}

func failurePolicy(s, at string) (ignore bool, bad []Problem) {
	switch admissionv1.FailurePolicyType(s) {
	case admissionv1.Fail:
		return false, nil
	case admissionv1.Ignore:
		return true, nil
	default:
		return false, []Problem{{Path: at, Message: fmt.Sprintf("%q is not Fail or Ignore", s)}}
	}
}

// templateSource is the source of a template's engine K8sNativeValidation.
type templateSource struct {
	Validations []struct {
		Expression        string `json:"expression,omitempty"`
		Message           string `json:"message,omitempty"`
		MessageExpression string `json:"messageExpression,omitempty"`
	} `json:"validations,omitempty"`
	FailurePolicy   *string `json:"failurePolicy,omitempty"`
	MatchConditions []Named `json:"matchCondition,omitempty"` // sic: that is its name in Gatekeeper
	Variables       []Named `json:"variables,omitempty"`
}

// FromTemplate returns what is to be compiled of the source of a template's engine
// K8sNativeValidation; at is its path in the template.
func FromTemplate(source map[string]any, at string) (Policy, []Problem) {
	var from templateSource
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(source, &from); err != nil {
		return Policy{}, []Problem{{Path: at, Message: err.Error()}}
	}
	p := Policy{Dialect: Gatekeeper, At: at, conditionAt: "matchCondition", Variables: from.Variables, Conditions: from.MatchConditions}
	var bad []Problem
	if f := from.FailurePolicy; f != nil {
		p.Ignore, bad = failurePolicy(*f, at+".failurePolicy")
	}
	for i, v := range p.Variables {
		if strings.HasPrefix(v.Name, reservedPrefix) || v.Name == paramsName || v.Name == objectName {
			bad = append(bad, Problem{Path: fmt.Sprintf("%s.variables[%d].name", at, i), Message: fmt.Sprintf("%q is reserved", v.Name)})
		}
	}
	for i, c := range p.Conditions {
		if strings.HasPrefix(c.Name, reservedPrefix) {
			bad = append(bad, Problem{Path: fmt.Sprintf("%s.matchCondition[%d].name", at, i), Message: fmt.Sprintf("%q is reserved", c.Name)})
		}
	}
	for _, v := range from.Validations {
		p.Validations = append(p.Validations, Validation{Expression: v.Expression, Message: v.Message, MessageExpression: v.MessageExpression})
	}
	return p, bad
}

const (
	reservedPrefix = "gatekeeper_internal_"
	paramsName     = "params"
	objectName     = "anyObject"
)

// injected are the variables that Gatekeeper declares before a template's own.
var injected = []Named{
	{objectName, `has(request.operation) && request.operation == "DELETE" && object == null ? oldObject : object`},
	{paramsName, `!has(params.spec) ? null : !has(params.spec.parameters) ? null: params.spec.parameters`},
}

// budget is the cost that all validations of one object may have together: Gatekeeper
// gives what the API server allows a single call.
func (d Dialect) budget() int64 {
	if d == Gatekeeper {
		return celconfig.PerCallLimit
	}
	return celconfig.RuntimeCELCostBudget
}

func (d Dialect) operation() string {
	if d == Gatekeeper {
		return ""
	}
	return string(admissionv1.Create)
}
