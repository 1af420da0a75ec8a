package preview

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/report"
	"federator.dev/federator/internal/cli/report/sarif"
	"federator.dev/federator/pkg/policyquery"
)

// row is one policy as tables show it.
func row(p *policyquery.PreviewPolicy) []string {
	return []string{
		p.Policy, p.Is, p.Severity, strconv.Itoa(p.Appear), strconv.Itoa(p.Vanish), strconv.Itoa(p.Change), strconv.Itoa(p.Unknown), strconv.Itoa(p.Errors),
		strconv.FormatInt(p.Overruns, 10), fmt.Sprintf("%.0f µs", p.PerEvaluationMicros), fmt.Sprintf("%.0f ms", p.CPUMillis),
	}
}

var header = []string{"POLICY", "IS", "SEVERITY", "APPEAR", "VANISH", "CHANGE", "UNKNOWN", "ERRORS", "OVERRUNS", "CPU/DELTA", "CPU/TURN"}

func subjectOf(f *policyquery.Finding) report.Subject {
	return report.Subject{Member: f.Subject.Member, Kind: f.Subject.Kind, Namespace: f.Subject.Namespace, Name: f.Subject.Name, Key: f.Subject.Key}
}

// where is a subject with its member.
func where(f *policyquery.Finding) string {
	if f.Subject.Key != "" {
		return f.Subject.Key
	}
	s := subjectOf(f)
	if s.Kind == "" {
		return s.Member
	}
	return s.Member + " " + s.String()
}

// says is what a finding says, on one line.
func says(f *policyquery.Finding) string {
	if f.Message != "" {
		return f.Message
	}
	var texts []string
	for _, v := range f.Violations {
		texts = append(texts, v.Msg)
	}
	return strings.Join(texts, "; ")
}

func corrections(r *policyquery.PreviewReport) [][]string {
	var rows [][]string
	for _, c := range r.Corrections {
		rows = append(rows, []string{c.Policy, c.Action, string(c.Kind), strconv.Itoa(c.Now), strconv.Itoa(c.Wanted)})
	}
	return rows
}

func groups(r *policyquery.PreviewReport) [][]string {
	var rows [][]string
	for _, g := range r.Groups {
		rows = append(rows, []string{g.Policy, g.Member, g.Namespace, strconv.Itoa(g.Appear), strconv.Itoa(g.Vanish), strconv.Itoa(g.Change)})
	}
	return rows
}

func samples(r *policyquery.PreviewReport) [][]string {
	var rows [][]string
	for _, s := range r.Samples {
		f := cmp.Or(s.After, s.Before)
		rows = append(rows, []string{s.Is, f.Policy, where(f), says(f)})
	}
	return rows
}

// part is a part of the output.
type part struct {
	title  string
	header []string
	rows   [][]string
}

func parts(r *policyquery.PreviewReport) []part {
	var policies [][]string
	for _, p := range r.Policies {
		policies = append(policies, row(p))
	}
	return []part{
		{"Policies", header, policies},
		{"Where", []string{"POLICY", "MEMBER", "NAMESPACE", "APPEAR", "VANISH", "CHANGE"}, groups(r)},
		{"Corrections, if they were enforced", []string{"POLICY", "ACTION", "KIND", "NOW", "THEN"}, corrections(r)},
		{"Samples", []string{"IS", "POLICY", "SUBJECT", "MESSAGE"}, samples(r)},
	}
}

// summary is the last line.
func summary(r *policyquery.PreviewReport) string {
	text := fmt.Sprintf("%s, %.1f s of CPU, at revision %d as of %s", console.Plural(len(r.Policies), "policy differs", "policies differ"),
		r.CPUMillis/1000, r.Revision, r.AsOf.UTC().Format(time.RFC3339))
	if len(r.Withheld) > 0 {
		text += "\nWithheld, as they read more than you may: " + strings.Join(r.Withheld, ", ")
	}
	if !r.Complete {
		text += "\nNot complete: " + r.Ended
	}
	return text
}

func table(w io.Writer, r *policyquery.PreviewReport, _ string) error {
	var b bytes.Buffer
	for _, p := range parts(r) {
		if len(p.rows) == 0 {
			continue
		}
		t := console.NewTable(p.header...)
		for _, cells := range p.rows {
			var row []console.Cell
			for i, text := range cells {
				_, err := strconv.Atoi(text)
				row = append(row, console.Cell{Text: console.Printable(text), Right: err == nil && i > 2})
			}
			t.AddRow(row...)
		}
		b.Write(t.Render(false))
		b.WriteByte('\n')
	}
	b.WriteString(summary(r) + "\n")
	_, err := w.Write(b.Bytes())
	return err
}

// markdown is for comments of pull requests: what policies say is code, so that it marks nothing up.
func markdown(w io.Writer, r *policyquery.PreviewReport, _ string) error {
	var b strings.Builder
	b.WriteString("## Policy preview\n\n")
	for _, p := range parts(r) {
		if len(p.rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "### %s\n\n| %s |\n|%s\n", p.title, strings.Join(p.header, " | "), strings.Repeat("---|", len(p.header)))
		for _, cells := range p.rows {
			var quoted []string
			for _, text := range cells {
				quoted = append(quoted, code(text))
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(quoted, " | "))
		}
		b.WriteByte('\n')
	}
	b.WriteString(strings.ReplaceAll(summary(r), "\n", "\n\n") + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// code is a text as code in a cell of a table.
func code(text string) string {
	if text == "" {
		return ""
	}
	text = strings.NewReplacer("\n", " ", "\r", " ", "|", "¦", "`", "'").Replace(text)
	return "`" + text + "`"
}

// asSARIF has the samples of what appears or changes as results, and what is not known as notifications.
func asSARIF(w io.Writer, r *policyquery.PreviewReport, version string) error {
	log, run := sarif.New(version)
	run.Properties = map[string]any{"revision": r.Revision, "asOf": r.AsOf.UTC(), "complete": r.Complete, "policies": r.Policies}
	index, files := map[string]int{}, map[string]string{}
	for i, p := range r.Policies {
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarif.Rule{
			ID: p.Policy, ShortDescription: &sarif.Text{Text: cmp.Or(p.Title, p.Policy)}, DefaultConfiguration: sarif.Configuration{Level: report.Level(p.Severity)},
			Properties: map[string]any{"severity": p.Severity, "is": p.Is},
		})
		index[p.Policy], files[p.Policy] = i, p.File
	}
	for _, s := range r.Samples {
		f := s.After
		if f == nil {
			continue // what vanishes is no result
		}
		at := index[f.Policy]
		digest := sha256.Sum256([]byte(f.Policy + "\x00" + where(f) + "\x00" + says(f)))
		x := sarif.Result{
			RuleID: f.Policy, RuleIndex: &at, Kind: "fail", Level: report.Level(f.Severity), Message: sarif.Text{Text: s.Is + " in " + where(f) + ": " + says(f)},
			Locations:    []sarif.Location{{Logical: []sarif.LogicalLocation{{FullyQualifiedName: subjectOf(f).Path(), Kind: "object"}}}},
			Fingerprints: map[string]string{"preview/v1": hex.EncodeToString(digest[:16])},
		}
		if file := files[f.Policy]; file != "" {
			x.Locations[0].Physical = sarif.File(file, 1, 0)
		}
		run.Results = append(run.Results, x)
	}
	invocation := sarif.Invocation{ExecutionSuccessful: r.Complete}
	if !r.Complete {
		invocation.Notifications = append(invocation.Notifications, sarif.Notification{Level: "error", Message: sarif.Text{Text: "not complete: " + r.Ended}})
	}
	for _, name := range r.Withheld {
		invocation.Notifications = append(invocation.Notifications, sarif.Notification{Level: "warning", Message: sarif.Text{Text: name + " is withheld: it reads more than you may"}})
	}
	run.Invocations = []sarif.Invocation{invocation}
	text, err := json.MarshalIndent(log, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
