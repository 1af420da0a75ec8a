package crds

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/api/v1alpha1"
)

// planned returns n targets of a fleet with long names, as JSON.
func planned(t *testing.T, n int) string {
	t.Helper()
	group := v1alpha1.PlanGroup{
		Member: "production/europe-west-3-shop-1", MemberUID: "0f1f4c0e-95f0-4b34-8a4c-0d8f1f8a2f11", APIVersion: "networking.k8s.io/v1",
		Kind: "Ingress.networking.k8s.io", Verb: v1alpha1.Patch,
	}
	for i := range n {
		group.Targets = append(group.Targets, v1alpha1.PlannedTarget{
			Namespace: "team-storefront-production", Name: fmt.Sprintf("checkout-frontend-%06d", i), UID: fmt.Sprintf("6f1f4c0e-95f0-4b34-8a4c-0d8f1f%06d", i),
			Remedy: v1alpha1.Digest(strings.Repeat("9f86d081", 8)),
		})
	}
	text, err := json.Marshal([]v1alpha1.PlanGroup{group})
	must(t, err)
	return string(text)
}

// TestPlan_TheLargestIsAdmitted: what the API server spends on holding it immutable is
// within its limits, and a plan of the most targets has not too many parts.
func TestPlan_TheLargestIsAdmitted(t *testing.T) {
	const perPart = 2000
	if parts := v1alpha1.MaxPlanTargets / perPart; parts > 50 {
		t.Errorf("%d targets are %d parts", v1alpha1.MaxPlanTargets, parts)
	}
	u := full(t, v1alpha1.PlanParts, "largest")
	text := planned(t, perPart)
	must(t, unstructured.SetNestedField(u.Object, text, "spec", "targets"))
	body, err := u.MarshalJSON()
	must(t, err)
	if room := v1alpha1.MaxPlanPartBytes - len(body) - 1<<10; room < 0 {
		t.Fatalf("%d targets are %d bytes, more than a part may have", perPart, len(body))
	} else {
		text += strings.Repeat(" ", room) // to the largest
	}
	must(t, unstructured.SetNestedField(u.Object, text, "spec", "targets"))
	got := added(t, client(t, v1alpha1.PlanParts), u)
	got.SetLabels(map[string]string{"a": "b"})
	got, err = client(t, v1alpha1.PlanParts).Update(t.Context(), got, metav1.UpdateOptions{})
	must(t, err)
	part, err := decode(t, got)
	must(t, err)
	groups, err := part.(*v1alpha1.PlanPart).Groups()
	if err != nil || len(groups) != 1 || len(groups[0].Targets) != perPart {
		t.Errorf("%d groups, %v", len(groups), err)
	}
	if text, err := got.MarshalJSON(); err != nil || len(text) > v1alpha1.MaxPlanPartBytes {
		t.Errorf("the part is %d bytes, %v", len(text), err)
	}

	plan := full(t, v1alpha1.Plans, "largest")
	var counts []any
	for i := range 1000 {
		counts = append(counts, map[string]any{"member": fmt.Sprintf("production/%0300d", i), "kind": strings.Repeat("k", 317), "verb": "patch", "targets": int64(1)})
	}
	must(t, unstructured.SetNestedSlice(plan.Object, counts, "spec", "counts"))
	got = added(t, client(t, v1alpha1.Plans), plan)
	got.SetLabels(map[string]string{"a": "b"})
	_, err = client(t, v1alpha1.Plans).Update(t.Context(), got, metav1.UpdateOptions{})
	must(t, err)
}
