package report

import (
	"crypto/sha256"
	"encoding/hex"

	"federator.dev/federator/internal/cli/report/sarif"
)

// Level converts a severity to a SARIF level.
func Level(severity string) string {
	switch severity {
	case "critical", "high":
		return "error"
	case "medium":
		return "warning"
	}
	return "note"
}

// sarif converts violations to results of kind fail, exempt ones suppressed, unknown
// verdicts as results of kind open, and errors as notifications of the run.
func (r *Report) sarif(version string) *sarif.Log {
	log, run := sarif.New(version)
	run.Properties = map[string]any{"revision": r.Revision, "asOf": r.AsOf.UTC()}
	index := map[string]int{}
	files := map[string]string{}
	for i, p := range r.Policies {
		rule := sarif.Rule{
			ID: p.Name, DefaultConfiguration: sarif.Configuration{Level: Level(p.Severity)},
			Properties: map[string]any{"severity": p.Severity},
		}
		if p.Title != "" {
			rule.ShortDescription = &sarif.Text{Text: p.Title}
		}
		if p.Description != "" {
			rule.FullDescription = &sarif.Text{Text: p.Description}
		}
		index[p.Name], files[p.Name] = i, p.File
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	invocation := sarif.Invocation{ExecutionSuccessful: true}
	for _, x := range r.Results {
		if x.State == Error {
			invocation.Notifications = append(invocation.Notifications, sarif.Notification{
				Level: "error", Message: sarif.Text{Text: x.Policy + ": " + x.Subject.Path() + ": " + x.Message},
			})
			continue
		}
		out := sarif.Result{
			RuleID: x.Policy, Kind: "fail", Level: Level(x.Severity), Message: sarif.Text{Text: x.Message},
			Locations:    []sarif.Location{locate(x.Subject, files[x.Policy])},
			Fingerprints: map[string]string{"subject/v1": fingerprint(x)},
			Properties:   map[string]any{"binding": x.Binding, "severity": x.Severity, "subject": x.Subject},
		}
		if i, ok := index[x.Policy]; ok {
			out.RuleIndex = &i
		}
		switch x.State {
		case Unknown:
			out.Kind, out.Level = "open", "none"
		case Exempt:
			out.Suppressions = []sarif.Suppression{{Kind: "external", Justification: x.Reason}}
		}
		run.Results = append(run.Results, out)
	}
	run.Invocations = []sarif.Invocation{invocation}
	return log
}

// locate returns the subject as logical location, and the policy's file, the only file
// involved, as physical one.
func locate(s Subject, file string) sarif.Location {
	kind := "object"
	if s.Kind == "" {
		kind = "resource"
	}
	out := sarif.Location{Logical: []sarif.LogicalLocation{{FullyQualifiedName: s.Path(), Kind: kind}}}
	if file != "" {
		out.Physical = sarif.File(file, 1, 0)
	}
	return out
}

// fingerprint is equal for equal findings in different runs. The texts of a verdict that
// is not known are federator's, and say what was incomplete just then: its state stands
// for them.
func fingerprint(x Result) string {
	what := x.Message
	if x.State == Unknown || x.State == Error {
		what = x.State
	}
	h := sha256.New()
	for _, part := range []string{x.Policy, x.Binding, x.Subject.Path(), what} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
