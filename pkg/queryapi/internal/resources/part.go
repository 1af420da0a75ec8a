package resources

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/warning"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// A request with a part.Ask is that of another process, which merges the parts of several: it is
// answered for the members that this process judges, as frames of package part.

// warn warns the client, in the header of a part where the response is one.
func (q *request) warn(text string) {
	if q.ask != nil {
		q.warnings = append(q.warnings, text)
		return
	}
	warning.AddWarning(q.r.Context(), "", text)
}

// setJudged sets the members that the part is of.
func (q *request) setJudged() {
	if q.ask != nil {
		q.judged = q.ask.Members(q.snapshot)
	}
}

// answers reports whether the request is about a member, and this process is to answer for it.
func (q *request) answers(m *aggregate.Member) bool {
	if q.ask == nil {
		return q.targets(m.Name)
	}
	return !q.location.NoMember && q.ask.Answers(m)
}

// continuePart is continueFrom of a part.
func (q *request) continuePart(newest *aggregate.Snapshot) (*aggregate.Snapshot, error) {
	q.after = q.ask.After
	if q.ask.At == 0 || q.ask.At == newest.Revision() {
		return newest, nil
	}
	pinned, ok := q.options.Pins.Snapshot(q.ask.At, newest, q.options.Now())
	if !ok {
		return nil, Expired(q.ask.At)
	}
	return pinned, nil
}

// refuses reports whether an error is no reason to refuse the whole request: there is nothing in
// this part.
func (q *request) refuses(err error) bool {
	return q.ask != nil && q.snapshot != nil && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err))
}

// partHeader returns the header of a part.
func (q *request) partHeader() *part.Header {
	h := part.NewHeader(q.options.Index.First(), q.snapshot, q.ask)
	if status, ok := q.refused.(apierrors.APIStatus); ok { //nolint:errorlint // it is one of ours
		s := status.Status()
		h.Refused = &s
	}
	return h
}

// describe adds to a header what the part is of.
func (q *request) describe(h *part.Header, visible []string) error {
	gvk := q.resource.GroupVersionKind()
	h.Kind, h.Resource = q.resource.Kind, q.resource.Resource.GroupResource().String()
	h.ItemKind, h.ItemVersion, h.Version = gvk.Kind, gvk.GroupVersion().String(), q.resource.Resource.GroupVersion().String()
	h.YAML, h.Protobuf, h.Fallback = q.format.yaml, q.format.protobuf, q.fallback != nil
	switch q.format.shape {
	case metadataOnly:
		h.ItemKind, h.ItemVersion = "PartialObjectMetadata", metav1.SchemeGroupVersion.String()
	case table:
		h.ItemKind, h.ItemVersion, h.Table = "Table", metav1.SchemeGroupVersion.String(), true
		var err error
		if h.Columns, err = json.Marshal(q.columns()); err != nil {
			return err
		}
	}
	var err error
	if q.rowColumns != nil {
		if h.Columns, err = json.Marshal(q.rowColumns.Columns()); err != nil {
			return err
		}
		h.Rows, h.Visible = true, visible
	}
	if h.NotSynced, err = q.freshness(visible); err != nil {
		return err
	}
	h.OtherVersions = q.otherVersions(visible)
	h.Warnings = q.warnings
	return nil
}

// listPart serves a part of a list.
func (q *request) listPart(find selection.Listing) error {
	q.warnOfUnknownNamespace()
	h := q.partHeader()
	if err := q.describe(h, find.Visible()); err != nil {
		return err
	}
	objects := find.List(q.r.Context())
	if q.rowColumns != nil {
		q.pin()
	}
	if q.params.Limit > 0 {
		page, more, err := q.firstObjects(find)
		if err != nil {
			return err
		}
		h.Count, h.More, h.Counted = len(page), more, q.selector.Empty()
		if len(page) > 0 { // who merges may send fewer of them
			q.pin()
		}
		if more && h.Counted {
			find.After = page[len(page)-1].Position()
			n, err := find.Count(q.r.Context())
			if err != nil {
				return err
			}
			h.Remaining = int64(n)
		}
		h.Page = pageOf(page)
		objects = values(page)
	}
	q.warnings = nil
	q.warnOfRedaction()
	h.LateWarnings = q.warnings
	return q.writePart(h, objects)
}

// getPart serves a part of a get: objects of its name, and one in the form of a response.
func (q *request) getPart(found []aggregate.Object) error {
	var visible []string
	for _, name := range q.judged {
		if !q.grants.Member(name).Empty() {
			visible = append(visible, name)
		}
	}
	h := q.partHeader()
	if err := q.describe(h, visible); err != nil {
		return err
	}
	h.Warnings, h.OtherVersions, h.Count = nil, nil, len(found)
	if q.format.shape == table {
		return q.writePart(h, values(found))
	}
	q.warnings = nil
	if len(found) == 1 {
		q.warnOfRedaction()
		h.LateWarnings = q.warnings
	}
	out, err := part.AppendHeader(nil, h)
	if err != nil {
		return err
	}
	e := q.encoder()
	defer q.release(e)
	e.strict = true
	for _, o := range found {
		at := len(out)
		out = part.AppendPosition(part.Begin(out, part.ItemFrame), o.Position())
		if len(found) == 1 {
			text, err := q.encodeObject(e, o)
			if err == nil {
				text, err = q.finishObject(text)
			}
			if err != nil {
				return err
			}
			out = append(out, text...)
		}
		out = part.Finish(out, at)
	}
	q.w.Header().Set("Content-Type", part.ContentType)
	_, _ = q.w.Write(part.Append(out, part.End, nil)) // the client may be gone
	return nil
}

// writePart sends a list as a part.
func (q *request) writePart(h *part.Header, objects iter.Seq2[aggregate.Object, error]) error {
	head, err := part.AppendHeader(nil, h)
	if err != nil {
		return err
	}
	return q.send(part.ContentType, &Envelope{Head: head, Tail: part.Append(nil, part.End, nil)}, objects)
}

// appendFrame appends an object as a frame.
func (e *encoder) appendFrame(dst []byte, o aggregate.Object) (_ []byte, err error) {
	at := len(dst)
	dst = part.AppendPosition(part.Begin(dst, part.ItemFrame), o.Position())
	switch {
	case e.protobuf:
		dst, err = e.appendItem(dst, o)
	case e.yaml:
		dst, err = e.appendYAML(dst, o)
	default:
		dst, err = e.append(dst, o, addedMetadataOf(o))
	}
	return part.Finish(dst, at), err
}

// pollRefused is how often it is looked whether members serve a resource that none did.
const pollRefused = 2 * time.Second

// servePartRefused serves a part in which there is nothing. A watch ends once the members serve the resource.
func (q *request) servePartRefused() error {
	h := q.partHeader()
	notFound := apierrors.IsNotFound(q.refused)
	switch {
	case q.wantsRows: // other kinds are asked for at this revision
		q.pin()
	case notFound:
		h.Revision = 0 // what has been sent is nothing that can be resumed from
	}
	if notFound {
		h.Unsure = q.ask.Unsure(q.snapshot, q.info.APIGroup)
	}
	out, err := part.AppendHeader(nil, h)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", part.ContentType)
	if q.info.Verb != selection.Watch {
		_, _ = q.w.Write(part.Append(out, part.End, nil)) // the client may be gone
		return nil
	}
	if _, err := q.w.Write(out); err != nil {
		panic(http.ErrAbortHandler)
	}
	tick := time.NewTicker(pollRefused)
	defer tick.Stop()
	for {
		if _, err := q.w.Write(part.Append(nil, part.MarkFrame, []byte{0})); err != nil { // which shows that it lives
			panic(http.ErrAbortHandler)
		}
		if err := http.NewResponseController(q.w).Flush(); err != nil {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-tick.C:
		case <-q.r.Context().Done():
			return nil
		}
		again := &request{Handler: q.Handler, w: q.w, r: q.r, caller: q.caller}
		if err := again.parse(); err == nil || !apierrors.IsNotFound(err) {
			if out, err = appendPartError(nil, expiredStatus(q.snapshot.Revision())); err != nil {
				return fmt.Errorf("resources: %w", err)
			}
			_, _ = q.w.Write(out)
			return nil
		}
	}
}

// pageOf returns where the objects of a page are.
func pageOf(page []aggregate.Object) (out []part.PageMember) {
	for _, o := range page {
		if n := len(out); n == 0 || out[n-1].Member != o.Member() {
			out = append(out, part.PageMember{Member: o.Member()})
		}
		last := &out[len(out)-1]
		last.Keys = append(last.Keys, o.Namespace()+"/"+o.Name())
	}
	return out
}
