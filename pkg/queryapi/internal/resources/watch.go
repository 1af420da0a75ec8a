package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// watching is one watch under way. One goroutine runs it.
type watching struct {
	*request
	encoder *encoder
	cursor  *aggregate.Cursor
	wire    *http.ResponseController
	scratch selection.Scratch

	// sent is the revision up to which everything has been sent; behind, the
	// snapshot as of the last step; members, those of it that are watched.
	sent     aggregate.Revision
	behind   *aggregate.Snapshot
	members  map[string]aggregate.Member
	resuming bool            // changes from before it began are told
	was      []*authz.Grants // by which the client may have been told what there is
	turned   bool            // events were sent that no revision stands for: a bookmark is due
	matcher  *selection.Matcher

	out     []byte
	columns []byte // of a Table, until the first event has taken them
}

// Watches without a timeout of their own end after this, and up to twice it.
const watchFor = 30 * time.Minute

// errEnd ends a watch in order.
var errEnd = errors.New("the watch has ended")

// watch answers a watch: what there is, where that is asked for, and then
// changes until the client leaves, time is up, or the log has passed it by.
func (q *request) watch() error {
	if err := q.ofAnotherPage(); err != nil {
		return err
	}
	if q.format.yaml {
		q.format.yaml = false // a stream is JSON, whatever a list would be
	}
	w := &watching{
		request: q, encoder: q.encoder(), wire: http.NewResponseController(q.w),
		sent: q.params.Revision, behind: q.snapshot, matcher: q.selector.Matcher(),
	}
	w.hold()
	defer func() { w.granted.release(w.history, w.grants) }()
	w.cursor = q.o.Index.Cursor(q.snapshot)
	w.members = w.watched(q.snapshot)
	initial := q.params.SendInitialEvents != nil && *q.params.SendInitialEvents || q.params.SendInitialEvents == nil && q.params.Revision == 0
	switch {
	case initial || q.params.Revision == 0:
		w.sent = q.snapshot.Revision()
	default:
		if err := w.resumable(); err != nil {
			return err
		}
	}
	find := w.find()
	visible := find.Visible()
	q.warnOfPlace()
	q.warnOfVersions(visible)
	if _, err := q.freshness(visible); err != nil {
		return err
	}
	if q.format.shape == table {
		text, err := json.Marshal(q.columns())
		if err != nil {
			return err
		}
		w.columns = text
	}
	timeout := q.params.Timeout
	if timeout == 0 {
		timeout = watchFor + rand.N(watchFor)
	}
	timeout = min(timeout, 2*watchFor)
	ctx, cancel := context.WithTimeout(q.r.Context(), timeout)
	defer cancel()
	err := w.serve(ctx, initial)
	if err == nil || errors.Is(err, errEnd) {
		return nil
	}
	if told := apierrors.APIStatus(nil); errors.As(err, &told) && w.lastWord(told.Status()) == nil {
		return nil // such as an object that cannot be converted
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// resumable reports whether the log has all that happened since the revision
// that the client has.
func (w *watching) resumable() error {
	changes, err := w.o.Index.ChangesOf(w.resource.Kind, w.sent)
	switch {
	case errors.Is(err, aggregate.ErrFuture):
		return tooLarge(w.sent, w.snapshot.Revision())
	case err != nil, w.byLabels && w.roster.changedSince(w.sent):
		return expired(w.sent)
	}
	if err := w.sameGrants(); err != nil {
		return err
	}
	if w.grants.Everything() {
		return nil
	}
	// What was granted of a member that has left is not known any more, so that
	// its deletions cannot be told: the client has to list.
	for c := range changes {
		if c.Before.IsZero() || c.Before.Ref().Kind != w.resource.Kind {
			continue
		}
		if _, ok := w.snapshot.Member(c.Before.Member()); !ok {
			return expired(w.sent)
		}
	}
	return nil
}

func (w *watching) run(ctx context.Context, initial bool) error {
	if err := w.flush(); err != nil {
		return err
	}
	if initial {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	if err := w.retell(); err != nil {
		return err
	}
	w.snapshot = nil // which a watch would keep alive for as long as it is open
	bookmark := w.o.Now().Add(w.o.Bookmark)
	for {
		ended := ctx.Err() != nil // its last step tells what happened until then
		if err := w.follow(); err != nil {
			return err
		}
		if now := w.o.Now(); !now.Before(bookmark) {
			bookmark = now.Add(w.o.Bookmark)
			if err := w.bookmark(nil); err != nil {
				return err
			}
		}
		w.scratch.Shrink(maxIdle)
		if err := w.flush(); err != nil {
			return err
		}
		if ended {
			return w.finish()
		}
		if err := w.wait(ctx, bookmark); err != nil {
			return err
		}
	}
}

// finish says good-bye with a bookmark, so that the client comes back to where
// it is.
func (w *watching) finish() error {
	if err := w.bookmark(nil); err != nil {
		return err
	}
	return w.flush()
}

// wait returns when there may be something to send.
func (w *watching) wait(ctx context.Context, bookmark time.Time) error {
	until := bookmark
	if u := w.grants.Until(); !u.IsZero() && u.Before(until) {
		until = u
	}
	ctx, cancel := context.WithTimeout(ctx, max(until.Sub(w.o.Now()), 0))
	defer cancel()
	select {
	case <-w.newer(w.behind):
	case <-ctx.Done():
	}
	if u := w.grants.Until(); u.IsZero() || w.o.Now().Before(u) {
		return nil
	}
	if err := w.regrant(w.behind); err != nil {
		return err
	}
	return w.turnedAt()
}

// begin sends what there is: see beginning for a watch that is ended meanwhile.
func (w *watching) begin(ctx context.Context) error {
	find := w.find()
	b := newBeginning(ctx)
	defer b.close()
	for o, err := range find.List(b.ctx) {
		switch {
		case b.ctx.Err() != nil:
			return w.cutShort(b)
		case err != nil:
			return err
		case !b.tells():
			return errEnd
		}
		if err := w.event(watch.Added, o, stampOf(o)); err != nil {
			return err
		}
	}
	if b.ctx.Err() != nil {
		return w.cutShort(b)
	}
	if w.params.SendInitialEvents == nil {
		return nil
	}
	return w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// follow sends what has changed since the last step.
func (w *watching) follow() error {
	// A watch that resumes is told first what happened before it began: until
	// then members are as they were when it began.
	if w.sent != w.behind.Revision() {
		w.resuming = true
		if err := w.replay(w.behind); err != nil {
			return err
		}
		w.resuming = false
	}
	batch, ok := w.cursor.Poll()
	if !ok {
		return nil
	}
	if w.history.version.Load() != w.version { // another request has seen other grants
		if err := w.regrant(w.behind); err != nil {
			return err
		}
	}
	if err := w.membersChanged(batch); err != nil {
		return err
	}
	if err := w.replay(batch.After); err != nil {
		return err
	}
	for name := range w.members {
		if _, ok := batch.After.Member(name); !ok {
			delete(w.members, name) // remembered until its objects were told of
		}
	}
	return w.turnedAt()
}

// replay sends the changes up to a snapshot.
func (w *watching) replay(to *aggregate.Snapshot) error {
	changes, err := w.o.Index.ChangesOf(w.resource.Kind, w.sent)
	if err != nil {
		return w.fallenBehind()
	}
	w.behind = to
	for c := range changes {
		if c.Revision > to.Revision() {
			break
		}
		if err := w.change(c); err != nil {
			return err
		}
	}
	w.sent = to.Revision()
	return nil
}

// change sends the event of one change, if it is watched.
func (w *watching) change(c aggregate.Change) error {
	o := c.After
	if o.IsZero() {
		o = c.Before
	}
	if o.Ref().Kind != w.resource.Kind {
		return nil
	}
	m, ok := w.members[o.Member()]
	if !ok {
		if !w.concerns(o.Member()) {
			return nil
		}
		m = aggregate.Member{Name: o.Member()} // it has left since
	}
	if w.resuming && !c.Before.IsZero() && !w.grants.Knows(c.Before.Resource()) {
		return w.fallenBehind() // whether the client knows it cannot be told any more
	}
	saw, err := w.sees(m, c.Before, w.grants)
	if err != nil {
		return err
	}
	sees, err := w.sees(m, c.After, w.grants)
	if err != nil {
		return err
	}
	another := saw && sees && c.Before.UID() != c.After.UID()
	if saw && (!sees || another) {
		st := stampOf(c.Before)
		st.revision = c.Revision
		if err := w.shared(watch.Deleted, c.Before, st); err != nil {
			return err
		}
	}
	switch {
	case sees && (!saw || another):
		return w.shared(watch.Added, c.After, stampOf(c.After))
	case sees:
		return w.shared(watch.Modified, c.After, stampOf(c.After))
	}
	return nil
}

// fallenBehind ends the watch of a client that has to list again.
func (w *watching) fallenBehind() error {
	return errors.Join(errEnd, w.lastWord(expiredStatus(w.sent)))
}

// lastWord sends why the watch ends.
func (w *watching) lastWord(status metav1.Status) error {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"} // clients decode nothing without
	if w.encoder.protobuf {
		message, err := status.Marshal()
		if err != nil {
			return err
		}
		if w.out, err = appendFrame(w.out, watch.Error, status.TypeMeta, message); err != nil {
			return err
		}
		return w.flush()
	}
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	w.out = append(append(append(w.out, `{"type":"ERROR","object":`...), text...), "}\n"...)
	return w.flush()
}

// shared sends an event whose bytes other watches may have made already.
func (w *watching) shared(kind watch.EventType, o aggregate.Object, st stamp) error {
	if w.columns != nil {
		return w.event(kind, o, st)
	}
	key := frameKey{st.revision, kind, w.resource, w.encoder.shape, w.encoder.protobuf, w.encoder.cluster, w.keys != nil, w.encoder.include}
	if frame, ok := w.frames.get(key); ok {
		w.out = append(w.out, frame...)
		return w.full()
	}
	at := len(w.out)
	if err := w.append(kind, o, st); err != nil {
		return err
	}
	w.frames.put(key, bytes.Clone(w.out[at:]))
	return w.full()
}

// event sends an event.
func (w *watching) event(kind watch.EventType, o aggregate.Object, st stamp) error {
	if err := w.append(kind, o, st); err != nil {
		return err
	}
	return w.full()
}

func (w *watching) append(kind watch.EventType, o aggregate.Object, st stamp) (err error) {
	at := len(w.out)
	defer func() {
		if err != nil {
			w.out = w.out[:at]
		}
	}()
	if w.encoder.protobuf {
		if w.encoder.message, err = w.encoder.appendProtobuf(w.encoder.message[:0], o, st); err != nil {
			return err
		}
		w.out, err = appendFrame(w.out, kind, w.encoder.typeMeta(), w.encoder.message)
		return err
	}
	w.out = append(append(append(w.out, `{"type":"`...), kind...), `","object":`...)
	if w.encoder.shape == table {
		w.out = append(w.out, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`...)
		w.out = append(append(w.out, revisionString(st.revision)...), `"},"columnDefinitions":`...)
		if w.columns != nil { // as an API server, with the first event only
			w.out, w.columns = append(w.out, w.columns...), nil
		} else {
			w.out = append(w.out, "null"...)
		}
		w.out = append(w.out, `,"rows":[`...)
	}
	if w.out, err = w.encoder.append(w.out, o, st); err != nil {
		return err
	}
	if w.encoder.shape == table {
		w.out = append(w.out, "]}"...)
	}
	w.out = append(w.out, "}\n"...)
	return nil
}

// bookmark tells how far the watch is, to a client that wants to know.
func (w *watching) bookmark(annotations map[string]string) error {
	if !w.params.AllowWatchBookmarks && annotations == nil {
		return nil
	}
	gvk := w.resource.GroupVersionKind()
	kind, version := gvk.Kind, gvk.GroupVersion().String()
	switch w.encoder.shape {
	case partial:
		kind, version = "PartialObjectMetadata", metav1.SchemeGroupVersion.String()
	case table:
		kind, version = "Table", metav1.SchemeGroupVersion.String()
	}
	revision := max(w.sent, w.behind.Revision())
	object := map[string]any{
		"kind": kind, "apiVersion": version,
		"metadata": map[string]any{"resourceVersion": revisionString(revision), "annotations": annotations},
	}
	if w.encoder.shape == table {
		object["rows"] = []any{}
	}
	if w.encoder.protobuf {
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if text, err = w.encoder.protobufOf(nil, text); err != nil {
			return err
		}
		if w.out, err = appendFrame(w.out, watch.Bookmark, w.encoder.typeMeta(), text); err != nil {
			return err
		}
		return w.full()
	}
	text, err := json.Marshal(map[string]any{"type": watch.Bookmark, "object": object})
	if err != nil {
		return err
	}
	w.out = append(append(w.out, text...), '\n')
	return w.full()
}

// full sends what has gathered, if it is much. What a slow client keeps alive
// is bounded as the log is: a watch that the log has passed by would have to
// end after this step, and ends within it.
func (w *watching) full() error {
	if len(w.out) < flushAt {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if _, err := w.o.Index.Changes(w.behind.Revision()); err != nil {
		return w.fallenBehind()
	}
	return nil
}

// flush sends what has gathered. A client that does not take it in time is
// given up.
func (w *watching) flush() error {
	if err := w.wire.SetWriteDeadline(time.Now().Add(w.o.Stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if len(w.out) > 0 {
		if _, err := w.w.Write(w.out); err != nil {
			return err
		}
		if w.out = w.out[:0]; cap(w.out) > 2*flushAt {
			w.out = nil
		}
		w.encoder.shrink()
	}
	if err := w.wire.Flush(); err != nil {
		return err
	}
	// HTTP/2 ends a stream whose deadline passes, even while there is nothing to write.
	if err := w.wire.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
