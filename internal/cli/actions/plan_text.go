package actions

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/pkg/policyquery"
)

// planText writes Plans: what each is, its counts, its targets, and what would change in a
// sample of them.
func planText(list *policyquery.PlanList, wide bool, now time.Time, color bool) []byte {
	byPlan := map[string][]policyquery.PlanTarget{}
	for _, t := range list.Items {
		byPlan[t.Plan] = append(byPlan[t.Plan], t)
	}
	var b bytes.Buffer
	for i := range list.Plans {
		if i > 0 {
			b.WriteByte('\n')
		}
		p := &list.Plans[i]
		b.Write(planHead(p, now, color))
		if len(p.Counts) > 0 {
			b.WriteByte('\n')
			b.Write(countTable(p, color))
		}
		if len(p.Messages) > 0 {
			b.WriteByte('\n')
			b.Write(messageTable(p, color))
		}
		if targets := byPlan[p.Name]; len(targets) > 0 {
			b.WriteByte('\n')
			b.Write(targetTable(targets, wide, color))
			writeDiffs(&b, targets)
		}
	}
	return b.Bytes()
}

func planHead(p *policyquery.PlanSummary, now time.Time, color bool) []byte {
	head := console.NewTable()
	line := func(name, text, color string) {
		if text != "" {
			head.AddRow(console.Cell{Text: name + ":"}, console.Cell{Text: text, Color: color})
		}
	}
	line("Plan", p.Name, "")
	line("Hash", p.Hash, "")
	line("Purpose", p.Purpose, "")
	line("Amends", p.Amends, "")
	line("Halt", p.Halt, "")
	state := p.State
	if since, err := time.Parse(time.RFC3339, p.Since); err == nil {
		state += " since " + p.Since + " (" + console.Age(now, &since) + " ago)"
	}
	line("State", state, stateColor(p.State))
	line("Problem", p.Problem, console.Red)
	forApproval := p.Purpose != string(v1alpha1.PlanDryRun)
	if forApproval {
		line("Approvals", fmt.Sprintf("%d of %d", p.Approved, p.Required), "")
	}
	targets := fmt.Sprint(p.Targets)
	if p.Hidden > 0 {
		targets += fmt.Sprintf(", %d hidden: you may not list them", p.Hidden)
		if p.Problem != "" {
			targets = fmt.Sprint(p.Targets, ", none shown")
		}
	}
	line("Targets", targets, "")
	if p.Irreversible > 0 {
		line("Irreversible", fmt.Sprint(p.Irreversible), console.Yellow)
	}
	if forApproval {
		line("Written", fmt.Sprint(p.Written), "")
	}
	var answers []string
	for _, a := range []v1alpha1.DryRunAnswer{
		v1alpha1.DryRunPassed, v1alpha1.DryRunNoOp, v1alpha1.DryRunRefused, v1alpha1.DryRunContended,
		v1alpha1.DryRunProtected, v1alpha1.DryRunManaged, v1alpha1.DryRunInvalid, v1alpha1.DryRunSuperseded, v1alpha1.DryRunUnreachable,
	} {
		if n := p.DryRun[string(a)]; n > 0 {
			answers = append(answers, fmt.Sprint(a, " ", n))
		}
	}
	line("Dry run", strings.Join(answers, ", "), "")
	return head.Render(color)
}

func stateColor(state string) string {
	switch v1alpha1.PlanState(state) {
	case v1alpha1.PlanWaiting:
		return console.Yellow
	case v1alpha1.PlanApproved, v1alpha1.PlanDone:
		return console.Green
	}
	return ""
}

func countTable(p *policyquery.PlanSummary, color bool) []byte {
	t := console.NewTable("MEMBER", "KIND", "VERB", "TARGETS")
	for _, c := range p.Counts {
		t.AddRow(console.Cell{Text: c.Member}, console.Cell{Text: c.Kind}, console.Cell{Text: c.Verb}, console.Cell{Text: fmt.Sprint(c.Targets), Right: true})
	}
	out := t.Render(color)
	if p.CountsOmitted > 0 {
		out = fmt.Appendf(out, "and %d more rows\n", p.CountsOmitted)
	}
	return out
}

func messageTable(p *policyquery.PlanSummary, color bool) []byte {
	t := console.NewTable("DRY RUN", "TARGETS", "MESSAGE")
	for _, m := range p.Messages {
		t.AddRow(console.Cell{Text: m.DryRun}, console.Cell{Text: fmt.Sprint(m.Targets), Right: true}, console.Cell{Text: m.Message})
	}
	out := t.Render(color)
	if p.MessagesOmitted > 0 {
		out = fmt.Appendf(out, "and %d more messages\n", p.MessagesOmitted)
	}
	return out
}

func targetTable(targets []policyquery.PlanTarget, wide, color bool) []byte {
	t := console.NewTable("MEMBER", "VERB", "KIND", "NAMESPACE", "TARGET", "IRREVERSIBLE")
	if wide {
		t.AddHeader("DRY RUN", "MESSAGE", "API VERSION", "UID", "REMEDY")
	}
	for _, x := range targets {
		row := []console.Cell{
			{Text: x.Member}, {Text: x.Verb}, {Text: x.Kind}, {Text: x.Namespace}, {Text: x.Name}, {Text: x.Irreversible, Color: console.Yellow},
		}
		if wide {
			row = append(row, console.Cell{Text: x.DryRun}, console.Cell{Text: x.Message}, console.Cell{Text: x.APIVersion},
				console.Cell{Text: x.UID}, console.Cell{Text: x.Remedy[:min(len(x.Remedy), 12)]})
		}
		t.AddRow(row...)
	}
	return t.Render(color)
}

// writeDiffs writes what would change, of the targets of which that is known.
func writeDiffs(b *bytes.Buffer, targets []policyquery.PlanTarget) {
	for _, t := range targets {
		if t.Diff == "" {
			continue
		}
		fmt.Fprintf(b, "\n%s %s in %s:\n", console.Printable(t.Kind), console.Printable(strings.Trim(t.Namespace+"/"+t.Name, "/")), console.Printable(t.Member))
		for line := range strings.SplitSeq(strings.TrimRight(t.Diff, "\n"), "\n") {
			fmt.Fprintf(b, "  %s\n", console.Printable(line))
		}
	}
}
