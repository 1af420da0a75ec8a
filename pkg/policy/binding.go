package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
)

// ErrBinding is a binding that cannot be used as it is written.
var ErrBinding = errors.New("invalid binding")

// Mode is what may come of a binding's violations. The engine only reports it.
type Mode string

// The modes of a binding.
const (
	Observe Mode = "Observe"
	DryRun  Mode = "DryRun"
	Enforce Mode = "Enforce"
)

// Binding says where a policy applies, and with which parameters. Verdicts belong
// to bindings.
type Binding struct {
	Name       string         `json:"name"`
	Package    string         `json:"package"`
	Members    MemberSelector `json:"members,omitzero"` // whose subjects are judged
	Match      Match          `json:"match,omitzero"`
	Parameters map[string]any `json:"parameters,omitempty"`
	Mode       Mode           `json:"mode,omitempty"` // "" is Observe

	// Visibility selects the members that data.fleet shows to the policy.
	Visibility MemberSelector `json:"visibility,omitzero"`
	// Tolerate selects the members whose gaps leave verdicts Known; nil is none.
	Tolerate *MemberSelector `json:"tolerate,omitempty"`

	Exemptions []Exemption `json:"exemptions,omitempty"`
}

// MemberSelector selects members by name and by the labels of their Clusters. The
// zero value selects all of them.
type MemberSelector struct {
	Names  []string              `json:"names,omitempty"` // <namespace>/<name>, as path.Match has patterns
	Labels *metav1.LabelSelector `json:"labels,omitempty"`
}

// Match selects objects; of what it leaves out it selects everything. Patterns are
// those of path.Match. For a package that judges the keys of a view it selects the
// objects whose entries count; one that judges members takes none.
type Match struct {
	Kinds      []aggregate.Kind      `json:"kinds,omitempty"`
	Namespaces []string              `json:"namespaces,omitempty"` // patterns; "" is what has no namespace
	Labels     *metav1.LabelSelector `json:"labels,omitempty"`
}

// Exemption says which subjects' violations are expected. They stay visible. Names is
// all that exempts the keys of a view; members have no namespace, and no labels but
// those of Members.
type Exemption struct {
	Members    MemberSelector        `json:"members,omitzero"`
	Namespaces []string              `json:"namespaces,omitempty"` // patterns
	Names      []string              `json:"names,omitempty"`      // patterns; of a view's key, the key
	Labels     *metav1.LabelSelector `json:"labels,omitempty"`     // of the object
	Reason     string                `json:"reason"`
	Expires    time.Time             `json:"expires,omitzero"` // see Binding.At
}

// At returns the binding without the exemptions that have expired at a time. The
// engine reads no clock for them: who configures it calls At, and again when the
// next one expires.
func (b Binding) At(now time.Time) Binding {
	b.Exemptions = slices.DeleteFunc(slices.Clone(b.Exemptions), func(e Exemption) bool {
		return !e.Expires.IsZero() && !now.Before(e.Expires)
	})
	return b
}

// selection is a compiled Binding.
type selection struct {
	members, visibility memberSelection
	tolerate            *memberSelection
	kinds               []aggregate.Kind
	namespaces          []string
	labels              labels.Selector // nil: all
	exemptions          []exemption
	params              *ast.Term
}

type memberSelection struct {
	names  []string
	labels labels.Selector
}

type exemption struct {
	members           memberSelection
	namespaces, names []string
	labels            labels.Selector
	reason            string
}

// misfit is one thing that is wrong with a binding, at a path within it.
type misfit struct {
	path string
	err  error
}

// compile compiles a binding, or returns the first thing that is wrong with it.
func (b *Binding) compile() (*selection, error) {
	s, bad := b.check()
	if len(bad) > 0 {
		return nil, fmt.Errorf("%w %q: %s: %w", ErrBinding, b.Name, bad[0].path, bad[0].err)
	}
	return s, nil
}

// check compiles a binding, and returns all that is wrong with it.
func (b *Binding) check() (*selection, []misfit) {
	c := &checker{}
	s := &selection{kinds: b.Match.Kinds, namespaces: b.Match.Namespaces}
	if b.Name == "" {
		c.report("name", errRequired)
	}
	switch b.Mode {
	case "", Observe, DryRun, Enforce:
	default:
		c.report("mode", fmt.Errorf("%q is none of Observe, DryRun and Enforce", b.Mode))
	}
	s.members = c.members("members", &b.Members)
	s.visibility = c.members("visibility", &b.Visibility)
	if b.Tolerate != nil {
		t := c.members("tolerate", b.Tolerate)
		s.tolerate = &t
	}
	s.labels = c.labels("match.labels", b.Match.Labels)
	c.patterns("match.namespaces", b.Match.Namespaces)
	for i := range b.Exemptions {
		s.exemptions = append(s.exemptions, c.exemption(fmt.Sprintf("exemptions[%d].", i), &b.Exemptions[i]))
	}
	var err error
	if s.params, err = parameters(b.Parameters); err != nil {
		c.report("parameters", err)
	}
	return s, c.bad
}

var errRequired = errors.New("required")

// checker compiles the parts of a binding.
type checker struct{ bad []misfit }

func (c *checker) report(path string, err error) { c.bad = append(c.bad, misfit{path, err}) }

// Compile returns whether the selector selects a member.
func (m MemberSelector) Compile() (func(aggregate.Member) bool, error) {
	var c checker
	s := c.members("members", &m)
	for _, x := range c.bad {
		return nil, fmt.Errorf("%s: %w", x.path, x.err)
	}
	return s.has, nil
}

func (c *checker) members(path string, m *MemberSelector) memberSelection {
	c.patterns(path+".names", m.Names)
	return memberSelection{names: m.Names, labels: c.labels(path+".labels", m.Labels)}
}

func (c *checker) exemption(at string, e *Exemption) exemption {
	if strings.TrimSpace(e.Reason) == "" {
		c.report(at+"reason", errRequired)
	}
	c.patterns(at+"namespaces", e.Namespaces)
	c.patterns(at+"names", e.Names)
	return exemption{
		members: c.members(at+"members", &e.Members), namespaces: e.Namespaces, names: e.Names,
		labels: c.labels(at+"labels", e.Labels), reason: e.Reason,
	}
}

// labels returns nil for a selector of everything.
func (c *checker) labels(path string, s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return nil
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	switch {
	case err != nil:
		c.report(path, err)
		return nil
	case sel.Empty():
		return nil
	}
	return sel
}

func (c *checker) patterns(path string, list []string) {
	for i, p := range list {
		if err := checkPattern(p); err != nil {
			c.report(fmt.Sprintf("%s[%d]", path, i), err)
		}
	}
}

func checkPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q: %w", pattern, err)
	}
	return nil
}

func parameters(p map[string]any) (*ast.Term, error) {
	if len(p) == 0 {
		return ast.InternedEmptyObject, nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	v, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return ast.NewTerm(v), nil
}

// matches reports whether one of the patterns fits; none fits everything.
func matches(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, s) // compile has checked the pattern
		return ok
	})
}

func (m *memberSelection) all() bool { return len(m.names) == 0 && m.labels == nil }

func (m *memberSelection) has(member aggregate.Member) bool {
	return matches(m.names, member.Name) && (m.labels == nil || m.labels.Matches(labelList(member.Labels)))
}

// labelList is a labels.Labels.
type labelList []aggregate.Label

func (l labelList) Lookup(key string) (string, bool) {
	for _, label := range l {
		if label.Key == key {
			return label.Value, true
		}
	}
	return "", false
}

func (l labelList) Has(key string) bool { _, ok := l.Lookup(key); return ok }

func (l labelList) Get(key string) string { v, _ := l.Lookup(key); return v }

// ref reports whether the match selects a ref, whatever its labels.
func (s *selection) ref(kind aggregate.Kind, namespace string) bool {
	return (len(s.kinds) == 0 || slices.Contains(s.kinds, kind)) && matches(s.namespaces, namespace)
}

// object reports whether the match selects an object.
func (s *selection) object(o aggregate.Object) bool {
	return s.ref(o.Ref().Kind, o.Namespace()) && (s.labels == nil || s.labels.Matches(labelList(o.Labels())))
}

// byLabels reports whether labels of objects decide anything.
func (s *selection) byLabels() bool {
	return s.labels != nil || slices.ContainsFunc(s.exemptions, func(e exemption) bool { return e.labels != nil })
}

// byMembers reports whether members' labels decide what is exempt.
func (s *selection) byMembers() bool {
	return slices.ContainsFunc(s.exemptions, func(e exemption) bool { return e.members.labels != nil })
}

// exempt returns the reason why a subject is exempt, or "".
func (s *selection) exempt(kind module.SubjectKind, subject Subject, o aggregate.Object, member aggregate.Member) string {
	name := subject.Ref.Name
	switch kind {
	case module.ViewSubject:
		name = subject.Key
	case module.MemberSubject:
		name = member.Name
	}
	for _, e := range s.exemptions {
		of := e.members.all() || member.Name != "" && e.members.has(member)
		in := len(e.namespaces) == 0 || !o.IsZero() && matches(e.namespaces, subject.Ref.Namespace)
		labelled := e.labels == nil || !o.IsZero() && e.labels.Matches(labelList(o.Labels()))
		if of && in && labelled && matches(e.names, name) {
			return e.reason
		}
	}
	return ""
}
