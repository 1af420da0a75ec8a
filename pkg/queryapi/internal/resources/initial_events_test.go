package resources_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
)

// leaving is a client that leaves once it has been sent something, be it the header
// alone.
type leaving struct {
	*httptest.ResponseRecorder
	some  int // bytes
	leave context.CancelFunc
}

func (l leaving) Flush() {
	if l.Body.Len() >= l.some {
		l.leave()
	}
}

// TestWatch_CanceledInitialEventsAreCompleteOrEmpty: a watch that has sent nothing stops and
// sends nothing, as with a bookmark the client would resume after events that it does not
// have. One that has sent an event sends all of them and a bookmark: the client can resume
// from there.
func TestWatch_CanceledInitialEventsAreCompleteOrEmpty(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/east")
	const pods = 2000 // more than are written, and looked through, at once
	for i := range pods {
		f.put(pod("a/east", "blue", fmt.Sprintf("p%04d", i)))
	}
	f.commit()
	for _, c := range []struct {
		what, selector string
		some           int // bytes that are sent before the client leaves
		events         int
	}{
		{"nothing is told yet", "spec.hostname!=x", 0, 0},
		{"everything is looked through and nothing matches", "spec.hostname=x", 0, 0},
		{"nothing matches", "metadata.name=none", 0, 0},
		{"some are sent", "spec.hostname!=x", 1, pods + 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		w := leaving{httptest.NewRecorder(), c.some, cancel}
		r := f.request(ctx, fleetPods, values("watch", "1", "allowWatchBookmarks", "true", "fieldSelector", c.selector), "")
		if status := f.serve(w, r, all); status.Code != 0 {
			t.Errorf("%s: %+v", c.what, status)
		}
		cancel()
		lines := bytes.Split(bytes.TrimSpace(w.Body.Bytes()), []byte("\n"))
		if w.Body.Len() == 0 {
			lines = nil
		}
		if n := len(lines); n != c.events || n > 0 && !bytes.Contains(lines[n-1], []byte(`"type":"BOOKMARK"`)) {
			t.Errorf("%s: %d events, want %d", c.what, n, c.events)
		}
	}
}
