package export

import (
	"bufio"
	"encoding/json"
	"io"
	"strconv"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/internal/rows"
)

// ndjsonWriter writes an object a line.
type ndjsonWriter struct {
	*layout
	out  *bufio.Writer
	keys [][]byte // of the fields, in JSON, with the colon
	line []byte
	text []byte
}

func newNDJSONWriter(w io.Writer, l *layout) *ndjsonWriter {
	n := &ndjsonWriter{layout: l, out: bufio.NewWriterSize(w, 256<<10)}
	for _, f := range l.fields {
		n.keys = append(n.keys, append(strconv.AppendQuote(nil, f.name), ':'))
	}
	return n
}

func (n *ndjsonWriter) write(r *rows.Row) error {
	n.line = append(n.line[:0], '{')
	for i := range n.fields {
		if i > 0 {
			n.line = append(n.line, ',')
		}
		n.line = append(n.line, n.keys[i]...)
		if err := n.append(&n.fields[i], r.Cells[n.fields[i].column]); err != nil {
			return err
		}
	}
	if n.redacted {
		n.line = append(n.line, `,"`+rows.RedactedName+`":[`...)
		for i, column := range r.Redacted {
			if i > 0 {
				n.line = append(n.line, ',')
			}
			n.line = strconv.AppendQuote(n.line, n.columns[column].Name)
		}
		n.line = append(n.line, ']')
	}
	n.line = append(n.line, '}', '\n')
	_, err := n.out.Write(n.line)
	return err
}

// append appends a cell.
func (n *ndjsonWriter) append(f *field, cell []byte) error {
	switch {
	case cell == nil:
		n.line = append(n.line, "null"...)
		return nil
	case f.number:
		number, ok := quantity(cell)
		if !ok {
			return n.mismatch(f)
		}
		n.line = strconv.AppendFloat(n.line, number, 'g', -1, 64)
		return nil
	case f.kind == rows.JSON: // it is JSON here, too
		text, ok := appendText(n.text[:0], cell)
		if n.text = text; !ok || !json.Valid(text) {
			return n.mismatch(f)
		}
		n.line = append(n.line, text...)
		return nil
	}
	if !isOf(f.kind, cell) {
		return n.mismatch(f)
	}
	n.line = append(n.line, cell...)
	return nil
}

// isOf reports whether a cell is of a type as far as JSON knows types.
func isOf(kind rows.Type, cell []byte) bool {
	in := canonjson.NewReader(cell)
	switch kind {
	case rows.Int, rows.Number:
		in.Number()
	case rows.Bool:
		return string(cell) == "true" || string(cell) == "false"
	case rows.List:
		for more := in.Open('['); more; more = in.Next(']') {
			in.Text()
		}
	case rows.Labels:
		for more := in.Open('{'); more; more = in.Next('}') {
			in.Key()
			in.Text()
		}
	default:
		in.Text()
	}
	return in.End() == nil
}

func (n *ndjsonWriter) close(*Summary) error { return n.out.Flush() }
