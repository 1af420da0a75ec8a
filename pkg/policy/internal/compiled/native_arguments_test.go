package compiled

import (
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// dice is what arguments are made of: a random source, or the bytes of a fuzzer.
type dice interface{ IntN(n int) int }

// dataDice rolls what bytes say, and 0 when they have ended.
type dataDice struct{ data []byte }

func (d *dataDice) IntN(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	c := d.data[0]
	d.data = d.data[1:]
	return int(c) % n
}

// signatures are the arguments that natives take. A letter is a type: string, integer,
// number, array, elements (an array or a set), set (t), object, collection, list of strings
// or one, key, value; numbers (I), set of sets (S), operands of a format; or a syntax:
// format, regex, glob, its delimiters, CIDR, version, time, unit, numeral, base.
var signatures = map[string]string{
	"equal": "vv", "neq": "vv", "lt": "vv", "lte": "vv", "gt": "vv", "gte": "vv",
	"internal.member_2": "vc", "internal.member_3": "kvc",
	"plus": "nn", "minus": "nn", "mul": "nn", "div": "nn", "rem": "nn", "abs": "n", "round": "n", "ceil": "n", "floor": "n",
	"format_int": "nB", "to_number": "N", "units.parse": "U", "units.parse_bytes": "U",
	"count": "v", "sum": "I", "max": "e", "min": "e", "sort": "e", "all": "e", "any": "e",
	"and": "tt", "or": "tt", "set_diff": "tt", "intersection": "S", "union": "S",
	"array.concat": "aa", "array.slice": "aii", "array.reverse": "a",
	"object.get": "okv", "object.keys": "o", "object.union": "oo", "object.remove": "oc", "object.filter": "oc",
	"contains": "ss", "startswith": "ss", "endswith": "ss", "strings.any_prefix_match": "ll", "strings.any_suffix_match": "ll",
	"strings.count": "ss", "strings.reverse": "s", "indexof": "ss", "lower": "s", "upper": "s",
	"trim": "ss", "trim_left": "ss", "trim_right": "ss", "trim_space": "s", "trim_prefix": "ss", "trim_suffix": "ss",
	"concat": "sl", "split": "ss", "replace": "sss", "substring": "sii", "sprintf": "FO",
	"regex.match": "Rs", "re_match": "Rs", "glob.match": "GDs", "net.cidr_contains": "CC", "semver.compare": "VV", "time.parse_rfc3339_ns": "T", "time.parse_duration_ns": "W", "time.format": "L",
	"is_array": "v", "is_boolean": "v", "is_null": "v", "is_number": "v", "is_object": "v", "is_set": "v", "is_string": "v", "type_name": "v",
	"cast_array": "e", "cast_set": "e", "cast_string": "s", "cast_boolean": "v", "cast_null": "v", "cast_object": "o",
}

// arguments returns the arguments of a call, of the types that the builtin takes mostly.
func arguments(name string, d dice) []value.Value {
	args := make([]value.Value, 0, 3)
	for _, c := range []byte(signatures[name]) {
		if len(args) > 0 && d.IntN(8) == 0 {
			args = append(args, args[0]) // what they share
			continue
		}
		if d.IntN(16) == 0 {
			c = 'v'
		}
		args = append(args, argument(c, d, 3))
	}
	return args
}

func pick(d dice, list []string) string { return list[d.IntN(len(list))] }

var (
	words = []string{
		"", "a", "b", "ab", "abc", "A", "aBc", "a.b.c", "a/b:c", " a ", "\ta\n", "aaa", "nginx", "gcr.io/x", "gcr.io/", "é", "äöü", "aé", "İK", "日本", "\xff", "a\xffb",
		"\u00a0x\u2003", "\x00", "\"", "a\"b\\", "\u2028", "a-b", "-", ",", ".", "10", "-1", "0", "a,b,,c", strings.Repeat("ab", 200), "\U0001f600",
	}
	integerTexts = []string{
		"0", "1", "2", "3", "-1", "-2", "7", "10", "-7", "100", "512", "513", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296",
		"4611686018427387904", "9223372036854775807", "-9223372036854775808", "-9223372036854775807", "9007199254740993", "3037000500",
	}
	numberTexts = []string{
		"1.0", "0.0", "-0", "-0.0", "0.5", "-1.5", "1.50", "1e2", "1E2", "1e0", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
		"1e400", "10e399", "1e-400", "0e5", "2.0", "100.0", "123456789012345678901234567890", "0.1", "1e100",
	}
	numerals   = append([]string{"", "+5", "007", " 1", "1 ", "inf", "-Inf", "NaN", "0x10", "1_000", "abc", "-", "1e5", "1.", ".5", "--1"}, append(integerTexts, numberTexts...)...)
	formats    = []string{"%s", "%d", "%v", "%v %v", "%s: %d", "%%", "%s%%", "%", "%x", "%q", "%5d", "%-3s", "%+v", "%[1]v", "%v %[1]s", "a", "", "%!", "%v 100", "%v 1000", "%v 1001", "<%s>", "é%sé", "%s\xff", "%T", "[%v]", "%v*", "*%v", "%.2f", "%s %s %s"}
	regexTexts = []string{"", "a", "^a+$", "^[a-z]+$", "[", "(", "a{2}", "a{2,3}b*", "^(a|b)*$", "(?i)ABC", ".", "\\.", "^gcr\\.io/", "é", "\\pL", "a{1001}", "(a{30}){30}", "\xff", "$", "\\d+", "[^/]+", "^.*x", "(?P<n>a)", "\\bA"}
	globTexts  = []string{"", "*", "**", "a*", "*a", "a?c", "?", "[a-z]*", "[!a]*", "{a,b}*", "{a", "[", "\\*", "a.*.c", "a.**", "*.c", "gcr.io/*", "gcr.io/**", "*é*", "a-*", "{ab,{a,b}c}", "*a*b*c*d*", "\\", "[]", "*,*"}
	cidrTexts  = []string{"10.0.0.0/8", "10.1.2.3/8", "10.1.0.0/16", "10.1.2.3", "0.0.0.0/0", "192.168.0.1/32", "192.168.0.1", "10.0.0.0/33", "10.0.0.0/08", "010.0.0.1", "::/0", "::1", "fe80::/10", "fe80::1%eth0", "fe80::1", "::ffff:10.1.2.3", "::ffff:0:0/96", "::ffff:10.0.0.0/104", "2001:db8::/32", "2001:db8:1::/48", "::/80", "::10.1.2.3", "x", "10.0.0.0/", "1.2.3", "fe80::%a/64", "1.2.3.4/+8", "255.255.255.255/1"}
	versions   = []string{"1.2.3", "v1.2.3", "1.2.4", "1.10.0", "0.0.0", "01.2.3", "1.2", "1.2.3.4", "1.2.3-rc1", "1.2.3+m", "1.2.3-", "vv1.2.3", "", "v", "1..3", "1.2.+3", "1.2.-3", "10.0.0", "999999999999999.0.0", "9999999999999999.0.0", "9223372036854775808.0.0", "1.2.x", "a.b.c", "1.2.3 "}
	timeTexts  = []string{"2024-01-02T03:04:05Z", "2024-01-02T03:04:05.123456789Z", "2024-01-02T03:04:05+02:00", "1677-09-21T00:12:43Z", "1677-09-21T00:12:44Z", "1677-09-21T00:12:43.145224192Z", "1677-09-21T00:12:43.145224191Z", "2262-04-11T23:47:16.854775807Z", "2262-04-11T23:47:16.854775808Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2024-13-01T00:00:00Z", "2024-02-30T00:00:00Z", "", "2024-01-02", "2024-01-02t03:04:05z", "2024-01-02T03:04:05,5Z", "2024-01-02T03:04:05.1234567891Z", "2024-01-02T24:00:00Z", "2024-01-02T03:04:60Z", "1969-12-31T23:59:59.9Z", "2024-01-02T3:04:05Z", "2024-01-02T03:04:05-23:59"}
	durations  = []string{"1s", "720h", "90m", "1h30m5s", "1.5h", "-2m", "+3ms", "1us", "1µs", "0", "", "1d", "2w", "1y", "1d12h", "5", "h", "1h-2m", "2562047h47m16.854775807s", "2562047h47m16.854775808s", ".5s", "1e3s", " 1s", "1h ", strings.Repeat("1h", 40)}
	layouts    = []string{"2006-01-02T15:04:05Z", "2006", "2006-01-02", "2006-01-02T15:04:05.999999999Z07:00", "RFC3339", "RFC1123", "ANSIC", "", "15:04", "2006 Jan _2 MST", "2006\xff", "2006-01-02 é", "2006" + strings.Repeat("-01", 40)}
	zones      = []string{"UTC", "", "UTC", "Local", "Europe/Berlin", "utc"}
	units      = []string{"", "m", "k", "K", "M", "g", "G", "t", "T", "P", "p", "E", "e", "Ki", "ki", "KI", "kI", "Mi", "mi", "MI", "Gi", "gi", "Ti", "Pi", "Ei", "ei", "kb", "KB", "kib", "KiB", "MB", "mb", "MiB", "gb", "GiB", "TB", "tib", "pb", "PiB", "EB", "eib", "b", "B", "i", "ib", "x", " ", "mm", "im", "é", "\"", "\u212a", "\u212ai", "e1", "E3", "+", "_", "0m", "kk", "k-", "K\"", "\vi", "\v", "-"}
	amounts    = []string{"0", "1", "5", "10", "100", "250", "500", "1000", "1024", "1500", "999999", "1000000", "1000001", "123456789", "123456789012", "9007199254740993", "999999999999999", "9223372036854775807", "18446744073709551616", "1.5", "-1", "+1", "00", "007", "", ".5", "1e3", "10e", "0x1", "1_0", "9", "8"}
	dots       = []string{".", "/", ":", "é", "ab", "", "\xff", "a"}
)

func textList(d dice, n int) []value.Value {
	list := make([]value.Value, n)
	for i := range list {
		list[i] = value.Text(pick(d, words))
	}
	return list
}

// argument returns a random value of a type or syntax, nested to a depth.
func argument(c byte, d dice, depth int) value.Value {
	switch c {
	case 's':
		if d.IntN(4) == 0 {
			return value.Text(pick(d, words) + pick(d, words) + pick(d, words))
		}
		return value.Text(pick(d, words))
	case 'i':
		return value.Int(d.IntN(9) - 2)
	case 'n':
		if d.IntN(5) == 0 {
			return value.Numeral(pick(d, numberTexts))
		}
		if d.IntN(2) == 0 {
			return value.Int(d.IntN(41) - 20)
		}
		return value.Numeral(pick(d, integerTexts))
	case 'l':
		if d.IntN(4) == 0 {
			return argument('s', d, 0)
		}
		return listOf(d, textList(d, d.IntN(5)))
	}
	if v, ok := composite(c, d, depth); ok {
		return v
	}
	return special(c, d)
}

func listOf(d dice, elems []value.Value) value.Value {
	if d.IntN(2) == 0 {
		return new(value.Arena).Set(elems)
	}
	return value.ArrayOf(elems)
}

func elements(c byte, d dice, depth int) []value.Value {
	if depth <= 0 {
		return nil
	}
	list := make([]value.Value, d.IntN(6))
	for i := range list {
		list[i] = argument(c, d, depth-1)
	}
	return list
}

func composite(c byte, d dice, depth int) (v value.Value, ok bool) {
	var a *value.Arena
	inner := byte('v')
	if d.IntN(2) == 0 { // elements of one type, so that some are equal
		inner = "sik"[d.IntN(3)]
	}
	switch c {
	case 'a':
		return value.ArrayOf(elements(inner, d, depth)), true
	case 't':
		return a.Set(elements(inner, d, depth)), true
	case 'e':
		return listOf(d, elements(inner, d, depth)), true
	case 'I':
		return listOf(d, elements('n', d, depth)), true
	case 'S':
		return a.Set(elements('t', d, depth)), true
	case 'c':
		return argument("atov"[d.IntN(4)], d, depth), true
	case 'k':
		return argument("sssiav"[d.IntN(6)], d, min(depth, 1)), true
	case 'o':
		keys := a.Set(elements(inner, d, min(depth, 1))).Elems()
		pairs := make([]value.Value, 0, 2*len(keys))
		for _, k := range keys {
			pairs = append(pairs, k, argument("vo"[d.IntN(2)], d, depth-1))
		}
		return value.ObjectOf(pairs), true
	case 'v':
		kinds := "sinbzateo"
		if depth <= 0 {
			kinds = kinds[:5]
		}
		return argument(kinds[d.IntN(len(kinds))], d, depth), true
	}
	return v, false
}

func special(c byte, d dice) value.Value {
	switch c {
	case 'b':
		return value.Bool(d.IntN(3) > 0)
	case 'B':
		return value.Int([]int{10, 10, 10, 2, 16, 7}[d.IntN(6)])
	case 'N':
		if d.IntN(4) == 0 {
			return argument("bzn"[d.IntN(3)], d, 0)
		}
		return value.Text(pick(d, numerals))
	case 'U':
		return value.Text(pick(d, amounts) + pick(d, units))
	case 'O':
		list := make([]value.Value, 1+d.IntN(3)%2)
		for i := range list {
			list[i] = argument("ssiv"[d.IntN(4)], d, 2)
		}
		return value.ArrayOf(list)
	case 'D':
		switch d.IntN(3) {
		case 0:
			return value.NullValue
		case 1:
			return value.EmptyArray
		}
		list := make([]value.Value, 1+d.IntN(3))
		for i := range list {
			list[i] = value.Text(pick(d, dots))
		}
		return value.ArrayOf(list)
	case 'L':
		list := []value.Value{argument('n', d, 0), value.Text(pick(d, zones)), value.Text(pick(d, layouts))}
		return value.ArrayOf(list[:1+(d.IntN(4)|2)%3])
	case 'z':
		return value.NullValue
	}
	return value.Text(pick(d, map[byte][]string{
		'W': durations,
		'F': formats, 'R': regexTexts, 'G': globTexts, 'C': cidrTexts, 'V': versions, 'T': timeTexts,
	}[c]))
}
