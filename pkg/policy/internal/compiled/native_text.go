package compiled

import (
	"regexp"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

func predicate(f func(s, part string) bool) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		if !isText(args[0]) || !isText(args[1]) {
			return value.Value{}, false
		}
		return value.Bool(f(args[0].Str(), args[1].Str())), true
	}
}

// transform returns a part of its first argument.
func transform(f func(s, part string) string) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		if !isText(args[0]) || !isText(args[1]) || args[1].Len() > 256 {
			return value.Value{}, false
		}
		return value.Text(f(args[0].Str(), args[1].Str())), true
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func ascii(f func(string) string) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		if !isText(args[0]) || !isASCII(args[0].Str()) {
			return value.Value{}, false
		}
		return value.Text(f(args[0].Str())), true
	}
}

func concat(_ *Machine, args []value.Value) (value.Value, bool) {
	sep, list := args[0], args[1]
	if !isText(sep) || list.Kind() != value.Array && list.Kind() != value.Set || list.Len() > maxNativeElements {
		return value.Value{}, false
	}
	size := 0
	for _, v := range list.Elems() {
		if v.Kind() != value.String {
			return value.Value{}, false
		}
		size += v.Len() + sep.Len()
	}
	if size > maxNativeText {
		return value.Value{}, false
	}
	var b strings.Builder
	b.Grow(size)
	for i, v := range list.Elems() {
		if i > 0 {
			b.WriteString(sep.Str())
		}
		b.WriteString(v.Str())
	}
	return value.Text(b.String()), true
}

func split2(m *Machine, args []value.Value) (value.Value, bool) {
	if !isText(args[0]) || !isText(args[1]) || args[1].Len() == 0 {
		return value.Value{}, false
	}
	s, sep := args[0].Str(), args[1].Str()
	n := strings.Count(s, sep) + 1
	if n > maxNativeElements {
		return value.Value{}, false
	}
	parts := m.arena.Alloc(n)
	for i := range n - 1 {
		at := strings.Index(s, sep)
		parts[i], s = value.Text(s[:at]), s[at+len(sep):]
	}
	parts[n-1] = value.Text(s)
	return value.ArrayOf(parts), true
}

func replace(_ *Machine, args []value.Value) (value.Value, bool) {
	if !isText(args[0]) || !isText(args[1]) || !isText(args[2]) || args[1].Len() == 0 || args[1].Len() > 256 || args[2].Len() > 256 {
		return value.Value{}, false
	}
	s, old := args[0].Str(), args[1].Str()
	if strings.Count(s, old)*args[2].Len() > maxNativeText {
		return value.Value{}, false
	}
	return value.Text(strings.ReplaceAll(s, old, args[2].Str())), true
}

func substring(_ *Machine, args []value.Value) (value.Value, bool) {
	if !isText(args[0]) || args[1].Kind() != value.Integer || args[2].Kind() != value.Integer || args[1].Int() < 0 || !isASCII(args[0].Str()) {
		return value.Value{}, false
	}
	s, start, length := args[0].Str(), args[1].Int(), args[2].Int()
	if start >= len(s) {
		return value.EmptyString, true
	}
	if s = s[start:]; length >= 0 && length < len(s) {
		s = s[:length]
	}
	return value.Text(s), true
}

// anyMatch reports whether any of some strings has any of some affixes.
func anyMatch(match func(s, affix string) bool) native {
	return func(_ *Machine, args []value.Value) (value.Value, bool) {
		list, ok := texts(args[0])
		affixes, also := texts(args[1])
		if !ok || !also || len(list)*len(affixes) > maxNativeElements {
			return value.Value{}, false
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

// texts are the strings of an array or set, or one string.
func texts(v value.Value) (list []value.Value, ok bool) {
	switch v.Kind() {
	case value.String:
		return []value.Value{v}, isText(v)
	case value.Array, value.Set:
		if v.Len() > maxNativeElements {
			return nil, false
		}
		for _, x := range v.Elems() {
			if !isText(x) {
				return nil, false
			}
		}
		return v.Elems(), true
	}
	return nil, false
}

func regexMatch(m *Machine, args []value.Value) (value.Value, bool) {
	if args[0].Kind() != value.String || args[1].Kind() != value.String || args[0].Len()*args[1].Len() > maxMatching {
		return value.Value{}, false
	}
	p := m.patterns.get(args[0].Str())
	if p == nil {
		return value.Value{}, false
	}
	return value.Bool(p.MatchString(args[1].Str())), true
}

// maxMatching bounds the bytes of a pattern times those of a text, and so how long they take.
const maxMatching = 32 << 10

// patternCache has compiled regular expressions: nearly all are constants of policies and
// of parameters. nil is one that OPA is to look at.
type patternCache map[string]*regexp.Regexp

const maxPatterns = 1024

func (c *patternCache) get(s string) *regexp.Regexp {
	if re, known := (*c)[s]; known {
		return re
	}
	if *c == nil || len(*c) >= maxPatterns {
		*c = patternCache{}
	}
	s = strings.Clone(s)
	re, err := regexp.Compile(s)
	if err != nil || strings.ContainsRune(s, '{') { // repetitions expand
		re = nil
	}
	(*c)[s] = re
	return re
}
