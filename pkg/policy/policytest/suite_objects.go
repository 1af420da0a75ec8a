package policytest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// suiteScopes are the scopes of a member that objects of a case are in.
type suiteScopes struct {
	member string
	byKind map[aggregate.Kind]*scope
	seen   map[aggregate.Ref]bool
}

func newSuiteScopes(set *policy.Set, member string) *suiteScopes {
	s := &suiteScopes{member: member, byKind: map[aggregate.Kind]*scope{}, seen: map[aggregate.Ref]bool{}}
	kinds, _ := set.Kinds()
	for _, k := range kinds {
		version := k.Version
		if version == "" {
			version = "v1"
		}
		if _, group := k.Kind.Split(); group != "" {
			version = group + "/" + version
		}
		s.byKind[k.Kind] = &scope{member: s.member, kind: k.Kind, version: version, state: aggregate.Synced}
	}
	return s
}

// add adds an object. Of two that are the same, the first is taken.
func (s *suiteScopes) add(o map[string]any) (aggregate.Ref, error) {
	e := encoder{object: o, keep: true}
	rec, kind, version, err := e.record(fmt.Sprintf("%s/%d", s.member, len(s.seen)))
	if err != nil {
		return aggregate.Ref{}, err
	}
	ref := aggregate.Ref{Member: s.member, Kind: kind, Namespace: rec.Namespace, Name: rec.Name}
	if s.seen[ref] {
		return ref, nil
	}
	s.seen[ref] = true
	of := s.byKind[kind]
	if of == nil {
		of = &scope{member: s.member, kind: kind, version: version, state: aggregate.Synced}
		s.byKind[kind] = of
	}
	if len(of.records) > 0 && of.version != version {
		return ref, notJudged("%s is at %s, another %s of the case at %s: a member's are all held at one version", ref, version, kind, of.version)
	}
	of.version, of.records = version, append(of.records, rec)
	return ref, nil
}

func (s *suiteScopes) list() []scope {
	var out []scope
	for _, kind := range slices.Sorted(maps.Keys(s.byKind)) {
		out = append(out, *s.byKind[kind])
	}
	return out
}

// expansion is an ExpansionTemplate: what objects of some kinds will become others of.
type expansion struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		ApplyTo []struct {
			Groups   []string `yaml:"groups"`
			Kinds    []string `yaml:"kinds"`
			Versions []string `yaml:"versions"`
		} `yaml:"applyTo"`
		TemplateSource string `yaml:"templateSource"`
		GeneratedGVK   struct {
			Group   string `yaml:"group"`
			Version string `yaml:"version"`
			Kind    string `yaml:"kind"`
		} `yaml:"generatedGVK"`
	} `yaml:"spec"`
}

// expansions reads the ExpansionTemplates of a file.
func (r *suiteRun) expansions(s *suite, name string) ([]expansion, error) {
	list, err := r.objects(s, name)
	if err != nil {
		return nil, err
	}
	var out []expansion
	for _, o := range list {
		var e expansion
		raw, err := yaml.Marshal(o)
		if err == nil {
			err = yaml.Unmarshal(raw, &e)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if e.Kind != "ExpansionTemplate" {
			return nil, notJudged("%s has a %s: only ExpansionTemplates are applied", name, e.Kind)
		}
		if e.Spec.TemplateSource == "" || e.Spec.GeneratedGVK.Kind == "" {
			return nil, fmt.Errorf("%s: an ExpansionTemplate has a templateSource and a generatedGVK", name)
		}
		out = append(out, e)
	}
	return out, nil
}

func (e *expansion) appliesTo(o map[string]any) bool {
	group, version := "", fmt.Sprint(o["apiVersion"])
	if g, v, ok := strings.Cut(version, "/"); ok {
		group, version = g, v
	}
	for _, to := range e.Spec.ApplyTo {
		if slices.Contains(to.Groups, group) && slices.Contains(to.Versions, version) && slices.Contains(to.Kinds, fmt.Sprint(o["kind"])) {
			return true
		}
	}
	return false
}

// generated is an object that expansion makes.
type generated struct {
	template string
	object   map[string]any
}

// maxExpansion bounds how often what was generated is expanded again, as Gatekeeper does.
const maxExpansion = 30

// expand returns the objects that an object will become others of, as Gatekeeper's
// expansion has them, without mutations.
func expand(templates []expansion, o map[string]any, depth int) ([]generated, error) {
	if depth == maxExpansion {
		return nil, errors.New("expansion does not end")
	}
	var out, more []generated
	for i := range templates {
		e := &templates[i]
		if !e.appliesTo(o) {
			continue
		}
		object, err := e.generate(o)
		if err != nil {
			return nil, err
		}
		next, err := expand(templates, object, depth+1)
		if err != nil {
			return nil, err
		}
		more = append(more, next...)
		out = append(out, generated{e.Metadata.Name, object})
	}
	return append(more, out...), nil
}

func (e *expansion) generate(o map[string]any) (map[string]any, error) {
	var at any = o
	for _, step := range strings.Split(e.Spec.TemplateSource, ".") {
		m, _ := at.(map[string]any)
		at = m[step]
	}
	from, ok := at.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("ExpansionTemplate %s: the object has no %s", e.Metadata.Name, e.Spec.TemplateSource)
	}
	to := maps.Clone(from)
	gvk := e.Spec.GeneratedGVK
	to["kind"], to["apiVersion"] = gvk.Kind, strings.TrimPrefix(gvk.Group+"/"+gvk.Version, "/")
	of, _ := o["metadata"].(map[string]any)
	metadata, _ := to["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	if ns := of["namespace"]; ns != nil {
		metadata["namespace"] = ns
	}
	metadata["name"] = strings.ToLower(fmt.Sprintf("%v-%s", of["name"], gvk.Kind))
	owners, _ := metadata["ownerReferences"].([]any)
	metadata["ownerReferences"] = append(slices.Clip(owners), map[string]any{
		"apiVersion": o["apiVersion"], "kind": o["kind"], "name": of["name"], "uid": "",
	})
	to["metadata"] = metadata
	return to, nil
}
