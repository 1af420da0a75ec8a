package rows

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"federator.dev/federator/internal/canonjson"
)

// Errors of a Reader.
var (
	// ErrIncomplete is for a response that ends before its last line, or not with it.
	ErrIncomplete = errors.New("the rows are incomplete")
	// ErrMalformed is for a line that is none of this format.
	ErrMalformed = errors.New("this is no row")
)

// maxLine bounds a line, in bytes: objects are far smaller, and a header grows with the fleet.
const maxLine = 64 << 20

// Row is one line after the header. Cells are JSON, and valid until the next row is read.
type Row struct {
	Cells    [][]byte // nil: null
	Redacted []int    // columns whose values are redacted, ascending
	Invalid  []int    // columns whose values are not of their types, ascending
}

// Reader reads a response.
type Reader struct {
	in     *bufio.Reader
	long   []byte // a line that is longer than the buffer
	number int    // of the line
	header Header
	row    Row
	rows   int
	ended  bool
}

// NewReader returns a Reader of a response, whose header it reads.
func NewReader(r io.Reader) (*Reader, error) {
	a := &Reader{in: bufio.NewReaderSize(r, 64<<10)}
	line, err := a.line()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, &a.header); err != nil {
		return nil, fmt.Errorf("line 1: %w: %w", ErrMalformed, err)
	}
	if h := &a.header; h.Kind != Kind || h.Metadata.ResourceVersion == "" || len(h.Columns) == 0 {
		return nil, fmt.Errorf("line 1: %w: it is no header", ErrMalformed)
	}
	return a, nil
}

// Header returns the header, which belongs to the Reader.
func (a *Reader) Header() *Header { return &a.header }

// Next returns the next row, until the next call. After the last one, whose number the response has told, it is
// io.EOF. A response that ends before is ErrIncomplete.
func (a *Reader) Next() (*Row, error) {
	if a.ended {
		return nil, io.EOF
	}
	line, err := a.line()
	if err != nil {
		return nil, err
	}
	end, n, err := a.row.parse(line, len(a.header.Columns))
	switch {
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", a.number, err)
	case !end:
		a.rows++
		return &a.row, nil
	case n != a.rows:
		return nil, fmt.Errorf("%w: %d came of %d", ErrIncomplete, a.rows, n)
	}
	switch _, err := a.in.ReadByte(); {
	case err == nil:
		return nil, fmt.Errorf("line %d: %w: the rows have ended before", a.number+1, ErrMalformed)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	a.ended = true
	return nil, io.EOF
}

// line returns the next line, without its end.
func (a *Reader) line() ([]byte, error) {
	a.number++
	a.long = a.long[:0]
	for {
		part, err := a.in.ReadSlice('\n')
		switch {
		case err == nil && len(a.long) == 0:
			return part[:len(part)-1], nil
		case len(a.long)+len(part) > maxLine:
			return nil, fmt.Errorf("line %d: %w: it is longer than %d bytes", a.number, ErrMalformed, maxLine)
		}
		a.long = append(a.long, part...)
		switch {
		case err == nil:
			return a.long[:len(a.long)-1], nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: after %d rows", ErrIncomplete, a.rows)
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("%w: after %d rows: %w", ErrIncomplete, a.rows, err)
		}
	}
}

// parse parses a line of so many columns: a row, or the end, which tells the number of rows.
func (r *Row) parse(line []byte, columns int) (end bool, n int, err error) {
	r.Cells, r.Redacted, r.Invalid = r.Cells[:0], r.Redacted[:0], r.Invalid[:0]
	in := canonjson.NewReader(line)
	whole := true
	for more := in.Open('{'); more && whole; more = in.Next('}') {
		key, _ := in.Key()
		switch string(key) {
		case "cells":
			whole = r.cells(&in, columns)
		case "redacted":
			r.Redacted, whole = indices(&in, r.Redacted, columns)
		case "invalid":
			r.Invalid, whole = indices(&in, r.Invalid, columns)
		case "end":
			end = true
			n, err = strconv.Atoi(string(canonjson.Get(in.Value(), "rows")))
			whole = err == nil && n >= 0
		default:
			whole = false
		}
	}
	if !whole || in.End() != nil || end != (len(r.Cells) == 0) {
		return false, 0, ErrMalformed
	}
	return end, n, nil
}

// cells reads as many cells as there are columns.
func (r *Row) cells(in *canonjson.Reader, columns int) bool {
	r.Cells = r.Cells[:0]
	for more := in.Open('['); more && len(r.Cells) < columns; more = in.Next(']') {
		cell := in.Value()
		if string(cell) == "null" {
			cell = nil
		}
		r.Cells = append(r.Cells, cell)
	}
	return len(r.Cells) == columns
}

// indices reads numbers of columns, which ascend.
func indices(in *canonjson.Reader, dst []int, columns int) ([]int, bool) {
	for more := in.Open('['); more; more = in.Next(']') {
		n, err := strconv.Atoi(string(in.Number()))
		if err != nil || n < 0 || n >= columns || len(dst) > 0 && n <= dst[len(dst)-1] {
			return dst, false
		}
		dst = append(dst, n)
	}
	return dst, true
}
