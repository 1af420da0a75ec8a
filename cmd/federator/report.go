package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// severities are those of policies, the least first.
var severities = policy.Severities()

// The states of results, as far as anybody has to look at them.
const (
	violated = "Violation"
	unknown  = "Unknown"
	failed   = "Error"
	exempt   = "Exempt"
)

// report is what an evaluation found.
type report struct {
	Revision aggregate.Revision `json:"revision"`
	AsOf     time.Time          `json:"asOf"`
	Clean    bool               `json:"clean"` // no violation, unknown or error
	Policies []reportPolicy     `json:"policies"`
	Members  []string           `json:"members"`
	Results  []result           `json:"results"`
}

// reportPolicy is one package that was evaluated.
type reportPolicy struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Severity    string `json:"severity"`
	File        string `json:"file,omitempty"`
}

// result is one violation, or subjects whose verdicts are not known or failed, in
// one place for one reason: the subject, or their member when there are several.
type result struct {
	State    string          `json:"state"`
	Severity string          `json:"severity"`
	Policy   string          `json:"policy"`
	Binding  string          `json:"binding"`
	Subject  subject         `json:"subject"`
	Message  string          `json:"message"`
	Count    int             `json:"subjects,omitempty"` // 0: one
	Reason   string          `json:"reason,omitempty"`   // why it is exempt
	Details  json.RawMessage `json:"details,omitempty"`
	Remedy   json.RawMessage `json:"remedy,omitempty"`
}

// subject is what was judged: an object, a member, or a key of a view.
type subject struct {
	Member    string         `json:"member,omitempty"`
	Kind      aggregate.Kind `json:"kind,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	View      string         `json:"view,omitempty"`
	Key       string         `json:"key,omitempty"`
}

// String writes the subject without its member.
func (s subject) String() string {
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

// path is the subject as one word, for formats that want a location.
func (s subject) path() string {
	if s.View != "" {
		return "fleet/" + s.View + "/" + s.Key
	}
	return strings.Join(slices.DeleteFunc([]string{s.Member, string(s.Kind), s.Namespace, s.Name}, func(p string) bool { return p == "" }), "/")
}

// sort puts results in an order that does not change from run to run: the worst
// first.
func (r *report) sort() {
	rank := func(s string) int { return slices.Index([]string{violated, failed, unknown, exempt}, s) }
	slices.SortFunc(r.Results, func(a, b result) int {
		return cmp.Or(
			cmp.Compare(rank(a.State), rank(b.State)),
			cmp.Compare(slices.Index(severities, b.Severity), slices.Index(severities, a.Severity)),
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Binding, b.Binding),
			cmp.Compare(a.Subject.Member, b.Subject.Member), cmp.Compare(a.Subject.Kind, b.Subject.Kind),
			cmp.Compare(a.Subject.Namespace, b.Subject.Namespace), cmp.Compare(a.Subject.Name, b.Subject.Name),
			cmp.Compare(a.Subject.View, b.Subject.View), cmp.Compare(a.Subject.Key, b.Subject.Key),
			cmp.Compare(a.Message, b.Message),
		)
	})
	r.Clean = !slices.ContainsFunc(r.Results, func(x result) bool { return x.State != exempt })
}

// count counts the results of a state; member and policy narrow it where they are
// not "".
func (r *report) count(state, member, policy string) int {
	n := 0
	for _, x := range r.Results {
		if x.State == state && (member == "" || x.Subject.Member == member) && (policy == "" || x.Policy == policy) {
			n += max(x.Count, 1)
		}
	}
	return n
}

// errFindings is returned where what was found is what the caller asked to fail on.
type errFindings struct{ text string }

func (e *errFindings) Error() string { return e.text }

// failNever is in the place of a severity to fail for.
const failNever = "none"

// verdict returns an error when something at or above a severity was found, or is
// not known where unknowns count. Without a violation it exits with exitUnknown.
func (r *report) verdict(failOn string, unknowns bool) error {
	if failOn == failNever {
		return nil
	}
	least := slices.Index(severities, failOn)
	worst := map[string]int{}
	for _, x := range r.Results {
		if slices.Index(severities, x.Severity) >= least && (x.State == violated || x.State == failed || x.State == unknown && unknowns) {
			worst[x.State] += max(x.Count, 1)
		}
	}
	if len(worst) == 0 {
		return nil
	}
	var parts []string
	for _, c := range []struct{ state, one, many string }{
		{violated, "violation", "violations"}, {failed, "error", "errors"}, {unknown, "unknown", "unknown"},
	} {
		if n := worst[c.state]; n > 0 {
			parts = append(parts, plural(n, c.one, c.many))
		}
	}
	err := &errFindings{text: fmt.Sprintf("%s of severity %s or higher", strings.Join(parts, ", "), failOn)}
	if worst[violated] == 0 {
		return &exitError{err, exitUnknown}
	}
	return err
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// formats are the forms that a report can be written in.
var formats = []string{"table", "json", "sarif", "junit"}

// write writes the report in one of the formats.
func (r *report) write(w io.Writer, format string) error {
	switch format {
	case "table":
		_, err := w.Write(r.table(colored(w)))
		return err
	case "json":
		return writeJSON(w, r)
	case "sarif":
		return writeJSON(w, r.sarif())
	case "junit":
		return r.junit(w)
	}
	return fmt.Errorf("--output %q is not %s", format, strings.Join(formats, ", "))
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
