package binding

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/internal/builtin"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/admissioncel"
	"federator.dev/federator/pkg/policy/internal/constraintmatch"
)

// admissionMatch is what a ValidatingAdmissionPolicy and one of its bindings match: what
// both do. An object of which that cannot be said is a subject, too: its verdict is an
// error.
type admissionMatch struct{ policy, binding *admissioncel.Selection }

var _ objectMatch = &admissionMatch{}

func (m *admissionMatch) SelectsKind(group, kind string) bool {
	gr, _ := builtin.Resource(aggregate.MakeKind(kind, group))
	return m.policy.SelectsResource(group, gr.Resource) && m.binding.SelectsResource(group, gr.Resource)
}

func (m *admissionMatch) Static(o *constraintmatch.Object) bool {
	t := targetOf(o)
	return m.policy.Static(t) != admissioncel.No && m.binding.Static(t) != admissioncel.No
}

func (m *admissionMatch) ReadsNamespace(o *constraintmatch.Object) bool {
	t := targetOf(o)
	return m.policy.ReadsNamespace(t) || m.binding.ReadsNamespace(t)
}

func (m *admissionMatch) Namespace(of labels.Labels) bool {
	return m.policy.Namespace(of) && m.binding.Namespace(of)
}

// Named is part of Static.
func (m *admissionMatch) Named(*constraintmatch.Object) bool { return true }

func (m *admissionMatch) ByLabels() bool { return m.policy.ByLabels() || m.binding.ByLabels() }

func (m *admissionMatch) ByNamespaceLabels() bool {
	return m.policy.ByNamespaceLabels() || m.binding.ByNamespaceLabels()
}

func targetOf(o *constraintmatch.Object) *admissioncel.Target {
	return &admissioncel.Target{Group: o.Group, Version: o.Version, Kind: o.Kind, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name, Labels: o.Labels}
}

// CheckMatch returns why it cannot be said whether a ValidatingAdmissionPolicy is about an
// object that the selection selects: nil where it is.
func (s *Selection) CheckMatch(o aggregate.Object) error {
	m, ok := s.constraint.(*admissionMatch)
	if !ok {
		return nil
	}
	of := s.matchable(o)
	for _, selection := range []*admissioncel.Selection{m.policy, m.binding} {
		switch selection.Static(targetOf(&of)) {
		case admissioncel.UnknownResource:
			return fmt.Errorf("%s: it is not known which resource %s is in member %q, by which the policy selects objects", o.Ref().Name, o.Ref().Kind, o.Member())
		case admissioncel.OtherVersion:
			var versions []string
			for _, v := range selection.Versions(targetOf(&of)) {
				versions = append(versions, "version "+v)
			}
			return fmt.Errorf("%s is held at %s, and the policy is about %s: it is not evaluated on an object of another version", o.Ref().Kind, o.APIVersion(), strings.Join(versions, ", "))
		}
	}
	return nil
}

// ResourceOf returns the resource of an object, such as "pods": "" where it is not known.
// What members say decides only of what is none of Kubernetes itself.
func ResourceOf(o aggregate.Object) string {
	if gr, ok := builtin.Resource(o.Ref().Kind); ok {
		return gr.Resource
	}
	return o.Resource()
}

func versionOf(o aggregate.Object) string {
	_, version, found := strings.Cut(o.APIVersion(), "/")
	if !found {
		return o.APIVersion()
	}
	return version
}
