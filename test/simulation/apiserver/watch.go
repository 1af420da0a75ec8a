package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Watch is an open watch: the body of its response. What has been delivered is read from
// it; Read waits for more.
type Watch struct {
	server    *Server
	sel       *selection
	ctx       context.Context // of its request
	bookmarks bool

	// Guarded by the server's lock.
	next uint64 // revision of the first event that is not delivered

	mu     sync.Mutex
	buffer bytes.Buffer
	err    error         // after the buffer
	more   chan struct{} // has room for one
}

// watch answers a WATCH. Its first events, if any, are there at once.
func (s *Server) watch(r *http.Request, c *call) (*http.Response, error) {
	sel, err := c.selection()
	if err != nil {
		return statusResponse(r, err), nil
	}
	from, err := parseRevision(c.query.Get("resourceVersion"))
	if err != nil {
		return statusResponse(r, err), nil
	}
	w := &Watch{server: s, sel: sel, ctx: r.Context(), bookmarks: c.query.Get("allowWatchBookmarks") == "true", more: make(chan struct{}, 1)}
	initial := c.query.Get("sendInitialEvents") == "true"
	if initial && c.query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) {
		return statusResponse(r, apierrors.NewBadRequest("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if initial && from > s.revision {
		return statusResponse(r, tooLarge(from, s.revision)), nil
	}
	w.next = from + 1
	if initial || from == 0 && !c.query.Has("sendInitialEvents") {
		for _, it := range s.atLocked(c.kind, s.revision) {
			if sel.has(it) {
				w.send("ADDED", it.text)
			}
		}
		w.next = s.revision + 1
		if initial && w.bookmarks {
			w.bookmarkLocked(s.revision, true)
		}
	} else if from == 0 {
		w.next = s.revision + 1
	}
	if w.next <= s.forgot {
		text, err := json.Marshal(statusOf(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.forgot+1))))
		if err != nil {
			return nil, err
		}
		w.send("ERROR", text)
		w.end(io.EOF)
	} else {
		s.watches = append(s.watches, w)
		if s.deliver {
			w.deliverLocked(0)
		}
	}
	out := response(r, http.StatusOK, "application/json", nil)
	out.Body, out.ContentLength = w, -1
	return out, nil
}

// Pending returns how many events the watch has not delivered yet.
func (w *Watch) Pending() int {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	n := 0
	for _, e := range w.server.sinceLocked(w.next) {
		if e.kind == w.sel.kind && (w.sel.has(e.before) || w.sel.has(e.after)) {
			n++
		}
	}
	return n
}

// Revision is that up to which everything has been delivered.
func (w *Watch) Revision() uint64 {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return w.next - 1
}

// Resource is what is watched.
func (w *Watch) Resource() string { return w.sel.kind.Resource }

// Deliver delivers the next so many events; 0 is all.
func (w *Watch) Deliver(most int) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.deliverLocked(most)
}

func (w *Watch) deliverLocked(most int) {
	for _, e := range w.server.sinceLocked(w.next) {
		w.next = e.revision + 1
		if e.kind == w.sel.kind && w.change(&e) {
			if most--; most == 0 {
				return
			}
		}
	}
}

// sinceLocked returns the events from a revision on.
func (s *Server) sinceLocked(revision uint64) []event {
	at, _ := slices.BinarySearchFunc(s.log, revision, func(e event, r uint64) int {
		if e.revision < r {
			return -1
		}
		return 1
	})
	return s.log[at:]
}

// change sends what an event means behind the selection, and reports whether it is anything.
func (w *Watch) change(e *event) bool {
	switch was, is := w.sel.has(e.before), w.sel.has(e.after); {
	case was && is:
		w.send("MODIFIED", e.after.text)
	case is:
		w.send("ADDED", e.after.text)
	case was: // in its last version, at the revision of its end
		w.send("DELETED", e.before.at(e.revision).text)
	default:
		return false
	}
	return true
}

// Bookmark delivers everything and a bookmark.
func (w *Watch) Bookmark() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.deliverLocked(0)
	if w.bookmarks {
		w.bookmarkLocked(w.server.revision, false)
	}
}

func (w *Watch) bookmarkLocked(revision uint64, initialEnd bool) {
	meta := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: w.sel.kind.Kind, APIVersion: w.sel.kind.GroupVersion().String()}}
	meta.ResourceVersion = strconv.FormatUint(revision, 10)
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	text, err := json.Marshal(meta)
	if err != nil {
		panic(err) // it has no cycles
	}
	w.send("BOOKMARK", text)
}

// Path names what is watched.
func (w *Watch) Path() string { return w.sel.kind.Resource + " " + w.sel.namespace }

// Context is that of the watch's request.
func (w *Watch) Context() context.Context { return w.ctx }

// Ended reports whether the watch has ended.
func (w *Watch) Ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err != nil
}

// Cut ends the watch with an error of the network.
func (w *Watch) Cut(err error) {
	w.server.mu.Lock()
	w.server.watches = slices.DeleteFunc(w.server.watches, func(o *Watch) bool { return o == w })
	w.server.mu.Unlock()
	w.end(err)
}

// Watches returns the open watches, by their start.
func (s *Server) Watches() []*Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = slices.DeleteFunc(s.watches, func(w *Watch) bool { return w.ctx.Err() != nil })
	return slices.Clone(s.watches)
}

// Forget drops the log: older lists cannot be continued, and older watches not resumed.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.deliverLocked(0)
	}
	s.log, s.forgot = nil, s.revision
}

func (w *Watch) send(kind string, object []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.buffer, `{"type":%q,"object":%s}`+"\n", kind, bytes.TrimSpace(object))
	w.signal()
}

func (w *Watch) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.signal()
}

func (w *Watch) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Read implements io.Reader for the client.
func (w *Watch) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		if w.buffer.Len() > 0 {
			n, err := w.buffer.Read(p)
			w.mu.Unlock()
			return n, err
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case <-w.more:
		case <-w.ctx.Done():
			return 0, context.Cause(w.ctx)
		}
	}
}

// Close implements io.Closer for the client.
func (w *Watch) Close() error {
	w.Cut(http.ErrBodyReadAfterClose)
	return nil
}

// Change is a change of an object: what an event of a watch is made of.
type Change struct {
	Revision uint64
	Object   map[string]any // not to be changed
	Deleted  bool           // Object is the last version
}

// Since returns the changes of a resource after a revision, which the log must reach, and
// the server's revision.
func (s *Server) Since(resource string, revision uint64) ([]Change, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changes []Change
	for _, e := range s.sinceLocked(revision + 1) {
		switch {
		case e.kind.Resource != resource:
		case e.after != nil:
			changes = append(changes, Change{e.revision, e.after.object, false})
		default:
			changes = append(changes, Change{e.revision, e.before.object, true})
		}
	}
	return changes, s.revision
}

// LastChange returns the revision of the last change of one of some resources.
func (s *Server) LastChange(resources ...string) (last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, revision := range s.last {
		if slices.Contains(resources, k.Resource) {
			last = max(last, revision)
		}
	}
	return last
}

// Objects returns all objects of a resource, by namespace and name, not to be changed, and
// the server's revision.
func (s *Server) Objects(resource string) ([]map[string]any, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allLocked(resource, s.revision), s.revision
}

// ObjectsAt is Objects as of a revision that the log reaches.
func (s *Server) ObjectsAt(resource string, revision uint64) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allLocked(resource, revision)
}

func (s *Server) allLocked(resource string, revision uint64) (all []map[string]any) {
	for _, k := range s.kinds {
		if k.Resource == resource {
			for _, it := range s.atLocked(k, revision) {
				all = append(all, it.object)
			}
		}
	}
	return all
}
