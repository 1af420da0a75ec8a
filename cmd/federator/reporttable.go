package main

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// table writes the results, and how many there are in each cluster and of each
// policy.
func (r *report) table(color bool) []byte {
	var b bytes.Buffer
	if len(r.Results) > 0 {
		t := newTable("STATE", "SEVERITY", "POLICY", "MEMBER", "SUBJECT", "MESSAGE")
		for _, x := range r.Results {
			t.row(stateOf(x), severityCell(x.Severity), cell{text: x.Policy}, cell{text: x.Subject.Member}, cell{text: x.Subject.String()}, cell{text: x.Message})
		}
		b.Write(t.render(color))
		b.WriteByte('\n')
	}
	b.Write(r.counts("MEMBER", r.Members, func(state, member string) int { return r.count(state, member, "") }).render(color))
	b.WriteByte('\n')
	names := make([]string, 0, len(r.Policies))
	for _, p := range r.Policies {
		names = append(names, p.Name)
	}
	b.Write(r.counts("POLICY", names, func(state, policy string) int { return r.count(state, "", policy) }).render(color))
	fmt.Fprintf(&b, "\n%s, %s, %s unknown, %s, at revision %d as of %s\n",
		plural(r.count(violated, "", ""), "violation", "violations"), plural(r.count(exempt, "", ""), "exempt", "exempt"),
		strconv.Itoa(r.count(unknown, "", "")), plural(r.count(failed, "", ""), "error", "errors"),
		r.Revision, r.AsOf.UTC().Format(time.RFC3339))
	return b.Bytes()
}

func (r *report) counts(of string, names []string, count func(state, name string) int) *table {
	t := newTable(of, "VIOLATIONS", "UNKNOWN", "ERRORS", "EXEMPT")
	for _, name := range names {
		row := []cell{{text: name}}
		for _, c := range []struct{ state, color string }{{violated, red}, {unknown, yellow}, {failed, red}, {exempt, ""}} {
			n := count(c.state, name)
			x := cell{text: strconv.Itoa(n), right: true}
			if n > 0 {
				x.color = c.color
			}
			row = append(row, x)
		}
		t.row(row...)
	}
	return t
}

func stateOf(x result) cell {
	switch x.State {
	case violated, failed:
		return cell{text: x.State, color: red}
	case unknown:
		return cell{text: x.State, color: yellow}
	}
	return cell{text: x.State}
}

func severityCell(severity string) cell {
	switch severity {
	case "critical", "high":
		return cell{text: severity, color: red}
	case "medium":
		return cell{text: severity, color: yellow}
	}
	return cell{text: severity}
}
