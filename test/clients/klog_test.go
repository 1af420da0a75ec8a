package clients

import (
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
)

// sink keeps the errors and warnings that client-go logs. It may be used from any
// goroutine.
type sink struct {
	mu    sync.Mutex
	lines []string
}

// logger returns a logger that writes to the sink.
func (s *sink) logger() logr.Logger { return logr.New((*errorSink)(s)) }

// since returns the lines after the first n.
func (s *sink) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines[min(n, len(s.lines)):])
}

// errorSink is a [sink] as logr wants it: without levels, so that only errors and what
// is always logged come in.
type errorSink sink

func (s *errorSink) Init(logr.RuntimeInfo)          {}
func (s *errorSink) Enabled(int) bool               { return false }
func (s *errorSink) Info(int, string, ...any)       {}
func (s *errorSink) WithValues(...any) logr.LogSink { return s }
func (s *errorSink) WithName(string) logr.LogSink   { return s }
func (s *errorSink) Error(err error, msg string, keysAndValues ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprint(msg, ": ", err, " ", keysAndValues))
}
