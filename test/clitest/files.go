package clitest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"federator.dev/federator/internal/exit"
)

// WriteFile writes a file of the test and returns its path.
func WriteFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Eventually waits until f succeeds.
func Eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	err := f()
	for ; err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ErrNotYet is for conditions of Eventually that have no more to say.
var ErrNotYet = errors.New("not yet")

// ExitCode is what a process exits with after an error, or after none.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return exit.Code(err)
}

// ReadFile returns what is in a file.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
