package compiled

import (
	"cmp"
	"math/bits"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/gobwas/glob"

	"federator.dev/federator/pkg/policy/internal/value"
)

// patternCache has compiled patterns. Nearly all are constants of policies and of
// parameters.
type patternCache[K comparable, P any] map[K]P

const maxPatterns = 512

// put keeps a pattern, in the place of any other if there are many. The key is kept, too:
// it must not alias what is used again.
func (c *patternCache[K, P]) put(key K, p P) {
	if *c == nil {
		*c = patternCache[K, P]{}
	}
	if len(*c) >= maxPatterns {
		for other := range *c {
			delete(*c, other)
			break
		}
	}
	(*c)[key] = p
}

// What regex.match takes: the guard of OPA's allows for twice as many steps.
const (
	maxRegex      = 512     // bytes, and instructions
	maxRegexSteps = 1 << 20 // instructions times bytes of text
)

// regex is a regular expression and how many instructions it has at most. It has none
// where it is not valid, or is too large.
type regex struct {
	*regexp.Regexp
	size int
}

func regexMatch(m *Machine, args []value.Value) (value.Value, bool) {
	expr, s := args[0], args[1]
	if expr.Kind() != value.String || expr.Len() > maxRegex || !isText(s) {
		return leave()
	}
	re, known := m.regexes[expr.Str()]
	if !known {
		key := strings.Clone(expr.Str())
		re = compileRegex(key)
		m.regexes.put(key, re)
	}
	if re.Regexp == nil || re.size*s.Len() > maxRegexSteps {
		return leave()
	}
	return value.Bool(re.MatchString(s.Str())), true
}

func compileRegex(expr string) regex {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return regex{}
	}
	size := max(len(expr)+1, instructions(tree))
	if size > maxRegex {
		return regex{}
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return regex{}
	}
	return regex{Regexp: re, size: size}
}

// instructions is an upper bound, as the guard has it.
func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1) + 1
	}
	return min(n, maxRegex+1)
}

// globKey is a glob and what its wildcards do not match.
type globKey struct{ pattern, delimiters string }

func globMatch(m *Machine, args []value.Value) (value.Value, bool) {
	pattern, s := args[0], args[2]
	delimiters, ok := delimitersIn(args[1])
	if !ok || pattern.Kind() != value.String || pattern.Len() > maxNativePart || !isText(s) || !isQuick(pattern.Str(), s.Len()) {
		return leave()
	}
	key := globKey{pattern.Str(), delimiters}
	g, known := m.globs[key]
	if !known {
		key = globKey{strings.Clone(key.pattern), strings.Clone(delimiters)}
		g, _ = glob.Compile(key.pattern, []rune(key.delimiters)...) // nil if there is an error
		m.globs.put(key, g)
	}
	if g == nil {
		return leave()
	}
	return value.Bool(g.Match(s.Str())), true
}

// delimitersIn are the delimiters of a glob: none for null, a point for an empty array.
// OPA's cache confuses globs whose delimiters have a dash.
func delimitersIn(v value.Value) (s string, ok bool) {
	switch {
	case v.Kind() == value.Null:
		return "", true
	case v.Kind() != value.Array || v.Len() > 8:
		return "", false
	case v.Len() == 0:
		return ".", true
	}
	for _, x := range v.Elems() {
		if x.Kind() != value.String || !utf8.ValidString(x.Str()) || utf8.RuneCountInString(x.Str()) != 1 || x.Str() == "-" {
			return "", false
		}
		if s += x.Str(); v.Len() == 1 {
			s = x.Str()
		}
	}
	return s, true
}

// isQuick reports whether a glob cannot take many steps, as the guard counts them: every
// place for each half of its wildcards.
func isQuick(pattern string, n int) bool {
	wild := 0
	for i := range len(pattern) {
		switch pattern[i] {
		case '*', '{', ',':
			wild++
		}
	}
	switch bits.Len(uint(wild)) {
	case 0, 1:
		return true
	case 2:
		return n <= 1000
	case 3:
		return n <= 100
	}
	return false
}

// cidrContains takes addresses that have one form only, not those of IPv4 within IPv6.
func cidrContains(_ *value.Arena, args []value.Value) (value.Value, bool) {
	network, ok := prefix(args[0])
	if !ok || args[1].Kind() != value.String || args[1].Len() > maxNativePart {
		return leave()
	}
	if ip, err := netip.ParseAddr(args[1].Str()); err == nil {
		return value.Bool(network.Contains(ip)), ip.Zone() == "" && !ip.Is4In6()
	}
	other, ok := prefix(args[1])
	return value.Bool(ok && network.Bits() <= other.Bits() && network.Contains(other.Addr())), ok
}

func prefix(v value.Value) (p netip.Prefix, ok bool) {
	if v.Kind() != value.String || v.Len() > maxNativePart {
		return p, false
	}
	p, err := netip.ParsePrefix(v.Str())
	return p, err == nil && !p.Addr().Is4In6()
}

func semverCompare(_ *value.Arena, args []value.Value) (value.Value, bool) {
	x, ok := version(args[0])
	y, also := version(args[1])
	if !ok || !also {
		return leave()
	}
	return value.Int(cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), cmp.Compare(x[2], y[2]))), true
}

// version reads three numbers, without anything after them.
func version(v value.Value) (numbers [3]int, ok bool) {
	if v.Kind() != value.String || v.Len() > 48 {
		return numbers, false
	}
	s := strings.TrimPrefix(v.Str(), "v")
	for i := range numbers {
		end := 0
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			numbers[i] = numbers[i]*10 + int(s[end]-'0')
			end++
		}
		if end == 0 || end > 15 || s[0] == '0' && end > 1 {
			return numbers, false
		}
		if s = s[end:]; i < 2 {
			if s == "" || s[0] != '.' {
				return numbers, false
			}
			s = s[1:]
		}
	}
	return numbers, s == ""
}
