package module

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Severities are those of policies, the lowest first.
var Severities = []string{"low", "medium", "high", "critical"}

var (
	actions    = []string{"apply", "patch", "delete"}
	customKeys = []string{"kinds", "parameters", "remedies", "severity", "subject"}
)

// maxKinds bounds the kinds, and the remedies, that a package names.
const maxKinds = 200

// metadata reads a package's METADATA.
type metadata struct {
	findings    *findings
	text        []byte
	annotations *ast.Annotations
	pkg         *Package
}

// isLibrary reports whether a package holds helpers for others.
func isLibrary(name string) bool { return strings.HasPrefix(name, "federator.lib.") }

// read sets the fields of the package.
func (m *metadata) read() {
	m.pkg.Title, m.pkg.Description = m.annotations.Title, m.annotations.Description
	m.pkg.Row = m.annotations.Location.Row
	m.pkg.annotations = m.annotations
	m.severity()
	m.kinds()
	m.subject()
	m.remedies()
	if raw, ok := m.annotations.Custom["parameters"]; ok {
		s, err := newSchema(raw)
		if err != nil {
			m.addError("parameters", "parameters", "custom.parameters: %v", err)
		}
		m.pkg.Parameters = s
	}
}

func (m *metadata) severity() {
	raw, ok := m.annotations.Custom["severity"]
	s, isString := raw.(string)
	switch {
	case !ok:
		m.addError("severity", "custom", "METADATA has no custom.severity: one of %s", strings.Join(Severities, ", "))
	case !isString || !slices.Contains(Severities, s):
		m.addError("severity", "severity", "custom.severity is %s; it is one of %s", quote(raw), strings.Join(Severities, ", "))
	}
	m.pkg.Severity = s
}

func (m *metadata) kinds() {
	raw, ok := m.annotations.Custom["kinds"]
	if !ok {
		return // whether kinds are required depends on the subject and views
	}
	list, ok := raw.([]any)
	if !ok || len(list) == 0 || len(list) > maxKinds {
		m.addError("kinds", "kinds", "custom.kinds is a list of one to %d kinds", maxKinds)
		return
	}
	for _, x := range list {
		s, ok := x.(string)
		if ok && s == "*" {
			m.pkg.AnyKind = true
			continue
		}
		if group, isGroup, err := parseGroup(s); isGroup {
			m.group(group, err)
			continue
		}
		k, err := ParseKind(s)
		switch {
		case !ok:
			m.addError("kinds", "kinds", "custom.kinds has %s, which is not a string", quote(x))
		case err != nil:
			m.addError("kinds", "kinds", "custom.kinds: %v", err)
		case slices.ContainsFunc(m.pkg.Kinds, func(o KindRef) bool { return o.Kind == k.Kind }):
			m.addError("kinds", "kinds", "custom.kinds has %s twice", k.Kind)
		default:
			m.pkg.Kinds = append(m.pkg.Kinds, k)
		}
	}
	if m.pkg.AnyKind && len(list) > 1 {
		m.addError("kinds", "kinds", `custom.kinds has "*" and other kinds`)
	}
	sortKinds(m.pkg.Kinds)
	slices.Sort(m.pkg.Groups)
	for _, k := range m.pkg.Kinds {
		if _, group := k.Kind.Split(); slices.Contains(m.pkg.Groups, group) {
			m.addError("kinds", "kinds", "custom.kinds has %s, and all kinds of %s", k, group)
		}
	}
}

// group adds all kinds of a group.
func (m *metadata) group(group string, err error) {
	switch {
	case err != nil:
		m.addError("kinds", "kinds", "custom.kinds: %v", err)
	case slices.Contains(m.pkg.Groups, group):
		m.addError("kinds", "kinds", "custom.kinds has *.%s twice", group)
	default:
		m.pkg.Groups = append(m.pkg.Groups, group)
	}
}

func (m *metadata) subject() {
	raw, ok := m.annotations.Custom["subject"]
	if !ok {
		return
	}
	s, _ := raw.(string)
	view, isView := strings.CutPrefix(s, "view.")
	switch {
	case s == "object":
	case s == "member":
		m.pkg.Subject = MemberSubject
	case isView && ast.IsVarCompatibleString(view):
		m.pkg.Subject, m.pkg.SubjectView = ViewSubject, view
	default:
		m.addError("subject", "subject", "custom.subject is %s; it is object, member or view.NAME", quote(raw))
	}
}

func (m *metadata) remedies() {
	raw, ok := m.annotations.Custom["remedies"]
	if !ok {
		return
	}
	list, ok := raw.([]any)
	if !ok || len(list) > maxKinds {
		m.addError("remedies", "remedies", "custom.remedies is a list of at most %d of {action, kind}", maxKinds)
		return
	}
	for _, x := range list {
		r, err := remedy(x)
		switch {
		case err != nil:
			m.addError("remedies", "remedies", "custom.remedies: %v", err)
		case slices.Contains(m.pkg.Remedies, r):
			m.addError("remedies", "remedies", "custom.remedies has %s %s twice", r.Action, r.Kind)
		default:
			m.pkg.Remedies = append(m.pkg.Remedies, r)
		}
	}
}

// remedy reads one of custom.remedies.
func remedy(x any) (Remedy, error) {
	fields, ok := x.(map[string]any)
	if !ok {
		return Remedy{}, fmt.Errorf("%s is not {action, kind}", quote(x))
	}
	for key := range fields {
		if key != "action" && key != "kind" {
			return Remedy{}, fmt.Errorf("a remedy has action and kind, not %q", clip(key))
		}
	}
	action, _ := fields["action"].(string)
	if !slices.Contains(actions, action) {
		return Remedy{}, fmt.Errorf("action is %s; it is one of %s", quote(fields["action"]), strings.Join(actions, ", "))
	}
	text, ok := fields["kind"].(string)
	if !ok {
		return Remedy{}, fmt.Errorf("kind is %s, which is not a string", quote(fields["kind"]))
	}
	k, err := ParseKind(text)
	if err != nil {
		return Remedy{}, err
	}
	if k.Version != "" {
		return Remedy{}, fmt.Errorf("%s: a remedy's kind has no version, its object has", k)
	}
	return Remedy{Action: action, Kind: k.Kind}, nil
}

// unknownCustom returns the unknown keys of custom, in order.
func unknownCustom(a *ast.Annotations) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(a.Custom)) {
		if !slices.Contains(customKeys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// addError adds an error at the line of a key of the METADATA.
func (m *metadata) addError(code, key, format string, args ...any) {
	x := newFinding(SeverityError, code, m.annotations.Location, format, args...)
	x.Line, x.Col = keyLine(m.text, m.annotations.Location.Row, key), 1
	m.findings.add(x)
}

var comment = regexp.MustCompile(`^\s*#`)

// keyLine finds the line of a key in the block of comments that begins at row,
// or returns row where there is none.
func keyLine(text []byte, row int, key string) int {
	at, prefixes := row, [][]byte{[]byte(key + ":"), []byte(`"` + key + `":`)}
	for line := range bytes.Lines(skipLines(text, row-1)) {
		if !comment.Match(line) {
			break
		}
		line = bytes.TrimLeft(bytes.TrimSpace(line), "# \t")
		for _, p := range prefixes {
			if bytes.HasPrefix(line, p) {
				return at
			}
		}
		at++
	}
	return row
}

// skipLines returns the text after n lines.
func skipLines(text []byte, n int) []byte {
	for ; n > 0; n-- {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			return nil
		}
		text = text[i+1:]
	}
	return text
}

// quote writes a value of METADATA for a message.
func quote(x any) string {
	if s, ok := x.(string); ok {
		return fmt.Sprintf("%q", clip(s))
	}
	return clip(fmt.Sprint(x))
}
