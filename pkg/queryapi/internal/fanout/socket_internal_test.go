package fanout

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// endless is a line that does not end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	e.read += len(p)
	return len(p), nil
}

// TestCopyLines_IsBounded: a process that sends a line without an end costs no more than the longest line; lines that are shorter come
// whole, and one that is cut off does not.
func TestCopyLines_IsBounded(t *testing.T) {
	const most = 1 << 20
	line := strings.Repeat("b", most-1) + "\n"
	var got bytes.Buffer
	from := &endless{}
	if err := copyLines(&got, io.MultiReader(strings.NewReader(line+"c\n"+line), from), most); !errors.Is(err, errLongLine) || from.read > 2*most {
		t.Errorf("%v after %d bytes", err, from.read)
	}
	if want := line + "c\n" + line; got.String() != want {
		t.Errorf("%d bytes were copied, want %d", got.Len(), len(want))
	}
	got.Reset()
	if err := copyLines(&got, strings.NewReader("c\nd"), most); err != nil || got.String() != "c\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}
