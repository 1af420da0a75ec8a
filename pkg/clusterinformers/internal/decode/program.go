package decode

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// codec is the encoding of one value of a field.
type codec uint8

const (
	codecString codec = iota
	codecBool
	codecInt
	codecInt32
	codecUint
	codecUint32
	codecFloat
	codecBytes
	codecMessage
	codecStrings // a map's value that is a message with a list of strings
	codecTime
	codecMicroTime
	codecDuration
	codecQuantity
	codecIntOrString
	codecRaw      // raw JSON; empty is left to the standard path
	codecRawEmpty // raw JSON; empty is null
	codecOrBool   // JSONSchemaPropsOrBool and similar types
	codecOrArray
	codecOrStrings
)

// Wire types.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
)

func (c codec) wire() uint8 {
	switch c {
	case codecBool, codecInt, codecInt32, codecUint, codecUint32:
		return wireVarint
	case codecFloat:
		return wireFixed64
	default:
		return wireBytes
	}
}

// value is the type of a value.
type value struct {
	codec codec
	sub   *program // of codecMessage and the codecs for schemas
}

// field is one member of the JSON of a message.
type field struct {
	name   string
	key    []byte // ,"name":
	absent []byte // the member if the field is absent on the wire; nil if there is none
	slot   int    // -1: never on the wire
	value
	repeated, mapped    bool
	pointer             bool
	untyped             bool // not in protobuf, so that its codec is not known
	omitEmpty, omitZero bool

	depth int // of embedding
}

// number describes a field number of a message.
type number struct {
	slot     int // 0: unknown
	wire     uint8
	repeated bool
	inline   []number // an embedded message that is a separate field on the wire
	field    *field   // nil for inline
}

// program converts messages of one Go type to JSON. It is immutable once compiled.
type program struct {
	typ     reflect.Type
	slots   int      // slot 0 is not used
	numbers []number // by field number
	fields  []field  // by key
	err     error
}

// programs holds the compiled programs of the process: they depend only on the types.
var programs = struct {
	sync.Mutex
	of map[reflect.Type]*program
}{of: map[reflect.Type]*program{}}

// programFor returns the program of a struct type.
func programFor(t reflect.Type) (*program, error) {
	programs.Lock()
	defer programs.Unlock()
	if p := programs.of[t]; p != nil {
		return p, p.err
	}
	// Programs refer to each other in cycles: all that are reachable from a type are
	// compiled before one is published.
	c := compiler{reached: map[reflect.Type]*program{}}
	p := c.program(t)
	if c.err != nil {
		p = &program{typ: t, err: c.err}
		programs.of[t] = p
		return p, p.err
	}
	for t, p := range c.reached {
		programs.of[t] = p
	}
	return p, nil
}

type compiler struct {
	reached map[reflect.Type]*program
	err     error
}

func (c *compiler) fail(t reflect.Type, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%v: %s", t, fmt.Sprintf(format, args...))
	}
}

// maxNumber bounds the table of a message; API types number their fields
// densely.
const maxNumber = 4096

func (c *compiler) program(t reflect.Type) *program {
	if p := programs.of[t]; p != nil && p.err == nil {
		return p
	}
	if p := c.reached[t]; p != nil {
		return p
	}
	p := &program{typ: t, slots: 1}
	c.reached[t] = p
	var fields []*field
	p.numbers = c.fields(p, t, 0, &fields)
	slices.SortStableFunc(fields, func(a, b *field) int {
		if n := strings.Compare(a.name, b.name); n != 0 {
			return n
		}
		return a.depth - b.depth
	})
	for i, f := range fields {
		if i > 0 && fields[i-1].name == f.name {
			if fields[i-1].depth == f.depth {
				c.fail(t, "two fields %q", f.name)
			}
			continue // hidden, as in Go and encoding/json
		}
		p.fields = append(p.fields, *f)
	}
	return p
}

// fields adds the fields of t, including embedded structs, and returns its table of numbers.
func (c *compiler) fields(p *program, t reflect.Type, depth int, into *[]*field) []number {
	var table []number
	for i := range t.NumField() {
		sf := t.Field(i)
		if !sf.IsExported() {
			continue
		}
		num, err := fieldNumber(sf)
		if err != nil {
			c.fail(t, "%s: %v", sf.Name, err)
			return nil
		}
		name, opts, _ := strings.Cut(sf.Tag.Get("json"), ",")
		var n number
		switch {
		case name == "-" && opts == "":
			c.fail(t, "%s is not in the JSON", sf.Name)
			return nil
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct && !marshals(sf.Type):
			n = number{slot: p.slots, wire: wireBytes}
			p.slots++
			first := len(*into)
			if n.inline = c.fields(p, sf.Type, depth+1, into); n.inline == nil {
				n.inline = []number{{}}
			}
			if num == 0 {
				for _, f := range (*into)[first:] {
					f.slot = -1 // TypeMeta: the wire does not reach it
				}
				continue
			}
		default:
			f := c.field(t, sf, name, opts, depth)
			if f == nil {
				return nil
			}
			*into = append(*into, f)
			if num == 0 {
				f.slot = -1
				continue
			}
			f.slot = p.slots
			p.slots++
			n = number{slot: f.slot, wire: f.codec.wire(), repeated: f.repeated || f.mapped, field: f}
			if f.mapped {
				n.wire = wireBytes
			}
		}
		for len(table) <= num {
			table = append(table, number{})
		}
		if table[num].slot != 0 {
			c.fail(t, "two fields numbered %d", num)
		}
		table[num] = n
	}
	return table
}

func fieldNumber(sf reflect.StructField) (int, error) {
	tag, ok := sf.Tag.Lookup("protobuf")
	if !ok || tag == "-" {
		return 0, nil
	}
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return 0, fmt.Errorf("protobuf tag %q", tag)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n <= 0 || n > maxNumber {
		return 0, fmt.Errorf("protobuf tag %q", tag)
	}
	return n, nil
}

func (c *compiler) field(t reflect.Type, sf reflect.StructField, name, opts string, depth int) *field {
	if name == "" {
		name = sf.Name
	}
	f := &field{name: name, depth: depth}
	for o := range strings.SplitSeq(opts, ",") {
		switch o {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		case "string":
			c.fail(t, "%s: option string", sf.Name)
			return nil
		}
	}
	f.key = append(f.key, ',')
	var ok bool
	if f.key, ok = appendString(f.key, []byte(name)); !ok {
		c.fail(t, "%s: name", sf.Name)
		return nil
	}
	f.key = append(f.key, ':')
	zero, err := json.Marshal(reflect.New(sf.Type).Interface())
	if err != nil {
		c.fail(t, "%s: %v", sf.Name, err)
		return nil
	}
	var z canonicalizer
	if !z.document(zero, inner) {
		c.fail(t, "%s: zero value %s", sf.Name, zero)
		return nil
	}
	if !f.omitZero && (!f.omitEmpty || sf.Type.Kind() == reflect.Struct) {
		f.absent = append(slices.Clone(f.key), z.out...)
	}
	if tag := sf.Tag.Get("protobuf"); tag == "" || tag == "-" {
		f.untyped = true
		return f
	}
	switch ft := sf.Type; {
	case ft.Kind() == reflect.Pointer:
		f.pointer = true
		f.value = c.value(ft.Elem())
	case ft.Kind() == reflect.Map && !marshals(ft):
		if ft.Key().Kind() != reflect.String || marshals(ft.Key()) {
			c.fail(t, "%s: map of %v", sf.Name, ft.Key())
		}
		f.mapped = true
		f.value = c.value(ft.Elem())
		if f.codec.wire() != wireBytes {
			c.fail(t, "%s: map to numbers", sf.Name)
		}
	case ft.Kind() == reflect.Slice && ft.Elem().Kind() != reflect.Uint8 && !marshals(ft) && !unmarshals(ft):
		f.repeated = true
		f.value = c.value(ft.Elem())
	default:
		f.value = c.value(ft)
	}
	if f.codec == codecStrings && !f.mapped {
		c.fail(t, "%s: list in a message", sf.Name)
	}
	if f.omitEmpty && !f.pointer && f.codec == codecFloat {
		c.fail(t, "%s: omitempty on a float", sf.Name)
	}
	if f.omitZero && !f.pointer && f.codec != codecTime && f.codec != codecMicroTime {
		c.fail(t, "%s: option omitzero", sf.Name)
	}
	return f
}

var wellKnownCodecs = map[reflect.Type]codec{
	reflect.TypeFor[metav1.Time]():                                codecTime,
	reflect.TypeFor[metav1.MicroTime]():                           codecMicroTime,
	reflect.TypeFor[metav1.Duration]():                            codecDuration,
	reflect.TypeFor[metav1.FieldsV1]():                            codecRawEmpty,
	reflect.TypeFor[resource.Quantity]():                          codecQuantity,
	reflect.TypeFor[intstr.IntOrString]():                         codecIntOrString,
	reflect.TypeFor[runtime.RawExtension]():                       codecRaw,
	reflect.TypeFor[apiextensions.JSON]():                         codecRawEmpty,
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        codecOrBool,
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       codecOrArray,
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): codecOrStrings,
}

func (c *compiler) value(t reflect.Type) value {
	if sp, ok := wellKnownCodecs[t]; ok {
		v := value{codec: sp}
		switch sp {
		case codecOrBool, codecOrArray, codecOrStrings:
			v.sub = c.program(t)
		}
		return v
	}
	if marshals(t) {
		c.fail(t, "marshals itself")
		return value{}
	}
	switch t.Kind() {
	case reflect.String:
		return value{codec: codecString}
	case reflect.Bool:
		return value{codec: codecBool}
	case reflect.Int64:
		return value{codec: codecInt}
	case reflect.Int32:
		return value{codec: codecInt32}
	case reflect.Uint64:
		return value{codec: codecUint}
	case reflect.Uint32:
		return value{codec: codecUint32}
	case reflect.Float64:
		return value{codec: codecFloat}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return value{codec: codecBytes}
		}
		if unmarshals(t) && t.Elem().Kind() == reflect.String && !marshals(t.Elem()) {
			return value{codec: codecStrings}
		}
	case reflect.Struct:
		if unmarshals(t) {
			return value{codec: codecMessage, sub: c.program(t)}
		}
	}
	c.fail(t, "no way to decode")
	return value{}
}

var (
	jsonMarshaler    = reflect.TypeFor[json.Marshaler]()
	textMarshaler    = reflect.TypeFor[encoding.TextMarshaler]()
	protoUnmarshaler = reflect.TypeFor[interface{ Unmarshal([]byte) error }]()
)

// marshals reports whether a type or its pointer implements its own JSON encoding.
func marshals(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
}

func unmarshals(t reflect.Type) bool { return reflect.PointerTo(t).Implements(protoUnmarshaler) }

var errNoList = errors.New("its list type is of another shape")

// listOf checks that List can read a list type in place: metadata in field 1, items of the
// given type in field 2, nothing else.
func listOf(list, item reflect.Type) error {
	for i := range list.NumField() {
		sf := list.Field(i)
		num, err := fieldNumber(sf)
		if err != nil {
			return err
		}
		switch {
		case num == 0 && sf.Type == reflect.TypeFor[metav1.TypeMeta]():
		case num == 1 && sf.Type == reflect.TypeFor[metav1.ListMeta]():
		case num == 2 && sf.Type.Kind() == reflect.Slice && sf.Type.Elem() == item:
		default:
			return errNoList
		}
	}
	return nil
}
