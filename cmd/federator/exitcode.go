package main

import "errors"

// Exit codes: what was asked for did not hold, and what was asked is no good.
const (
	exitFindings = 1
	exitUsage    = 2
	exitUnknown  = 3 // nothing was found, but not all is known
)

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// exitCode is the exit code of an error: 1 where it has none of its own.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFindings
}

// badInput gives an error the exit code of input that is no good, unless it says
// what was found.
func badInput(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*errFindings](err); ok {
		return err
	}
	return &exitError{err, exitUsage}
}
