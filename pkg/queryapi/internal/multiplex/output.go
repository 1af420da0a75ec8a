package multiplex

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// maxBuffered bounds the bytes that wait for the client; one line may be larger.
const maxBuffered = 4 << 20

// output is what a stream has to write. Many goroutines put lines into it, and one writes them.
type output struct {
	ready chan struct{} // has room for one: there is something to write

	mu    sync.Mutex
	lines []byte
	taken chan struct{} // closed when lines are taken
}

func newOutput() *output {
	return &output{ready: make(chan struct{}, 1), taken: make(chan struct{})}
}

// put appends a line, in parts, once there is room for it, or until ctx ends.
func (o *output) put(ctx context.Context, parts ...[]byte) error {
	for {
		o.mu.Lock()
		if len(o.lines) < maxBuffered {
			for _, p := range parts {
				o.lines = append(o.lines, p...)
			}
			o.lines = append(o.lines, '\n')
			o.mu.Unlock()
			select {
			case o.ready <- struct{}{}:
			default:
			}
			return nil
		}
		taken := o.taken
		o.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take returns what is to be written, into the room of what was.
func (o *output) take(written []byte) []byte {
	if cap(written) > maxBuffered/4 {
		written = nil // an idle stream holds little
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.lines
	o.lines = written[:0]
	close(o.taken)
	o.taken = make(chan struct{})
	return lines
}

// write writes lines as they come, until done is closed and all are written. It fails for a client
// that does not read in time.
func (o *output) write(w http.ResponseWriter, timeout time.Duration, done <-chan struct{}) error {
	controller := http.NewResponseController(w)
	var lines []byte
	for {
		ended := false
		select {
		case <-o.ready:
		case <-done:
			ended = true
		}
		lines = o.take(lines)
		if len(lines) > 0 {
			if err := flush(w, controller, lines, timeout); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

func flush(w http.ResponseWriter, controller *http.ResponseController, lines []byte, timeout time.Duration) error {
	if err := controller.SetWriteDeadline(time.Now().Add(timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.Write(lines); err != nil {
		return err
	}
	if err := controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 ends a stream whose deadline passes, even while there is nothing to write.
	if err := controller.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
