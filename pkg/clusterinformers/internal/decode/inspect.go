package decode

import (
	"bytes"
	"fmt"
)

// errRefused is input that the standard path would wrongly accept, or crash on.
var errRefused = fmt.Errorf("%w: refused", ErrMalformed)

// maxMessages bounds the nesting of messages on the standard path: generated code
// recurses without a bound, and a stack that overflows cannot be recovered.
const maxMessages = 10000

// inspect checks a message for input that the standard path must not get, which is an error,
// and for the first field that our types do not know. Malformed input is left to the
// standard path.
func inspect(p *program, data []byte) (unknown string, err error) {
	return inspectMessage(p.numbers, p.typ.String(), data, 0)
}

func inspectMessage(numbers []number, name string, data []byte, depth int) (unknown string, err error) {
	if depth > maxMessages {
		return "", fmt.Errorf("%w: messages nested deeper than %d", errRefused, maxMessages)
	}
	for len(data) > 0 {
		num, wire, content, rest, ok := nextField(data)
		if wire == 3 || wire == 4 {
			return "", fmt.Errorf("%w: %s has a group", errRefused, name)
		}
		if !ok {
			return unknown, nil
		}
		data = rest
		if num >= uint64(len(numbers)) || numbers[num].slot == 0 {
			if unknown == "" {
				unknown = fmt.Sprintf("%s has field %d", name, num)
			}
			continue
		}
		if wire != wireBytes {
			continue
		}
		var within string
		switch n := &numbers[num]; {
		case n.inline != nil:
			within, err = inspectMessage(n.inline, name, content, depth+1)
		case n.field.mapped:
			within, err = inspectEntry(n.field, name+"."+n.field.name, content, depth+1)
		default:
			within, err = inspectValue(&n.field.value, name+"."+n.field.name, content, depth+1)
		}
		if err != nil {
			return "", err
		}
		if unknown == "" {
			unknown = within
		}
	}
	return unknown, nil
}

func inspectEntry(f *field, name string, data []byte, depth int) (unknown string, err error) {
	for len(data) > 0 {
		num, wire, content, rest, ok := nextField(data)
		if wire == 3 || wire == 4 {
			return "", fmt.Errorf("%w: %s has a group", errRefused, name)
		}
		if !ok {
			return unknown, nil
		}
		data = rest
		within := ""
		switch {
		case num == 2:
			// The generated code accepts bytes regardless of the tag.
			if wire == wireBytes {
				within, err = inspectValue(&f.value, name, content, depth)
			} else {
				err = fmt.Errorf("%w: %s has an entry of wire type %d", errRefused, name, wire)
			}
			if err != nil {
				return "", err
			}
		case num == 1 && wire != wireBytes:
			return "", fmt.Errorf("%w: %s has a key of wire type %d", errRefused, name, wire)
		case num != 1:
			within = fmt.Sprintf("%s has an entry with field %d", name, num)
		}
		if unknown == "" {
			unknown = within
		}
	}
	return unknown, nil
}

func inspectValue(v *value, name string, data []byte, depth int) (unknown string, err error) {
	var known int
	switch v.codec {
	case codecMessage, codecOrBool, codecOrArray, codecOrStrings:
		return inspectMessage(v.sub.numbers, name, data, depth)
	case codecTime, codecMicroTime:
		known = 2
	case codecIntOrString:
		known = 3
	case codecStrings, codecDuration, codecQuantity, codecRaw, codecRawEmpty:
		known = 1
	default:
		return "", nil
	}
	for len(data) > 0 {
		num, wire, content, rest, ok := nextField(data)
		if wire == 3 || wire == 4 {
			return "", fmt.Errorf("%w: %s has a group", errRefused, name)
		}
		if !ok {
			return unknown, nil
		}
		data = rest
		if v.codec == codecQuantity && num == 1 && !validQuantity(content) {
			return "", fmt.Errorf("%w: %s is %.40q", errRefused, name, content)
		}
		if num > uint64(known) && unknown == "" {
			unknown = fmt.Sprintf("%s has field %d", name, num)
		}
	}
	return unknown, nil
}

// validQuantity reports whether a quantity may be parsed: one with an exponent far below
// zero costs resource.ParseQuantity hours and gigabytes, and a long one quadratic time. API
// servers write short ones.
func validQuantity(text []byte) bool {
	e := bytes.IndexAny(text, "eE")
	return len(text) <= 128 && (e < 0 || len(text)-e <= len("e-999"))
}

// nextField splits a field off a message: content is that of wireBytes.
func nextField(data []byte) (num uint64, wire uint8, content, rest []byte, ok bool) {
	tag, n := varint(data)
	if n == 0 {
		return 0, 0, nil, nil, false
	}
	// Generated code keeps 32 bits of the number.
	num, wire, rest = uint64(uint32(tag>>3)), uint8(tag&7), data[n:]
	switch wire {
	case wireVarint:
		_, n = varint(rest)
		return num, wire, nil, rest[n:], n > 0
	case wireFixed64, 5:
		size := 8
		if wire == 5 {
			size = 4
		}
		if len(rest) < size {
			return num, wire, nil, nil, false
		}
		return num, wire, nil, rest[size:], true
	case wireBytes:
		size, n := varint(rest)
		if n == 0 || size > uint64(len(rest)-n) {
			return num, wire, nil, nil, false
		}
		return num, wire, rest[n : n+int(size)], rest[n+int(size):], true
	default:
		return num, wire, nil, nil, false
	}
}
