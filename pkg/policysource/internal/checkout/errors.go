package checkout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What can be wrong with a fetch: each Error is one of them.
var (
	ErrRequest     = errors.New("bad request")           // what is asked for makes no sense
	ErrUnreachable = errors.New("remote is unreachable") // no connection, or it broke, or it took too long
	ErrDenied      = errors.New("access is denied")      // a credential is missing, wrong or revoked
	ErrHostKey     = errors.New("host key is not trusted")
	ErrRedirect    = errors.New("redirect is refused") // to another host, port or scheme
	ErrNotFound    = errors.New("repository is not found")
	ErrProtocol    = errors.New("remote does not speak git") // or speaks it wrongly
	ErrRef         = errors.New("reference is not found")    // or there are two of the name
	ErrEmpty       = errors.New("nothing is there")          // no commit, no path, or no file below the path
	ErrLimit       = errors.New("too large")
	ErrContent     = errors.New("content is refused") // a symbolic link, a submodule, an odd name
)

// Error is a fetch that failed. Its text has no credential in it, and what the
// remote said is bounded and printable. It unwraps to what is wrong and, where
// that ended it, to the context's error, and to nothing else: an error of a
// library may hold a request with its headers.
type Error struct {
	Kind   error // one of those above
	Detail string
	cause  error // of the context
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Kind.Error()
	}
	return e.Kind.Error() + ": " + e.Detail
}

// Unwrap returns what is wrong, and the context's error if any.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// fail makes an Error of what a fetch itself found.
func fail(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// maxDetail bounds, in bytes, what is repeated of a library's or a remote's words.
const maxDetail = 300

// conceal makes an Error that can be shown of any error.
func conceal(err error, secrets []string) *Error {
	out := &Error{Kind: ErrUnreachable, Detail: err.Error()}
	var known *Error
	if errors.As(err, &known) {
		out.Kind, out.Detail = known.Kind, known.Detail
	}
	out.Detail = printable(without(out.Detail, secrets))
	return out
}

// ended is conceal for what a context may have ended.
func ended(ctx context.Context, err error, secrets []string) error {
	out := conceal(err, secrets)
	if cause := ctx.Err(); cause != nil {
		out.Kind, out.cause = ErrUnreachable, cause
		if errors.Is(cause, context.DeadlineExceeded) {
			out.Detail = "it took longer than is allowed"
		}
	}
	return out
}

// without returns a text with secrets cut out of it.
func without(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, redacted)
		}
	}
	return text
}

// printable returns a text as one line without control characters, bounded.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '?'
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	if len(text) <= maxDetail {
		return text
	}
	cut := maxDetail
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
