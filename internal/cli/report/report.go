package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Severities are those of policies, in ascending order.
var Severities = policy.Severities()

// The states of results. Subjects without findings have no result.
const (
	Violation = "Violation"
	Unknown   = "Unknown"
	Error     = "Error"
	Exempt    = "Exempt"
)

// Report holds the results of an evaluation.
type Report struct {
	Revision aggregate.Revision `json:"revision"`
	AsOf     time.Time          `json:"asOf"`
	Clean    bool               `json:"clean"` // no violation, unknown or error
	Policies []Policy           `json:"policies"`
	Members  []string           `json:"members"`
	Results  []Result           `json:"results"`
	Warnings []string           `json:"warnings,omitempty"`
	DenyOnly bool               `json:"-"` // gator's formats list what is denied only
}

// Policy is one package that was evaluated.
type Policy struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Severity    string `json:"severity"`
	File        string `json:"file,omitempty"`
}

// Result is one violation, or the subjects of one member whose verdicts are unknown or
// failed for one reason. If there are several, Subject is their member.
type Result struct {
	State    string          `json:"state"`
	Severity string          `json:"severity"`
	Policy   string          `json:"policy"`
	Binding  string          `json:"binding"`
	Subject  Subject         `json:"subject"`
	Message  string          `json:"message"`
	Count    int             `json:"subjects,omitempty"` // 0: one
	Reason   string          `json:"reason,omitempty"`   // why it is exempt
	Details  json.RawMessage `json:"details,omitempty"`
	Remedy   json.RawMessage `json:"remedy,omitempty"`
	// EnforcementActions are what a constraint of Gatekeeper, or a ValidatingAdmissionPolicyBinding, does at admission.
	EnforcementActions []string  `json:"enforcementActions,omitempty"`
	Enforced           *Enforced `json:"-"` // nil: not of a constraint
}

// Subject is what was evaluated: an object, a member, or a key of a view.
type Subject struct {
	Member    string         `json:"member,omitempty"`
	Kind      aggregate.Kind `json:"kind,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	View      string         `json:"view,omitempty"`
	Key       string         `json:"key,omitempty"`
}

// String writes the subject without its member.
func (s Subject) String() string {
	switch {
	case s.View != "":
		return s.View + "[" + s.Key + "]"
	case s.Kind == "" && s.Member == "":
		return ""
	case s.Kind == "":
		return "Member " + s.Member
	case s.Namespace == "":
		return string(s.Kind) + " " + s.Name
	}
	return string(s.Kind) + " " + s.Namespace + "/" + s.Name
}

// Path is the subject as a path, for formats that require a location.
func (s Subject) Path() string {
	if s.View != "" {
		return "fleet/" + s.View + "/" + s.Key
	}
	return strings.Join(slices.DeleteFunc([]string{s.Member, string(s.Kind), s.Namespace, s.Name}, func(p string) bool { return p == "" }), "/")
}

// Sort puts results in a deterministic order, the most severe first, and sets Clean.
func (r *Report) Sort() {
	rank := func(s string) int { return slices.Index([]string{Violation, Error, Unknown, Exempt}, s) }
	slices.SortFunc(r.Results, func(a, b Result) int {
		return cmp.Or(
			cmp.Compare(rank(a.State), rank(b.State)),
			cmp.Compare(slices.Index(Severities, b.Severity), slices.Index(Severities, a.Severity)),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Binding, b.Binding),
			cmp.Compare(a.Subject.Member, b.Subject.Member), cmp.Compare(a.Subject.Kind, b.Subject.Kind),
			cmp.Compare(a.Subject.Namespace, b.Subject.Namespace), cmp.Compare(a.Subject.Name, b.Subject.Name),
			cmp.Compare(a.Subject.View, b.Subject.View), cmp.Compare(a.Subject.Key, b.Subject.Key),
			cmp.Compare(a.Message, b.Message),
		)
	})
	r.Clean = !slices.ContainsFunc(r.Results, func(x Result) bool { return x.State != Exempt })
}

// count counts the subjects with results of a state, of one member and one policy unless
// they are "".
func (r *Report) count(state, member, policy string) int {
	n := 0
	for _, x := range r.Results {
		if x.State == state && (member == "" || x.Subject.Member == member) && (policy == "" || x.Policy == policy) {
			n += max(x.Count, 1)
		}
	}
	return n
}

// FailNever is the value of --fail-on for never failing.
const FailNever = "none"

// Check returns an error if there are violations or errors, or with unknowns unknown
// verdicts, of at least a severity. Without a violation its exit code is exit.CodeUnknown.
// What a constraint of Gatekeeper, or a ValidatingAdmissionPolicyBinding, only warns of is no violation to fail for.
func (r *Report) Check(failOn string, unknowns bool) error {
	if failOn == FailNever {
		return nil
	}
	minimum := slices.Index(Severities, failOn)
	counts := map[string]int{}
	for _, x := range r.Results {
		if slices.Index(Severities, x.Severity) >= minimum && (x.State == Violation && x.Enforced.denies() || x.State == Error || x.State == Unknown && unknowns) {
			counts[x.State] += max(x.Count, 1)
		}
	}
	if len(counts) == 0 {
		return nil
	}
	var parts []string
	for _, c := range []struct{ state, one, many string }{
		{Violation, "violation", "violations"}, {Error, "error", "errors"}, {Unknown, "unknown", "unknown"},
	} {
		if n := counts[c.state]; n > 0 {
			parts = append(parts, console.Plural(n, c.one, c.many))
		}
	}
	err := exit.Findings(fmt.Sprintf("%s of severity %s or higher", strings.Join(parts, ", "), failOn))
	if counts[Violation] == 0 {
		return exit.WithCode(err, exit.CodeUnknown)
	}
	return err
}

// Formats are the output formats of a report.
var Formats = []string{"table", "json", "sarif", "junit", "gator", "gator-json", "gator-yaml"}

// Write writes the report in one of the formats.
func (r *Report) Write(w io.Writer, format, version string) error {
	switch format {
	case "table":
		_, err := w.Write(r.table(console.Colored(w)))
		return err
	case "json":
		return console.WriteJSON(w, r)
	case "sarif":
		return console.WriteJSON(w, r.sarif(version))
	case "junit":
		return r.junit(w)
	case "gator", "gator-json", "gator-yaml":
		return r.writeGator(w, format, r.DenyOnly)
	}
	return fmt.Errorf("--output %q is not %s", format, strings.Join(Formats, ", "))
}
