package report

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"federator.dev/federator/internal/cli/console"
)

// table writes the results, and their counts per member and per policy.
func (r *Report) table(color bool) []byte {
	var b bytes.Buffer
	if len(r.Results) > 0 {
		t := console.NewTable("STATE", "SEVERITY", "POLICY", "MEMBER", "SUBJECT", "MESSAGE")
		for _, x := range r.Results {
			t.AddRow(stateOf(x), severityCell(x.Severity), console.Cell{Text: x.Policy}, console.Cell{Text: x.Subject.Member}, console.Cell{Text: x.Subject.String()}, console.Cell{Text: x.Message})
		}
		b.Write(t.Render(color))
		b.WriteByte('\n')
	}
	b.Write(r.counts("MEMBER", r.Members, func(state, member string) int { return r.count(state, member, "") }).Render(color))
	b.WriteByte('\n')
	names := make([]string, 0, len(r.Policies))
	for _, p := range r.Policies {
		names = append(names, p.Name)
	}
	b.Write(r.counts("POLICY", names, func(state, policy string) int { return r.count(state, "", policy) }).Render(color))
	fmt.Fprintf(&b, "\n%s, %s, %s unknown, %s, at revision %d as of %s\n",
		console.Plural(r.count(Violation, "", ""), "violation", "violations"), console.Plural(r.count(Exempt, "", ""), "exempt", "exempt"),
		strconv.Itoa(r.count(Unknown, "", "")), console.Plural(r.count(Error, "", ""), "error", "errors"),
		r.Revision, r.AsOf.UTC().Format(time.RFC3339))
	return b.Bytes()
}

func (r *Report) counts(of string, names []string, count func(state, name string) int) *console.Table {
	t := console.NewTable(of, "VIOLATIONS", "UNKNOWN", "ERRORS", "EXEMPT")
	for _, name := range names {
		row := []console.Cell{{Text: name}}
		for _, c := range []struct{ state, color string }{{Violation, console.Red}, {Unknown, console.Yellow}, {Error, console.Red}, {Exempt, ""}} {
			n := count(c.state, name)
			x := console.Cell{Text: strconv.Itoa(n), Right: true}
			if n > 0 {
				x.Color = c.color
			}
			row = append(row, x)
		}
		t.AddRow(row...)
	}
	return t
}

func stateOf(x Result) console.Cell {
	switch x.State {
	case Violation, Error:
		return console.Cell{Text: x.State, Color: console.Red}
	case Unknown:
		return console.Cell{Text: x.State, Color: console.Yellow}
	}
	return console.Cell{Text: x.State}
}

func severityCell(severity string) console.Cell {
	switch severity {
	case "critical", "high":
		return console.Cell{Text: severity, Color: console.Red}
	case "medium":
		return console.Cell{Text: severity, Color: console.Yellow}
	}
	return console.Cell{Text: severity}
}
