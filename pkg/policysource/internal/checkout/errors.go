package checkout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"federator.dev/federator/internal/clip"
)

// Kinds of errors of a fetch.
var (
	ErrRequest     = errors.New("bad request")           // the request is invalid
	ErrUnreachable = errors.New("remote is unreachable") // no connection, connection lost, or timeout
	ErrDenied      = errors.New("access denied")         // credentials are missing, wrong or revoked
	ErrHostKey     = errors.New("host key is not trusted")
	ErrRedirect    = errors.New("redirect is not allowed") // to another host, port or scheme
	ErrNotFound    = errors.New("repository not found")
	ErrProtocol    = errors.New("remote does not speak git") // or violates the protocol
	ErrRef         = errors.New("ref not found")             // or is ambiguous
	ErrEmpty       = errors.New("no content")                // no commit, no path, or no file below the path
	ErrLimit       = errors.New("too large")
	ErrContent     = errors.New("content is not allowed") // a symbolic link, a submodule, an invalid name
)

// Error is the error of a fetch. Its text contains no credentials, and text of the remote
// is printable and of limited length. It unwraps to its kind and, if the context ended the
// fetch, to the context's error, but to nothing else: an error of a library may contain a
// request with its headers.
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

// Unwrap returns the kind, and the context's error if any.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// fail returns an Error.
func fail(kind error, format string, args ...any) error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// maxDetail is the maximum length in bytes of text from a library or a remote.
const maxDetail = 300

// sanitize returns an Error without secrets for any error.
func sanitize(err error, secrets []string) *Error {
	out := &Error{Kind: ErrUnreachable, Detail: err.Error()}
	var known *Error
	if errors.As(err, &known) {
		out.Kind, out.Detail = known.Kind, known.Detail
	}
	out.Detail = printable(redact(out.Detail, secrets))
	return out
}

// fetchError is sanitize for errors that may be caused by the context.
func fetchError(ctx context.Context, err error, secrets []string) error {
	out := sanitize(err, secrets)
	if cause := ctx.Err(); cause != nil {
		out.Kind, out.cause = ErrUnreachable, cause
		if errors.Is(cause, context.DeadlineExceeded) {
			out.Detail = "the fetch timed out"
		}
	}
	return out
}

// redact replaces secrets in a text.
func redact(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, redacted)
		}
	}
	return text
}

// printable returns a text as one line without control characters, of limited length.
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
	return clip.Text(strings.TrimSpace(text), maxDetail)
}
