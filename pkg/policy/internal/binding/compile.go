package binding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/value"
)

// problem is one error in a binding, at a path within it.
type problem struct {
	path string
	err  error
}

// Compile compiles a binding, or returns the first error in it.
func Compile(b *Binding) (*Selection, error) {
	s, bad := b.check()
	if len(bad) > 0 {
		return nil, fmt.Errorf("%w %q: %s: %w", ErrInvalid, b.Name, bad[0].path, bad[0].err)
	}
	return s, nil
}

// check compiles a binding, and returns all errors in it.
func (b *Binding) check() (*Selection, []problem) {
	c := &checker{}
	s := &Selection{Kinds: b.Match.Kinds, namespaces: b.Match.Namespaces}
	if b.Name == "" {
		c.report("name", errRequired)
	}
	switch b.Mode {
	case "", Observe, DryRun, Enforce:
	default:
		c.report("mode", fmt.Errorf("%q must be Observe, DryRun or Enforce", b.Mode))
	}
	s.members = c.members("members", &b.Members)
	s.visibility = c.members("visibility", &b.Visibility)
	if b.Tolerate != nil {
		t := c.members("tolerate", b.Tolerate)
		s.tolerate = &t
	}
	s.Labels = c.labels("match.labels", b.Match.Labels)
	c.patterns("match.namespaces", b.Match.Namespaces)
	for i := range b.Exemptions {
		s.exemptions = append(s.exemptions, c.exemption(fmt.Sprintf("exemptions[%d].", i), &b.Exemptions[i]))
	}
	s.constraint = b.match()
	var err error
	if s.Params, err = parameters(b.Parameters); err != nil {
		c.report("parameters", err)
	}
	return s, c.problems
}

var errRequired = errors.New("required")

// checker compiles the parts of a binding.
type checker struct{ problems []problem }

func (c *checker) report(path string, err error) { c.problems = append(c.problems, problem{path, err}) }

// Compile returns whether the selector selects a member.
func (m MemberSelector) Compile() (func(aggregate.Member) bool, error) {
	var c checker
	s := c.members("members", &m)
	for _, x := range c.problems {
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

func parameters(p map[string]any) (value.Value, error) {
	if len(p) == 0 {
		return value.EmptyObject, nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return value.Value{}, err
	}
	v, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return value.Value{}, err
	}
	return value.Of(nil, v), nil
}
