package console

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Age writes the time since t as kubectl does, "" when there is none.
func Age(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(*t))
}

// Plural writes a number with the noun for it.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WithReason appends a reason in parentheses, if there is one.
func WithReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}

// Printable replaces what is not printable by a space.
func Printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
}

// Colored reports whether w is a terminal whose user has not asked for plain
// text (https://no-color.org).
func Colored(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && IsTerminal(w) }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
