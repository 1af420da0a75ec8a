package policytest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/internal/strictyaml"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/module"
)

// maxFixture is how many bytes a fixture file may have.
const maxFixture = 4 << 20

// document is one document of a fixture file, as written.
type document struct {
	Name       string           `json:"name"`
	Now        string           `json:"now"`
	Parameters map[string]any   `json:"parameters"`
	Bindings   []policy.Binding `json:"bindings"`
	Members    []member         `json:"members"`
	Expect     []expectation    `json:"expect"`

	External map[string]map[string]any `json:"external"` // documents from outside the fleet, by source and key
}

type member struct {
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Version string            `json:"version"`
	APIs    []string          `json:"apis"`
	Scopes  map[string]string `json:"scopes"`
	Objects []map[string]any  `json:"objects"`

	Annotations map[string]string    `json:"annotations"`
	Paused      bool                 `json:"paused"`
	Conditions  map[string]condition `json:"conditions"` // by type
	Topology    struct {
		Class   string `json:"class"`
		Version string `json:"version"`
	} `json:"topology"`
}

// condition is one of a member's Cluster.
type condition struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Since   string `json:"lastTransitionTime"`
}

// cluster is what the fixture says of a member's Cluster.
func (m *member) cluster() aggregate.Cluster {
	c := aggregate.Cluster{Annotations: labelList(m.Annotations), Paused: m.Paused, Class: m.Topology.Class, Version: m.Topology.Version}
	for name, x := range m.Conditions {
		c.Conditions = append(c.Conditions, aggregate.Condition{Type: name, Status: x.Status, Reason: x.Reason, Message: x.Message, Since: x.Since})
	}
	return c
}

// expectation is a verdict.
type expectation struct {
	Subject    string   `json:"subject"`
	Key        *string  `json:"key"`
	Binding    string   `json:"binding"`
	State      string   `json:"state"`
	Violations []string `json:"violations"`
	Exempt     bool     `json:"exempt"`
}

// fixture is a validated case.
type fixture struct {
	file string
	line int
	name string
	now  time.Time // zero: no policy asks
	// bindings returns the valid bindings of a case, with defaults.
	bindings []policy.Binding
	fleet    fleet
	external *policy.External
	expect   []expected
}

// expected is an expectation with its position.
type expected struct {
	// verdictID is how a case identifies a verdict.
	verdictID
	line       int
	state      string
	violations []string // sorted
	exempt     bool
}

// verdictID is what a case calls a verdict.
type verdictID struct {
	binding string
	// subject returns a subject as aggregate.Ref.String does. The slash of a cluster-
	// scoped object may be omitted.
	subject string // of an object or a member
	key     string // of a view, quoted; "" for others
}

func (v verdictID) String() string {
	if v.key != "" {
		return "key " + v.key
	}
	return v.subject
}

func (f *fixture) id() string { return f.file + ": " + f.name }

// fixtureReader reads the fixtures of one tree and collects their errors.
type fixtureReader struct {
	set    *policy.Set
	errors policy.LoadErrors
}

// readFixtures reads all fixtures of a tree, which are files that the source names.
func readFixtures(set *policy.Set, source policy.Source, tree fs.FS) ([]*fixture, error) {
	r := &fixtureReader{set: set}
	var out []*fixture
	for _, f := range source.Files {
		name := f.Path
		if source.Name != "" {
			name = source.Name + "/" + f.Path
		}
		switch {
		case strings.HasSuffix(f.Path, "_fleet.yml"), strings.HasSuffix(f.Path, "_fleet.json"):
			r.add(name, 0, 0, "a fixture's name ends in _fleet.yaml")
		case strings.HasSuffix(f.Path, "_fleet.yaml"):
			data, err := readFile(tree, f.Path)
			if err != nil {
				return nil, err
			}
			out = append(out, r.file(name, data)...)
		}
	}
	if len(r.errors) > 0 {
		slices.SortStableFunc(r.errors, func(a, b policy.Finding) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
		})
		return nil, r.errors
	}
	return out, nil
}

// readFile reads a file up to one byte more than a fixture may have.
func readFile(tree fs.FS, name string) (data []byte, err error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxFixture+1))
}

func (r *fixtureReader) add(file string, line, col int, format string, args ...any) {
	r.errors = append(r.errors, policy.Finding{
		Code: "fixture", Severity: policy.SeverityError, File: file, Line: line, Col: col, Message: fmt.Sprintf(format, args...),
	})
}

// file reads the cases of one file.
func (r *fixtureReader) file(name string, data []byte) []*fixture {
	if len(data) > maxFixture {
		r.add(name, 0, 0, "the file has more than %d bytes", maxFixture)
		return nil
	}
	var out []*fixture
	seen := map[string]bool{}
	for _, c := range split(data) {
		var d document
		lines, problems := strictyaml.Decode(c.text, &d)
		for _, p := range problems {
			r.add(name, p.Line+c.firstLine, p.Col, "%s", p.Message)
		}
		if len(problems) > 0 || len(lines) == 0 {
			continue // empty, or not decoded
		}
		cr := &caseReader{fixtureReader: r, file: name, skipped: c.firstLine, lines: lines}
		f := cr.read(&d)
		if seen[d.Name] {
			cr.at("name", "another case is named %q", d.Name)
		}
		seen[d.Name] = true
		out = append(out, f)
	}
	if len(out) == 0 && len(r.errors) == 0 {
		r.add(name, 0, 0, "the file has no case")
	}
	return out
}

// documentText is the text of one document and the number of lines before it.
type documentText struct {
	text      []byte
	firstLine int
}

// split splits a file into documents. To YAML a line that starts with --- separates
// documents wherever it is, even within strings.
func split(data []byte) []documentText {
	out := []documentText{{}}
	row := 0
	for line := range bytes.Lines(data) {
		last := &out[len(out)-1]
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0]))) && row > 0 {
			out = append(out, documentText{firstLine: row})
			last = &out[len(out)-1]
		}
		last.text = append(last.text, line...)
		row++
	}
	return out
}

// caseReader checks one case.
type caseReader struct {
	*fixtureReader
	file    string
	skipped int
	lines   strictyaml.Lines
	bound   []*policy.Package // of the bindings
}

// position is where something is, or its parent.
func (c *caseReader) position(at string) (line, col int) {
	for ; at != ""; at = at[:max(strings.LastIndexAny(at, ".["), 0)] {
		if p, ok := c.lines[at]; ok {
			return p.Line + c.skipped, p.Col
		}
	}
	p := c.lines[""]
	return p.Line + c.skipped, p.Col
}

func (c *caseReader) at(at, format string, args ...any) {
	line, col := c.position(at)
	c.add(c.file, line, col, format, args...)
}

func (c *caseReader) read(d *document) *fixture {
	f := &fixture{file: c.file, name: d.Name}
	f.line, _ = c.position("name")
	if d.Name == "" {
		c.at("name", "a case has a name")
	}
	f.bindings = c.bindings(d)
	for _, b := range f.bindings {
		c.bound = append(c.bound, c.set.Package(b.Package))
	}
	f.external = c.external(d.External)
	f.now = c.now(d.Now)
	if !f.now.IsZero() {
		for i, b := range f.bindings {
			f.bindings[i] = b.At(f.now)
		}
	}
	if len(d.Members) == 0 {
		c.at("members", "a case has members")
	}
	f.fleet = c.fleet(d.Members)
	if _, ok := c.lines["expect"]; !ok {
		c.at("expect", "a case must have expect; expect: [] means that all is Known and clean")
	}
	seen := map[verdictID]bool{}
	for i := range d.Expect {
		e := c.expectation(fmt.Sprintf("expect[%d]", i), &d.Expect[i], f.bindings)
		if seen[e.verdictID] {
			c.at(fmt.Sprintf("expect[%d]", i), "%s is expected twice", e.verdictID)
		}
		seen[e.verdictID] = true
		f.expect = append(f.expect, e)
	}
	return f
}

// now returns the time of a case: it must have one if a policy asks what has passed.
func (c *caseReader) now(text string) time.Time {
	if text == "" {
		for _, p := range c.bound {
			if p.Reads.Time {
				c.at("", "%s reads data.fleet.passed: a case must have now, such as 2026-01-02T15:04:05Z", p.Name)
			}
		}
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Unix() < 1 {
		c.at("now", "%q is no time after 1970 in RFC 3339, such as 2026-01-02T15:04:05Z", text)
	}
	return at
}

// external returns the documents of a case: it must say which there are if a policy reads any.
func (c *caseReader) external(sources map[string]map[string]any) *policy.External {
	if _, says := c.lines["external"]; !says {
		for _, p := range c.bound {
			if len(p.Reads.External) > 0 {
				c.at("", "%s reads data.fleet.external: a case must have external, such as external: {%s: {}}", p.Name, p.Reads.External[0])
			}
		}
	}
	of := map[string]map[string]policy.ExternalDocument{}
	for source, documents := range sources {
		of[source] = map[string]policy.ExternalDocument{}
		for key, x := range documents {
			at := fmt.Sprintf("external.%s.%s", source, key)
			text, err := json.Marshal(x)
			if err == nil {
				text, err = policy.DecodeExternal(text, false, 0, nil)
			}
			if err != nil {
				c.at(at, "%v", err)
				continue
			}
			of[source][key] = policy.ExternalDocument{JSON: text}
		}
	}
	out, err := policy.NewExternal(of)
	if err != nil {
		c.at("external", "%v", err)
	}
	return out
}

// bindings returns the bindings of a case, with defaults; those that are wrong are
// left out.
func (c *caseReader) bindings(d *document) []policy.Binding {
	if _, ok := c.lines["bindings"]; !ok {
		p := c.directory()
		if p == nil {
			return nil
		}
		b := policy.Binding{Name: p.Name, Package: p.Name, Parameters: d.Parameters}
		return c.binding("parameters", b)
	}
	if d.Parameters != nil {
		c.at("parameters", "a case has parameters or bindings, not both")
	}
	if len(d.Bindings) == 0 {
		c.at("bindings", "there are no bindings")
	}
	var out []policy.Binding
	names := map[string]bool{}
	for i, b := range d.Bindings {
		at := fmt.Sprintf("bindings[%d]", i)
		if names[b.Name] {
			c.at(at+".name", "another binding is named %q", b.Name)
			continue
		}
		names[b.Name] = true
		out = append(out, c.binding(at, b)...)
	}
	return out
}

func (c *caseReader) binding(at string, b policy.Binding) []policy.Binding {
	out, err := policy.ValidateBindings(c.set, []policy.Binding{b})
	if err == nil {
		return out
	}
	list, ok := errors.AsType[policy.LoadErrors](err)
	if !ok {
		c.at(at, "%v", err)
	}
	for _, f := range list {
		c.at(at, "%s", f.Message)
	}
	return nil
}

// directory returns the policy of the fixture's directory.
func (c *caseReader) directory() *policy.Package {
	var found []*policy.Package
	for _, p := range c.set.Packages {
		if path.Dir(p.File) == path.Dir(c.file) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		c.at("", "the directory has %d policies: the case needs bindings", len(found))
		return nil
	}
	return found[0]
}

var verdictStates = []string{policy.Known.String(), policy.Unknown.String(), policy.Error.String()}

func (c *caseReader) expectation(at string, e *expectation, bindings []policy.Binding) expected {
	x := expected{state: cmp.Or(e.State, verdictStates[0]), exempt: e.Exempt, violations: slices.Sorted(slices.Values(e.Violations))}
	x.line, _ = c.position(at)
	x.binding = e.Binding
	switch {
	case e.Binding == "" && len(bindings) == 1:
		x.binding = bindings[0].Name
	case e.Binding == "":
		if len(bindings) > 1 {
			c.at(at, "there are several bindings: the expectation names one")
		}
	case !slices.ContainsFunc(bindings, func(b policy.Binding) bool { return b.Name == e.Binding }):
		c.at(at+".binding", "there is no binding %q", e.Binding)
	}
	switch {
	case (e.Subject == "") == (e.Key == nil):
		c.at(at, "an expectation has either subject or key")
	case e.Key != nil:
		x.key = fmt.Sprintf("%q", *e.Key)
	default:
		x.subject = c.subject(at, e.Subject)
	}
	if !slices.Contains(verdictStates, x.state) {
		c.at(at+".state", "%q is none of %s", e.State, strings.Join(verdictStates, ", "))
	}
	if x.state == policy.Error.String() && len(x.violations) > 0 {
		c.at(at+".violations", "a verdict that is Error has no violations")
	}
	if e.Exempt && len(e.Violations) == 0 {
		c.at(at+".exempt", "without violations nothing is exempt")
	}
	return x
}

// subject returns a subject as aggregate.Ref.String has it. The slash of what has
// no namespace may be left out.
func (c *caseReader) subject(at, s string) string {
	parts := strings.Fields(s)
	switch len(parts) {
	case 1:
		return parts[0]
	case 3:
		kind, err := module.ParseKind(parts[1])
		if err != nil || kind.Version != "" {
			c.at(at+".subject", "%q is not a kind without a version", parts[1])
		}
		namespace, name, ok := strings.Cut(parts[2], "/")
		if !ok {
			namespace, name = "", namespace
		}
		return aggregate.Ref{Member: parts[0], Kind: kind.Kind, Namespace: namespace, Name: name}.String()
	}
	c.at(at+".subject", "%q is neither a member nor MEMBER KIND NAMESPACE/NAME", s)
	return s
}
