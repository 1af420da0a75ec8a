package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/clusterinformers/internal/stream"
)

// dripping gives at most n bytes at a time, and has nothing in between.
type dripping struct {
	rest []byte
	n    int
	wait bool
}

func (r *dripping) Read(b []byte) (int, error) {
	if r.wait = !r.wait; r.wait {
		return 0, stream.ErrNothing
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), r.n)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestEvents_GoOnAfterTheyWereParked(t *testing.T) {
	lines := podEvent(watch.Added, "a", "1") + "\n" + podEvent(watch.Modified, strings.Repeat("x", 3000), "2") + "\n \n" + podEvent(watch.Deleted, "c", "3") + "\n"
	var frames []byte
	for range 3 {
		frames = append(frames, frame(t, watch.Added, encodeProtobuf(t, podKind, &podFixture))...)
	}
	for name, c := range map[string]struct {
		enc  Encoding
		text []byte
	}{
		"lines":    {JSON, []byte(lines)},
		"values":   {JSON, []byte(strings.ReplaceAll(strings.ReplaceAll(lines, "\n", " "), `"object":`, "\"object\"\n:"))},
		"protobuf": {Protobuf, frames},
	} {
		for _, n := range []int{1, 7, 1000, 1 << 20} {
			t.Run(fmt.Sprintf("%s by %d", name, n), func(t *testing.T) {
				charged := int64(0)
				e := NewEvents(&dripping{rest: bytes.Clone(c.text), n: n}, frameLimit)
				e.Charge = func(n int64) error { charged += n; return nil }
				var got []string
				scratch := make([]byte, 2048)
				for {
					var ev Event
					e.Use(mustNew(t, podKind, c.enc, Rules{}), scratch)
					err := e.Next(&ev)
					if errors.Is(err, io.EOF) {
						break
					}
					if err == nil {
						got = append(got, fmt.Sprintf("%s %s %s", ev.Type, ev.Record.Name, ev.Record.ResourceVersion))
					} else if !errors.Is(err, stream.ErrNothing) {
						t.Fatal(err)
					}
					e.Park()
					for i := range scratch { // it is another's meanwhile
						scratch[i] = '#'
					}
				}
				want, err := readEvents(mustNew(t, podKind, c.enc, Rules{}), bytes.NewReader(c.text), frameLimit)
				if !errors.Is(err, io.EOF) || len(want) != 3 || len(got) != 3 {
					t.Fatalf("%d events parked, %d not; %v", len(got), len(want), err)
				}
				for i, ev := range want {
					if s := fmt.Sprintf("%s %s %s", ev.Type, ev.Record.Name, ev.Record.ResourceVersion); s != got[i] {
						t.Errorf("event %d is %.50s, want %.50s", i, got[i], s)
					}
				}
				e.Close()
				if charged != 0 || e.buf != nil {
					t.Errorf("%d bytes are charged, %d held", charged, len(e.buf))
				}
			})
		}
	}
}

func TestEvents_ParkedHoldOnlyWhatHasCome(t *testing.T) {
	text := []byte(podEvent(watch.Added, strings.Repeat("x", 500), "1"))
	e := NewEvents(&dripping{rest: text[:100], n: 100}, frameLimit)
	scratch := make([]byte, 64<<10)
	for _, held := range []int{0, 100} {
		e.Use(mustNew(t, podKind, JSON, Rules{}), scratch)
		if err := e.Next(&Event{}); !errors.Is(err, stream.ErrNothing) {
			t.Fatal(err)
		}
		e.Park()
		if cap(e.buf) > held+28 || e.d != nil {
			t.Errorf("holds %d bytes, %d have come", cap(e.buf), held)
		}
	}
}
