package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/document"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// violations converts the result of a package's violation rules, in Rego's order.
func (b *boundBinding) violations(v ast.Value, t *task, l *Limits) ([]verdict.Violation, error) {
	if v == nil {
		return nil, nil
	}
	set, ok := v.(ast.Set)
	if !ok {
		return nil, errors.New("violation is not a set: write violation contains {…}")
	}
	if set.Len() == 0 {
		return nil, nil
	}
	if set.Len() > l.Violations {
		return nil, budget.ResultError(fmt.Sprintf("it finds %d violations, more than %d", set.Len(), l.Violations))
	}
	if _, ok := limits.Size(set, l.Result); !ok {
		return nil, budget.ResultError(fmt.Sprintf("its violations are larger than %d bytes", l.Result))
	}
	out := make([]verdict.Violation, 0, set.Len())
	for _, t1 := range set.Slice() {
		if b.pkg.IsTemplate() && !hasMessage(t1.Value) {
			continue // as in Gatekeeper, where r.msg is undefined then
		}
		violation, err := b.violation(t1.Value, t)
		if err != nil {
			return nil, err
		}
		if b.pkg.IsTemplate() && hasResponse(out, &violation) {
			continue
		}
		out = append(out, violation)
	}
	return out, nil
}

func (b *boundBinding) violation(v ast.Value, t *task) (verdict.Violation, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return verdict.Violation{}, errors.New("a violation is not an object")
	}
	msg, ok := stringField(o, "msg")
	if !ok || msg == "" && !b.pkg.IsTemplate() {
		return verdict.Violation{}, errors.New(`a violation has no string "msg"`)
	}
	out := verdict.Violation{Msg: strings.Clone(msg)} // it may be a substring of a longer text
	var err error
	if d := o.Get(ast.InternedTerm("details")); d != nil {
		if out.Details, err = document.JSON(d.Value); err != nil {
			return verdict.Violation{}, err
		}
	}
	if r := o.Get(ast.InternedTerm("remedy")); r != nil && !b.pkg.IsTemplate() {
		if out.Remedy, err = b.remedy(r.Value, t); err != nil {
			return verdict.Violation{}, fmt.Errorf("remedy of %q: %w", verdict.Clip(msg), err)
		}
	}
	return out, nil
}

// hasResponse reports whether Gatekeeper would respond no differently to another violation:
// it keeps a message and details of each, and the set of those.
func hasResponse(list []verdict.Violation, other *verdict.Violation) bool {
	details := func(v *verdict.Violation) string { return cmp.Or(string(v.Details), "{}") }
	return slices.ContainsFunc(list, func(v verdict.Violation) bool { return v.Msg == other.Msg && details(&v) == details(other) })
}

// hasMessage reports whether a value has a field msg.
func hasMessage(v ast.Value) bool {
	o, ok := v.(ast.Object)
	return ok && o.Get(ast.InternedTerm("msg")) != nil
}

func stringField(o ast.Object, key string) (string, bool) {
	t := o.Get(ast.StringTerm(key))
	if t == nil {
		return "", false
	}
	s, ok := t.Value.(ast.String)
	return string(s), ok
}

func (b *boundBinding) remedy(v ast.Value, t *task) (*verdict.Remedy, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return nil, errors.New("not an object")
	}
	r := &verdict.Remedy{Target: t.subject.Ref}
	r.Action, _ = stringField(o, "action")
	target := o.Get(ast.InternedTerm("target"))
	switch {
	case target != nil:
		if err := readRef(target.Value, &r.Target); err != nil {
			return nil, err
		}
	case b.pkg.Subject != module.ObjectSubject:
		return nil, errors.New("no target: a remedy of a violation that is not about an object must name it")
	}
	if !slices.Contains(b.pkg.Remedies, module.Remedy{Action: r.Action, Kind: r.Target.Kind}) {
		return nil, fmt.Errorf("the package does not declare %q of %s", verdict.Clip(r.Action), verdict.Clip(string(r.Target.Kind)))
	}
	var err error
	switch r.Action {
	case "apply":
		r.Object, err = jsonField(o, "object")
	case "patch":
		r.Patch, err = jsonField(o, "patch")
	case "delete":
		r.Propagation, err = propagation(o)
	default:
		err = fmt.Errorf("action %q must be apply, patch or delete", verdict.Clip(r.Action))
	}
	return r, err
}

func propagation(o ast.Object) (string, error) {
	t := o.Get(ast.StringTerm("propagationPolicy"))
	if t == nil {
		return "", nil
	}
	s, _ := t.Value.(ast.String)
	switch s {
	case "Background", "Foreground", "Orphan":
		return string(s), nil
	}
	return "", fmt.Errorf("propagationPolicy %s must be Background, Foreground or Orphan", verdict.Clip(t.String()))
}

func jsonField(o ast.Object, key string) ([]byte, error) {
	t := o.Get(ast.StringTerm(key))
	if t == nil {
		return nil, fmt.Errorf("no %s", key)
	}
	return document.JSON(t.Value)
}

func readRef(v ast.Value, r *aggregate.Ref) error {
	o, ok := v.(ast.Object)
	if !ok {
		return errors.New("target is not a ref")
	}
	member, m := stringField(o, "member")
	kind, k := stringField(o, "kind")
	name, n := stringField(o, "name")
	namespace, _ := stringField(o, "namespace")
	if !m || !k || !n || member == "" || kind == "" || name == "" {
		return errors.New("target is not a ref: it needs member, kind and name")
	}
	*r = aggregate.Ref{Member: member, Kind: aggregate.Kind(kind), Namespace: namespace, Name: name}
	return nil
}
