package plans_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// largest returns the most targets that a Plan may have, with long names, on 200 members.
func largest() []plans.Target {
	out := make([]plans.Target, v1alpha1.MaxPlanTargets)
	for i := range out {
		member := i % 200
		out[i] = plans.Target{
			MemberUID: fmt.Sprintf("0f1f4c0e-95f0-4b34-8a4c-0d8f1f%06d", member), APIVersion: "networking.k8s.io/v1",
			Ref: policy.Ref{
				Member: fmt.Sprintf("production/europe-west-3-shop-%d", member), Kind: "Ingress.networking.k8s.io",
				Namespace: "team-storefront-production", Name: fmt.Sprintf("checkout-frontend-%06d", i),
			},
			UID: fmt.Sprintf("6f1f4c0e-95f0-4b34-8a4c-0d8f1f%06d", i), Verb: v1alpha1.Patch, Remedy: digest("a"),
		}
	}
	return out
}

func BenchmarkBuild_Largest(b *testing.B) {
	targets := largest()
	var plan *v1alpha1.Plan
	var parts []*v1alpha1.PlanPart
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if plan, parts, err = plans.Build(spec(), targets); err != nil {
			b.Fatal(err)
		}
	}
	size := 0
	for _, p := range parts {
		size += len(p.Spec.Targets)
	}
	b.ReportMetric(float64(plan.Spec.Parts), "parts")
	b.ReportMetric(float64(size), "text-bytes")
}

func BenchmarkDecode_Largest(b *testing.B) {
	plan, parts := build(b, spec(), largest())
	b.ReportAllocs()
	for b.Loop() {
		if got, err := plans.Decode(plan, parts); err != nil || len(got) != v1alpha1.MaxPlanTargets {
			b.Fatal(len(got), err)
		}
	}
}

func BenchmarkTarget_Key(b *testing.B) {
	t := largest()[0]
	b.ReportAllocs()
	for b.Loop() {
		t.Key()
	}
}
