package decode

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

// A watch that has been busy and is quiet now waits with little memory.
func TestEvents_QuietWatchHoldsASmallBuffer(t *testing.T) {
	event := `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"` + strings.Repeat("x", 30<<10) + `"}}}` + "\n"
	d, err := New(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, JSON, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	quiet := strings.NewReader(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}` + "\n")
	e := d.Events(io.MultiReader(strings.NewReader(strings.Repeat(event, 20)), quiet), 1<<20)
	var ev Event
	for range 21 {
		if err := e.Next(&ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Next(&ev); !errors.Is(err, io.EOF) {
		t.Fatalf("at the end: %v", err)
	}
	if len(e.buf) > minRead {
		t.Errorf("waits with %d bytes, want %d", len(e.buf), minRead)
	}
}

// One huge object does not leave its buffers behind.
func TestEvents_HugeObjectLeavesNoMemoryBehind(t *testing.T) {
	d, err := New(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, JSON, Rules{})
	if err != nil {
		t.Fatal(err)
	}
	huge := []byte(`{"metadata":{"name":"a"},"data":{` + strings.TrimSuffix(strings.Repeat(`"z":"","a":"",`, 200_000), ",") + `}}`)
	var rec aggregate.Record
	for _, data := range [][]byte{huge, []byte(`{"metadata":{"name":"b"}}`), []byte(`{"metadata":{"name":"c"}}`)} {
		if err := d.Object(bytes.Clone(data), &rec); err != nil {
			t.Fatal(err)
		}
	}
	if held := cap(d.t.out) + cap(d.t.sorted) + cap(d.t.members)*24; held > 3*maxKeptBuffer {
		t.Errorf("%d bytes are held", held)
	}
}
