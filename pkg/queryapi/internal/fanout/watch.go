package fanout

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/resources"
)

// watchStream is one open watch. It belongs to one goroutine, apart from the readers of its parts.
type watchStream struct {
	*request
	query      *queryStream // nil: a watch of objects
	controller *http.ResponseController
	digits     int
	places     []place
	positions  []aggregate.Revision // up to which each part has been sent
	lowered    []bool               // since the part's last mark: an event with an older revision was sent
	initial    int                  // parts whose initial events are not all sent
	heard      []time.Time          // of each part
	columns    []byte               // of a Table, until they are sent with the first event
	marks      []int                // a buffer
	out        []byte
}

// Watches without timeoutSeconds end after this, and up to twice it.
const defaultWatchTimeout = 30 * time.Minute

// errEnded ends a watch without an error.
var errEnded = errors.New("fanout: the watch has ended")

// watch serves a watch, merged of one of each part.
func (q *request) watch() error {
	q.watches = true
	w := &watchStream{request: q, controller: http.NewResponseController(q.w), digits: q.options.Revisions.digits()}
	defer func() { q.g.end() }()
	if err := q.gather(part.Ask{Digits: w.digits, Messages: q.socket != nil}); err != nil {
		return err
	}
	if err := resources.SetFreshness(q.w.Header(), q.params, q.g.lead.Resource, q.g.notSynced); err != nil {
		return err
	}
	q.warnList()
	if q.g.lead.Table {
		w.columns = q.g.lead.Columns
	}
	w.positions = q.g.vector().revisions
	w.places = q.g.vector().places
	w.lowered = make([]bool, len(w.places))
	w.heard = make([]time.Time, len(w.places))
	if s := q.params.SendInitialEvents; s != nil && *s || s == nil && q.params.Revision == 0 {
		for _, s := range q.g.parts {
			if s.header.Kind != "" {
				w.initial++
			}
		}
	}
	return w.serve()
}

// serve sends the watch: as the response, or as messages of a WebSocket.
func (w *watchStream) serve() error {
	timeout := w.params.Timeout
	if timeout == 0 {
		timeout = defaultWatchTimeout + rand.N(defaultWatchTimeout)
	}
	ctx, cancel := context.WithTimeout(w.r.Context(), min(timeout, 2*defaultWatchTimeout))
	defer cancel()
	if w.socket != nil {
		return resources.OverWebSocket(ctx, w.w, w.socket, w.options.WriteTimeout, func(ctx context.Context, messages http.ResponseWriter) error {
			w.w, w.controller = messages, http.NewResponseController(messages)
			return w.send(ctx)
		})
	}
	w.w.Header().Set("Content-Type", "application/json")
	if w.g.lead.Protobuf {
		w.w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	}
	w.w.WriteHeader(http.StatusOK)
	return w.send(ctx)
}

// send sends the watch until it ends.
func (w *watchStream) send(ctx context.Context) error {
	err := w.run(ctx)
	if err == nil || errors.Is(err, errEnded) {
		return nil
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// batch is some frames of a part, one after the other, or its error.
type batch struct {
	of     int
	frames []byte
	err    error
}

// read reads a part until it ends.
func (w *watchStream) read(ctx context.Context, i int, to chan<- batch) {
	s := w.g.parts[i]
	for {
		frames, err := s.reader.Batch(flushAt)
		select {
		case to <- batch{i, frames, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// run sends events until the watch ends.
func (w *watchStream) run(ctx context.Context) error {
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	batches := make(chan batch)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer w.g.end() // what the readers wait for
	defer stop()
	for i := range w.g.parts {
		w.heard[i] = time.Now()
		readers.Go(func() { w.read(reading, i, batches) })
	}
	if err := w.flush(); err != nil {
		return err
	}
	bookmark := time.NewTicker(w.options.BookmarkInterval)
	defer bookmark.Stop()
	silence := time.NewTicker(w.options.Silence / 2)
	defer silence.Stop()
	changed := w.g.assignment.Changed
	for {
		var err error
		select {
		case b := <-batches:
			err = w.sendBatch(b)
			for range w.places { // what else has arrived is flushed with it
				if err != nil {
					break
				}
				select {
				case b := <-batches:
					err = w.sendBatch(b)
				default:
				}
			}
		case <-changed:
			now := w.options.Assignment()
			if !w.holds(now) {
				err = w.endExpired("members have moved")
			}
			changed = now.Changed
		case <-bookmark.C:
			err = w.sendBookmark(w.g.lead.Bookmark, false)
		case now := <-silence.C:
			if i := slices.IndexFunc(w.heard, func(at time.Time) bool { return now.Sub(at) > w.options.Silence }); i >= 0 {
				err = w.endExpired(fmt.Sprintf("process %s is silent", w.places[i].id))
			}
		case <-ctx.Done():
			err = errors.Join(w.sendBookmark(w.g.lead.Bookmark, true), errEnded)
		}
		if err == nil {
			err = w.sendDue()
		}
		if ferr := w.flush(); err == nil || ferr != nil {
			err = ferr
		}
		if err != nil {
			return err
		}
	}
}

// holds reports whether the parts of the watch are still those of the fleet.
func (w *watchStream) holds(now *Assignment) bool {
	now.derive()
	asked := map[string]aggregate.Revision{}
	for _, p := range w.places {
		if peer := now.live[p.id]; p.id != now.Self && (peer == nil || peer.Epoch != p.epoch) {
			return false
		}
		asked[p.id] = p.epoch
	}
	before := w.g.assignment
	if maps.Equal(before.Judges, now.Judges) {
		return w.sameAbsent(now)
	}
	for member, judge := range now.Judges {
		was, known := before.Judges[member]
		if _, ok := asked[judge]; !ok && (!known || was != judge) || known && was != judge {
			return false
		}
	}
	w.g.assignment = now
	return w.sameAbsent(now)
}

// sameAbsent reports whether no process came back that judges members which the watch lacks.
func (w *watchStream) sameAbsent(now *Assignment) bool {
	for _, id := range w.processes(now) {
		if !slices.ContainsFunc(w.places, func(p place) bool { return p.id == id }) {
			return false
		}
	}
	return true
}

// sendBatch sends what frames say.
func (w *watchStream) sendBatch(b batch) error {
	w.heard[b.of] = time.Now()
	frames := b.frames
	for len(frames) > 0 {
		var kind part.Type
		var payload []byte
		kind, payload, frames = part.Cut(frames)
		if err := w.sendFrame(b.of, kind, payload); err != nil {
			return err
		}
	}
	if b.err != nil {
		w.options.Log.Warn("query API: a process was lost during a watch", "process", w.places[b.of].id, "error", b.err)
		return w.endExpired(fmt.Sprintf("process %s is lost", w.places[b.of].id))
	}
	return nil
}

func (w *watchStream) sendFrame(of int, kind part.Type, payload []byte) error {
	switch kind {
	case part.EventFrame:
		e, err := part.ParseEvent(payload, w.marks[:0])
		if err != nil {
			return w.endExpired("a process sent what is no event")
		}
		w.marks = e.Marks
		return w.sendEvent(of, e)
	case part.MarkFrame, part.InitialFrame:
		revision, size := binary.Uvarint(payload)
		if size <= 0 {
			return w.endExpired("a process sent what is no revision")
		}
		w.positions[of] = aggregate.Revision(revision)
		due := w.lowered[of]
		w.lowered[of] = false
		if kind == part.InitialFrame && w.initial > 0 {
			if w.initial--; w.initial == 0 && w.params.SendInitialEvents != nil {
				return w.append(w.g.lead.InitialBookmark)
			}
		}
		if due {
			return w.sendBookmark(w.g.lead.Bookmark, false)
		}
		return nil
	case part.BookmarkFrame:
		return w.bookmarked(of, payload)
	case part.ErrorFrame:
		var status metav1.Status
		if json.Unmarshal(payload, &status) != nil {
			return w.endExpired("a process sent what is no status")
		}
		if status.Reason == metav1.StatusReasonExpired {
			return w.endExpired("a part of it is")
		}
		return w.endWith(status)
	case part.End:
		return errors.Join(w.sendBookmark(w.g.lead.Bookmark, true), errEnded)
	}
	return w.endExpired("a process sent what is not understood")
}

// sendEvent sends an event, under a revision of this process where it has marks.
func (w *watchStream) sendEvent(of int, e part.Event) error {
	if w.query != nil {
		w.query.amid[of] = true
		w.query.due = true
	}
	if len(e.Marks) > 0 {
		w.lowered[of] = w.lowered[of] || e.Revision < w.positions[of]
		w.positions[of] = e.Revision
		if err := w.appendMarked(e); err != nil {
			return err
		}
	} else {
		w.appendText(e.Text)
	}
	if len(w.out) < flushAt {
		return nil
	}
	return w.flush()
}

// vector is how far the parts have been sent.
func (w *watchStream) vector() *vector {
	v := &vector{places: w.places, revisions: slices.Clone(w.positions)}
	if w.query != nil {
		v.positions = slices.Clone(w.query.positions)
	}
	return v
}

// appendMarked appends an event with a new revision in its marks.
func (w *watchStream) appendMarked(e part.Event) error {
	at := w.vector()
	if w.initial > 0 {
		at = nil // a client that does not have all initial events has nothing to resume from
	}
	revision, err := w.options.Revisions.mint(at, false)
	text := strconv.AppendUint(nil, uint64(revision), 10)
	if err != nil || len(text) != w.digits {
		return w.endExpired("its revisions are used up")
	}
	for _, at := range e.Marks {
		copy(e.Text[at:], text)
	}
	w.appendText(e.Text)
	return nil
}

// noColumns is what events of a Table have in place of columns.
var noColumns = []byte(`"columnDefinitions":null`)

// appendText appends an event; the first of a Table has the columns.
func (w *watchStream) appendText(text []byte) {
	if w.columns != nil {
		if before, after, ok := bytes.Cut(text, noColumns); ok {
			w.out = append(append(w.out, before...), noColumns[:len(noColumns)-len("null")]...)
			w.out = append(append(w.out, w.columns...), after...)
			w.columns = nil
			return
		}
	}
	w.out = append(w.out, text...)
}

// append appends a bookmark.
func (w *watchStream) append(bookmark []byte) error {
	e, err := part.ParseEvent(bytes.Clone(bookmark), nil)
	if err != nil {
		return w.endExpired("a process sent what is no bookmark")
	}
	revision, err := w.options.Revisions.mint(w.vector(), true)
	text := strconv.AppendUint(nil, uint64(revision), 10)
	if err != nil || len(text) != w.digits {
		return w.endExpired("its revisions are used up")
	}
	for _, at := range e.Marks {
		copy(e.Text[at:], text)
	}
	w.out = append(w.out, e.Text...)
	return nil
}

// sendBookmark sends how far the watch is, if the client accepts bookmarks, and all of its parts
// are beyond their initial events.
func (w *watchStream) sendBookmark(bookmark []byte, last bool) error {
	if w.query != nil {
		return w.sendQueryBookmark()
	}
	if !w.params.AllowWatchBookmarks || w.initial > 0 {
		return nil
	}
	if err := w.append(bookmark); err != nil || !last {
		return err
	}
	return w.flush()
}

// endExpired ends the watch with 410: the client has to list again.
func (w *watchStream) endExpired(why string) error {
	return w.endWith(apierrors.NewResourceExpired("the watch cannot go on: " + why).Status())
}

// endWith sends the Status with which the watch ends.
func (w *watchStream) endWith(status metav1.Status) error {
	var err error
	if w.out, err = resources.AppendError(w.out, w.g.lead.Protobuf, status); err != nil {
		return fmt.Errorf("fanout: %w", err)
	}
	return errors.Join(errEnded, w.flush())
}

// flush sends the buffered output. It fails for a client that does not read in time.
func (w *watchStream) flush() error {
	if err := w.controller.SetWriteDeadline(time.Now().Add(w.options.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("fanout: %w", err)
	}
	if len(w.out) > 0 {
		if _, err := w.w.Write(w.out); err != nil {
			return fmt.Errorf("fanout: %w", err)
		}
		if w.out = w.out[:0]; cap(w.out) > 2*flushAt {
			w.out = nil
		}
	}
	if err := w.controller.Flush(); err != nil {
		return fmt.Errorf("fanout: %w", err)
	}
	// HTTP/2 ends a stream whose deadline passes, even while there is nothing to write.
	if err := w.controller.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("fanout: %w", err)
	}
	return nil
}
