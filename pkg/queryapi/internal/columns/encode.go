package columns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
)

// Encoder encodes rows.
type Encoder struct {
	set    *Set
	member func(string) (aggregate.Member, bool)
	walker walker
	pod    podPrinter
	fast   bool // pod has the cells of the Table

	last              aggregate.Member // whose labels were read last
	redacted, invalid []int
}

// Encoder returns an encoder. member returns members of the snapshot that the objects are of.
func (s *Set) Encoder(member func(name string) (aggregate.Member, bool)) *Encoder {
	return &Encoder{set: s, member: member, walker: walker{values: make([][][]byte, s.slots)}}
}

// Append appends the line of an object, whose body is canonical JSON.
func (e *Encoder) Append(dst []byte, o aggregate.Object, body []byte) ([]byte, error) {
	s := e.set
	e.redacted, e.invalid = e.redacted[:0], e.invalid[:0]
	e.walker.walk(body, &s.paths)
	dst = append(dst, `{"cells":[`...)
	dst = append(appendString(dst, o.Member()), ',')
	dst = append(appendOptional(dst, o.Namespace()), ',')
	dst = append(appendString(dst, o.Name()), ',')
	dst = append(e.appendUID(dst, o), ',')
	created, ok := appendValues(dst, rows.Timestamp, e.walker.values[createdSlot])
	dst = append(e.checked(dst, created, ok, createdColumn), ',')
	dst = appendLabels(dst, o.Labels())
	var cells []any
	e.fast = s.pods && e.pod.read(body)
	if s.prints && !e.fast {
		row, err := s.resource.Row(body)
		if err != nil {
			return dst, err
		}
		cells = row.Cells
	}
	redacted := s.redacts && e.has(redactedSlot, "true")
	for i := range s.sources {
		dst = e.appendCell(append(dst, ','), &s.sources[i], len(rows.Fixed)+i, o, cells, redacted)
	}
	dst = append(dst, ']')
	dst = appendIndices(dst, "redacted", e.redacted)
	dst = appendIndices(dst, "invalid", e.invalid)
	return append(dst, '}', '\n'), nil
}

// appendUID appends the UID as the body has it, which takes no memory.
func (e *Encoder) appendUID(dst []byte, o aggregate.Object) []byte {
	if v := e.walker.values[uidSlot]; len(v) == 1 && v[0][0] == '"' {
		return append(dst, v[0]...)
	}
	return appendString(dst, o.UID())
}

// has reports whether a slot has one value, a string.
func (e *Encoder) has(slot int, value string) bool {
	v := e.walker.values[slot]
	return len(v) == 1 && string(v[0]) == `"`+value+`"`
}

// createdColumn is the number of the fixed column created.
const createdColumn = 4

// checked returns what dst became or, if it is no value of the type, dst with null, which it takes note of.
func (e *Encoder) checked(dst, became []byte, ok bool, column int) []byte {
	if ok {
		return became
	}
	e.invalid = append(e.invalid, column)
	return append(dst, "null"...)
}

func (e *Encoder) appendCell(dst []byte, from *source, column int, o aggregate.Object, cells []any, redacted bool) []byte {
	var became []byte
	ok := true
	switch {
	case from.cell >= 0 && e.fast:
		became, ok = e.pod.append(dst, from)
	case from.cell >= len(cells):
		became = append(dst, "null"...)
	case from.cell >= 0:
		became, ok = appendPrinted(dst, from, cells[from.cell])
	case from.entry != nil:
		became, ok = appendText(dst, from.kind, from.entry(o), true)
	case from.label != "":
		value, has := o.Label(from.label)
		became, ok = appendText(dst, from.kind, value, has)
	case from.memberLabel != "":
		value, has := e.memberLabel(o.Member(), from.memberLabel)
		became, ok = appendText(dst, from.kind, value, has)
	default:
		values := e.valuesOf(from)
		switch {
		case redacted && (from.cut || from.redactable && len(values) > 0):
			e.redacted = append(e.redacted, column)
			became = append(dst, "null"...)
		case len(values) == 0:
			became, ok = appendText(dst, from.kind, from.absent, from.absent != "")
		default:
			became, ok = appendValues(dst, from.kind, values)
		}
	}
	return e.checked(dst, became, ok, column)
}

// valuesOf returns the values of the first path that has any but "".
func (e *Encoder) valuesOf(from *source) (values [][]byte) {
	for _, slot := range from.slots {
		v := e.walker.values[slot]
		if len(values) == 0 {
			values = v
		}
		for _, one := range v {
			if string(one) != `""` {
				return v
			}
		}
	}
	return values
}

func (e *Encoder) memberLabel(member, key string) (string, bool) {
	if e.last.Name != member {
		e.last, _ = e.member(member)
	}
	for _, l := range e.last.Labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// appendText appends a text that stands for a value of a type, null if there is none. It reports whether it is one.
func appendText(dst []byte, kind rows.Type, text string, has bool) ([]byte, bool) {
	switch {
	case !has:
		return append(dst, "null"...), true
	case kind == rows.List:
		return append(appendString(append(dst, '['), text), ']'), true
	case kind == rows.JSON:
		return appendString(dst, string(appendString(nil, text))), true
	}
	return appendTyped(dst, kind, text)
}

// appendValues appends the values of a path as a cell, and reports whether they are one of the type.
func appendValues(dst []byte, kind rows.Type, values [][]byte) ([]byte, bool) {
	switch {
	case len(values) == 0:
		return append(dst, "null"...), true
	case kind == rows.List:
		dst = append(dst, '[')
		for i, v := range values {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendAsString(dst, v)
		}
		return append(dst, ']'), true
	case kind == rows.JSON && len(values) > 1:
		return appendString(dst, "["+string(bytes.Join(values, []byte{','}))+"]"), true
	case kind == rows.JSON:
		return appendString(dst, string(values[0])), true
	case len(values) > 1:
		return dst, false
	}
	v := values[0]
	if kind == rows.String {
		return appendAsString(dst, v), true
	}
	if v[0] == '"' {
		v = v[1 : len(v)-1]
	}
	if kind == rows.Timestamp && isPlainTime(v) {
		return append(append(append(dst, '"'), v...), '"'), true
	}
	return appendTyped(dst, kind, string(v)) // what has escapes is none of them
}

// isPlainTime reports whether a text is a time as Kubernetes writes most, which needs no parsing: 2006-01-02T15:04:05Z.
func isPlainTime(v []byte) bool {
	const form = "0000-00-00T00:00:00Z"
	if len(v) != len(form) {
		return false
	}
	for i := range len(form) {
		if c := v[i]; form[i] == '0' && (c < '0' || c > '9') || form[i] != '0' && c != form[i] {
			return false
		}
	}
	two := func(i int) int { return int(v[i]-'0')*10 + int(v[i+1]-'0') }
	return two(0)+two(2) > 0 && two(5) >= 1 && two(5) <= 12 && two(8) >= 1 && two(8) <= 28 && two(11) < 24 && two(14) < 60 && two(17) < 60
}

// appendTyped appends a text as a cell of a type, and reports whether it is a value of it.
func appendTyped(dst []byte, kind rows.Type, text string) ([]byte, bool) {
	switch kind {
	case rows.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		return strconv.AppendInt(dst, n, 10), err == nil
	case rows.Number:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return dst, false
		}
		return strconv.AppendFloat(dst, n, 'g', -1, 64), true
	case rows.Bool:
		return append(dst, text...), text == "true" || text == "false"
	case rows.Timestamp:
		t, err := time.Parse(time.RFC3339Nano, text)
		if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
			return dst, false
		}
		return append(t.AppendFormat(append(dst, '"'), time.RFC3339Nano), '"'), true
	case rows.Quantity:
		if _, ok := rows.ParseQuantity(text); !ok {
			return dst, false
		}
	}
	return appendString(dst, text), true
}

// appendAsString appends a scalar in canonical JSON as a string.
func appendAsString(dst, value []byte) []byte {
	if value[0] == '"' {
		return append(dst, value...)
	}
	return append(append(append(dst, '"'), value...), '"')
}

// appendPrinted appends a cell of a Table.
func appendPrinted(dst []byte, from *source, cell any) ([]byte, bool) {
	var text string
	switch c := cell.(type) {
	case nil:
		return append(dst, "null"...), true
	case string:
		text = c
	case int64:
		text = strconv.FormatInt(c, 10)
	case float64:
		text = strconv.FormatFloat(c, 'f', -1, 64)
	default:
		text = fmt.Sprint(c)
	}
	switch {
	case text == "<none>" || text == "" && from.kind != rows.String:
		return append(dst, "null"...), true
	case text == "<invalid>":
		return dst, false
	case from.counted:
		text, _, _ = strings.Cut(text, " ") // "5 (3h ago)"
	}
	return appendTyped(dst, from.kind, text)
}

func appendLabels(dst []byte, labels []aggregate.Label) []byte {
	dst = append(dst, '{')
	for i, l := range labels {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, l.Key), ':')
		dst = appendString(dst, l.Value)
	}
	return append(dst, '}')
}

func appendIndices(dst []byte, name string, indices []int) []byte {
	if len(indices) == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":[`...)
	for i, n := range indices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}

// appendOptional appends a string, null where it is "".
func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}

// appendString appends a JSON string.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic("columns: cannot encode a string: " + err.Error())
			}
			return append(dst, text...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
