package resources

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// memberRoles records when a member was last taken from, or given to, this process by another: a
// watch cannot be resumed across that, since the change log has nothing of it.
type memberRoles struct {
	left func(member string) bool // the fleet

	mu      sync.Mutex
	cursor  *aggregate.Cursor
	changed aggregate.Revision
}

func newMemberRoles(x *aggregate.Index, left func(string) bool) *memberRoles {
	now := x.Snapshot()
	return &memberRoles{left: left, cursor: x.Cursor(now), changed: now.Revision()}
}

// follow takes note of what has happened up to now.
func (r *memberRoles) follow() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	batch, ok := r.cursor.Poll()
	if !ok {
		return
	}
	for d := range batch.Members() {
		if r.moved(d) {
			r.changed = batch.After.Revision()
			return
		}
	}
}

func (r *memberRoles) moved(d aggregate.MemberDelta) bool {
	switch {
	case d.Before == nil:
		return false
	case d.After == nil:
		return d.Before.Role != aggregate.Judge || !r.left(d.Before.Name)
	}
	return d.Before.Role != d.After.Role
}

// changedSince reports whether any was since a client was sent a revision.
func (r *memberRoles) changedSince(sent aggregate.Revision) bool {
	if r == nil {
		return false
	}
	r.follow()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed > sent
}

// moved reports whether a member is taken from or given to the part of the watch.
func (w *watchStream) moved(d aggregate.MemberDelta) bool {
	switch {
	case w.ask == nil || d.Before == nil:
		return false
	case d.After == nil:
		return w.ask.Answers(d.Before) && !w.options.Left(d.Before.Name)
	}
	return w.ask.Answers(d.Before) != w.ask.Answers(d.After)
}

// targetsLeft reports whether the watch is about a member that has left.
func (w *watchStream) targetsLeft(member string) bool {
	if w.ask == nil {
		return w.targets(member)
	}
	// Of a part only a watch that is resumed lacks members that it is about: those that had left when
	// it began, none of which another process judged, or has now (see memberRoles).
	_, present := w.last.Member(member)
	return w.resuming && !present
}

// digits is the number of those of the revisions in the events of a part.
func (w *watchStream) digits() int {
	if w.ask == nil {
		return 0
	}
	return w.ask.Digits
}

// beginPart writes the header of a part.
func (w *watchStream) beginPart(visible []string, fresh []selection.NotSynced) error {
	h := w.partHeader()
	w.warnings = nil
	w.warnOfUnknownNamespace()
	if err := w.describe(h, visible); err != nil {
		return err
	}
	h.NotSynced = fresh
	h.Revision = w.sent
	var err error
	if h.Bookmark, err = w.encodeMarked(nil, 0, 1, w.plainBookmark); err != nil {
		return err
	}
	if h.InitialBookmark, err = w.encodeMarked(nil, 0, 1, w.initialBookmark); err != nil {
		return err
	}
	w.out, err = part.AppendHeader(w.out, h)
	return err
}

func (w *watchStream) plainBookmark(dst []byte, r aggregate.Revision) ([]byte, error) {
	return w.appendBookmark(dst, r, nil)
}

func (w *watchStream) initialBookmark(dst []byte, r aggregate.Revision) ([]byte, error) {
	return w.appendBookmark(dst, r, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// encodePartEvent appends an event as a frame. What a client cannot resume from keeps its revision.
func (w *watchStream) encodePartEvent(dst []byte, kind watch.EventType, o aggregate.Object, added addedMetadata) ([]byte, error) {
	at := len(dst)
	dst = part.Begin(dst, part.EventFrame)
	var err error
	if w.initial {
		dst, err = w.encodeEvent(part.AppendEvent(dst, added.revision, nil), kind, o, added)
		return part.Finish(dst, at), err
	}
	marks := 1
	if w.encoder.shape == table && w.encoder.include != metav1.IncludeNone {
		marks = 2
	}
	dst, err = w.encodeMarked(dst, added.revision, marks, func(dst []byte, as aggregate.Revision) ([]byte, error) {
		added := added
		added.revision = as
		return w.encodeEvent(dst, kind, o, added)
	})
	return part.Finish(dst, at), err
}

var errUnmarked = errors.New("resources: no revision can be distinguished in an event")

// encodeMarked appends the payload of an event: it is encoded with a number in place of the
// revision that is nowhere else in it.
func (w *watchStream) encodeMarked(dst []byte, revision aggregate.Revision, places int, encode func([]byte, aggregate.Revision) ([]byte, error)) ([]byte, error) {
	low := uint64(1)
	for range w.ask.Digits - 1 {
		low *= 10
	}
	for try := range uint64(64) {
		as := low + (0x9E3779B97F4A7C15*(try+1))%(9*low)
		text, err := encode(w.text[:0], aggregate.Revision(as))
		if err != nil {
			return dst, err
		}
		w.text, w.marks = text, w.marks[:0]
		number := strconv.AppendUint(nil, as, 10)
		for from := 0; ; {
			i := bytes.Index(text[from:], number)
			if i < 0 {
				break
			}
			w.marks = append(w.marks, from+i)
			from += i + len(number)
		}
		if len(w.marks) == places {
			return append(part.AppendEvent(dst, revision, w.marks), text...), nil
		}
	}
	return dst, errUnmarked
}

// appendMark appends that all has been sent up to a revision, or all initial events.
func (w *watchStream) appendMark(revision aggregate.Revision, initial bool) {
	kind := part.MarkFrame
	if initial {
		kind = part.InitialFrame
	}
	w.out = part.Append(w.out, kind, binary.AppendUvarint(nil, uint64(revision)))
}

// appendPartError appends the Status with which a part ends.
func appendPartError(dst []byte, status metav1.Status) ([]byte, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return dst, err
	}
	return part.Append(dst, part.ErrorFrame, text), nil
}

// appendBookmark appends a bookmark of a revision.
func (w *watchStream) appendBookmark(dst []byte, revision aggregate.Revision, annotations map[string]string) ([]byte, error) {
	gvk := w.resource.GroupVersionKind()
	kind, version := gvk.Kind, gvk.GroupVersion().String()
	switch w.encoder.shape {
	case metadataOnly:
		kind, version = "PartialObjectMetadata", metav1.SchemeGroupVersion.String()
	case table:
		kind, version = "Table", metav1.SchemeGroupVersion.String()
	}
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
			return dst, err
		}
		if text, err = w.encoder.toProtobuf(nil, text); err != nil {
			return dst, err
		}
		return appendProtobufEvent(dst, watch.Bookmark, w.encoder.typeMeta(), text)
	}
	text, err := json.Marshal(map[string]any{"type": watch.Bookmark, "object": object})
	if err != nil {
		return dst, err
	}
	return append(append(dst, text...), '\n'), nil
}
