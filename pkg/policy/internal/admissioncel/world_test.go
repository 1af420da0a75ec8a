package admissioncel_test

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/pkg/policy/internal/admissioncel"
)

// world judges objects as a member's API server would, by what this package has.
type world struct {
	namespaces map[string]map[string]any
	params     []admissioncel.Param
	policies   []*policyInForce
}

type policyInForce struct {
	of        *admissionv1.ValidatingAdmissionPolicy
	program   *admissioncel.Program
	selection *admissioncel.Selection
	bindings  []*bindingInForce
}

type bindingInForce struct {
	of        *admissionv1.ValidatingAdmissionPolicyBinding
	selection *admissioncel.Selection
}

func (w *world) add(o *unstructured.Unstructured) {
	if o.GetKind() == "Namespace" {
		if w.namespaces == nil {
			w.namespaces = map[string]map[string]any{}
		}
		w.namespaces[o.GetName()] = o.Object
		return
	}
	w.params = append(w.params, admissioncel.Param{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Object: o.Object})
}

func (w *world) addPolicy(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	fail := func(problems []admissioncel.Problem) {
		if len(problems) > 0 {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), problems)
		}
	}
	if o.GetKind() == "ValidatingAdmissionPolicy" {
		p := &policyInForce{of: &admissionv1.ValidatingAdmissionPolicy{}}
		convert(t, o, p.of)
		policy, problems := admissioncel.FromAdmissionPolicy(p.of)
		fail(problems)
		p.program, problems = admissioncel.Compile(policy)
		fail(problems)
		p.selection, problems = admissioncel.CompileSelection(p.of.Spec.MatchConstraints, "spec.matchConstraints")
		fail(problems)
		w.policies = append(w.policies, p)
		return
	}
	b := &bindingInForce{of: &admissionv1.ValidatingAdmissionPolicyBinding{}}
	convert(t, o, b.of)
	var problems []admissioncel.Problem
	b.selection, problems = admissioncel.CompileSelection(b.of.Spec.MatchResources, "spec.matchResources")
	fail(problems)
	i := slices.IndexFunc(w.policies, func(p *policyInForce) bool { return p.of.Name == b.of.Spec.PolicyName })
	w.policies[i].bindings = append(w.policies[i].bindings, b)
}

func convert(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		t.Fatal(err)
	}
}

func (w *world) selects(s *admissioncel.Selection, target *admissioncel.Target) bool {
	if s.Static(target) != admissioncel.Yes {
		return false
	}
	return !s.ReadsNamespace(target) || s.Namespace(namespaceLabels(w.namespaces[target.Namespace]))
}

func namespaceLabels(ns map[string]any) labels.Set {
	return (&unstructured.Unstructured{Object: ns}).GetLabels()
}

func (w *world) decide(t *testing.T, o *unstructured.Unstructured) answer {
	t.Helper()
	gvr := resources[o.GetKind()]
	target := &admissioncel.Target{
		Group: gvr.Group, Version: gvr.Version, Kind: o.GetKind(), Resource: gvr.Resource,
		Namespace: o.GetNamespace(), Name: o.GetName(), Labels: labels.Set(o.GetLabels()),
	}
	var out answer
	for _, p := range w.policies {
		if !w.selects(p.selection, target) {
			continue
		}
		for _, b := range p.bindings {
			if w.selects(b.selection, target) {
				w.decideBinding(t, p, b, o, &out)
			}
		}
	}
	slices.Sort(out.warnings)
	out.warnings = slices.Compact(out.warnings)
	return out
}

func (w *world) decideBinding(t *testing.T, p *policyInForce, b *bindingInForce, o *unstructured.Unstructured, out *answer) {
	t.Helper()
	deny := func(reason metav1.StatusReason, message string) {
		if b.of.Spec.ValidationActions[0] == admissionv1.Warn && reason != "config" {
			out.warnings = append(out.warnings, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", p.of.Name, b.of.Name, message))
			return
		}
		out.denials = append(out.denials, fmt.Sprintf("%s \"%s\" is forbidden: ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", qualified(o), o.GetName(), p.of.Name, b.of.Name, message))
	}
	namespace := o.GetNamespace()
	if o.GetKind() == "Namespace" { // requests for a Namespace name itself
		namespace = o.GetName()
	}
	params, err := admissioncel.SelectParams(p.program.HasParams(), b.of.Spec.ParamRef, true, namespace, w.params)
	if err != nil {
		deny("config", "failed to configure binding: "+err.Error())
	}
	for _, param := range params {
		in := &admissioncel.Input{Object: o.Object, Params: param.Object, Namespace: w.namespaces[o.GetNamespace()], Resource: resources[o.GetKind()].Resource}
		decisions, err := p.program.Evaluate(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range decisions {
			deny(d.Reason, d.Message)
		}
	}
}

func qualified(o *unstructured.Unstructured) string {
	gvr := resources[o.GetKind()]
	return gvr.GroupResource().String()
}
