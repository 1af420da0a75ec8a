package limits

import (
	"math/bits"
	"regexp/syntax"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// pattern limits a regular expression by itself.
func pattern(args []*ast.Term) *Error {
	_, e := program(text(args[0]))
	return e
}

// program is the number of instructions that a regular expression compiles to,
// about.
func program(expr string) (int, *Error) {
	if len(expr) > MaxPattern {
		return 0, over("bytes of a pattern", MaxPattern)
	}
	size := len(expr) + 1
	if strings.IndexByte(expr, '{') >= 0 {
		// Only repeats make more instructions than bytes.
		if re, err := syntax.Parse(expr, syntax.Perl); err == nil {
			size = instructions(re)
		}
	}
	return size, within("instructions of a pattern", size, MaxPattern)
}

func instructions(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n = product(n, max(re.Min, re.Max, 1)+1)
	}
	return n
}

// matched limits what matching costs, which is in proportion to both the pattern
// and the text.
func matched(expr, s int) guard {
	return func(args []*ast.Term) *Error {
		size, e := program(text(args[expr]))
		if e != nil {
			return e
		}
		return within("steps of matching", product(size, len(text(args[s]))), MaxMatching)
	}
}

// submatches limits the strings that matches and their groups can be.
func submatches(args []*ast.Term) *Error {
	groups := strings.Count(text(args[0]), "(") + 1
	return within("elements", product(groups, len(text(args[1]))+1), MaxElements)
}

// expanded limits what a replacement can make of a text: all of it for each group
// that it names, and itself at every place.
func expanded(args []*ast.Term) *Error {
	s, with := text(args[0]), text(args[2])
	return within("bytes of text", product(len(s)+1, len(with)+1), 8*MaxText)
}

// globbed limits a glob's backtracking, which halves its wildcards and tries every
// place for each half.
func globbed(args []*ast.Term) *Error {
	glob, s := text(args[0]), text(args[2])
	if e := within("bytes of a glob", len(glob), MaxShort); e != nil {
		return e
	}
	if e := within("bytes of text", len(s), MaxText); e != nil {
		return e
	}
	wild := 0
	for i := range len(glob) {
		switch glob[i] {
		case '*', '{', ',':
			wild++
		}
	}
	steps := 1
	for range bits.Len(uint(wild)) {
		steps = product(steps, len(s)+1)
	}
	return within("steps of matching", steps, MaxMatching)
}
