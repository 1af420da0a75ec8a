package planstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/planstore"
)

func body(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// read returns the targets of all parts of a Plan.
func read(t *testing.T, r *planstore.Reader, plan *v1alpha1.Plan) (names []string, err error) {
	t.Helper()
	for part := int32(1); part <= plan.Spec.Parts; part++ {
		groups, err := r.Groups(t.Context(), plan, part)
		if err != nil {
			return names, err
		}
		for _, g := range groups {
			for _, target := range g.Targets {
				names = append(names, target.Name)
			}
		}
	}
	return names, nil
}

func TestReader_ReadsAPartOnce(t *testing.T) {
	t.Parallel()
	p, name := newProcess(t), newPolicy()
	plan, parts := planOf(t, name, targetsOf(700, "1"))
	made, err := p.Create(t.Context(), plan, parts)
	if err != nil {
		t.Fatal(err)
	}
	other, otherParts := planOf(t, newPolicy(), targetsOf(1, "1"))
	if _, err := p.Create(t.Context(), other, otherParts); err != nil {
		t.Fatal(err)
	}
	r := planstore.NewReader(p.Hub)
	all, err := r.Plans(t.Context(), name)
	if err != nil || len(all) != 1 || all[0].UID != made.UID || all[0].Spec.Parts != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	p.requests = 0
	for range 3 {
		names, err := read(t, r, &all[0])
		if err != nil || len(names) != 700 || p.requests != 2 {
			t.Fatalf("%d targets with %d requests, %v", len(names), p.requests, err)
		}
		for i, n := range names {
			if want := fmt.Sprintf("%s%06d", strings.Repeat("o", 240), i); n != want {
				t.Fatalf("target %d is %s, not %s", i, n, want)
			}
		}
	}
	for _, part := range []int32{0, 3} {
		if groups, err := r.Groups(t.Context(), &all[0], part); err == nil {
			t.Errorf("part %d has %d groups", part, len(groups))
		}
	}
}

// TestReader_ReadsWhatWasFrozen: a part that is missing or was replaced, before any of the Plan
// was read or after, is not shown, nor is anything else of the Plan.
func TestReader_ReadsWhatWasFrozen(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	made := make([]*v1alpha1.Plan, 0, 70)
	for range cap(made) { // more than a Reader keeps
		plan, parts := planOf(t, newPolicy(), targetsOf(3, "1"))
		m, err := p.Create(t.Context(), plan, parts)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, m)
	}
	r := planstore.NewReader(p.Hub)
	for _, m := range made {
		if names, err := read(t, r, m); err != nil || len(names) != 3 {
			t.Fatalf("%d targets, %v", len(names), err)
		}
	}
	first, second := made[0], made[1]
	if names, err := read(t, r, first); err != nil || len(names) != 3 {
		t.Fatalf("once more: %d targets, %v", len(names), err)
	}
	for _, m := range []*v1alpha1.Plan{second, made[69]} {
		_, parts := planOf(t, m.Spec.Policy, targetsOf(3, "2")) // of other content
		forged := parts[0]
		forged.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "Plan", Name: m.Name, UID: m.UID}}
		forged.Spec.Targets = strings.ReplaceAll(forged.Spec.Targets, `"verb":"patch"`, `"verb":"delete"`)
		if err := p.Hub.Do(t.Context(), p.Hub.Request(http.MethodDelete, v1alpha1.PlanParts, forged.Name), nil); err != nil {
			t.Fatal(err)
		}
		if names, err := read(t, planstore.NewReader(p.Hub), m); !errors.Is(err, plans.ErrIncomplete) || names != nil {
			t.Errorf("without its part: %d targets, %v", len(names), err)
		}
		if err := p.Hub.Do(t.Context(), p.Hub.Request(http.MethodPost, v1alpha1.PlanParts).SetHeader("Content-Type", "application/json").Body(body(t, forged)), nil); err != nil {
			t.Fatal(err)
		}
		if names, err := read(t, planstore.NewReader(p.Hub), m); !errors.Is(err, plans.ErrCorrupt) || names != nil {
			t.Errorf("with another part: %d targets, %v", len(names), err)
		}
	}
	for range 2 {
		if names, err := read(t, r, second); !errors.Is(err, plans.ErrCorrupt) || names != nil {
			t.Errorf("with a part that was replaced since: %d targets, %v", len(names), err)
		}
	}
	if names, err := read(t, r, made[69]); err != nil || len(names) != 3 {
		t.Errorf("what it keeps: %d targets, %v", len(names), err)
	}
}
