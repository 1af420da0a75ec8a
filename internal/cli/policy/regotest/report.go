package regotest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/report/junit"
	"federator.dev/federator/pkg/policy/policytest"
)

func (r *results) write(w io.Writer, format string, verbose bool) error {
	switch format {
	case "json":
		return console.WriteJSON(w, r)
	case "junit":
		return junit.Write(w, r.junit())
	}
	_, err := w.Write(r.table(verbose, console.Colored(w)))
	return err
}

var outcomeWords = map[policytest.Outcome]console.Cell{
	policytest.Passed:  {Text: "PASS", Color: console.Green},
	policytest.Failed:  {Text: "FAIL", Color: console.Red},
	policytest.Errored: {Text: "ERROR", Color: console.Red},
	policytest.Skipped: {Text: "SKIP", Color: console.Yellow},
}

// table lists the tests that did not pass, with their failures and locations.
func (r *results) table(verbose, color bool) []byte {
	var b bytes.Buffer
	var took time.Duration
	for i := range r.Cases {
		c := &r.Cases[i]
		took += c.Duration
		if c.Outcome == policytest.Passed && !verbose {
			continue
		}
		word := outcomeWords[c.Outcome]
		if color {
			word.Text = "\x1b[" + word.Color + "m" + word.Text + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s  %s:%d  %s (%s)\n", word.Text, console.Printable(c.File), c.Line, console.Printable(c.Name), c.Duration.Round(10*time.Microsecond))
		for _, line := range failureLines(c) {
			b.WriteString("    " + console.Printable(line) + "\n")
		}
		if out := strings.TrimRight(c.Output, "\n"); out != "" {
			b.WriteString("    printed:\n")
			for line := range strings.Lines(out) {
				b.WriteString("      " + console.Printable(line) + "\n")
			}
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	if r.Coverage != nil {
		b.Write(coverageTable(r.Coverage).Render(color))
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s: %d passed, %d failed, %s, %d skipped, in %s (seed %d)\n",
		console.Plural(len(r.Cases), "test", "tests"), r.Passed, r.Failed, console.Plural(r.Errors, "error", "errors"), r.Skipped, took.Round(time.Millisecond), r.Seed)
	return b.Bytes()
}

// failureLines describes the failures of a test, one per line.
func failureLines(c *policytest.Case) []string {
	var out []string
	if c.Reason != "" {
		out = append(out, c.Reason)
	}
	for _, f := range c.Failures {
		line := fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
		if f.Subject != "" {
			line += fmt.Sprintf(": %s of %s", f.Subject, f.Binding)
		}
		out = append(out, line)
		if f.Expected != "" {
			out = append(out, "expected: "+f.Expected, "found:    "+f.Actual)
		}
	}
	return out
}

func coverageTable(c *policytest.Coverage) *console.Table {
	t := console.NewTable("FILE", "LINES", "COVERED", "PERCENT", "MISSED")
	row := func(file string, lines, covered int, percent float64, missed []int) {
		color := console.Green
		if covered < lines {
			color = console.Yellow
		}
		t.AddRow(console.Cell{Text: file}, console.Cell{Text: strconv.Itoa(lines), Right: true}, console.Cell{Text: strconv.Itoa(covered), Right: true},
			console.Cell{Text: fmt.Sprintf("%.1f", percent), Color: color, Right: true}, console.Cell{Text: ranges(missed)})
	}
	for _, f := range c.Files {
		row(f.File, f.Lines, f.Covered, f.Percent, f.Missed)
	}
	row("all", c.Lines, c.Covered, c.Percent, nil)
	return t
}

// ranges writes sorted rows as 3-5,9.
func ranges(rows []int) string {
	var parts []string
	for i := 0; i < len(rows); {
		j := i
		for j+1 < len(rows) && rows[j+1] == rows[j]+1 {
			j++
		}
		part := strconv.Itoa(rows[i])
		if j > i {
			part += "-" + strconv.Itoa(rows[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// junit makes a suite of each file.
func (r *results) junit() *junit.Suites {
	suites := &junit.Suites{Name: "federator policy test"}
	for i := range r.Cases {
		c := &r.Cases[i]
		if n := len(suites.Suites); n == 0 || suites.Suites[n-1].Name != junit.Text(c.File) {
			suites.Suites = append(suites.Suites, junit.Suite{Name: junit.Text(c.File)})
		}
		suite := &suites.Suites[len(suites.Suites)-1]
		x := junit.Case{
			Name: junit.Text(c.Name), Class: junit.Text(c.File), Time: strconv.FormatFloat(c.Duration.Seconds(), 'f', 6, 64),
			SystemOut: junit.Text(c.Output),
		}
		lines := failureLines(c)
		m := &junit.Message{Text: junit.Text(strings.Join(lines, "\n"))}
		if len(lines) > 0 {
			m.Message = junit.Text(lines[0])
		}
		switch c.Outcome {
		case policytest.Failed:
			x.Failure = m
			suite.Failures++
			suites.Failures++
		case policytest.Errored:
			x.Error = m
			suite.Errors++
			suites.Errors++
		case policytest.Skipped:
			x.Skipped = &junit.Message{Message: junit.Text(cmp.Or(c.Reason, "its name begins with todo_"))}
			suite.Skipped++
			suites.Skipped++
		}
		suite.Tests++
		suites.Tests++
		suite.Cases = append(suite.Cases, x)
	}
	return suites
}
