package exit

import (
	"errors"
)

// Exit codes: what was asked for did not hold, and what was asked is no good.
const (
	CodeFindings = 1
	CodeUsage    = 2
	CodeUnknown  = 3 // nothing was found, but not all is known
)

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e *codedError) Unwrap() error { return e.error }

// Code is the exit code of an error: 1 where it has none of its own.
func Code(err error) int {
	if e, ok := errors.AsType[*codedError](err); ok {
		return e.code
	}
	return CodeFindings
}

// WithCode gives an error an exit code of its own.
func WithCode(err error, code int) error { return &codedError{err, code} }

// Findings returns the error of a command that did its work and found what its caller asked to fail on.
func Findings(text string) error { return &findingsError{text} }

// findingsError is the error of findings.
type findingsError struct{ text string }

func (e *findingsError) Error() string { return e.text }

// BadInput gives an error the exit code of input that is no good, unless it says
// what was found.
func BadInput(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*findingsError](err); ok {
		return err
	}
	return &codedError{err, CodeUsage}
}
