package reading_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"sync"
	"testing"
)

// discarding is a client of a watch that keeps nothing. told is closed once what holds
// an event has been flushed.
type discarding struct {
	header http.Header
	lines  int
	told   chan struct{}
	once   sync.Once
}

func (d *discarding) Header() http.Header { return d.header }
func (d *discarding) WriteHeader(int)     {}

func (d *discarding) Write(b []byte) (int, error) {
	d.lines += bytes.Count(b, []byte("\n"))
	return len(b), nil
}

func (d *discarding) Flush() {
	if d.lines > 0 {
		d.once.Do(func() { close(d.told) })
	}
}

// TestWatches_LetGoOfTheSpaceOfLargeObjects, once these were sent: what a quiet watch
// holds does not follow the largest object that it has seen.
func TestWatches_LetGoOfTheSpaceOfLargeObjects(t *testing.T) {
	const watches, size, most = 16, 1 << 20, 256 << 10 // bytes of the object, and of a watch
	f := newFleet(t, settings{})
	f.join("a/east")
	random := make([]byte, size/2)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	o := pod("a/east", "blue", "large")
	o.node = hex.EncodeToString(random)
	f.put(o)
	f.commit()
	open := func(accept string) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		d, done := &discarding{header: http.Header{}, told: make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			f.serve(d, f.request(ctx, fleetPods, values("watch", "1"), accept), all)
		}()
		t.Cleanup(func() { cancel(); <-done })
		select {
		case <-d.told:
		case <-done:
			t.Fatal("the watch has ended")
		}
	}
	for _, accept := range []string{"", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf"} {
		open(accept) // what is made once for all
		before := liveHeap()
		for range watches {
			open(accept)
		}
		if took := (int64(liveHeap()) - int64(before)) / watches; took > most {
			t.Errorf("%q: a quiet watch holds %d bytes after an object of %d", accept, took, size)
		}
	}
}
