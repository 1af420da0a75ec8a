// Package message bounds text that others have written before people or programs see it.
package message

import (
	"regexp"
	"strings"

	"federator.dev/federator/internal/clip"
)

// MaxBytes bounds what is kept of a message, in bytes: members write them.
const MaxBytes = 512

// maxRead bounds what is read of it.
const maxRead = 8 * MaxBytes

// credentials are what credentials look like, and what is kept of them: servers, and proxies before them, repeat
// requests in their answers, and addresses may have passwords. Most messages have no hint of any.
var credentials = []struct {
	hint    string // in lower case
	pattern *regexp.Regexp
	keep    string
}{
	{"authorization", regexp.MustCompile(`(?i)\b(authorization\\?["']?\s*[:=]\s*[\["'\\]{0,4})(?:bearer|basic)\s+[\w.~+/=-]+`), "${1}…"},
	{"bearer ", regexp.MustCompile(`(?i)\b(bearer\s+)[\w.~+/=-]{16,}`), "${1}…"},
	{"basic ", regexp.MustCompile(`(?i)\b(basic\s+)[\w.~+/=-]{16,}`), "${1}…"},
	{"eyj", regexp.MustCompile(`\beyJ[\w-]{8,}(?:\.[\w-]*)*`), "…"}, // a JWT
	{"@", regexp.MustCompile(`(://)[^\s/@"']+@`), "${1}…@"},
}

// Clip bounds a message that came from outside and takes control characters
// and what looks like credentials out.
func Clip(s string) string {
	s = clip.Line(s, maxRead)
	lower := strings.ToLower(s)
	for _, c := range credentials {
		if !strings.Contains(lower, c.hint) {
			continue
		}
		s = c.pattern.ReplaceAllString(s, c.keep)
	}
	return clip.Line(s, MaxBytes)
}
