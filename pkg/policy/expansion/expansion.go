package expansion

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	templateGroup = "expansion.gatekeeper.sh"
	mutatorGroup  = "mutations.gatekeeper.sh"
)

// maxDepth bounds how often what was generated is expanded again, as Gatekeeper does.
const maxDepth = 30

// maxName bounds the name of a template, as Gatekeeper does.
const maxName = 63

// Mentions reports whether a file may hold ExpansionTemplates or mutators, by its content.
func Mentions(data []byte) bool {
	return bytes.Contains(data, []byte(templateGroup+"/")) || bytes.Contains(data, []byte(mutatorGroup+"/"))
}

// IsTemplate reports whether an object is an ExpansionTemplate.
func IsTemplate(o map[string]any) bool {
	gvk := kindOf(o)
	return gvk.Group == templateGroup && gvk.Kind == "ExpansionTemplate"
}

// Mutator returns the kind and name of an object that is a mutator of Gatekeeper.
func Mutator(o map[string]any) (string, bool) {
	gvk := kindOf(o)
	u := unstructured.Unstructured{Object: o}
	return gvk.Kind + " " + u.GetName(), gvk.Group == mutatorGroup && slices.Contains([]string{"Assign", "AssignMetadata", "AssignImage", "ModifySet"}, gvk.Kind)
}

func kindOf(o map[string]any) schema.GroupVersionKind {
	return (&unstructured.Unstructured{Object: o}).GroupVersionKind()
}

// template is an ExpansionTemplate.
type template struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		ApplyTo []struct {
			Groups   []string `json:"groups"`
			Kinds    []string `json:"kinds"`
			Versions []string `json:"versions"`
		} `json:"applyTo"`
		TemplateSource    string `json:"templateSource"`
		EnforcementAction string `json:"enforcementAction"`
		GeneratedGVK      struct {
			Group   string `json:"group"`
			Version string `json:"version"`
			Kind    string `json:"kind"`
		} `json:"generatedGVK"`
	} `json:"spec"`
}

func (t *template) generates() schema.GroupVersionKind {
	g := t.Spec.GeneratedGVK
	return schema.GroupVersionKind{Group: g.Group, Version: g.Version, Kind: g.Kind}
}

func (t *template) appliesTo(gvk schema.GroupVersionKind) bool {
	for _, to := range t.Spec.ApplyTo {
		if slices.Contains(to.Groups, gvk.Group) && slices.Contains(to.Versions, gvk.Version) && slices.Contains(to.Kinds, gvk.Kind) {
			return true
		}
	}
	return false
}

// check returns what Gatekeeper refuses a template for.
func (t *template) check() error {
	name := t.Metadata.Name
	switch {
	case name == "":
		return errors.New("an ExpansionTemplate has no name")
	case len(name) > maxName:
		return fmt.Errorf("ExpansionTemplate %s: the name has more than %d characters", name, maxName)
	case t.Spec.TemplateSource == "":
		return fmt.Errorf("ExpansionTemplate %s: spec.templateSource is required", name)
	case t.generates() == schema.GroupVersionKind{}:
		return fmt.Errorf("ExpansionTemplate %s: spec.generatedGVK is required", name)
	case len(t.Spec.ApplyTo) == 0:
		return fmt.Errorf("ExpansionTemplate %s: spec.applyTo is required", name)
	case t.appliesTo(t.generates()):
		return fmt.Errorf("ExpansionTemplate %s: it applies to what it generates, %s", name, t.generates())
	}
	return nil
}

// Templates are ExpansionTemplates, by name.
type Templates []template

// Add adds an ExpansionTemplate; one of the same name is replaced, as in a cluster.
func (ts *Templates) Add(o map[string]any) error {
	raw, err := json.Marshal(o)
	var t template
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil {
		return fmt.Errorf("ExpansionTemplate: %w", err)
	}
	if err := t.check(); err != nil {
		return err
	}
	at, there := slices.BinarySearchFunc(*ts, t.Metadata.Name, func(t template, name string) int { return cmp.Compare(t.Metadata.Name, name) })
	if there {
		(*ts)[at] = t
	} else {
		*ts = slices.Insert(*ts, at, t)
	}
	if ts.reaches(at, at, make([]bool, len(*ts))) {
		return fmt.Errorf("ExpansionTemplate %s: what it generates leads back to what it applies to", t.Metadata.Name)
	}
	return nil
}

// reaches reports whether what one template generates becomes, in the end, what another
// applies to.
func (ts Templates) reaches(from, to int, seen []bool) bool {
	for i := range ts {
		if !ts[i].appliesTo(ts[from].generates()) {
			continue
		}
		if i == to {
			return true
		}
		if !seen[i] {
			seen[i] = true
			if ts.reaches(i, to, seen) {
				return true
			}
		}
	}
	return false
}

// Generated is an object that a template makes.
type Generated struct {
	Object            map[string]any
	Template          string // that made it
	EnforcementAction string // instead of the constraint's; "": the constraint's
}

// Message is a message about the object, as one about the object that it is made of.
func (g *Generated) Message(text string) string {
	return fmt.Sprintf("[Implied by %s] %s", g.Template, text)
}

// Expand returns the objects that an object will become others of, and those that these
// will, as Gatekeeper has them before mutation.
func (ts Templates) Expand(o map[string]any) ([]Generated, error) {
	return ts.expand(o, 0)
}

func (ts Templates) expand(o map[string]any, depth int) ([]Generated, error) {
	if depth == maxDepth {
		return nil, fmt.Errorf("expansion does not end after %d objects", maxDepth)
	}
	gvk := kindOf(o)
	var out, more []Generated
	for i := range ts {
		t := &ts[i]
		if !t.appliesTo(gvk) {
			continue
		}
		object, err := t.generate(o)
		if err != nil {
			return nil, err
		}
		next, err := ts.expand(object, depth+1)
		if err != nil {
			return nil, err
		}
		more = append(more, next...)
		out = append(out, Generated{Object: object, Template: t.Metadata.Name, EnforcementAction: t.Spec.EnforcementAction})
	}
	return append(more, out...), nil
}

// generate makes the object that the template has of another.
func (t *template) generate(o map[string]any) (map[string]any, error) {
	parent := unstructured.Unstructured{Object: o}
	source, found, err := unstructured.NestedFieldNoCopy(o, strings.Split(t.Spec.TemplateSource, ".")...)
	from, ok := source.(map[string]any)
	if err != nil || !found || !ok {
		return nil, fmt.Errorf("ExpansionTemplate %s: %s %s has no object at %s", t.Metadata.Name, parent.GetKind(), parent.GetName(), t.Spec.TemplateSource)
	}
	made := unstructured.Unstructured{Object: clone(from).(map[string]any)}
	if _, ok := made.Object["metadata"].(map[string]any); !ok {
		delete(made.Object, "metadata") // such as null
	}
	gvk := t.generates()
	made.SetGroupVersionKind(gvk)
	made.SetNamespace(parent.GetNamespace())
	name := parent.GetName()
	if gvk.Kind != "" {
		name += "-" + gvk.Kind
	}
	made.SetName(strings.ToLower(name))
	own(&made, &parent)
	return made.Object, nil
}

// clone copies a value of JSON, whose numbers may be of any type.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = clone(x)
		}
		return out
	}
	return v
}

// own makes an object the owner of what is generated of it, unless it is already.
func own(made, parent *unstructured.Unstructured) {
	if parent.GetAPIVersion() == "" || parent.GetKind() == "" || parent.GetName() == "" {
		return
	}
	owners, _, _ := unstructured.NestedFieldNoCopy(made.Object, "metadata", "ownerReferences") //nolint:errcheck // What is no list is replaced.
	list, _ := owners.([]any)
	for _, owner := range list {
		of, _ := owner.(map[string]any)
		if of["apiVersion"] == parent.GetAPIVersion() && of["kind"] == parent.GetKind() && of["name"] == parent.GetName() {
			return
		}
	}
	made.Object["metadata"].(map[string]any)["ownerReferences"] = append(list, map[string]any{ // SetName made it.
		"apiVersion": parent.GetAPIVersion(), "kind": parent.GetKind(), "name": parent.GetName(), "uid": "",
	})
}
