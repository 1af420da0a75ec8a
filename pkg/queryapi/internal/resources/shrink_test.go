package resources_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"sync"
	"testing"
)

// discarding is a client of a watch that keeps nothing. first and second are closed once
// what holds its first and its second event has been flushed.
type discarding struct {
	header        http.Header
	writes        int // each event here is one
	first, second chan struct{}
	once, twice   sync.Once
}

func (d *discarding) Header() http.Header { return d.header }
func (d *discarding) WriteHeader(int)     {}

func (d *discarding) Write(b []byte) (int, error) {
	d.writes++
	return len(b), nil
}

func (d *discarding) Flush() {
	if d.writes > 0 {
		d.once.Do(func() { close(d.first) })
	}
	if d.writes > 1 {
		d.twice.Do(func() { close(d.second) })
	}
}

// TestWatch_ReleasesBuffersOfLargeObjects, once these were sent: what a quiet watch
// holds does not follow the largest object that it has seen.
func TestWatch_ReleasesBuffersOfLargeObjects(t *testing.T) {
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
	open := func(path, selector, accept string) (second <-chan struct{}, end func()) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		d, done := &discarding{header: http.Header{}, first: make(chan struct{}), second: make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			f.serve(d, f.request(ctx, path, values("watch", "1", "fieldSelector", selector), accept), all)
		}()
		end = func() { cancel(); <-done }
		t.Cleanup(end)
		select {
		case <-d.first:
		case <-done:
			t.Fatal("the watch has ended")
		}
		return d.second, end
	}
	const flatPods = "/flat/api/v1/pods"
	for _, w := range [][3]string{
		{fleetPods, "", ""},
		{fleetPods, "", "application/json;as=Table;g=meta.k8s.io;v=v1"},
		{fleetPods, "", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"},
		{fleetPods, "", "application/vnd.kubernetes.protobuf"},
		{fleetPods, "status.phase!=None", ""},
		{flatPods, "metadata.annotations['federator.dev/original-namespace']=blue", ""},
	} {
		_, end := open(w[0], w[1], w[2]) // what is made once for all
		end()
		before := liveHeap()
		var second []<-chan struct{}
		var ends []func()
		for range watches {
			next, end := open(w[0], w[1], w[2])
			second, ends = append(second, next), append(ends, end)
		}
		if w[1] != "" { // what has changed is looked into by the watch itself
			f.put(o)
			f.commit()
			for _, sent := range second {
				<-sent
			}
		}
		_, _ = liveHeap(), liveHeap() // what pools keep goes at the second collection
		if took := (int64(liveHeap()) - int64(before)) / watches; took > most {
			t.Errorf("%q: a quiet watch holds %d bytes after an object of %d", w, took, size)
		}
		for _, end := range ends {
			end()
		}
	}
}
