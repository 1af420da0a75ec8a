package explain

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/pkg/policy/explain"
)

// page is text for a terminal. Control characters from members are removed.
type page struct{ bytes.Buffer }

func (p *page) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	indent := len(text) - len(strings.TrimLeft(text, " "))
	p.WriteString(strings.TrimRight(text[:indent]+console.Printable(text), " ") + "\n")
}

func (x *explanation) verdict(p *page, one *explain.Explanation, color bool) {
	v := &one.Verdict
	p.line("")
	name := one.Package
	if v.Binding != one.Package {
		name += " (binding " + v.Binding + ")"
	}
	p.line("%s: %s", name, x.titles[one.Package])
	p.line("  verdict: %s, %s", v.State, console.Plural(len(v.Violations), "violation", "violations"))
	if v.Message != "" {
		p.line("    %s", v.Message)
	}
	for _, found := range v.Violations {
		p.line("    %s", found.Msg)
		if found.Exempt != "" {
			p.line("      exempt: %s", found.Exempt)
		}
		if len(found.Details) > 0 {
			p.line("      details: %s", found.Details)
		}
		if found.Remedy != nil {
			p.line("      remedy: %s %s", found.Remedy.Action, found.Remedy.Target)
		}
	}
	for _, g := range v.Gaps {
		p.line("    incomplete: %s", g)
	}
	if one.Reevaluated != nil {
		p.line("  evaluated again: %s, %s", one.Reevaluated.State, console.WithReason(console.Plural(len(one.Reevaluated.Violations), "violation", "violations"), one.Reevaluated.Message))
	}
	p.line("  input: %d bytes", len(one.Input))
	x.lines(p, one, color)
	x.reads(p, one)
}

// lines writes how often each line was evaluated, and how often it held.
func (x *explanation) lines(p *page, one *explain.Explanation, color bool) {
	p.line("")
	file := ""
	var t *console.Table
	flush := func() {
		if t != nil {
			p.indented(t.Render(color))
		}
	}
	for _, l := range one.Lines {
		if l.File != file {
			flush()
			file = l.File
			p.line("  %s", file)
			t = console.NewTable("LINE", "EVALUATED", "HELD", "TEXT")
		}
		text, c := "  "+l.Text, console.Green
		if l.Rule {
			text = l.Text
		}
		if l.Held == 0 {
			c = console.Red
		}
		t.AddRow(console.Cell{Text: strconv.Itoa(l.Row), Right: true}, console.Cell{Text: strconv.Itoa(l.Evaluated), Right: true},
			console.Cell{Text: strconv.Itoa(l.Held), Right: true, Color: c}, console.Cell{Text: text})
	}
	flush()
}

func (p *page) indented(text []byte) {
	for line := range strings.Lines(string(text)) {
		p.WriteString("    " + strings.TrimRight(line, " \n") + "\n")
	}
}

// maxShown is the maximum number of objects, and of complete scopes, shown per read.
const maxShown = 20

// reads writes what was read, from which member, and how fresh it was.
func (x *explanation) reads(p *page, one *explain.Explanation) {
	p.line("")
	p.line("  read")
	for _, r := range one.Reads {
		found := ""
		switch {
		case !r.Found:
			found = "  not found"
		case r.Bytes > 0:
			found = fmt.Sprintf("  %d bytes", r.Bytes)
		}
		p.line("    %s%s", r.Path, found)
		for i, o := range r.Objects {
			if i == maxShown {
				p.line("      and %d more objects", len(r.Objects)+r.MoreObjects-i)
				break
			}
			p.line("      %s  resourceVersion %s, revision %d", o.Ref, o.ResourceVersion, o.Revision)
		}
		for i, s := range r.Scopes {
			if i >= maxShown && s.State.Complete() {
				p.line("      and %d more scopes", len(r.Scopes)+r.MoreScopes-i)
				break
			}
			text := console.WithReason(fmt.Sprintf("%s of %s is %s", s.Kind, s.Member, s.State), s.Reason)
			if fresh := x.freshness(s); fresh != "" {
				text += ", " + fresh
			}
			p.line("      %s", text)
		}
	}
}
