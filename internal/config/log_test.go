package config

import (
	"bytes"
	"log"
	"strings"
	"testing"
)

// TestNewLogger_StandardLibraryIsForDebugging: what members have net/http log is not written,
// unless it is asked for.
func TestNewLogger_StandardLibraryIsForDebugging(t *testing.T) {
	flags, to := log.Flags(), log.Writer()
	defer func() { log.SetFlags(flags); log.SetOutput(to) }()
	for level, want := range map[string]int{"info": 0, "debug": 1} {
		var out bytes.Buffer
		if _, err := NewLogger(&out, Log{Level: level, Format: "text"}); err != nil {
			t.Fatal(err)
		}
		log.Print("Transport: unhandled response frame")
		if got := strings.Count(out.String(), `level=DEBUG msg="Transport: unhandled response frame" from=net/http`); got != want {
			t.Errorf("level %s: %d lines, want %d: %q", level, got, want, out.String())
		}
	}
}
