package plans

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
)

var (
	// ErrIncomplete is returned for a Plan of which parts are missing.
	ErrIncomplete = errors.New("parts are missing")
	// ErrCorrupt is returned for a Plan whose parts are not those that it was made with.
	ErrCorrupt = errors.New("it is not what was frozen")
)

// Decode returns the targets of a Plan from its parts, which may be in any order. What it
// returns is what the Plan's hash was computed from: an error is ErrIncomplete or ErrCorrupt.
func Decode(plan *v1alpha1.Plan, parts []v1alpha1.PlanPart) ([]Target, error) {
	targets, err := decode(plan, parts)
	if err != nil {
		return nil, fmt.Errorf("plan %q: %w", plan.Name, err)
	}
	return targets, nil
}

func decode(plan *v1alpha1.Plan, parts []v1alpha1.PlanPart) ([]Target, error) {
	ordered, err := order(plan, parts)
	if err != nil {
		return nil, err
	}
	if n := plan.Spec.Targets; n < 0 || n > v1alpha1.MaxPlanTargets {
		return nil, fmt.Errorf("%w: %d targets", ErrCorrupt, n)
	}
	d := decoder{max: int(plan.Spec.Targets)}
	for _, p := range ordered {
		if err := d.part(p); err != nil {
			return nil, fmt.Errorf("%w: part %d: %w", ErrCorrupt, p.Spec.Number, err)
		}
	}
	if len(d.targets) != d.max {
		return nil, fmt.Errorf("%w: %d targets, not %d", ErrCorrupt, len(d.targets), d.max)
	}
	return d.targets, verify(plan, d.targets)
}

// order returns the parts of a Plan by number.
func order(plan *v1alpha1.Plan, parts []v1alpha1.PlanPart) ([]*v1alpha1.PlanPart, error) {
	out := make([]*v1alpha1.PlanPart, 0, len(parts))
	for i := range parts {
		if p := &parts[i]; p.Spec.Plan != plan.Name || p.Spec.Number < 1 || p.Spec.Number > plan.Spec.Parts {
			return nil, fmt.Errorf("%w: it has no part %q", ErrCorrupt, p.Name)
		}
		out = append(out, &parts[i])
	}
	slices.SortFunc(out, func(a, b *v1alpha1.PlanPart) int { return int(a.Spec.Number) - int(b.Spec.Number) })
	for i, p := range out {
		switch want := int32(i + 1); { // At most as many as there are numbers.
		case p.Spec.Number < want:
			return nil, fmt.Errorf("%w: part %d is there twice", ErrCorrupt, p.Spec.Number)
		case p.Spec.Number > want:
			return nil, fmt.Errorf("%w: part %d of %d", ErrIncomplete, want, plan.Spec.Parts)
		}
	}
	if len(out) != int(plan.Spec.Parts) {
		return nil, fmt.Errorf("%w: %d of %d are there", ErrIncomplete, len(out), plan.Spec.Parts)
	}
	return out, nil
}

// decoder gathers the targets of parts in order.
type decoder struct {
	max     int // targets
	targets []Target
}

func (d *decoder) part(p *v1alpha1.PlanPart) error {
	if n := len(p.Spec.Targets); n > maxText {
		return fmt.Errorf("it has %d bytes", n)
	}
	groups, err := p.Groups()
	if err != nil {
		return err
	}
	for i := range groups {
		g := &groups[i]
		if len(g.Targets) == 0 {
			return errors.New("a group has no targets")
		}
		for n := range g.Targets {
			if err := d.add(g, &g.Targets[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// add appends a target. What it has in common with the one before is held once.
func (d *decoder) add(g *v1alpha1.PlanGroup, p *v1alpha1.PlannedTarget) error {
	t := Target{
		MemberUID: g.MemberUID, Ref: policy.Ref{Member: g.Member, Kind: policy.Kind(g.Kind), Namespace: p.Namespace, Name: p.Name},
		APIVersion: g.APIVersion, UID: p.UID, Verb: g.Verb, Remedy: p.Remedy, Actions: joinActions(p.Actions),
		Irreversible: p.Irreversible, Diff: p.Diff, DryRun: p.DryRun, Message: p.Message,
	}
	if n := len(d.targets); n >= d.max {
		return fmt.Errorf("there are more than %d targets", d.max)
	} else if n > 0 {
		last := &d.targets[n-1]
		if compare(last, &t) >= 0 {
			return errors.New("the targets are not in order")
		}
		if t.Ref.Namespace == last.Ref.Namespace {
			t.Ref.Namespace = last.Ref.Namespace
		}
		if t.Remedy == last.Remedy {
			t.Remedy = last.Remedy
		}
	}
	d.targets = append(d.targets, t)
	return nil
}

// joinActions returns the names of Actions as a Target has them.
func joinActions(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " " + strings.Join(names, " ")
}

// verify returns whether targets in order are those that a Plan was made of.
func verify(plan *v1alpha1.Plan, targets []Target) error {
	if err := check(targets); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	s := v1alpha1.PlanSpec{}
	summarize(&s, targets)
	hash, err := hashSpec(&plan.Spec)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case digestTargets(targets) != plan.Spec.Digests.Targets:
		return fmt.Errorf("%w: the digest of the targets differs", ErrCorrupt)
	case hash != plan.Spec.Hash, plan.Name != nameOf(plan.Spec.Policy, hash):
		return fmt.Errorf("%w: its hash differs", ErrCorrupt)
	case s.Irreversible != plan.Spec.Irreversible, s.CountsOmitted != plan.Spec.CountsOmitted, !slices.Equal(s.Counts, plan.Spec.Counts):
		return fmt.Errorf("%w: its counts differ", ErrCorrupt)
	}
	return nil
}
