package rows

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Chosen is a column that a caller has chosen, written NAME[:TYPE]=SOURCE. A source is the path of a
// field with a dot before it, label:<key>, or memberLabel:<key> of the object's member.
type Chosen struct {
	Name   string
	Type   Type
	Source string
}

// choosable are the types of chosen columns; the first is that of a column without one.
var choosable = []Type{String, Int, Number, Bool, Timestamp, Quantity, List, JSON}

// maxChosen bounds the chosen columns of one request.
const maxChosen = 60

var columnName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// ParseChosen parses chosen columns, separated by commas. Errors name the column. It does not parse the
// paths, which depend on the kind.
func ParseChosen(text string) ([]Chosen, error) {
	var out []Chosen
	for at, part := range SplitChosen(text) {
		c, err := parseOne(part)
		if err != nil {
			return nil, fmt.Errorf("column %d, %.64q: %w", at+1, part, err)
		}
		if slices.ContainsFunc(out, func(o Chosen) bool { return SameName(o.Name, c.Name) }) {
			return nil, fmt.Errorf("column %d: there is another column %q", at+1, c.Name)
		}
		if out = append(out, c); len(out) > maxChosen {
			return nil, fmt.Errorf("there are more than %d columns", maxChosen)
		}
	}
	return out, nil
}

// FormatChosen writes columns as ParseChosen reads them.
func FormatChosen(columns []Chosen) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = c.Name + ":" + string(c.Type) + "=" + c.Source
	}
	return strings.Join(parts, ",")
}

func parseOne(text string) (Chosen, error) {
	name, source, ok := strings.Cut(text, "=")
	if !ok {
		return Chosen{}, fmt.Errorf("it is not NAME=.PATH, NAME=label:KEY or NAME=memberLabel:KEY")
	}
	c := Chosen{Name: name, Type: choosable[0], Source: source}
	if before, after, typed := strings.Cut(name, ":"); typed {
		c.Name, c.Type = before, Type(after)
	}
	switch {
	case !columnName.MatchString(c.Name):
		return c, fmt.Errorf("a name is letters, digits and _, no digit first, 63 at most")
	case slices.ContainsFunc(Fixed, func(f Column) bool { return SameName(f.Name, c.Name) }) || SameName(c.Name, RedactedName):
		return c, fmt.Errorf("every export has a column %q", c.Name)
	case !slices.Contains(choosable, c.Type):
		return c, fmt.Errorf("%q is none of the types %s", c.Type, typeNames())
	}
	return c, nil
}

// RedactedName is the name of the column of files that names the redacted columns of a row.
const RedactedName = "redacted"

// SameName reports whether two columns cannot be told apart: DuckDB and Spark read names without regard to case.
func SameName(a, b string) bool { return strings.EqualFold(a, b) }

func typeNames() string {
	names := make([]string, len(choosable))
	for i, t := range choosable {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// SplitChosen splits a text at commas that are in no quotes, which keys of paths in brackets have.
func SplitChosen(text string) (parts []string) {
	from, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ',':
			parts = append(parts, text[from:i])
			from = i + 1
		}
	}
	return append(parts, text[from:])
}
