package compiled

import (
	"strconv"
	"strings"
	"unsafe"

	"federator.dev/federator/pkg/policy/internal/value"
)

// What sprintf takes: the guard of OPA's allows for whatever its verbs may write.
const (
	maxFormat   = 2048
	maxVerbs    = 32
	maxOperands = 16 << 10
)

// sprintf does the verbs s, d and v, without flags.
func sprintf(_ *value.Arena, args []value.Value) (value.Value, bool) {
	format, list := args[0], args[1]
	if format.Kind() != value.String || list.Kind() != value.Array || !isFormat(format.Str()) {
		return leave()
	}
	w := weight{elements: maxNativeElements, text: maxOperands, numbers: true}
	if !w.take(list) {
		return leave()
	}
	size := format.Len() + maxOperands - w.text + 4*(maxNativeElements-w.elements)
	b, ok := appendFormat(make([]byte, 0, size), format.Str(), list.Elems())
	if !ok || len(b) > maxNativeText {
		return leave()
	}
	return value.Text(unsafe.String(unsafe.SliceData(b), len(b))), true // b is not written any more
}

// isFormat reports whether the guard could have nothing against a format: that takes all
// digits after a verb for a width, and an asterisk for one from an argument.
func isFormat(s string) bool {
	if len(s) > maxFormat || strings.Count(s, "%") > maxVerbs {
		return false
	}
	digits := 0
	for i := max(0, strings.IndexByte(s, '%')); i < len(s); i++ {
		switch {
		case s[i] < '0' || s[i] > '9':
			digits = 0
		case digits == 3:
			return false
		default:
			digits++
		}
		if s[i] == '*' {
			return false
		}
	}
	return true
}

// appendFormat reports false where an operand is missing, is left over, or is not what its
// verb is for.
func appendFormat(b []byte, format string, operands []value.Value) ([]byte, bool) {
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			return append(b, format...), len(operands) == 0
		}
		if i+1 == len(format) {
			return b, false
		}
		b = append(b, format[:i]...)
		verb := format[i+1]
		format = format[i+2:]
		if verb == '%' {
			b = append(b, '%')
			continue
		}
		if len(operands) == 0 {
			return b, false
		}
		var ok bool
		if b, ok = appendOperand(b, verb, operands[0]); !ok {
			return b, false
		}
		operands = operands[1:]
	}
}

func appendOperand(b []byte, verb byte, v value.Value) ([]byte, bool) {
	switch {
	case v.Kind() == value.Integer:
		return strconv.AppendInt(b, int64(v.Int()), 10), verb == 'd' || verb == 'v'
	case v.Kind() == value.Number || verb != 's' && verb != 'v':
		return b, false
	case v.Kind() == value.String:
		return append(b, v.Str()...), true
	}
	return appendTerm(b, v), true // OPA passes the text of anything else
}

// appendTerm writes a value as ast.Term.String does.
func appendTerm(b []byte, v value.Value) []byte {
	switch v.Kind() {
	case value.Null:
		return append(b, "null"...)
	case value.Boolean:
		return strconv.AppendBool(b, v.IsTrue())
	case value.Integer:
		return strconv.AppendInt(b, int64(v.Int()), 10)
	case value.Number:
		return append(b, v.Str()...)
	case value.String:
		return strconv.AppendQuote(b, v.Str())
	case value.Array:
		return appendTerms(b, '[', v.Elems(), ']')
	case value.Set:
		if v.Len() == 0 {
			return append(b, "set()"...)
		}
		return appendTerms(b, '{', v.Elems(), '}')
	}
	b = append(b, '{')
	for i, pairs := 0, v.Pairs(); i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendTerm(b, pairs[i]), ": "...)
		b = appendTerm(b, pairs[i+1])
	}
	return append(b, '}')
}

func appendTerms(b []byte, opening byte, elems []value.Value, closing byte) []byte {
	b = append(b, opening)
	for i, x := range elems {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendTerm(b, x)
	}
	return append(b, closing)
}
