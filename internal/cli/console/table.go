package console

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Terminal colours, as SGR parameters.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// Cell is one field of a table.
type Cell struct {
	Text  string
	Color string // one of the colours, or ""
	Right bool   // aligned
}

// Table aligns columns. Text in it may come from a member, so control characters are
// removed.
type Table struct {
	header []string
	rows   [][]Cell
	width  []int // of the columns that have been rendered
}

// NewTable returns a table with the columns of a header, or without a header.
func NewTable(header ...string) *Table { return &Table{header: header} }

// AddHeader appends columns.
func (t *Table) AddHeader(more ...string) { t.header = append(t.header, more...) }

// AddRow appends a row. Empty cells are shown as -.
func (t *Table) AddRow(cells ...Cell) {
	for i := range cells {
		cells[i].Text = Printable(cells[i].Text)
		if cells[i].Text == "" {
			cells[i].Text = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

// Reset removes the header and all rows. The columns stay as wide as they were rendered, so
// that later rows continue the table.
func (t *Table) Reset() { t.header, t.rows = nil, nil }

const columnGap = "   "

// Render returns the table as text, with colours for a terminal.
func (t *Table) Render(color bool) []byte {
	rows := t.rows
	if len(t.header) > 0 {
		header := make([]Cell, len(t.header))
		for i, h := range t.header {
			header[i] = Cell{Text: h, Right: len(rows) > 0 && i < len(rows[0]) && rows[0][i].Right}
		}
		rows = append([][]Cell{header}, rows...)
	}
	for _, r := range rows {
		for i, c := range r {
			if i == len(t.width) {
				t.width = append(t.width, 0)
			}
			t.width[i] = max(t.width[i], utf8.RuneCountInString(c.Text))
		}
	}
	var b bytes.Buffer
	for _, r := range rows {
		for i, c := range r {
			pad := strings.Repeat(" ", t.width[i]-utf8.RuneCountInString(c.Text))
			if c.Right {
				b.WriteString(pad)
			}
			if color && c.Color != "" {
				b.WriteString("\x1b[" + c.Color + "m" + c.Text + "\x1b[0m")
			} else {
				b.WriteString(c.Text)
			}
			if i == len(r)-1 {
				break
			}
			if !c.Right {
				b.WriteString(pad)
			}
			b.WriteString(columnGap)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}
