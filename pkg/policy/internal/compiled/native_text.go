package compiled

import (
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// What is compared with a text at every place is short.
const maxNativePart = 128

func predicate(f func(s, part string) bool) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		if !isText(args[0], args[1]) {
			return leave()
		}
		return value.Bool(f(args[0].Str(), args[1].Str())), true
	}
}

// cut returns a part of its first argument.
func cut(f func(s, part string) string) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		if !isText(args[0], args[1]) || args[1].Len() > maxNativePart {
			return leave()
		}
		return value.Text(f(args[0].Str(), args[1].Str())), true
	}
}

func trimSpace(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isText(args[0]) {
		return leave()
	}
	return value.Text(strings.TrimSpace(args[0].Str())), true
}

// isASCII reports whether values are strings of ASCII characters.
func isASCII(vs ...value.Value) bool {
	if !isText(vs...) {
		return false
	}
	for _, v := range vs {
		s := v.Str()
		for i := range len(s) {
			if s[i] >= 0x80 {
				return false
			}
		}
	}
	return true
}

func ascii(f func(string) string) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		if !isASCII(args[0]) {
			return leave()
		}
		return value.Text(f(args[0].Str())), true
	}
}

func reverse(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isASCII(args[0]) {
		return leave()
	}
	s := args[0].Str()
	var b strings.Builder
	b.Grow(len(s))
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteByte(s[i])
	}
	return value.Text(b.String()), true
}

func indexOf(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isASCII(args[0], args[1]) || args[1].Len() == 0 || args[1].Len() > maxNativePart {
		return leave()
	}
	return value.Int(strings.Index(args[0].Str(), args[1].Str())), true
}

func occurrences(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isText(args[0], args[1]) {
		return leave()
	}
	return value.Int(strings.Count(args[0].Str(), args[1].Str())), true
}

func substring(_ *value.Arena, args []value.Value) (value.Value, bool) {
	from, length := args[1], args[2]
	if from.Kind() != value.Integer || length.Kind() != value.Integer || from.Int() < 0 || !isASCII(args[0]) {
		return leave()
	}
	s := args[0].Str()
	s = s[min(from.Int(), len(s)):]
	if n := length.Int(); n >= 0 && n < len(s) {
		s = s[:n]
	}
	return value.Text(s), true
}

// strs returns the strings of an array or a set, or one string, in buf where there is one.
func strs(v value.Value, buf *[1]value.Value) (list []value.Value, ok bool) {
	if v.Kind() == value.String {
		buf[0] = v
		return buf[:], isText(v)
	}
	if !isList(v) {
		return nil, false
	}
	size := 0
	for _, x := range v.Elems() {
		if size += x.Len(); x.Kind() != value.String || size > maxNativeText {
			return nil, false
		}
	}
	return v.Elems(), true
}

// anyMatch reports whether any of some strings has any of some affixes.
func anyMatch(match func(s, affix string) bool) native {
	return func(_ *value.Arena, args []value.Value) (value.Value, bool) {
		var one, other [1]value.Value
		list, ok := strs(args[0], &one)
		affixes, also := strs(args[1], &other)
		if !ok || !also || len(list)*len(affixes) > maxNativeCompared {
			return leave()
		}
		for _, s := range list {
			for _, affix := range affixes {
				if match(s.Str(), affix.Str()) {
					return value.True, true
				}
			}
		}
		return value.False, true
	}
}

func concat(_ *value.Arena, args []value.Value) (value.Value, bool) {
	sep := args[0]
	if !isText(sep) || args[1].Kind() == value.String {
		return leave()
	}
	list, ok := strs(args[1], nil)
	if !ok {
		return leave()
	}
	switch len(list) {
	case 0:
		return value.EmptyString, true
	case 1:
		return list[0], true
	}
	size := sep.Len() * len(list)
	for _, v := range list {
		size += v.Len()
	}
	if size > maxNativeText {
		return leave()
	}
	var b strings.Builder
	b.Grow(size)
	for i, v := range list {
		if i > 0 {
			b.WriteString(sep.Str())
		}
		b.WriteString(v.Str())
	}
	return value.Text(b.String()), true
}

func splitText(a *value.Arena, args []value.Value) (value.Value, bool) {
	if !isText(args[0], args[1]) || args[1].Len() == 0 {
		return leave()
	}
	s, sep := args[0].Str(), args[1].Str()
	n := strings.Count(s, sep) + 1
	if n > maxNativeElements {
		return leave()
	}
	parts := a.Alloc(n)
	for i := range n - 1 {
		at := strings.Index(s, sep)
		parts[i], s = value.Text(s[:at]), s[at+len(sep):]
	}
	parts[n-1] = value.Text(s)
	return value.ArrayOf(parts), true
}

func replace(_ *value.Arena, args []value.Value) (value.Value, bool) {
	if !isText(args...) || args[1].Len() == 0 || args[1].Len() > maxNativePart {
		return leave()
	}
	s, old, with := args[0].Str(), args[1].Str(), args[2].Str()
	n := strings.Count(s, old)
	if len(s)+n*len(with) > maxNativeText {
		return leave()
	}
	return value.Text(strings.Replace(s, old, with, n)), true
}
