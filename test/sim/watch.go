package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A stream is one WATCH being answered.
type stream struct {
	*call
	w      http.ResponseWriter
	filter *filter
	buf    *bytes.Buffer // nil while there is nothing to send
	seq    uint64        // of the next event to look at
}

// buffers are those of streams that send.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// flushAbove is how many bytes of events are gathered before they are sent.
const flushAbove = 64 << 10

func (m *Member) serveWatch(w http.ResponseWriter, r *http.Request, c *call, cut <-chan struct{}) error {
	opts, err := parseListOptions(r.URL.Query(), c.table, c)
	if err != nil {
		return err
	}
	s := &stream{call: c, w: w, filter: opts.filter}
	initial, rv, drop, tooOld, err := m.startWatch(c.table, opts, s)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType(c.protobuf))
	if c.protobuf {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	if tooOld != nil {
		s.status(tooOld)
		_ = s.flush()
		return nil
	}
	if !s.sendInitial(initial) {
		return nil
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		s.bookmark(rv, true)
	}
	if s.flush() != nil {
		return nil
	}
	m.watches.Add(1)
	defer m.watches.Add(-1)
	m.follow(r, s, opts, cut, drop)
	return nil
}

// startWatch fixes, at one moment, what is sent first and where the history goes on.
func (m *Member) startWatch(t *table, opts *listOptions, s *stream) (initial []*item, rv uint64, drop <-chan struct{}, tooOld *metav1.Status, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.removed {
		return nil, 0, nil, nil, notServed(t.kind.GroupResource())
	}
	sendInitial := opts.rv == 0
	if opts.SendInitialEvents != nil {
		sendInitial = *opts.SendInitialEvents
		if opts.rv > m.rv {
			return nil, 0, nil, nil, tooLarge(opts.rv, m.rv)
		}
	}
	switch {
	case sendInitial:
		initial = t.objects.Values()
		s.seq = t.first + uint64(len(t.events))
	case opts.rv == 0: // only what is to come
		s.seq = t.first + uint64(len(t.events))
	case opts.rv < t.compacted:
		status := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", opts.rv, t.compacted+1)).Status()
		return nil, 0, nil, &status, nil
	default:
		s.seq = t.seqAfter(opts.rv)
	}
	return initial, m.rv, t.drop, nil, nil
}

// follow sends events until the client, the member or the clock ends the watch.
func (m *Member) follow(r *http.Request, s *stream, opts *listOptions, cut, drop <-chan struct{}) {
	timeout := 30*time.Minute + rand.N(30*time.Minute) // kube-apiserver's --min-request-timeout
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	var tick <-chan time.Time
	if opts.AllowWatchBookmarks {
		ticker := time.NewTicker(m.opts.Bookmark)
		defer ticker.Stop()
		tick = ticker.C
	}
	sent := opts.rv // kube-apiserver sends nothing that is not newer, bookmarks included
	for {
		events, rv, changed, ok := m.eventsFrom(s.table, s.seq)
		if !ok {
			return // fell behind the history
		}
		for _, ev := range events {
			if ev.rv > sent && !s.change(ev) || s.full() && s.flush() != nil {
				return
			}
		}
		s.seq += uint64(len(events))
		if s.flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-tick:
			if rv > sent {
				s.bookmark(rv, false)
			}
		case <-end.C:
			if opts.AllowWatchBookmarks && rv > sent {
				s.bookmark(rv, false)
				_ = s.flush()
			}
			return
		case <-drop:
			m.last(s, sent)
			return
		case <-r.Context().Done():
			return
		case <-cut:
			return
		}
	}
}

// last sends what was committed before the watch was dropped: the deletions of a kind
// that is no longer served are among it.
func (m *Member) last(s *stream, sent uint64) {
	events, _, _, ok := m.eventsFrom(s.table, s.seq)
	for _, ev := range events {
		if !ok || ev.rv > sent && !s.change(ev) {
			return
		}
	}
	_ = s.flush()
}

// eventsFrom copies the events from a sequence number on; ok is false when they are forgotten.
func (m *Member) eventsFrom(t *table, seq uint64) (events []event, rv uint64, changed <-chan struct{}, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seq < t.first {
		return nil, 0, nil, false
	}
	return slices.Clone(t.events[seq-t.first:]), m.rv, t.changed, true
}

func (s *stream) sendInitial(items []*item) bool {
	for _, it := range items {
		keep, err := s.filter.keeps(it)
		if err != nil || keep && !s.object(watch.Added, it) {
			return false
		}
		if s.full() && s.flush() != nil {
			return false
		}
	}
	return true
}

// change sends what an event means behind the filter; false ends the watch.
func (s *stream) change(ev event) bool {
	is, err := s.filter.keeps(ev.cur)
	if err != nil {
		return false
	}
	was, err := s.filter.keeps(ev.prev)
	switch {
	case err != nil:
		return false
	case is && was:
		return s.object(watch.Modified, ev.cur)
	case is:
		return s.object(watch.Added, ev.cur)
	case was:
		gone, err := s.table.withRV(ev.prev, ev.rv)
		return err == nil && s.object(watch.Deleted, gone)
	}
	return true
}

func (s *stream) object(kind watch.EventType, it *item) bool {
	body, err := s.table.wire(it, s.version, s.protobuf)
	if err != nil {
		return false
	}
	s.event(kind, body)
	return true
}

func (s *stream) status(status *metav1.Status) {
	_, body := encodeStatus(status, s.protobuf)
	s.event(watch.Error, body)
}

// bookmark sends a resourceVersion up to which everything has been sent.
func (s *stream) bookmark(rv uint64, initialEnd bool) {
	var obj Object = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"creationTimestamp": nil}}}
	if s.table.builtin {
		msg, err := s.table.empty()
		if err != nil {
			return
		}
		obj = msg
	}
	obj.SetResourceVersion(formatRV(rv))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if raw, err := s.table.marshal(obj); err == nil {
		s.object(watch.Bookmark, &item{rv: rv, raw: raw})
	}
}

// event appends one frame: a line of JSON, or a WatchEvent message behind its length
// as four big-endian bytes.
func (s *stream) event(kind watch.EventType, body []byte) {
	if s.buf == nil {
		s.buf = buffers.Get().(*bytes.Buffer)
	}
	if !s.protobuf {
		fmt.Fprintf(s.buf, `{"type":%q,"object":`, kind)
		s.buf.Write(body)
		s.buf.WriteString("}\n")
		return
	}
	ev := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: body}}
	size := ev.Size()
	s.buf.Grow(4 + size)
	frame := s.buf.AvailableBuffer()[:4+size]
	binary.BigEndian.PutUint32(frame, uint32(size))
	if _, err := ev.MarshalToSizedBuffer(frame[4:]); err != nil {
		panic(err) // it has the requested size
	}
	s.buf.Write(frame)
}

func (s *stream) full() bool { return s.buf != nil && s.buf.Len() > flushAbove }

// flush sends what there is, and at least the headers.
func (s *stream) flush() error {
	if s.buf != nil {
		_, err := s.w.Write(s.buf.Bytes())
		if s.buf.Reset(); s.buf.Cap() <= 4*flushAbove {
			buffers.Put(s.buf)
		}
		if s.buf = nil; err != nil {
			return err
		}
	}
	return http.NewResponseController(s.w).Flush()
}
