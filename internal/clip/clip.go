// Package clip bounds text that comes from outside: members, repositories, policies
// and clients write it, and messages, statuses and logs repeat it.
package clip

import (
	"strings"
	"unicode"
)

const ellipsis = "…"

// Text returns s as valid UTF-8 of at most limit bytes, which ends with … where it
// was longer.
func Text(s string, limit int) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:max(limit-len(ellipsis), 0)], "") + ellipsis
}

// Line is Text of s on one line: control characters become spaces.
func Line(s string, limit int) string {
	return Text(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s), limit)
}
