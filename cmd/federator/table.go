package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Terminal colours, as SGR parameters.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// cell is one field of a table.
type cell struct {
	text  string
	color string // one of the colours, or ""
	right bool   // aligned
}

// table aligns columns. Text in it may come from a member, so nothing that
// would steer a terminal gets through.
type table struct {
	header []string
	rows   [][]cell
}

func newTable(header ...string) *table { return &table{header: header} }

func (t *table) head(more ...string) { t.header = append(t.header, more...) }

func (t *table) row(cells ...cell) {
	for i := range cells {
		cells[i].text = printable(cells[i].text)
		if cells[i].text == "" {
			cells[i].text = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

const columnGap = "   "

func (t *table) render(color bool) []byte {
	rows := t.rows
	if len(t.header) > 0 {
		header := make([]cell, len(t.header))
		for i, h := range t.header {
			header[i] = cell{text: h, right: len(rows) > 0 && i < len(rows[0]) && rows[0][i].right}
		}
		rows = append([][]cell{header}, rows...)
	}
	var width []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	var b bytes.Buffer
	for _, r := range rows {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text))
			if c.right {
				b.WriteString(pad)
			}
			if color && c.color != "" {
				b.WriteString("\x1b[" + c.color + "m" + c.text + "\x1b[0m")
			} else {
				b.WriteString(c.text)
			}
			if i == len(r)-1 {
				break
			}
			if !c.right {
				b.WriteString(pad)
			}
			b.WriteString(columnGap)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// printable replaces what is not printable by a space.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}

// colored reports whether w is a terminal whose user has not asked for plain
// text (https://no-color.org).
func colored(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}
