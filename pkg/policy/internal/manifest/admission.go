package manifest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"federator.dev/federator/pkg/policy/internal/admissioncel"
)

// AdmissionGroup is the group of ValidatingAdmissionPolicies and their bindings. Read ignores its other kinds.
const AdmissionGroup = "admissionregistration.k8s.io"

// The kinds of AdmissionGroup that Read returns.
const (
	AdmissionPolicyKind  = "ValidatingAdmissionPolicy"
	AdmissionBindingKind = "ValidatingAdmissionPolicyBinding"
)

// AdmissionPolicy is a ValidatingAdmissionPolicy.
type AdmissionPolicy struct {
	Position

	Name        string
	Title       string
	Description string
	Severity    string // "" when no annotation says
	Policy      *admissionv1.ValidatingAdmissionPolicy
	Selection   *admissioncel.Selection // spec.matchConstraints, compiled
	Body        map[string]any          // all of the document
	lines       map[string]Position
}

// Place returns where a field is, by its path such as spec.validations[0], or the nearest above it.
func (p *AdmissionPolicy) Place(path string) Position { return placeIn(p.lines, path, p.Position) }

// AdmissionBinding is what a ValidatingAdmissionPolicyBinding says, as the Constraint that it is.
type AdmissionBinding struct {
	Policy    string                  // by name
	Selection *admissioncel.Selection // spec.matchResources, compiled; nil: everything
	ParamRef  *admissionv1.ParamRef
	Actions   []string // validationActions
}

// ParamRef returns which parameters a ValidatingAdmissionPolicyBinding selects; nil for none, and for others.
func (c *Constraint) ParamRef() *admissionv1.ParamRef {
	if c == nil || c.Admission == nil {
		return nil
	}
	return c.Admission.ParamRef
}

// admission adds a document of AdmissionGroup, whose versions have one shape.
func (d *Documents) admission(at Position, n *yaml.Node, kind, version string, body map[string]any) {
	switch version {
	case "v1", "v1beta1", "v1alpha1":
	default:
		d.problem(at, "%s has versions v1, v1beta1 and v1alpha1, not %q", kind, version)
		return
	}
	lines := map[string]Position{}
	findLines(lines, at.File, "metadata", field(n, "metadata"))
	findLines(lines, at.File, "spec", field(n, "spec"))
	if kind == AdmissionPolicyKind {
		d.admissionPolicy(at, n, body, lines)
	} else {
		d.admissionBinding(at, n, body, lines)
	}
}

func (d *Documents) admissionPolicy(at Position, n *yaml.Node, body map[string]any, lines map[string]Position) {
	p := &AdmissionPolicy{
		Position: at, Name: text(n, "metadata", "name"), Policy: &admissionv1.ValidatingAdmissionPolicy{}, Body: body, lines: lines,
		Title: text(n, "metadata", "annotations", titleAnnotation), Description: text(n, "metadata", "annotations", descriptionAnnotation),
		Severity: text(n, "metadata", "annotations", severityAnnotation),
	}
	before := len(d.Problems)
	d.decodeStrictly(AdmissionPolicyKind, body, p.Policy, p.Place)
	if len(d.Problems) > before {
		return
	}
	spec := &p.Policy.Spec
	d.requireName(p.Place, "metadata.name", p.Name)
	d.require(p.Place, spec.MatchConstraints != nil && len(spec.MatchConstraints.ResourceRules) > 0, "spec.matchConstraints.resourceRules", "is required: what the policy is about")
	d.require(p.Place, len(spec.Validations)+len(spec.AuditAnnotations) > 0, "spec.validations", "is required")
	if k := spec.ParamKind; k != nil {
		d.require(p.Place, k.APIVersion != "" && k.Kind != "", "spec.paramKind", "has an apiVersion and a kind")
	}
	d.matchResources("spec.matchConstraints", spec.MatchConstraints, p.Place)
	p.Selection = d.admissionSelection(spec.MatchConstraints, "spec.matchConstraints", p.Place)
	if len(d.Problems) == before {
		d.AdmissionPolicies = append(d.AdmissionPolicies, p)
	}
}

func (d *Documents) admissionBinding(at Position, n *yaml.Node, body map[string]any, lines map[string]Position) {
	c := &Constraint{
		Position: at, Kind: AdmissionBindingKind, Name: text(n, "metadata", "name"), Body: body, lines: lines,
		Title: text(n, "metadata", "annotations", titleAnnotation), Description: text(n, "metadata", "annotations", descriptionAnnotation),
		Severity: text(n, "metadata", "annotations", severityAnnotation),
	}
	before := len(d.Problems)
	var b admissionv1.ValidatingAdmissionPolicyBinding
	d.decodeStrictly(AdmissionBindingKind, body, &b, c.Place)
	if len(d.Problems) > before {
		return
	}
	c.Admission = &AdmissionBinding{Policy: b.Spec.PolicyName, ParamRef: b.Spec.ParamRef}
	for _, a := range b.Spec.ValidationActions {
		c.Admission.Actions = append(c.Admission.Actions, string(a))
	}
	c.EnforcementAction = strings.Join(c.Admission.Actions, ",")
	d.requireName(c.Place, "metadata.name", c.Name)
	d.requireName(c.Place, "spec.policyName", b.Spec.PolicyName)
	d.validationActions(c)
	d.paramRef(c)
	d.matchResources("spec.matchResources", b.Spec.MatchResources, c.Place)
	c.Admission.Selection = d.admissionSelection(b.Spec.MatchResources, "spec.matchResources", c.Place)
	spec, _ := body["spec"].(map[string]any)
	c.Match, _ = spec["matchResources"].(map[string]any)
	d.scope(c, n)
	if c.FleetInventory {
		d.problem(place(at.File, n, "metadata", "annotations", inventoryAnnotation), "%s is for constraints of Gatekeeper: parameters are those of the object's own member", inventoryAnnotation)
	}
	if len(d.Problems) == before {
		d.Constraints = append(d.Constraints, c)
	}
}

func (d *Documents) validationActions(c *Constraint) {
	actions := c.Admission.Actions
	d.require(c.Place, len(actions) > 0, "spec.validationActions", "is required: Deny, Warn or Audit")
	for i, a := range actions {
		known := a == string(admissionv1.Deny) || a == string(admissionv1.Warn) || a == string(admissionv1.Audit)
		d.require(c.Place, known && !slices.Contains(actions[:i], a), "spec.validationActions", "has "+a+", which is not one of Deny, Warn and Audit, or twice")
	}
	both := slices.Contains(actions, string(admissionv1.Deny)) && slices.Contains(actions, string(admissionv1.Warn))
	d.require(c.Place, !both, "spec.validationActions", "must not have both Deny and Warn")
}

func (d *Documents) paramRef(c *Constraint) {
	ref := c.Admission.ParamRef
	if ref == nil {
		return
	}
	d.require(c.Place, (ref.Name == "") != (ref.Selector == nil), "spec.paramRef", "has either a name or a selector")
	a := ref.ParameterNotFoundAction
	d.require(c.Place, a != nil && (*a == admissionv1.AllowAction || *a == admissionv1.DenyAction), "spec.paramRef.parameterNotFoundAction", "is Allow or Deny")
	_, err := admissioncel.SelectParams(true, ref, ref.Namespace != "", ref.Namespace, nil)
	if err != nil && !errors.Is(err, admissioncel.ErrNoParams) {
		d.problem(c.Place("spec.paramRef"), "%s: spec.paramRef: %v", c.Kind, err)
	}
}

// matchResources checks what an API server checks of the enumerations of a MatchResources.
func (d *Documents) matchResources(path string, m *admissionv1.MatchResources, at func(string) Position) {
	if m == nil {
		return
	}
	if p := m.MatchPolicy; p != nil {
		d.require(at, *p == admissionv1.Exact || *p == admissionv1.Equivalent, path+".matchPolicy", "is Exact or Equivalent")
	}
	for _, list := range []struct {
		name  string
		rules []admissionv1.NamedRuleWithOperations
	}{{".resourceRules", m.ResourceRules}, {".excludeResourceRules", m.ExcludeResourceRules}} {
		for _, r := range list.rules {
			d.require(at, len(r.APIGroups) > 0 && len(r.APIVersions) > 0 && len(r.Resources) > 0 && len(r.Operations) > 0, path+list.name, "have apiGroups, apiVersions, resources and operations")
			if s := r.Scope; s != nil {
				d.require(at, *s == admissionv1.AllScopes || *s == admissionv1.ClusterScope || *s == admissionv1.NamespacedScope, path+list.name, "have scope *, Cluster or Namespaced")
			}
		}
	}
}

func (d *Documents) admissionSelection(m *admissionv1.MatchResources, path string, at func(string) Position) *admissioncel.Selection {
	selection, problems := admissioncel.CompileSelection(m, path)
	for _, p := range problems {
		d.problem(at(p.Path), "%s", p)
	}
	return selection
}

func (d *Documents) require(at func(string) Position, ok bool, path, why string) {
	if !ok {
		d.problem(at(path), "%s %s", path, why)
	}
}

// requireName checks a name as an API server does. Packages are called after it.
func (d *Documents) requireName(at func(string) Position, path, name string) {
	if name == "" {
		d.problem(at(path), "%s is required", path)
		return
	}
	for _, why := range validation.IsDNS1123Subdomain(name) {
		d.problem(at(path), "%s is not one of Kubernetes: %s", path, why)
	}
}

// decodeStrictly decodes a document as an API server with strict field validation does.
func (d *Documents) decodeStrictly(kind string, body map[string]any, into any, at func(string) Position) {
	raw, err := json.Marshal(body)
	if err != nil {
		d.problem(at(""), "%s: %v", kind, err)
		return
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		d.problem(at(wrong.Field), "%s: %s is of type %s, and must not be", kind, wrong.Field, wrong.Value)
	case err != nil:
		d.problem(at(""), "%s: %v", kind, err)
	}
	for _, err := range strict {
		path := ""
		var of kjson.FieldError
		if errors.As(err, &of) {
			path = of.FieldPath()
		}
		d.problem(at(path), "%s: %v", kind, err)
	}
}
