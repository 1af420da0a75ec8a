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

// watchStream is one open watch. It belongs to one goroutine.
type watchStream struct {
	*request
	encoder    *encoder
	cursor     *aggregate.Cursor
	controller *http.ResponseController
	scratch    selection.Scratch

	// sent is the revision up to which everything has been sent; last, the snapshot
	// of the last step; members, those of it that the request is about.
	sent        aggregate.Revision
	last        *aggregate.Snapshot
	members     map[string]aggregate.Member
	resuming    bool            // changes from before the watch started are being sent
	priorGrants []*authz.Grants // under which the client may have been sent objects
	bookmarkDue bool            // events without a revision of their own were sent
	initial     bool            // of a part: what is sent is nothing that a client resumes from
	marks       []int           // a buffer
	text        []byte          // a buffer
	matcher     *selection.Matcher
	told        aggregate.Status // of the scope, to another federator

	out     []byte
	columns []byte // of a Table, until they are sent with the first event
}

// Watches without timeoutSeconds end after this, and up to twice it.
const defaultWatchTimeout = 30 * time.Minute

// errWatchEnded ends a watch without an error.
var errWatchEnded = errors.New("the watch has ended")

// watch serves a watch: initial events, where requested, and then changes until the client
// disconnects, the watch times out, or it has fallen behind the log.
func (q *request) watch() error {
	if err := CheckOrigin(q.r, q.caller.User()); err != nil {
		return err
	}
	if q.format.yaml {
		q.format.yaml = false // a stream is JSON, even where a list would be YAML
	}
	w := &watchStream{
		request: q, encoder: q.encoder(), controller: http.NewResponseController(q.w),
		sent: q.params.Revision, last: q.snapshot, matcher: q.selector.Matcher(),
	}
	w.retainHistory()
	defer func() { w.histories.release(w.history, w.grants) }()
	w.initial = w.ask != nil
	w.cursor = q.options.Index.Cursor(q.snapshot)
	w.members = w.targetMembers(q.snapshot)
	initial := q.params.SendInitialEvents != nil && *q.params.SendInitialEvents || q.params.SendInitialEvents == nil && q.params.Revision == 0
	switch {
	case initial || q.params.Revision == 0:
		w.sent = q.snapshot.Revision()
	default:
		if err := w.resumable(); err != nil {
			return err
		}
	}
	find := w.listing()
	visible := find.Visible()
	q.warnOfUnknownNamespace()
	q.warnOfOtherVersions(visible)
	fresh, err := q.freshness(visible)
	if err != nil {
		return err
	}
	if w.ask != nil {
		if err := w.beginPart(visible, fresh); err != nil {
			return err
		}
	} else if q.format.shape == table {
		text, err := json.Marshal(q.columns())
		if err != nil {
			return err
		}
		w.columns = text
	}
	timeout := q.params.Timeout
	if timeout == 0 {
		timeout = defaultWatchTimeout + rand.N(defaultWatchTimeout)
	}
	timeout = min(timeout, 2*defaultWatchTimeout)
	ctx, cancel := context.WithTimeout(q.r.Context(), timeout)
	defer cancel()
	q.setScopeHeader()
	w.told = w.scopeStatus(q.snapshot)
	err = w.serve(ctx, initial)
	if err == nil || errors.Is(err, errWatchEnded) {
		return nil
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && w.sendError(status.Status()) == nil {
		return nil // such as an object that cannot be converted
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// resumable returns an error unless the log has everything since the client's revision.
func (w *watchStream) resumable() error {
	changes, err := w.options.Index.ChangesOf(w.resource.Kind, w.sent)
	switch {
	case errors.Is(err, aggregate.ErrFuture):
		return tooLargeError(w.sent, w.snapshot.Revision())
	case err != nil, w.selectsByClusterLabels && w.memberLabels.changedSince(w.sent), w.roles.changedSince(w.sent):
		return Expired(w.sent)
	}
	if err := w.checkGrantHistory(); err != nil {
		return err
	}
	if w.grants.Everything() {
		return nil
	}
	// The grants of a member that has left are no longer known, so its deletions
	// cannot be sent: the client has to list.
	for c := range changes {
		if c.Before.IsZero() || c.Before.Ref().Kind != w.resource.Kind {
			continue
		}
		if _, ok := w.snapshot.Member(c.Before.Member()); !ok {
			return Expired(w.sent)
		}
	}
	return nil
}

func (w *watchStream) stream(ctx context.Context, initial bool) error {
	if err := w.flush(); err != nil {
		return err
	}
	if initial {
		if err := w.sendInitialEvents(ctx); err != nil {
			return err
		}
	}
	w.initial = false
	if err := w.resendGrantChanges(); err != nil {
		return err
	}
	w.snapshot = nil // which an open watch would keep in memory
	bookmark := w.options.Now().Add(w.options.BookmarkInterval)
	for {
		ended := ctx.Err() != nil // the last step sends what happened until then
		if err := w.sendChanges(); err != nil {
			return err
		}
		if now := w.options.Now(); !now.Before(bookmark) {
			bookmark = now.Add(w.options.BookmarkInterval)
			if err := w.sendBookmark(nil); err != nil {
				return err
			}
		}
		w.scratch.Shrink(maxIdleBuffer)
		if err := w.flush(); err != nil {
			return err
		}
		if ended {
			return w.sendFinalBookmark()
		}
		if err := w.wait(ctx, bookmark); err != nil {
			return err
		}
	}
}

// wait returns when there may be something to send.
func (w *watchStream) wait(ctx context.Context, bookmark time.Time) error {
	until := bookmark
	if u := w.grants.Expires(); !u.IsZero() && u.Before(until) {
		until = u
	}
	ctx, cancel := context.WithTimeout(ctx, max(until.Sub(w.options.Now()), 0))
	defer cancel()
	select {
	case <-w.newer(w.last):
	case <-ctx.Done():
	}
	if u := w.grants.Expires(); u.IsZero() || w.options.Now().Before(u) {
		return nil
	}
	if err := w.regrant(w.last); err != nil {
		return err
	}
	return w.sendDueBookmark()
}

// sendInitialEvents sends the initial events; see initialEvents for a watch that
// ends before all are sent.
func (w *watchStream) sendInitialEvents(ctx context.Context) error {
	find := w.listing()
	phase := newInitialEvents(ctx)
	defer phase.close()
	for o, err := range find.List(phase.ctx) {
		switch {
		case phase.ctx.Err() != nil:
			return w.endIncomplete(phase)
		case err != nil:
			return err
		case !phase.start():
			return errWatchEnded
		}
		if err := w.send(watch.Added, o, addedMetadataOf(o)); err != nil {
			return err
		}
	}
	if phase.ctx.Err() != nil {
		return w.endIncomplete(phase)
	}
	if w.params.SendInitialEvents == nil && w.ask == nil {
		return nil
	}
	return w.sendBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// sendChanges sends what has changed since the last step.
func (w *watchStream) sendChanges() error {
	// A watch that resumes first gets the changes from before it started, with the
	// members as of its start.
	if w.sent != w.last.Revision() {
		w.resuming = true
		if err := w.sendLog(w.last); err != nil {
			return err
		}
		w.resuming = false
	}
	batch, ok := w.cursor.Poll()
	if !ok {
		return nil
	}
	if w.history.version.Load() != w.version { // another request has recorded other grants
		if err := w.regrant(w.last); err != nil {
			return err
		}
	}
	if err := w.checkMember(batch.Before, batch.After); err != nil {
		return err
	}
	if err := w.tellScope(batch.After, true); err != nil {
		return err
	}
	if err := w.sendMemberChanges(batch); err != nil {
		return err
	}
	if err := w.sendLog(batch.After); err != nil {
		return err
	}
	if err := w.tellScope(batch.After, false); err != nil {
		return err
	}
	for name := range w.members {
		if _, ok := batch.After.Member(name); !ok {
			delete(w.members, name) // kept until the deletions of its objects were sent
		}
	}
	return w.sendDueBookmark()
}

// sendLog sends the changes in the log up to a snapshot.
func (w *watchStream) sendLog(to *aggregate.Snapshot) error {
	changes, err := w.options.Index.ChangesOf(w.resource.Kind, w.sent)
	if err != nil {
		return w.endExpired()
	}
	w.last = to
	for c := range changes {
		if c.Revision > to.Revision() {
			break
		}
		if err := w.sendChange(c); err != nil {
			return err
		}
	}
	w.sent = to.Revision()
	return nil
}

// sendChange sends the events of one change.
func (w *watchStream) sendChange(c aggregate.Change) error {
	o := c.After
	if o.IsZero() {
		o = c.Before
	}
	if o.Ref().Kind != w.resource.Kind {
		return nil
	}
	m, ok := w.members[o.Member()]
	if !ok {
		if !w.targetsLeft(o.Member()) {
			return nil
		}
		m = aggregate.Member{Name: o.Member()} // it has left since
	}
	if w.resuming && !c.Before.IsZero() && !w.grants.Covers(c.Before.Resource()) {
		return w.endExpired() // it is unknown whether the client has the object
	}
	before, err := w.isVisible(m, c.Before, w.grants)
	if err != nil {
		return err
	}
	after, err := w.isVisible(m, c.After, w.grants)
	if err != nil {
		return err
	}
	recreated := before && after && c.Before.UID() != c.After.UID()
	if before && (!after || recreated) {
		added := addedMetadataOf(c.Before)
		added.revision = c.Revision
		if err := w.sendCached(watch.Deleted, c.Before, added); err != nil {
			return err
		}
	}
	switch {
	case after && (!before || recreated):
		return w.sendCached(watch.Added, c.After, addedMetadataOf(c.After))
	case after:
		return w.sendCached(watch.Modified, c.After, addedMetadataOf(c.After))
	}
	return nil
}

// endExpired ends the watch with 410: the client has to list again.
func (w *watchStream) endExpired() error {
	return errors.Join(errWatchEnded, w.sendError(expiredStatus(w.sent)))
}

// sendError sends the Status with which the watch ends.
func (w *watchStream) sendError(status metav1.Status) error {
	var err error
	if w.ask != nil {
		w.out, err = appendPartError(w.out, status)
	} else {
		w.out, err = AppendError(w.out, w.encoder.protobuf, status)
	}
	if err != nil {
		return err
	}
	return w.flush()
}

// AppendError appends the event with which a watch ends.
func AppendError(dst []byte, protobuf bool, status metav1.Status) ([]byte, error) {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"} // clients decode nothing without
	if protobuf {
		message, err := status.Marshal()
		if err != nil {
			return dst, err
		}
		return appendProtobufEvent(dst, watch.Error, status.TypeMeta, message)
	}
	text, err := json.Marshal(status)
	if err != nil {
		return dst, err
	}
	return append(append(append(dst, `{"type":"ERROR","object":`...), text...), "}\n"...), nil
}

// sendCached sends an event that another watch may have encoded already.
func (w *watchStream) sendCached(kind watch.EventType, o aggregate.Object, added addedMetadata) error {
	if w.columns != nil {
		return w.send(kind, o, added)
	}
	key := eventKey{added.revision, kind, w.resource, w.encoder.shape, w.encoder.protobuf, w.encoder.clusterColumn, w.keys != nil, w.encoder.include, w.digits()}
	if frame, ok := w.events.get(key); ok {
		w.out = append(w.out, frame...)
		return w.flushIfFull()
	}
	at := len(w.out)
	if err := w.appendEvent(kind, o, added); err != nil {
		return err
	}
	w.events.put(key, bytes.Clone(w.out[at:]))
	return w.flushIfFull()
}

// send sends an event.
func (w *watchStream) send(kind watch.EventType, o aggregate.Object, added addedMetadata) error {
	if err := w.appendEvent(kind, o, added); err != nil {
		return err
	}
	return w.flushIfFull()
}

func (w *watchStream) appendEvent(kind watch.EventType, o aggregate.Object, added addedMetadata) error {
	var out []byte
	var err error
	if w.ask != nil {
		out, err = w.encodePartEvent(w.out, kind, o, added)
	} else {
		out, err = w.encodeEvent(w.out, kind, o, added)
	}
	if err == nil {
		w.out = out
	}
	return err
}

func (w *watchStream) encodeEvent(dst []byte, kind watch.EventType, o aggregate.Object, added addedMetadata) (_ []byte, err error) {
	if w.encoder.protobuf {
		if w.encoder.message, err = w.encoder.appendProtobuf(w.encoder.message[:0], o, added); err != nil {
			return dst, err
		}
		return appendProtobufEvent(dst, kind, w.encoder.typeMeta(), w.encoder.message)
	}
	dst = append(append(append(dst, `{"type":"`...), kind...), `","object":`...)
	if w.encoder.shape == table {
		dst = append(dst, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"`...)
		dst = append(append(dst, revisionString(added.revision)...), `"},"columnDefinitions":`...)
		if w.columns != nil { // as an API server, with the first event only
			dst, w.columns = append(dst, w.columns...), nil
		} else {
			dst = append(dst, "null"...)
		}
		dst = append(dst, `,"rows":[`...)
	}
	if dst, err = w.encoder.append(dst, o, added); err != nil {
		return dst, err
	}
	if w.encoder.shape == table {
		dst = append(dst, "]}"...)
	}
	return append(dst, "}\n"...), nil
}

// flushIfFull sends the buffered output, if it is large. A slow client keeps no more in
// memory than the log: a watch that has fallen behind it ends within this step.
func (w *watchStream) flushIfFull() error {
	if len(w.out) < flushAt {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	if _, err := w.options.Index.Changes(w.last.Revision()); err != nil {
		return w.endExpired()
	}
	return nil
}

// flush sends the buffered output. It fails for a client that does not read in time.
func (w *watchStream) flush() error {
	if err := w.controller.SetWriteDeadline(time.Now().Add(w.options.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
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
	if err := w.controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 ends a stream whose deadline passes, even while there is nothing to write.
	if err := w.controller.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
