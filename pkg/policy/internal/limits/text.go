package limits

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// texts limits the strings among the arguments, those of collections included.
func texts(maximum int) guard {
	return func(args []*ast.Term) *Error {
		total := 0
		for _, a := range args {
			each(a.Value, func(v ast.Value) bool {
				if s, ok := v.(ast.String); ok {
					total += len(s)
				}
				return total <= maximum
			})
		}
		return within("bytes of text", total, maximum)
	}
}

func text(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}

// searched limits indexof and indexof_n, which compare at every place.
func searched(args []*ast.Term) *Error {
	s, part := text(args[0]), text(args[1])
	if e := within("bytes of text", len(s)+len(part), MaxText); e != nil {
		return e
	}
	if len(part) > len(s) {
		return nil
	}
	return within("bytes compared", product(len(s), len(part)), 32*MaxText)
}

// occurrences limits how often the part of a string occurs in it.
func occurrences(apart int) guard {
	return func(args []*ast.Term) *Error {
		s, part := text(args[0]), text(args[1])
		n := len(s)
		if apart == 1 {
			n = strings.Count(s, part)
		} else if part != "" {
			// Occurrences may overlap: at most one begins at each of its first bytes.
			n = strings.Count(s, part[:1])
		}
		return within("elements", n, MaxElements)
	}
}

// trimmed limits trims, whose cutset is looked through for every character.
func trimmed(args []*ast.Term) *Error {
	if e := texts(MaxText)(args); e != nil {
		return e
	}
	return within("bytes compared", product(len(text(args[0])), len(text(args[1]))), 16*MaxText)
}

// joined limits concat's result.
func joined(args []*ast.Term) *Error {
	between, total := len(text(args[0])), 0
	each(args[1].Value, func(v ast.Value) bool {
		s, _ := v.(ast.String)
		total += len(s) + between
		return total <= MaxText
	})
	if n := length(args[1].Value); n > MaxElements {
		return over("elements", MaxElements)
	}
	return within("bytes of text", total, MaxText)
}

// replaced limits replace. Go's replacer compares what is sought with itself at
// every place, which is quadratic.
func replaced(args []*ast.Term) *Error {
	s, old, with := text(args[0]), text(args[1]), text(args[2])
	if e := within("bytes of what is replaced", len(old), MaxPattern); e != nil {
		return e
	}
	if e := texts(MaxText)(args); e != nil {
		return e
	}
	return within("bytes of text", len(s)+product(strings.Count(s, old), len(with)), MaxText)
}

// replacedAll limits strings.replace_n: no place is replaced twice.
func replacedAll(args []*ast.Term) *Error {
	patterns, ok := args[0].Value.(ast.Object)
	if !ok {
		return nil
	}
	s := text(args[1])
	if patterns.Len() > MaxWidth {
		return over("patterns", MaxWidth)
	}
	if e := within("bytes compared", product(patterns.Len(), len(s)), 16*MaxText); e != nil {
		return e
	}
	total := len(s)
	patterns.Until(func(old, with *ast.Term) bool {
		if len(text(old)) > MaxPattern {
			total = MaxText + 1
		}
		total += len(text(old)) + product(strings.Count(s, text(old)), len(text(with)))
		return total > MaxText
	})
	return within("bytes of text", total, MaxText)
}

// formatted limits sprintf's result by its widths and by what its verbs can write:
// each argument once, at up to six bytes for one, or any argument for each verb
// where the format has indexes.
func formatted(args []*ast.Term) *Error {
	format := text(args[0])
	verbs, width, number, indexed, inVerb := 0, 0, 0, false, false
	for i := strings.IndexByte(format, '%'); i >= 0 && i < len(format); i++ {
		switch c := format[i]; {
		case !inVerb && c != '%':
			continue // text between the verbs
		case c == '%':
			verbs, number, inVerb = verbs+1, 0, !inVerb
		case c >= '0' && c <= '9':
			if number = number*10 + int(c-'0'); number > MaxWidth {
				return over("characters of width", MaxWidth)
			}
			continue
		case c == '*':
			return &Error{Limit: "a width from an argument"}
		case c == '[':
			indexed = true
		case !strings.ContainsRune("+-# .]", rune(c)):
			inVerb = false // the letter of the verb
		}
		width, number = width+number, 0
	}
	var w weight
	w.add(args[1].Value)
	if e := w.exceeded(); e != nil {
		return e
	}
	times := 6
	if indexed {
		times = product(6, verbs)
	}
	return within("bytes of text", len(format)+width+product(times, w.text), 8*MaxText)
}

func weighedYAML(args []*ast.Term) *Error {
	var w weight
	w.add(args[0].Value)
	if e := w.exceeded(); e != nil {
		return e
	}
	return within("bytes of YAML", w.text, 2*MaxYAML)
}

// utc limits times to UTC: other zones are files of the host.
func utc(args []*ast.Term) *Error {
	if e := texts(MaxShort)(args); e != nil {
		return e
	}
	for _, a := range args {
		array, ok := a.Value.(*ast.Array)
		if !ok || array.Len() < 2 {
			continue
		}
		if zone, ok := array.Elem(1).Value.(ast.String); ok && zone != "" && zone != "UTC" {
			return &Error{Limit: "a time zone other than UTC"}
		}
	}
	return digits(args)
}

// layout limits time.parse_ns: an abbreviated zone means what the host says.
func layout(args []*ast.Term) *Error {
	if e := texts(MaxShort)(args); e != nil {
		return e
	}
	switch l := text(args[0]); {
	case l == "RFC822", l == "RFC850", l == "RFC1123", l == "UnixDate", strings.Contains(l, "MST"):
		if s := text(args[1]); !strings.Contains(s, "UTC") {
			return &Error{Limit: "a time zone other than UTC"}
		}
	}
	return nil
}
