package plans_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// manyParts is a Plan with a few parts.
func manyParts(t testing.TB) (*v1alpha1.Plan, []v1alpha1.PlanPart) {
	t.Helper()
	plan, parts := build(t, spec(), randomTargets(rand.New(rand.NewPCG(7, 7)), 4000))
	if len(parts) < 3 {
		t.Fatalf("%d parts", len(parts))
	}
	return plan, parts
}

// TestDecode_RefusesWhatWasNotFrozen changes a Plan, or its parts, in one way at a time.
func TestDecode_RefusesWhatWasNotFrozen(t *testing.T) {
	t.Parallel()
	original, originalParts := manyParts(t)
	type stored struct {
		plan  *v1alpha1.Plan
		parts []v1alpha1.PlanPart
	}
	replace := func(s *stored, part int, old, new string) {
		if before := s.parts[part].Spec.Targets; !strings.Contains(before, old) {
			t.Fatalf("no part has %q", old)
		} else {
			s.parts[part].Spec.Targets = strings.Replace(before, old, new, 1)
		}
	}
	for name, c := range map[string]struct {
		change func(*stored)
		want   error
	}{
		"nothing":              {func(*stored) {}, nil},
		"no parts":             {func(s *stored) { s.parts = nil }, plans.ErrIncomplete},
		"first part missing":   {func(s *stored) { s.parts = s.parts[1:] }, plans.ErrIncomplete},
		"last part missing":    {func(s *stored) { s.parts = s.parts[:len(s.parts)-1] }, plans.ErrIncomplete},
		"part twice":           {func(s *stored) { s.parts = append(s.parts, s.parts[1]) }, plans.ErrCorrupt},
		"part instead of next": {func(s *stored) { s.parts[1] = s.parts[0] }, plans.ErrCorrupt},
		"parts swapped":        {func(s *stored) { s.parts[0].Spec.Number, s.parts[1].Spec.Number = 2, 1 }, plans.ErrCorrupt},
		"number 0":             {func(s *stored) { s.parts[0].Spec.Number = 0 }, plans.ErrCorrupt},
		"number too high":      {func(s *stored) { s.parts[0].Spec.Number = 9999 }, plans.ErrCorrupt},
		"part of another":      {func(s *stored) { s.parts[1].Spec.Plan = "other" }, plans.ErrCorrupt},
		"no JSON":              {func(s *stored) { s.parts[1].Spec.Targets = "[" }, plans.ErrCorrupt},
		"empty part":           {func(s *stored) { s.parts[1].Spec.Targets = "[]" }, plans.ErrCorrupt},
		"empty group":          {func(s *stored) { replace(s, 1, `[{"member"`, `[{"member":"a","targets":[]},{"member"`) }, plans.ErrCorrupt},
		"another member":       {func(s *stored) { replace(s, 1, `"memberUID":"uid-`, `"memberUID":"uid+`) }, plans.ErrCorrupt},
		"another verb":         {func(s *stored) { replace(s, 0, `"verb":"apply"`, `"verb":"aaply"`) }, plans.ErrCorrupt},
		"another remedy":       {func(s *stored) { replace(s, 0, string(digest("a")), string(digest("d"))) }, plans.ErrCorrupt},
		"reversible":           {func(s *stored) { replace(s, 0, `"irreversible":"plain"`, `"irreversible":""`) }, plans.ErrCorrupt},
		"another text":         {func(s *stored) { replace(s, 0, `"irreversible":"plain"`, `"irreversible":"p"`) }, nil},
		"too long": {func(s *stored) {
			s.parts[0].Spec.Targets += strings.Repeat(" ", v1alpha1.MaxPlanPartBytes)
		}, plans.ErrCorrupt},
		"fewer targets":    {func(s *stored) { s.plan.Spec.Targets-- }, plans.ErrCorrupt},
		"more targets":     {func(s *stored) { s.plan.Spec.Targets++ }, plans.ErrCorrupt},
		"negative targets": {func(s *stored) { s.plan.Spec.Targets = -1 }, plans.ErrCorrupt},
		"fewer parts":      {func(s *stored) { s.plan.Spec.Parts-- }, plans.ErrCorrupt},
		"more parts":       {func(s *stored) { s.plan.Spec.Parts++ }, plans.ErrIncomplete},
		"counts":           {func(s *stored) { s.plan.Spec.Counts[0].Targets-- }, plans.ErrCorrupt},
		"irreversible":     {func(s *stored) { s.plan.Spec.Irreversible = 0 }, plans.ErrCorrupt},
		"hash":             {func(s *stored) { s.plan.Spec.Hash = digest("0") }, plans.ErrCorrupt},
		"digest":           {func(s *stored) { s.plan.Spec.Digests.Targets = digest("0") }, plans.ErrCorrupt},
		"package":          {func(s *stored) { s.plan.Spec.Digests.Package = digest("0") }, plans.ErrCorrupt},
		"policy":           {func(s *stored) { s.plan.Spec.Policy = "other" }, plans.ErrCorrupt},
		"purpose":          {func(s *stored) { s.plan.Spec.Purpose = v1alpha1.PlanDryRun }, plans.ErrCorrupt},
		"name": {func(s *stored) {
			s.plan.Name = "other-0123456789abcdef"
			for i := range s.parts {
				s.parts[i].Spec.Plan = s.plan.Name
			}
		}, plans.ErrCorrupt},
	} {
		s := &stored{original.DeepCopy(), append([]v1alpha1.PlanPart(nil), originalParts...)}
		c.change(s)
		targets, err := plans.Decode(s.plan, s.parts)
		if !errors.Is(err, c.want) || (err == nil) != (len(targets) == 4000) {
			t.Errorf("%s: %d targets, %v, want %v", name, len(targets), err, c.want)
		}
	}
}

// FuzzDecode: whatever a part says, it is refused or its targets are those of the Plan.
func FuzzDecode(f *testing.F) {
	plan, parts := build(f, spec(), randomTargets(rand.New(rand.NewPCG(3, 3)), 5))
	f.Add(parts[0].Spec.Targets, plan.Spec.Targets)
	f.Add(`[{"targets":[{},{}]},{"targets":null},null]`, int32(2))
	f.Add(`[{"member":"m","memberUID":"u","kind":"K","verb":"patch","targets":[{"name":"n","remedy":"`+string(digest("a"))+`"}]}]`, int32(1))
	f.Fuzz(func(t *testing.T, text string, n int32) {
		part := v1alpha1.PlanPart{Spec: v1alpha1.PlanPartSpec{Number: 1, Targets: text}}
		groups, err := part.Groups()
		plan := &v1alpha1.Plan{Spec: spec()}
		plan.Spec.Targets = n
		if err == nil {
			// A Plan of these targets, if there can be one: its digests are right.
			var targets []plans.Target
			for _, g := range groups {
				for _, p := range g.Targets {
					targets = append(targets, plans.Target{
						MemberUID: g.MemberUID, Ref: policy.Ref{Member: g.Member, Kind: policy.Kind(g.Kind), Namespace: p.Namespace, Name: p.Name}, APIVersion: g.APIVersion,
						UID: p.UID, Verb: g.Verb, Remedy: p.Remedy, Irreversible: p.Irreversible, Diff: p.Diff, DryRun: p.DryRun, Message: p.Message,
					})
				}
			}
			if made, _, err := plans.Build(spec(), targets); err == nil {
				plan = made
			}
		}
		plan.Spec.Parts, part.Spec.Plan = 1, plan.Name
		got, err := plans.Decode(plan, []v1alpha1.PlanPart{part})
		if err != nil {
			if !errors.Is(err, plans.ErrCorrupt) || got != nil {
				t.Fatalf("%d targets and %v", len(got), err)
			}
			return
		}
		again, _, err := plans.Build(spec(), got)
		if err != nil || again.Spec.Hash != plan.Spec.Hash || len(got) != int(plan.Spec.Targets) {
			t.Fatalf("%d targets make %+v, %v, not %+v", len(got), again, err, plan)
		}
	})
}
