package hub

import (
	"testing"

	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
)

// TestNotSupported_NamesFieldsThatNothingActsOn: a value that is set and would have no
// effect is a problem, and defaults are none.
func TestNotSupported_NamesFieldsThatNothingActsOn(t *testing.T) {
	const says = "this version of federator does not support "
	for spec, want := range map[string]string{
		`{}`: "",
		`{optOut: Honor, gitops: Respect, limits: {maxReversions: 3}, waves: [{name: a, health: {maxFailed: 5}, effect: {unknown: true}}]}`: "",
		`{approval: {}}`:                   "spec.approval",
		`{optOut: None, gitops: Override}`: "",
	} {
		var fp v1alpha1.FleetPolicy
		if err := yaml.UnmarshalStrict([]byte("spec: "+spec), &fp); err != nil {
			t.Fatal(err)
		}
		checkNotSupported(t, spec, notSupported(&fp).reason, notSupported(&fp).message, says, want)
	}
	for ceiling, want := range map[string]string{
		`{maxMode: Observe, gitops: Respect, optOut: Honor}`:                                                              "",
		`{limits: {member: {count: 1}}, window: {schedule: "* * * * *", duration: 1h}, waves: [{name: a}], approval: {}}`: "spec.ceiling.approval",
		`{force: true, actAs: [""], gitops: Override, optOut: None}`:                                                      "",
	} {
		var ps v1alpha1.PolicySource
		if err := yaml.UnmarshalStrict([]byte("spec: {ceiling: "+ceiling+"}"), &ps); err != nil {
			t.Fatal(err)
		}
		_, bad := toSource(&ps, nil)
		checkNotSupported(t, ceiling, bad.reason, bad.message, says, want)
	}
}

func checkNotSupported(t *testing.T, spec, reason, message, says, want string) {
	t.Helper()
	if want != "" {
		want = says + want
	}
	if message != want || (reason == "NotSupported") != (want != "") {
		t.Errorf("%s: %s: %q, want %q", spec, reason, message, want)
	}
}
