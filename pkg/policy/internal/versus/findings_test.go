package versus

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// subject is an object that a rule is evaluated of.
type subject struct {
	kind, member, namespace, name string
	object                        value.Value
	labels                        value.Value // of the member
	fleet                         *fleet
}

// rule is a rule that is written by hand: of a subject that is decoded.
type rule func(s *subject, out *findings)

// byteRule is one of the stored bytes of an object.
type byteRule func(s *subject, body []byte, out *findings)

// violation is what is kept of one.
type violation struct {
	msg     string
	details []byte // JSON, nil for none
}

// findings are the violations of one evaluation: a set.
type findings struct{ list []violation }

func (f *findings) add(msg string, details []byte) {
	for i := range f.list {
		if f.list[i].msg == msg && bytes.Equal(f.list[i].details, details) {
			return
		}
	}
	f.list = append(f.list, violation{msg, details})
}

// details writes the details of a violation: an object whose keys come in order.
type details []byte

func (d details) key(name string) details {
	if d == nil {
		d = append(make(details, 0, 96), '{')
	} else {
		d = append(d, ',')
	}
	return append(appendText(d, name), ':')
}

func (d details) text(key, text string) details { return appendText(d.key(key), text) }

func (d details) int(key string, n int) details {
	return strconv.AppendInt(d.key(key), int64(n), 10)
}

func (d details) texts(key string, list []string) details { return appendTexts(d.key(key), list) }

func (d details) end() []byte { return append(d, '}') }

func appendTexts(d details, list []string) details {
	d = append(d, '[')
	for i, text := range list {
		if i > 0 {
			d = append(d, ',')
		}
		d = appendText(d, text)
	}
	return append(d, ']')
}

func appendText(d details, s string) details {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := json.Marshal(s)
			return append(d, quoted...)
		}
	}
	d = append(d, '"')
	return append(append(d, s...), '"')
}

// elems are the elements of an array, none of anything else.
func elems(v value.Value) []value.Value {
	if v.Kind() != value.Array {
		return nil
	}
	return v.Elems()
}

func text(v value.Value) (string, bool) {
	if v.Kind() != value.String {
		return "", false
	}
	return v.Str(), true
}

func is(v value.Value, want string) bool { return v.Kind() == value.String && v.Str() == want }

// holds reports whether a value is one that a condition takes for true.
func holds(v value.Value) bool { return v.Defined() && !v.IsFalse() }

// strs returns a parameter that is a list of strings.
func strs(v value.Value) []string {
	var out []string
	for _, x := range elems(v) {
		out = append(out, x.Str())
	}
	return out
}

// sorted sorts a list and drops repetitions.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// few names some of a sorted list.
func few(names []string) string {
	if len(names) < 3 {
		return strings.Join(names, " and ")
	}
	return names[0] + ", " + names[1] + " and " + strconv.Itoa(len(names)-2) + " more"
}

// glob reports whether a text matches a pattern of * and ?, of which * stops at a separator,
// if there is one.
func glob(pattern, s string, separator byte) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			rest := pattern[1:]
			stops := separator
			if strings.HasPrefix(rest, "*") {
				rest, stops = rest[1:], 0
			}
			for i := 0; ; i++ {
				if glob(rest, s[i:], separator) {
					return true
				}
				if i == len(s) || stops != 0 && s[i] == stops {
					return false
				}
			}
		case '?':
			if s == "" {
				return false
			}
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}
