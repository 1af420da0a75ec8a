package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/limits"
	"federator.dev/federator/pkg/policy/internal/module"
)

// violations reads what the violation rules of a package gave, in Rego's order.
func (b *bound) violations(v ast.Value, t *task, l *Limits) ([]Violation, error) {
	if v == nil {
		return nil, nil
	}
	set, ok := v.(ast.Set)
	if !ok {
		return nil, errors.New("violation is not a set: it is written violation contains {…}")
	}
	if set.Len() == 0 {
		return nil, nil
	}
	if set.Len() > l.Violations {
		return nil, excess(fmt.Sprintf("it finds %d violations, more than %d", set.Len(), l.Violations))
	}
	if _, ok := limits.Size(set, l.Result); !ok {
		return nil, excess(fmt.Sprintf("its violations are larger than %d bytes", l.Result))
	}
	out := make([]Violation, 0, set.Len())
	for _, t1 := range set.Slice() {
		violation, err := b.violation(t1.Value, t)
		if err != nil {
			return nil, err
		}
		out = append(out, violation)
	}
	return out, nil
}

func (b *bound) violation(v ast.Value, t *task) (Violation, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return Violation{}, errors.New("a violation is not an object")
	}
	msg, ok := text(o, "msg")
	if !ok || msg == "" {
		return Violation{}, errors.New(`a violation has no string "msg"`)
	}
	out := Violation{Msg: strings.Clone(msg)} // it may be a part of a longer text
	var err error
	if d := o.Get(ast.InternedTerm("details")); d != nil {
		if out.Details, err = marshal(d.Value); err != nil {
			return Violation{}, err
		}
	}
	if r := o.Get(ast.InternedTerm("remedy")); r != nil {
		if out.Remedy, err = b.remedy(r.Value, t); err != nil {
			return Violation{}, fmt.Errorf("remedy of %q: %w", clip(msg), err)
		}
	}
	return out, nil
}

func text(o ast.Object, key string) (string, bool) {
	t := o.Get(ast.StringTerm(key))
	if t == nil {
		return "", false
	}
	s, ok := t.Value.(ast.String)
	return string(s), ok
}

func (b *bound) remedy(v ast.Value, t *task) (*Remedy, error) {
	o, ok := v.(ast.Object)
	if !ok {
		return nil, errors.New("not an object")
	}
	r := &Remedy{Target: t.subject.Ref}
	r.Action, _ = text(o, "action")
	target := o.Get(ast.InternedTerm("target"))
	switch {
	case target != nil:
		if err := readRef(target.Value, &r.Target); err != nil {
			return nil, err
		}
	case b.pkg.Subject != module.ObjectSubject:
		return nil, errors.New("no target: one that is not about an object must name it")
	}
	if !slices.Contains(b.pkg.Remedies, module.Remedy{Action: r.Action, Kind: r.Target.Kind}) {
		return nil, fmt.Errorf("the package does not declare %q of %s", clip(r.Action), clip(string(r.Target.Kind)))
	}
	var err error
	switch r.Action {
	case "apply":
		r.Object, err = part(o, "object")
	case "patch":
		r.Patch, err = part(o, "patch")
	case "delete":
		r.Propagation, err = propagation(o)
	default:
		err = fmt.Errorf("action %q is none of apply, patch and delete", clip(r.Action))
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
	return "", fmt.Errorf("propagationPolicy %s is none of Background, Foreground and Orphan", clip(t.String()))
}

func part(o ast.Object, key string) ([]byte, error) {
	t := o.Get(ast.StringTerm(key))
	if t == nil {
		return nil, fmt.Errorf("no %s", key)
	}
	return marshal(t.Value)
}

func readRef(v ast.Value, r *aggregate.Ref) error {
	o, ok := v.(ast.Object)
	if !ok {
		return errors.New("target is not a ref")
	}
	member, m := text(o, "member")
	kind, k := text(o, "kind")
	name, n := text(o, "name")
	namespace, _ := text(o, "namespace")
	if !m || !k || !n || member == "" || kind == "" || name == "" {
		return errors.New("target is not a ref: it needs member, kind and name")
	}
	*r = aggregate.Ref{Member: member, Kind: aggregate.Kind(kind), Namespace: namespace, Name: name}
	return nil
}
