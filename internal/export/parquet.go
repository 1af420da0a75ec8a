package export

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/internal/rows"
)

// SummaryKey is where the footer of a Parquet file has the Summary, as JSON.
const SummaryKey = "federator"

// Bounds of a Parquet file that is written.
const (
	groupRows     = 100_000   // of a row group, which is held
	batchRows     = 512       // that columns are given at once
	groupBytes    = 128 << 20 // of the text of a row group
	batchBytes    = 4 << 20   // of that of a batch
	pageBytes     = 64 << 10
	dictionaryMax = 1 << 20 // bytes; longer ones are not worth it
)

// leaf is a column as Parquet has it.
type leaf struct {
	field  *field
	index  int  // the first of its columns
	always bool // the value is required
}

// parquetWriter writes Parquet.
type parquetWriter struct {
	*layout
	out    *parquet.GenericWriter[any]
	leaves []leaf
	last   int // the index of the list of redacted columns
	batch  []parquet.Row
	n      int    // of batch
	text   []byte // of the strings of batch
	inRows int    // of the row group
	inText int    // bytes of its text
}

func newParquetWriter(w io.Writer, l *layout) (*parquetWriter, error) {
	p := &parquetWriter{layout: l, batch: make([]parquet.Row, batchRows)}
	root := ordered{Group: parquet.Group{}}
	index := 0
	for i := range l.fields {
		f := &l.fields[i]
		at := leaf{field: f, index: index, always: f.column < len(rows.Fixed) && (f.name == "member" || f.name == "name" || f.name == "uid")}
		node, width := nodeOf(f, at.always)
		root.add(f.name, node)
		p.leaves = append(p.leaves, at)
		index += width
	}
	p.last = index
	if l.redacted {
		root.add(rows.RedactedName, parquet.List(parquet.Encoded(parquet.String(), &parquet.RLEDictionary)))
	}
	config, err := parquet.NewWriterConfig(
		parquet.NewSchema("rows", root), parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		parquet.PageBufferSize(pageBytes), parquet.DictionaryMaxBytes(dictionaryMax), parquet.CreatedBy("federator", "", ""),
	)
	if err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	p.out = parquet.NewGenericWriter[any](w, config)
	return p, nil
}

// nodeOf returns the node of a column, and the number of Parquet's columns.
func nodeOf(f *field, always bool) (parquet.Node, int) {
	text := parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	var node parquet.Node
	switch f.kind {
	case rows.Int:
		node = parquet.Leaf(parquet.Int64Type)
	case rows.Number:
		node = parquet.Leaf(parquet.DoubleType)
	case rows.Bool:
		node = parquet.Leaf(parquet.BooleanType)
	case rows.Timestamp:
		node = parquet.Timestamp(parquet.Microsecond)
	case rows.List:
		return parquet.Optional(parquet.List(text)), 1
	case rows.Labels:
		return parquet.Map(text, text), 2
	case rows.JSON:
		node = parquet.JSON()
	default:
		node = text
		if f.column < len(rows.Fixed) && (f.name == "uid" || f.name == "name") { // no two are equal
			node = parquet.Encoded(parquet.String(), &parquet.DeltaLengthByteArray)
		}
	}
	if !always {
		node = parquet.Optional(node)
	}
	return node, 1
}

// ordered is a group whose fields have an order of their own.
type ordered struct {
	parquet.Group
	names []string
}

func (o *ordered) add(name string, node parquet.Node) {
	o.Group[name], o.names = node, append(o.names, name)
}

// Fields implements parquet.Node.
func (o ordered) Fields() []parquet.Field {
	fields := make([]parquet.Field, len(o.names))
	for i, name := range o.names {
		fields[i] = member{o.Group[name], name}
	}
	return fields
}

// member is a field of an ordered group.
type member struct {
	parquet.Node
	name string
}

// Name implements parquet.Field.
func (m member) Name() string { return m.name }

// Value implements parquet.Field; it is for rows that are maps, and there are none.
func (m member) Value(base reflect.Value) reflect.Value {
	return base.MapIndex(reflect.ValueOf(m.name))
}

func (p *parquetWriter) write(r *rows.Row) (err error) {
	row := p.batch[p.n][:0]
	for i := range p.leaves {
		at := &p.leaves[i]
		var ok bool
		if row, ok = p.append(row, at, r.Cells[at.field.column]); !ok {
			return p.mismatch(at.field)
		}
	}
	if p.redacted {
		row = p.appendRedacted(row, r)
	}
	p.batch[p.n] = row
	if p.n++; p.n < batchRows && len(p.text) < batchBytes {
		return nil
	}
	return p.flush()
}

// flush gives the batch to the columns, which copy it.
func (p *parquetWriter) flush() error {
	if _, err := p.out.WriteRows(p.batch[:p.n]); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	p.inRows += p.n
	p.inText += len(p.text)
	p.n, p.text = 0, p.text[:0]
	if p.inRows < groupRows && p.inText < groupBytes {
		return nil
	}
	p.inRows, p.inText = 0, 0
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// append appends the values of a cell, and reports whether it is of its type.
func (p *parquetWriter) append(row parquet.Row, at *leaf, cell []byte) (parquet.Row, bool) {
	defined := 1
	if at.always {
		defined = 0
	}
	switch kind := at.field.kind; {
	case kind == rows.Labels:
		return p.appendLabels(row, at.index, cell)
	case cell == nil:
		return append(row, parquet.NullValue().Level(0, 0, at.index)), !at.always
	case kind == rows.List:
		return p.appendList(row, at.index, cell)
	default:
		value, ok := p.value(at.field, cell)
		return append(row, value.Level(0, defined, at.index)), ok
	}
}

// value returns the value of a cell that is not null.
func (p *parquetWriter) value(f *field, cell []byte) (parquet.Value, bool) {
	switch f.kind {
	case rows.Int:
		n, err := strconv.ParseInt(string(cell), 10, 64)
		return parquet.Int64Value(n), err == nil
	case rows.Number:
		if f.number {
			n, ok := quantity(cell)
			return parquet.DoubleValue(n), ok
		}
		n, err := strconv.ParseFloat(string(cell), 64)
		return parquet.DoubleValue(n), err == nil
	case rows.Bool:
		return parquet.BooleanValue(string(cell) == "true"), isOf(rows.Bool, cell)
	case rows.Timestamp:
		if len(cell) < 2 {
			return parquet.Value{}, false
		}
		t, err := time.Parse(time.RFC3339Nano, string(cell[1:len(cell)-1]))
		return parquet.Int64Value(t.UnixMicro()), err == nil
	}
	return p.string(cell)
}

// string returns the value of a string in JSON, in memory of the batch.
func (p *parquetWriter) string(cell []byte) (parquet.Value, bool) {
	from := len(p.text)
	var ok bool
	p.text, ok = appendText(p.text, cell)
	return parquet.ByteArrayValue(p.text[from:]), ok
}

func (p *parquetWriter) appendList(row parquet.Row, index int, cell []byte) (parquet.Row, bool) {
	in := canonjson.NewReader(cell)
	from, ok := len(row), true
	for more := in.Open('['); more && ok; more = in.Next(']') {
		var value parquet.Value
		value, ok = p.string(in.Value())
		row = append(row, value.Level(min(len(row)-from, 1), 2, index))
	}
	if len(row) == from {
		row = append(row, parquet.NullValue().Level(0, 1, index)) // a list without elements
	}
	return row, ok && in.End() == nil
}

// appendLabels appends the keys, then the values.
func (p *parquetWriter) appendLabels(row parquet.Row, index int, cell []byte) (parquet.Row, bool) {
	if cell == nil || string(cell) == "{}" {
		return append(row, parquet.NullValue().Level(0, 0, index), parquet.NullValue().Level(0, 0, index+1)), true
	}
	from, ok := len(row), true
	in := canonjson.NewReader(cell)
	for more := in.Open('{'); more && ok; more = in.Next('}') {
		raw, escaped := in.Key()
		in.Skip()
		at := len(p.text)
		if p.text, ok = appendUnescaped(p.text, raw, escaped); !ok {
			return row, false
		}
		row = append(row, parquet.ByteArrayValue(p.text[at:]).Level(min(len(row)-from, 1), 1, index))
	}
	if in.End() != nil {
		return row, false
	}
	from, in = len(row), canonjson.NewReader(cell)
	for more := in.Open('{'); more && ok; more = in.Next('}') {
		in.Key()
		var value parquet.Value
		value, ok = p.string(in.Value())
		row = append(row, value.Level(min(len(row)-from, 1), 1, index+1))
	}
	return row, ok
}

// appendRedacted appends the names of the redacted columns.
func (p *parquetWriter) appendRedacted(row parquet.Row, r *rows.Row) parquet.Row {
	if len(r.Redacted) == 0 {
		return append(row, parquet.NullValue().Level(0, 0, p.last))
	}
	for i, column := range r.Redacted {
		row = append(row, parquet.ByteArrayValue([]byte(p.columns[column].Name)).Level(min(i, 1), 1, p.last))
	}
	return row
}

// quantity returns the number of a quantity in JSON.
func quantity(cell []byte) (float64, bool) {
	text, ok := appendText(nil, cell)
	if !ok {
		return 0, false
	}
	return rows.ParseQuantity(string(text))
}

func (p *parquetWriter) close(s *Summary) error {
	if err := p.flush(); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	p.out.SetKeyValueMetadata(SummaryKey, string(text))
	if err := p.out.Close(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}
