package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/budget"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/value"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// violations converts the result of a package's violation rules, in Rego's order.
func (b *boundBinding) violations(set value.Value, t *task, l *Limits) ([]verdict.Violation, error) {
	if !set.Defined() {
		return nil, nil
	}
	if set.Kind() != value.Set {
		return nil, errors.New("violation is not a set: write violation contains {…}")
	}
	if set.Len() == 0 {
		return nil, nil
	}
	if set.Len() > l.Violations {
		return nil, budget.ResultError(fmt.Sprintf("it finds %d violations, more than %d", set.Len(), l.Violations))
	}
	if _, ok := set.Size(l.Result); !ok {
		return nil, budget.ResultError(fmt.Sprintf("its violations are larger than %d bytes", l.Result))
	}
	out := make([]verdict.Violation, 0, set.Len())
	for _, t1 := range set.Elems() {
		if b.pkg.IsTemplate() && !hasMessage(t1) {
			continue // as in Gatekeeper, where r.msg is undefined then
		}
		violation, err := b.violation(t1, t)
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

func (b *boundBinding) violation(v value.Value, t *task) (verdict.Violation, error) {
	if v.Kind() != value.Object {
		return verdict.Violation{}, errors.New("a violation is not an object")
	}
	msg, ok := stringField(v, "msg")
	if !ok || msg == "" && !b.pkg.IsTemplate() {
		return verdict.Violation{}, errors.New(`a violation has no string "msg"`)
	}
	out := verdict.Violation{Msg: strings.Clone(msg)} // it may be a substring of a longer text
	var err error
	if d := v.Field("details"); d.Defined() {
		if out.Details, err = d.JSON(); err != nil {
			return verdict.Violation{}, err
		}
	}
	if r := v.Field("remedy"); r.Defined() && !b.pkg.IsTemplate() {
		if out.Remedy, err = b.remedy(r, t); err != nil {
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
func hasMessage(v value.Value) bool {
	return v.Field("msg").Defined()
}

// stringField returns a field that is a string. It aliases what v does.
func stringField(v value.Value, key string) (string, bool) {
	f := v.Field(key)
	if f.Kind() != value.String {
		return "", false
	}
	return f.Str(), true
}

func (b *boundBinding) remedy(v value.Value, t *task) (*verdict.Remedy, error) {
	if v.Kind() != value.Object {
		return nil, errors.New("not an object")
	}
	r := &verdict.Remedy{Target: t.subject.Ref}
	action, _ := stringField(v, "action")
	r.Action = strings.Clone(action)
	target := v.Field("target")
	switch {
	case target.Defined():
		if err := readRef(target, &r.Target); err != nil {
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
		r.Object, err = jsonField(v, "object")
	case "patch":
		r.Patch, err = jsonField(v, "patch")
	case "delete":
		r.Propagation, err = propagation(v)
	default:
		err = fmt.Errorf("action %q must be apply, patch or delete", verdict.Clip(r.Action))
	}
	return r, err
}

func propagation(v value.Value) (string, error) {
	p := v.Field("propagationPolicy")
	if !p.Defined() {
		return "", nil
	}
	if p.Kind() == value.String {
		for _, known := range []string{"Background", "Foreground", "Orphan"} {
			if p.Str() == known {
				return known, nil
			}
		}
	}
	return "", fmt.Errorf("propagationPolicy %s must be Background, Foreground or Orphan", verdict.Clip(p.Term().String()))
}

func jsonField(v value.Value, key string) ([]byte, error) {
	f := v.Field(key)
	if !f.Defined() {
		return nil, fmt.Errorf("no %s", key)
	}
	return f.JSON()
}

func readRef(v value.Value, r *aggregate.Ref) error {
	if v.Kind() != value.Object {
		return errors.New("target is not a ref")
	}
	member, m := stringField(v, "member")
	kind, k := stringField(v, "kind")
	name, n := stringField(v, "name")
	namespace, _ := stringField(v, "namespace")
	if !m || !k || !n || member == "" || kind == "" || name == "" {
		return errors.New("target is not a ref: it needs member, kind and name")
	}
	*r = aggregate.Ref{
		Member: strings.Clone(member), Kind: aggregate.Kind(strings.Clone(kind)), Namespace: strings.Clone(namespace), Name: strings.Clone(name),
	}
	return nil
}
