package intents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
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

// TestStream_LinesAreBounded, whatever is in the intents: a line that is too long would end the stream each time.
func TestStream_LinesAreBounded(t *testing.T) {
	sender, err := NewSender(SenderOptions{Self: "b", Epoch: "1", Protected: func(policy.Ref, map[string]string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"data":{"text":"` + strings.Repeat("x", 500_000) + `"}}`)
	list := make([]remediate.Intent, 110)
	for n := range list {
		list[n] = remediate.Intent{Binding: "p", Remedy: policy.Remedy{Action: "patch", Target: policy.Ref{Member: "m", Name: fmt.Sprint(n)}, Patch: patch}}
	}
	if err := sender.SetIntents("p", remediate.RolloutSpec{}, remediate.Totals{}, list, true); err != nil {
		t.Fatal(err)
	}
	reader, err := sender.open()
	if err != nil {
		t.Fatal(err)
	}
	defer sender.close(reader)
	to := httptest.NewRecorder()
	w, err := newWriter(to, httptest.NewRequest(http.MethodGet, streamPath, http.NoBody))
	if err != nil {
		t.Fatal(err)
	}
	w.send(&line{Hello: &hello{"b", "1"}})
	if w.batch(sender.take(reader)); w.err != nil {
		t.Fatal(w.err)
	}
	got := 0
	err = read(t.Context(), to.Body, "b", maxBatch, func() {}, func(_ context.Context, b *batch) error {
		got += len(b.changes[0].intents)
		return nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || got != len(list) {
		t.Errorf("%d of %d intents were read: %v", got, len(list), err)
	}
}
