package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	regoschema "github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego/schema"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/constraints"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/pkg/aggregate"
)

const (
	frameworkTarget = "admission.k8s.gatekeeper.sh"
	auditPoint      = "audit.gatekeeper.sh"
)

// target turns objects into reviews as Gatekeeper's audit does: an admission request
// with the object as JSON.
type target struct{}

func (target) GetName() string { return frameworkTarget }

func (target) MatchSchema() apiextensions.JSONSchemaProps {
	return apiextensions.JSONSchemaProps{Type: "object"}
}

func (target) ProcessData(any) (bool, []string, any, error) { return false, nil, nil, nil }

func (target) HandleReview(object any) (bool, any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return false, nil, nil
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		return false, nil, err
	}
	gvk := o.GroupVersionKind()
	return true, &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Name: o.GetName(), Namespace: o.GetNamespace(), Object: runtime.RawExtension{Raw: raw},
	}, nil
}

func (target) ValidateConstraint(*unstructured.Unstructured) error { return nil }

func (target) ToMatcher(*unstructured.Unstructured) (constraints.Matcher, error) {
	return podMatcher{}, nil
}

type podMatcher struct{}

func (podMatcher) Match(review any) (bool, error) {
	r, ok := review.(*admissionv1.AdmissionRequest)
	return ok && r.Kind.Kind == "Pod", nil
}

// newFramework is Gatekeeper's engine with a template and a constraint of each rule.
func newFramework(ctx context.Context, rules []rule) (*client.Client, error) {
	driver, err := rego.New(rego.Tracing(false))
	if err != nil {
		return nil, err
	}
	c, err := client.NewClient(client.Targets(target{}), client.Driver(driver), client.EnforcementPoints(auditPoint))
	if err != nil {
		return nil, err
	}
	keep := true
	for _, r := range rules {
		t := &templates.ConstraintTemplate{}
		t.SetName(lowerCase(r.kind))
		t.Spec.CRD.Spec.Names.Kind = r.kind
		t.Spec.CRD.Spec.Validation = &templates.Validation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
			Type: "object", XPreserveUnknownFields: &keep,
		}}
		t.Spec.Targets = []templates.Target{{Target: frameworkTarget, Code: []templates.Code{{
			Engine: regoschema.Name,
			Source: &templates.Anything{Value: (&regoschema.Source{Version: "v1", Rego: r.template()}).ToUnstructured()},
		}}}}
		if _, err := c.AddTemplate(ctx, t); err != nil {
			return nil, fmt.Errorf("template %s: %w", r.kind, err)
		}
		parameters := r.parameters
		if parameters == nil {
			parameters = map[string]any{}
		}
		constraint := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": r.kind, "metadata": map[string]any{"name": r.name},
			"spec": map[string]any{"enforcementAction": "deny", "parameters": parameters},
		}}
		if _, err := c.AddConstraint(ctx, constraint); err != nil {
			return nil, fmt.Errorf("constraint %s: %w", r.name, err)
		}
	}
	return c, nil
}

func lowerCase(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// framework measures Gatekeeper's engine on all pods, from JSON and from objects that
// it holds decoded, and returns what it says.
func (s *podSet) framework(ctx context.Context, out figures) (map[string]int, error) {
	c, err := newFramework(ctx, compared)
	if err != nil {
		return nil, err
	}
	decoded := make([]*unstructured.Unstructured, s.perMember)
	names := make([]string, s.perMember)
	all := map[string]int{}
	var rec aggregate.Record
	for i := range decoded {
		s.record(&rec, 0, i, i+1)
		names[i] = rec.Namespace + "/" + rec.Name
		decoded[i] = &unstructured.Unstructured{}
		if err := decoded[i].UnmarshalJSON(rec.Body); err != nil {
			return nil, err
		}
		responses, err := c.Review(ctx, decoded[i])
		if err != nil {
			return nil, err
		}
		for _, r := range responses.Results() {
			text, err := said(r.Constraint.GetName(), names[i], r.Msg, r.Metadata["details"])
			if err != nil {
				return nil, err
			}
			all[text]++
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the framework finds nothing")
	}
	review := func(get func(i int) (*unstructured.Unstructured, error)) func() error {
		return func() error {
			for i := range decoded {
				o, err := get(i)
				if err != nil {
					return err
				}
				if _, err := c.Review(ctx, o); err != nil {
					return err
				}
			}
			return nil
		}
	}
	n := float64(s.perMember)
	if out["theirs-decoded"], err = fastest(n, review(func(i int) (*unstructured.Unstructured, error) { return decoded[i], nil })); err != nil {
		return nil, err
	}
	bodies := s.bodies
	clear(decoded)
	out["theirs"], err = fastest(n, review(func(i int) (*unstructured.Unstructured, error) {
		var o unstructured.Unstructured
		return &o, o.UnmarshalJSON(bodies[i%len(bodies)])
	}))
	return all, err
}
