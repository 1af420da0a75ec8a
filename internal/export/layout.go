package export

import (
	"fmt"
	"slices"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/internal/rows"
)

// field is a column of a file.
type field struct {
	name   string
	kind   rows.Type
	column int  // of the rows
	number bool // the number of a quantity
}

// layout is the columns of a file.
type layout struct {
	columns  []rows.Column
	fields   []field
	redacted bool // after them is the list of redacted columns
}

func newLayout(h *rows.Header) *layout {
	l := &layout{columns: h.Columns, redacted: h.Objects == "Secret" || h.Objects == "ConfigMap"}
	for i, c := range h.Columns {
		l.fields = append(l.fields, field{name: c.Name, kind: c.Type, column: i})
		if c.Type == rows.Quantity {
			l.fields = append(l.fields, field{name: l.free(c.Name + "_number"), kind: rows.Number, column: i, number: true})
		}
	}
	return l
}

// free returns a name that no column has.
func (l *layout) free(name string) string {
	for base, n := name, 2; slices.ContainsFunc(l.columns, func(c rows.Column) bool { return rows.SameName(c.Name, name) }); n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	return name
}

// mismatch is the error for a cell that its column cannot have.
func (l *layout) mismatch(f *field) error {
	return fmt.Errorf("column %q: %w: its cell is no %s", f.name, rows.ErrMalformed, l.columns[f.column].Type)
}

// appendText appends what a string in JSON stands for, and reports whether it is one.
func appendText(dst, cell []byte) ([]byte, bool) {
	in := canonjson.NewReader(cell)
	raw, escaped := in.Text()
	if in.End() != nil {
		return dst, false
	}
	return appendUnescaped(dst, raw, escaped)
}

// appendUnescaped appends what is between the quotes of a string in JSON without its escapes, and reports whether these are right.
func appendUnescaped(dst, raw []byte, escaped bool) ([]byte, bool) {
	if !escaped {
		return append(dst, raw...), true
	}
	s, err := canonjson.Unquote(raw)
	return append(dst, s...), err == nil
}
