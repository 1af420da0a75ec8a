package report

import (
	"bytes"
	"fmt"
	"io"

	"federator.dev/federator/internal/cli/console"
)

// Diff is the difference between the results of two evaluations.
type Diff struct {
	Added   []Result `json:"added"`
	Removed []Result `json:"removed"`
	Same    int      `json:"same"`
}

// Compare compares two reports, result by result.
func Compare(before, after *Report) Diff {
	d := Diff{Added: []Result{}, Removed: []Result{}}
	had := map[string]int{}
	for _, x := range before.Results {
		had[x.identity()]++
	}
	for _, x := range after.Results {
		if had[x.identity()] > 0 {
			had[x.identity()]--
			d.Same++
			continue
		}
		d.Added = append(d.Added, x)
	}
	for _, x := range before.Results {
		if had[x.identity()] > 0 {
			had[x.identity()]--
			d.Removed = append(d.Removed, x)
		}
	}
	return d
}

// identity is equal for equal results.
func (x Result) identity() string {
	return x.State + "\x00" + x.Severity + "\x00" + fingerprint(x) + "\x00" + x.Message
}

func (d Diff) Write(w io.Writer, format string) error {
	if format == "json" {
		return console.WriteJSON(w, d)
	}
	var b bytes.Buffer
	if len(d.Added)+len(d.Removed) > 0 {
		t := console.NewTable("", "STATE", "SEVERITY", "POLICY", "MEMBER", "SUBJECT", "MESSAGE")
		for _, part := range []struct {
			sign, color string
			results     []Result
		}{{"+", console.Red, d.Added}, {"-", console.Green, d.Removed}} {
			for _, x := range part.results {
				t.AddRow(console.Cell{Text: part.sign, Color: part.color}, stateOf(x), severityCell(x.Severity), console.Cell{Text: x.Policy},
					console.Cell{Text: x.Subject.Member}, console.Cell{Text: x.Subject.String()}, console.Cell{Text: x.Message})
			}
		}
		b.Write(t.Render(console.Colored(w)))
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d added, %d removed, %d the same\n", len(d.Added), len(d.Removed), d.Same)
	_, err := w.Write(b.Bytes())
	return err
}
