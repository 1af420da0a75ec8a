package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// maxDefault is the maximum length in bytes of a default in a table; longer ones are
// written below it.
const maxDefault = 60

// markdown writes a table of all policies and a section for each, by category.
func (d docs) markdown() []byte {
	var b bytes.Buffer
	b.WriteString("| policy | severity | title | evaluates | fleet | remedies |\n|---|---|---|---|---|---|\n")
	for i := range d {
		p := &d[i]
		fleet := "no"
		if len(p.Fleet) > 0 || strings.HasPrefix(p.Subject, "view.") { // a view has entries of all members
			fleet = "yes"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | %s |\n", p.heading(), anchor(p.heading()), p.Severity, inCell(p.Title), inCell(p.evaluates()), fleet, inCell(p.actions()))
	}
	for i := range d {
		if i == 0 && d[i].Category != "" || i > 0 && d[i].Category != d[i-1].Category {
			fmt.Fprintf(&b, "\n## %s\n", d[i].Category)
		}
		d[i].section(&b)
	}
	return b.Bytes()
}

// heading is the name of the package in sections and links: its last element, with the
// category.
func (p *doc) heading() string {
	name := p.Package[strings.LastIndexByte(p.Package, '.')+1:]
	if p.Category == "" {
		return name
	}
	return p.Category + "/" + name
}

// anchor is the link target of a heading on GitHub and the like.
func anchor(heading string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case unicode.IsLetter(c) || unicode.IsDigit(c) || c == '-' || c == '_':
			return unicode.ToLower(c)
		}
		return -1
	}, heading)
}

// evaluates describes the subjects of the policy.
func (p *doc) evaluates() string {
	kinds := strings.Join(p.Kinds, ", ")
	switch {
	case kinds == "*":
		kinds = "every kind"
	case kinds == "":
		kinds = "nothing else"
	}
	view, isView := strings.CutPrefix(p.Subject, "view.")
	switch {
	case isView:
		return "keys of " + view + ", from " + kinds
	case p.Subject == "member" && len(p.Kinds) > 0:
		return "members, with " + kinds
	case p.Subject == "member":
		return "members"
	case len(p.Views) > 0:
		return kinds + " (some only for its views)"
	}
	return kinds
}

func (p *doc) actions() string {
	if len(p.Remedies) == 0 {
		return "–"
	}
	return strings.Join(p.Remedies, ", ")
}

func (p *doc) section(b *bytes.Buffer) {
	level := "###"
	if p.Category == "" {
		level = "##"
	}
	fmt.Fprintf(b, "\n%s %s\n\n", level, p.heading())
	if p.Title != "" {
		fmt.Fprintf(b, "**%s**", markdownText(p.Title))
		if p.Description != "" {
			b.WriteString("\n\n")
		}
	}
	if p.Description != "" {
		b.WriteString(markdownText(p.Description))
	}
	b.WriteString("\n\n")
	fmt.Fprintf(b, "- package `%s` in [%s](%s), severity %s\n", p.Package, p.File, p.File, p.Severity)
	fmt.Fprintf(b, "- evaluates %s\n", markdownText(p.evaluates()))
	if len(p.Fleet) > 0 {
		fmt.Fprintf(b, "- reads from the fleet: %s\n", markdownText(strings.Join(p.Fleet, ", ")))
	}
	if len(p.Remedies) > 0 {
		fmt.Fprintf(b, "- remedies: %s\n", markdownText(p.actions()))
	}
	if len(p.Parameters) == 0 {
		return
	}
	b.WriteString("\n| parameter | type | default | description |\n|---|---|---|---|\n")
	var long []parameter
	for _, x := range p.Parameters {
		def := "–"
		switch value := compactJSON(x.Default); {
		case x.Required:
			def = "required"
		case x.hasDefault && len(value) > maxDefault:
			def = "below"
			long = append(long, x)
		case x.hasDefault:
			def = codeSpan(value)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", codeSpan(x.Name), inCell(x.Type), inCell(def), inCell(x.Description))
	}
	for _, x := range long {
		fmt.Fprintf(b, "\nThe default of %s:\n\n```json\n%s\n```\n", codeSpan(x.Name), wideJSON(x.Default))
	}
}

// wideJSON writes a long value: a list with one element per line.
func wideJSON(v any) string {
	if list, ok := v.([]any); ok {
		lines := make([]string, 0, len(list))
		for _, x := range list {
			lines = append(lines, "  "+compactJSON(x))
		}
		return "[\n" + strings.Join(lines, ",\n") + "\n]"
	}
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(compactJSON(v)), "", "  "); err != nil {
		return compactJSON(v)
	}
	return b.String()
}

func codeSpan(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }

// inCell writes text for a cell of a table.
func inCell(s string) string {
	return strings.ReplaceAll(markdownText(strings.Join(strings.Fields(s), " ")), "|", `\|`)
}

// markdownText escapes what Markdown would render as HTML or emphasis, except in code.
func markdownText(s string) string {
	parts := strings.Split(s, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(parts[i], "<", "&lt;"), "*", `\*`)
	}
	return strings.TrimSpace(strings.Join(parts, "`"))
}
