package remediate_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"

	"federator.dev/federator/api/v1alpha1"
)

// listPlansLocked returns the Plans, or the PlanParts that a field selector keeps.
func (f *fleet) listPlansLocked(collection string, r *http.Request) any {
	items := []any{}
	_, of, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "spec.plan=")
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasPrefix(key, collection+"/") {
			continue
		}
		var o struct {
			Spec struct{ Plan string } `json:"spec"`
		}
		if err := json.Unmarshal(f.objects[key], &o); err != nil {
			panic(err)
		}
		if of == "" || o.Spec.Plan == of {
			items = append(items, json.RawMessage(f.objects[key]))
		}
	}
	return map[string]any{"items": items}
}

// plans returns the Plans of the hub, the oldest first.
func (f *fleet) plans() (out []v1alpha1.Plan) {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, text := range f.objects {
		if !strings.HasPrefix(key, "hub/apis/federator.dev/v1alpha1/plans/") {
			continue
		}
		var p v1alpha1.Plan
		if err := json.Unmarshal(text, &p); err != nil {
			panic(err)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b v1alpha1.Plan) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return out
}
