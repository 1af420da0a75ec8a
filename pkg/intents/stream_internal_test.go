package intents

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

const most = 16 << 20

const helloLine = `{"hello":{"Process":"b","Epoch":"1"}}`

// readLines reads a stream, and returns the names of the policies of each batch.
func readLines(from io.Reader) (batches [][]string, err error) {
	err = read(context.Background(), from, "b", most, func() {}, func(_ context.Context, b *batch) error {
		names := []string{}
		for i := range b.changes {
			names = append(names, b.changes[i].policy)
		}
		batches = append(batches, names)
		return nil
	})
	return batches, err
}

// TestRead_LinesOutOfPlaceAreRefused, so that no intent is taken for one of another policy, or of another batch, and a process that
// tells such lines ends its stream and not those who read it.
func TestRead_LinesOutOfPlaceAreRefused(t *testing.T) {
	for name, lines := range map[string][]string{
		"the batch ends before the change":      {`{"policy":{"name":"p","more":true}}`, `{"frontier":{}}`, `{"policy":{"name":"p"}}`},
		"the rest is of another policy":         {`{"policy":{"name":"p","more":true}}`, `{"policy":{"name":"q"}}`, `{"frontier":{}}`},
		"members come before the change's rest": {`{"policy":{"name":"p","more":true}}`, `{"settled":true}`, `{"policy":{"name":"p"}}`, `{"frontier":{}}`},
		"the rest has more than intents":        {`{"policy":{"name":"p","more":true}}`, `{"policy":{"name":"p","gone":true}}`, `{"frontier":{}}`},
		"it says twice whose it is":             {helloLine, `{"frontier":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			batches, err := readLines(strings.NewReader(strings.Join(append([]string{helloLine}, lines...), "\n") + "\n"))
			if !errors.Is(err, errStream) || len(batches) > 0 {
				t.Errorf("batches of %v were taken: %v", batches, err)
			}
		})
	}
	batches, err := readLines(strings.NewReader(strings.Join([]string{
		helloLine, `{"policy":{"name":"p","more":true}}`, `{"policy":{"name":"p"}}`, `{"policy":{"name":"q"}}`, `{"settled":true}`, `{"frontier":{}}`,
	}, "\n") + "\n"))
	if !errors.Is(err, io.ErrUnexpectedEOF) || len(batches) != 1 || len(batches[0]) != 2 {
		t.Errorf("in order: batches of %v, %v", batches, err)
	}
}

// endless is a stream of one batch that has no end.
type endless struct {
	line string
	rest string
	n    int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.rest == "" {
		e.rest = e.line
	}
	n := copy(p, e.rest)
	e.rest, e.n = e.rest[n:], e.n+int64(n)
	if e.n > 2*most {
		return 0, errors.New("it was read without an end")
	}
	return n, nil
}

// TestRead_BatchIsBounded: a batch is kept until its end, so that one without any would take all memory.
func TestRead_BatchIsBounded(t *testing.T) {
	stream := &endless{line: `{"policy":{"name":"` + strings.Repeat("p", 1<<20) + `"}}` + "\n", rest: helloLine + "\n"}
	if _, err := readLines(stream); !errors.Is(err, errStream) {
		t.Errorf("after %d bytes: %v", stream.n, err)
	}
}
