package admissioncel

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Target is what a Selection asks of an object.
type Target struct {
	Group, Version, Kind string
	Resource             string // such as "pods"; "": not known
	Namespace            string // "": cluster-scoped
	Name                 string
	Labels               labels.Labels
}

func (t *Target) isNamespace() bool { return t.Group == "" && t.Resource == "namespaces" }

// Answer is what a Selection says of an object.
type Answer uint8

const (
	// No, the object is not selected.
	No Answer = iota
	// Yes, it is.
	Yes
	// OtherVersion of the same resource is selected, and matchPolicy is Equivalent: the API
	// server would convert the object, if it still serves that version.
	OtherVersion
	// UnknownResource decides: whether the object is selected follows from its resource.
	UnknownResource
)

// Selection is a compiled MatchResources of a ValidatingAdmissionPolicy or its binding.
// Nil selects every object. Immutable.
type Selection struct {
	rules, excluded []rule
	equivalent      bool
	objects         labels.Selector
	namespaces      labels.Selector
}

// CompileSelection compiles a MatchResources; at is its path in the manifest. Rules for
// subresources and for operations other than CREATE are left out: they say nothing of an
// object as it is.
func CompileSelection(m *admissionv1.MatchResources, at string) (*Selection, []Problem) {
	if m == nil {
		return nil, nil
	}
	s := &Selection{equivalent: m.MatchPolicy == nil || *m.MatchPolicy == admissionv1.Equivalent}
	var bad []Problem
	selector := func(l *metav1.LabelSelector, name string) labels.Selector {
		if l == nil {
			return nil
		}
		out, err := metav1.LabelSelectorAsSelector(l)
		if err != nil {
			bad = append(bad, Problem{Path: at + "." + name, Message: err.Error()})
		}
		return out
	}
	s.objects = selector(m.ObjectSelector, "objectSelector")
	s.namespaces = selector(m.NamespaceSelector, "namespaceSelector")
	s.rules, s.excluded = rules(m.ResourceRules), rules(m.ExcludeResourceRules)
	if len(m.ResourceRules) > 0 && len(s.rules) == 0 {
		bad = append(bad, Problem{Path: at + ".resourceRules", Message: fmt.Sprintf(
			"no rule has operation CREATE on a resource itself (there are: %s): they ask about requests, and an object of a member is judged as it is", describe(m.ResourceRules))})
	}
	if len(bad) > 0 {
		return nil, bad
	}
	return s, nil
}

func describe(list []admissionv1.NamedRuleWithOperations) string {
	var out []string
	for _, r := range list {
		for _, op := range r.Operations {
			for _, resource := range r.Resources {
				out = append(out, string(op)+" "+resource)
			}
		}
	}
	return strings.Join(out, ", ")
}

type rule struct {
	groups, versions, resources, names []string
	scope                              admissionv1.ScopeType
}

// rules are those that can select an object that is created.
func rules(list []admissionv1.NamedRuleWithOperations) []rule {
	var out []rule
	for _, r := range list {
		if !slices.Contains(r.Operations, admissionv1.Create) && !slices.Contains(r.Operations, admissionv1.OperationAll) {
			continue
		}
		to := rule{groups: r.APIGroups, versions: r.APIVersions, names: r.ResourceNames, scope: admissionv1.AllScopes}
		if r.Scope != nil {
			to.scope = *r.Scope
		}
		for _, resource := range r.Resources {
			if name, sub, found := strings.Cut(resource, "/"); !found || sub == "*" {
				to.resources = append(to.resources, name)
			}
		}
		if len(to.resources) > 0 {
			out = append(out, to)
		}
	}
	return out
}

func exactOrAny(list []string, s string) bool {
	return slices.Contains(list, s) || slices.Contains(list, "*")
}

func (r *rule) matches(t *Target, anyVersion bool) bool {
	return r.inScope(t) && exactOrAny(r.groups, t.Group) && (anyVersion || exactOrAny(r.versions, t.Version)) &&
		exactOrAny(r.resources, t.Resource) && (len(r.names) == 0 || slices.Contains(r.names, t.Name))
}

func (r *rule) inScope(t *Target) bool {
	switch cluster := t.Namespace == "" || t.isNamespace(); r.scope {
	case admissionv1.NamespacedScope:
		return !cluster
	case admissionv1.ClusterScope:
		return cluster
	default:
		return true
	}
}

// Static answers by the object alone. It is the whole answer unless ReadsNamespace.
func (s *Selection) Static(t *Target) Answer {
	if t.Resource != "" {
		return s.static(t)
	}
	// Of a kind that nobody knows a resource of: all that rules name, and one that none does.
	answer := s.static(&Target{t.Group, t.Version, t.Kind, "?", t.Namespace, t.Name, t.Labels})
	for _, gr := range s.Resources() {
		of := *t
		if of.Resource = gr.Resource; gr.Resource != "*" && s.static(&of) != answer {
			return UnknownResource
		}
	}
	return answer
}

// Versions are those at which rules select an object.
func (s *Selection) Versions(t *Target) []string {
	var out []string
	for i := range s.rules {
		if s.rules[i].matches(t, true) {
			out = append(out, s.rules[i].versions...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Resources are those that rules name, with "*" as a group or a resource where they select all.
func (s *Selection) Resources() []schema.GroupResource {
	if s == nil {
		return nil
	}
	var out []schema.GroupResource
	for _, r := range slices.Concat(s.rules, s.excluded) {
		for _, group := range r.groups {
			for _, resource := range r.resources {
				out = append(out, schema.GroupResource{Group: group, Resource: resource})
			}
		}
	}
	return out
}

// Included are the resources that rules select, as Resources; none: all.
func (s *Selection) Included() []schema.GroupResource {
	if s == nil {
		return nil
	}
	return (&Selection{rules: s.rules}).Resources()
}

// SelectsResource reports whether objects of a resource may be selected; "" is one that is not known.
func (s *Selection) SelectsResource(group, resource string) bool {
	return s == nil || len(s.rules) == 0 || slices.ContainsFunc(s.rules, func(r rule) bool {
		return exactOrAny(r.groups, group) && (resource == "" || exactOrAny(r.resources, resource))
	})
}

// ByLabels reports whether the answer depends on labels of objects, those of Namespaces included.
func (s *Selection) ByLabels() bool {
	return s != nil && (s.objects != nil && !s.objects.Empty() || s.ByNamespaceLabels())
}

// ByNamespaceLabels reports whether the answer depends on labels of Namespaces.
func (s *Selection) ByNamespaceLabels() bool {
	return s != nil && s.namespaces != nil && !s.namespaces.Empty()
}

func (s *Selection) static(t *Target) Answer {
	switch {
	case exempt(t):
		return No
	case s == nil:
		return Yes
	case s.objects != nil && !s.objects.Matches(t.Labels), s.namespaces != nil && t.isNamespace() && !s.namespaces.Matches(t.Labels):
		return No
	}
	if excluded := s.answer(s.excluded, t); excluded == Yes {
		return No
	} else if included := s.included(t); included != Yes || excluded == No {
		return included
	}
	return OtherVersion
}

func (s *Selection) included(t *Target) Answer {
	if len(s.rules) == 0 {
		return Yes
	}
	return s.answer(s.rules, t)
}

func (s *Selection) answer(rules []rule, t *Target) Answer {
	out := No
	for i := range rules {
		if rules[i].matches(t, false) {
			return Yes
		}
		if s.equivalent && rules[i].matches(t, true) {
			out = OtherVersion
		}
	}
	return out
}

// exempt are what no ValidatingAdmissionPolicy may judge: it could lock itself in.
func exempt(t *Target) bool {
	if t.Group != "admissionregistration.k8s.io" {
		return false
	}
	switch t.Kind {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return true
	default:
		return false
	}
}

// ReadsNamespace reports whether the answer depends on the labels of the object's Namespace.
func (s *Selection) ReadsNamespace(t *Target) bool {
	return s.ByNamespaceLabels() && t.Namespace != "" && !t.isNamespace()
}

// Namespace reports whether namespaceSelector selects a Namespace with these labels.
func (s *Selection) Namespace(of labels.Labels) bool {
	return s == nil || s.namespaces == nil || s.namespaces.Matches(of)
}
