package exit

import (
	"errors"
)

// Exit codes.
const (
	CodeFindings = 1 // and all other failures
	CodeUsage    = 2 // the input is invalid
	CodeUnknown  = 3 // nothing was found, but not everything is known
)

// codedError is an error with its own exit code.
type codedError struct {
	error
	code int
}

func (e *codedError) Unwrap() error { return e.error }

// Code returns the exit code of an error: 1 unless it has its own.
func Code(err error) int {
	if e, ok := errors.AsType[*codedError](err); ok {
		return e.code
	}
	return CodeFindings
}

// WithCode gives an error its own exit code.
func WithCode(err error, code int) error { return &codedError{err, code} }

// Findings returns the error of a command that did its work and found what its caller asked to fail on.
func Findings(text string) error { return &findingsError{text} }

// findingsError is the error of findings.
type findingsError struct{ text string }

func (e *findingsError) Error() string { return e.text }

// BadInput gives an error the exit code of invalid input, unless it is one of Findings.
func BadInput(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*findingsError](err); ok {
		return err
	}
	return &codedError{err, CodeUsage}
}
