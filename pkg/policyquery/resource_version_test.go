package policyquery_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"federator.dev/federator/pkg/policy"
)

// TestViolationsWatch_OfAnyKindResumesOnlyWithTheGrantsOfTheList: the grants are of all
// present kinds, as such a policy names none.
func TestViolationsWatch_OfAnyKindResumesOnlyWithTheGrantsOfTheList(t *testing.T) {
	set := loaded(t, `# METADATA
# title: Replicas
# custom: {severity: low, kinds: ["*"]}
package any

violation contains {"msg": "too few"} if input.object.spec.replicas < 3
`)
	j, hub := hubbed(t, nil)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "any", Package: "any"}}); err != nil {
		t.Fatal(err)
	}
	var wide atomic.Bool
	hub.where = func(a *authorizationv1.ResourceAttributes) bool {
		return a.Resource == "*" || a.Namespace == "fleet" && (a.Name == "a" || a.Name == "b" && wide.Load()) // members are seen
	}
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	j.join("fleet/b")
	j.put("fleet/b", "web", 1, "")
	j.awaitEvaluation()
	before, _ := j.list("")
	if len(before.Items) != 1 {
		t.Fatalf("%+v", before.Items)
	}
	wide.Store(true)
	j.until(func() error { // answers are kept for a second
		if found, _ := j.list(""); len(found.Items) != 2 {
			return fmt.Errorf("%d findings", len(found.Items))
		}
		return nil
	})
	j.refused("watch=true&resourceVersion="+before.ResourceVersion, http.StatusGone)
}

// TestResourceVersion_HidesNothingFromCallersThatMayReadAll, even if policies read kinds
// that no member serves.
func TestResourceVersion_HidesNothingFromCallersThatMayReadAll(t *testing.T) {
	set := loaded(t, `# METADATA
# title: Replicas
# custom: {severity: low, kinds: ["Deployment.apps", "Widget.example.com"]}
package some

violation contains {"msg": "too few"} if input.object.spec.replicas < 3
`)
	j, _ := hubbed(t, nil)
	if err := j.loop.Configure(t.Context(), set, []policy.Binding{{Name: "some", Package: "some"}}); err != nil {
		t.Fatal(err)
	}
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	j.awaitEvaluation()
	if found, _ := j.list(""); strings.Contains(found.ResourceVersion, ".") {
		t.Errorf("the resourceVersion is %s", found.ResourceVersion)
	}
}

// TestResourceVersion_RevealsNoHiddenMembers: neither which there are nor whether there are
// any.
func TestResourceVersion_RevealsNoHiddenMembers(t *testing.T) {
	j, hub := hubbed(t, nil)
	hub.where = func(a *authorizationv1.ResourceAttributes) bool { return a.Namespace == "fleet" && a.Name == "a" }
	versionSum := func() string {
		j.awaitEvaluation()
		found, _ := j.list("policy=replicas")
		_, sum, _ := strings.Cut(found.ResourceVersion, ".")
		return sum
	}
	j.join("fleet/a")
	j.put("fleet/a", "web", 1, "")
	alone := versionSum()
	j.join("fleet/b")
	j.put("fleet/b", "web", 1, "")
	if beside := versionSum(); beside != alone {
		t.Errorf("the resourceVersion ends with %q beside a member that may not be seen, and with %q without one", beside, alone)
	}
}
