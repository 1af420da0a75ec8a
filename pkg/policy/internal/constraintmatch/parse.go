package constraintmatch

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxTerms bounds the patterns, kinds, groups, labels and values of one Match: every
// object that changes is tried against them.
const MaxTerms = 4096

// Problem is what is wrong with a match, and where: a path within the Constraint, such
// as spec.match.kinds[0].apiGroups.
type Problem struct {
	Path, Message string
	Warning       bool // accepted by Gatekeeper, though hardly what was meant
}

func (p Problem) String() string { return p.Path + ": " + p.Message }

// globPattern is what the schema of constraints has for names and namespaces.
var globPattern = regexp.MustCompile(`^\*?[-:a-z0-9]*\*?$`)

// Parse compiles spec.match of a Constraint, decoded from YAML or JSON; nil matches
// everything. With a Problem that is no warning the Match is nil.
func Parse(match any) (*Match, []Problem) {
	p := &parser{}
	m := p.match(match)
	if p.terms > MaxTerms {
		p.report(root, "has %d patterns and selectors: at most %d", p.terms, MaxTerms)
	}
	if p.failed {
		return nil, p.problems
	}
	return m, p.problems
}

var root = field.NewPath("spec", "match")

type parser struct {
	problems []Problem
	failed   bool
	terms    int
}

func (p *parser) report(at *field.Path, format string, args ...any) {
	p.failed = true
	p.problems = append(p.problems, Problem{Path: at.String(), Message: fmt.Sprintf(format, args...)})
}

func (p *parser) warn(at *field.Path, format string, args ...any) {
	p.problems = append(p.problems, Problem{Path: at.String(), Message: fmt.Sprintf(format, args...), Warning: true})
}

func (p *parser) match(v any) *Match {
	m := &Match{}
	fields := p.object(root, v, "source", "kinds", "scope", "namespaces", "excludedNamespaces", "labelSelector", "namespaceSelector", "name")
	kindsAt := root.Child("kinds")
	for i, entry := range p.list(kindsAt, fields["kinds"]) {
		m.kinds = append(m.kinds, p.kinds(kindsAt.Index(i), entry))
	}
	m.scope = p.scope(root.Child("scope"), fields["scope"])
	m.source = p.source(root.Child("source"), fields["source"])
	m.namespaces = p.globs(root.Child("namespaces"), fields["namespaces"])
	m.excluded = p.globs(root.Child("excludedNamespaces"), fields["excludedNamespaces"])
	// An empty name is no name.
	if s := p.text(root.Child("name"), fields["name"]); s != "" {
		g := p.glob(root.Child("name"), s)
		m.name = &g
	}
	m.labels = p.selector(root.Child("labelSelector"), fields["labelSelector"])
	m.namespaceSelector = p.selector(root.Child("namespaceSelector"), fields["namespaceSelector"])
	return m
}

func (p *parser) kinds(at *field.Path, v any) kinds {
	fields := p.object(at, v, "apiGroups", "kinds")
	k := kinds{groups: p.texts(at.Child("apiGroups"), fields["apiGroups"]), kinds: p.texts(at.Child("kinds"), fields["kinds"])}
	if hasWildcard(k.groups) {
		k.groups = nil
	}
	if hasWildcard(k.kinds) {
		k.kinds = nil
	}
	return k
}

func hasWildcard(list []string) bool { return len(list) > 0 && has(list, wildcard) }

func (p *parser) scope(at *field.Path, v any) scope {
	switch s := p.text(at, v); s {
	case "", wildcard:
		return anyScope
	case "Cluster":
		return clusterScope
	case "Namespaced":
		return namespacedScope
	default:
		p.warn(at, "%q is not Cluster, Namespaced or *: Gatekeeper takes it as *", s)
		return anyScope
	}
}

func (p *parser) source(at *field.Path, v any) source {
	switch s := p.text(at, v); s {
	case "", "All":
		return anySource
	case "Original":
		return original
	case "Generated":
		p.warn(at, "members hold no object that is Generated: it is what expansion makes at admission")
		return generated
	default:
		p.report(at, "%q is not All, Original or Generated", s)
		return anySource
	}
}

func (p *parser) globs(at *field.Path, v any) []glob {
	var out []glob
	for i, s := range p.texts(at, v) {
		out = append(out, p.glob(at.Index(i), s))
	}
	return out
}

func (p *parser) glob(at *field.Path, s string) glob {
	if !globPattern.MatchString(s) {
		p.report(at, "%q is not a name with an asterisk at its start or end", s)
	}
	return parseGlob(s)
}

func (p *parser) selector(at *field.Path, v any) labels.Selector {
	if v == nil {
		return nil
	}
	fields := p.object(at, v, "matchLabels", "matchExpressions")
	if fields == nil {
		return nil
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		p.report(at, "is not JSON: %v", err)
		return nil
	}
	var s metav1.LabelSelector
	if err := json.Unmarshal(raw, &s); err != nil {
		p.report(at, "is not a label selector: %v", err)
		return nil
	}
	p.terms += len(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		p.terms += 1 + len(e.Values)
	}
	bad := validation.ValidateLabelSelector(&s, validation.LabelSelectorValidationOptions{}, at)
	for _, e := range bad {
		p.failed = true
		p.problems = append(p.problems, Problem{Path: e.Field, Message: e.ErrorBody()})
	}
	if len(bad) > 0 {
		return nil
	}
	out, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		p.report(at, "%v", err)
	}
	return out
}

// object returns a map's fields, and warns of those that have no effect. Null is absent.
func (p *parser) object(at *field.Path, v any, known ...string) map[string]any {
	if v == nil {
		return nil
	}
	fields, ok := v.(map[string]any)
	if !ok {
		p.report(at, "is not an object")
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !has(known, name) {
			p.warn(at.Child(name), "is no field that Gatekeeper knows: it has no effect")
		}
	}
	return fields
}

func (p *parser) list(at *field.Path, v any) []any {
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		p.report(at, "is not a list")
	}
	p.terms += len(list)
	return list
}

func (p *parser) texts(at *field.Path, v any) []string {
	var out []string
	for i, item := range p.list(at, v) {
		s, ok := item.(string)
		if !ok {
			p.report(at.Index(i), "is not a string")
			continue
		}
		out = append(out, s)
	}
	return out
}

func (p *parser) text(at *field.Path, v any) string {
	if v == nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		p.report(at, "is not a string")
	}
	return s
}
