package hub

import (
	"strings"

	"federator.dev/federator/api/v1alpha1"
)

// notSupported names the fields of a FleetPolicy that are set and that nothing acts on
// yet: a policy that would be enforced without them is not in effect.
func notSupported(fp *v1alpha1.FleetPolicy) policyProblem {
	spec := &fp.Spec
	var fields []string
	add := func(set bool, field string) {
		if set {
			fields = append(fields, field)
		}
	}
	add(spec.Approval != nil, "spec.approval")
	if fields == nil {
		return policyProblem{}
	}
	return policyProblem{reasonNotSupported, notSupportedMessage(fields)}
}

// notSupportedCeiling is notSupported for a PolicySource.
func notSupportedCeiling(ps *v1alpha1.PolicySource) problem {
	c := &ps.Spec.Ceiling
	var fields []string
	if c.Approval != nil {
		fields = append(fields, "spec.ceiling.approval")
	}
	if fields == nil {
		return problem{}
	}
	return problem{reasonNotSupported, notSupportedMessage(fields)}
}

const reasonNotSupported = "NotSupported"

func notSupportedMessage(fields []string) string {
	return "this version of federator does not support " + strings.Join(fields, ", ")
}
