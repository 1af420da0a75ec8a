package main

import (
	"bytes"
	"fmt"
	"io"
)

// reportDiff is what one evaluation found and another did not.
type reportDiff struct {
	Added   []result `json:"added"`
	Removed []result `json:"removed"`
	Same    int      `json:"same"`
}

// diff compares two reports, result by result.
func diff(before, after *report) reportDiff {
	d := reportDiff{Added: []result{}, Removed: []result{}}
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

// identity tells results apart.
func (x result) identity() string { return x.State + "\x00" + x.Severity + "\x00" + fingerprint(x) }

func (d reportDiff) write(w io.Writer, format string) error {
	if format == "json" {
		return writeJSON(w, d)
	}
	var b bytes.Buffer
	if len(d.Added)+len(d.Removed) > 0 {
		t := newTable("", "STATE", "SEVERITY", "POLICY", "MEMBER", "SUBJECT", "MESSAGE")
		for _, part := range []struct {
			sign, color string
			results     []result
		}{{"+", red, d.Added}, {"-", green, d.Removed}} {
			for _, x := range part.results {
				t.row(cell{text: part.sign, color: part.color}, stateOf(x), severityCell(x.Severity), cell{text: x.Policy},
					cell{text: x.Subject.Member}, cell{text: x.Subject.String()}, cell{text: x.Message})
			}
		}
		b.Write(t.render(colored(w)))
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d added, %d removed, %d the same\n", len(d.Added), len(d.Removed), d.Same)
	_, err := w.Write(b.Bytes())
	return err
}
