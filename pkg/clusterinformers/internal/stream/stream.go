// Package stream is what the body of a response is to a reader that does not wait for
// it: thousands of watches are read by few goroutines.
package stream

import (
	"errors"
	"io"
)

// ErrNothing is the error of reading what has not come yet.
var ErrNothing = errors.New("nothing to read yet")

// Stream is a body that can be read without a goroutine that waits. Reads are of one
// goroutine at a time; Notify and Close may be called at any time.
type Stream interface {
	// Read waits until there is something to read, for short requests. Close ends it.
	io.ReadCloser

	// Notify sets what is called when there is something to read: data, the end or an
	// error. It is called at once if there is something already, and from then on once
	// after each ReadNow that found nothing. Calls are made by what reads the
	// connection: ready must neither block nor call Close. nil takes it back, but for a
	// call that is under way. After Close there are no calls.
	Notify(ready func())

	// ReadNow reads what has come. Where nothing has, its error is ErrNothing; once all
	// has been read, it is io.EOF or what went wrong.
	ReadNow(p []byte) (int, error)
}
