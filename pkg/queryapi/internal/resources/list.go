package resources

import (
	"iter"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// ListMeta is the metadata of a list.
type ListMeta struct {
	ResourceVersion    string            `json:"resourceVersion"`
	Continue           string            `json:"continue,omitempty"`
	RemainingItemCount *int64            `json:"remainingItemCount,omitempty"`
	Annotations        map[string]string `json:"annotations,omitempty"`
}

// list serves a list of one snapshot.
func (q *request) list() error {
	find := q.listing()
	if q.ask != nil {
		return q.listPart(find)
	}
	meta := ListMeta{ResourceVersion: revisionString(q.snapshot.Revision())}
	visible := find.Visible()
	q.warnOfUnknownNamespace()
	q.warnOfOtherVersions(visible)
	fresh, err := q.freshness(visible)
	if err != nil {
		return err
	}
	if q.rowColumns == nil { // the header of rows has them
		if meta.Annotations, err = selection.Annotations(fresh); err != nil {
			return err
		}
	}
	if text := selection.Warning(fresh); text != "" {
		header, err := utilnet.NewWarningHeader(299, "-", text)
		if err != nil {
			return err
		}
		q.w.Header().Add("Warning", header)
	}
	q.setScopeHeader()
	objects := find.List(q.r.Context())
	if q.params.Limit > 0 {
		if objects, err = q.page(find, &meta); err != nil {
			return err
		}
	}
	if q.rowColumns != nil {
		return q.writeRows(meta, visible, fresh, objects)
	}
	q.warnOfRedaction()
	return q.writeList(meta, objects)
}

// tokenScope is what a continue token of this list is valid for.
func (q *request) tokenScope() selection.TokenScope {
	gvr := schema.GroupVersionResource{Group: q.info.APIGroup, Version: q.info.APIVersion, Resource: q.info.Resource}
	return selection.NewTokenScope(q.caller.User(), q.target.Prefix, gvr.String(), q.info.Namespace, q.params.LabelSelector, q.params.FieldSelector)
}

// continueFrom sets the position of the continue token, and returns the snapshot of the
// first page: the resource and its members are those of that snapshot in all pages.
func (q *request) continueFrom(newest *aggregate.Snapshot) (*aggregate.Snapshot, error) {
	binding := q.tokenScope()
	token, err := q.options.Tokens.Decode(binding, q.params.Continue)
	if err != nil {
		return nil, err
	}
	q.after = token.After
	if token.Revision == 0 || token.Revision == newest.Revision() {
		return newest, nil
	}
	pinned, ok := q.options.Pins.Snapshot(token.Revision, newest, q.options.Now())
	if !ok {
		return nil, q.options.Tokens.Expired(binding, token.After)
	}
	return pinned, nil
}

// page returns the first objects, and sets in meta whether more follow.
func (q *request) page(find selection.Listing, meta *ListMeta) (iter.Seq2[aggregate.Object, error], error) {
	page, more, err := q.firstObjects(find)
	if err != nil {
		return nil, err
	}
	if more {
		last := page[len(page)-1].Position()
		q.pin()
		meta.Continue = q.options.Tokens.Encode(q.tokenScope(), selection.Token{Revision: q.snapshot.Revision(), After: last})
		// As in an API server, only without selectors.
		if q.selector.Empty() {
			find.After = last
			n, err := find.Count(q.r.Context())
			if err != nil {
				return nil, err
			}
			rest := int64(n)
			meta.RemainingItemCount = &rest
		}
	}
	return values(page), nil
}

// firstObjects returns as many objects as the limit, and whether more follow.
func (q *request) firstObjects(find selection.Listing) (page []aggregate.Object, more bool, err error) {
	if q.selector.Empty() {
		n, err := find.Count(q.r.Context())
		if err != nil {
			return nil, false, err
		}
		page = make([]aggregate.Object, 0, min(int64(n), q.params.Limit))
	}
	for o, err := range find.List(q.r.Context()) {
		if err != nil {
			return nil, false, err
		}
		if int64(len(page)) == q.params.Limit {
			return page, true, nil
		}
		page = append(page, o)
	}
	return page, false, nil
}

func values(objects []aggregate.Object) iter.Seq2[aggregate.Object, error] {
	return func(yield func(aggregate.Object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// writeList sends a list.
func (q *request) writeList(meta ListMeta, objects iter.Seq2[aggregate.Object, error]) error {
	if q.format.protobuf {
		return q.writeProtobuf(meta, objects)
	}
	around, err := q.envelope(meta)
	if err != nil {
		return err
	}
	return q.send(q.format.contentType(), around, objects)
}

// send sends objects, and what is around them. A failure after the first byte closes the connection, so that an
// incomplete list is never mistaken for a complete one.
func (q *request) send(contentType string, around *Envelope, objects iter.Seq2[aggregate.Object, error]) error {
	q.w.Header().Set("Content-Type", contentType)
	out := append(q.buffers.get(), around.Head...)
	defer func() { q.buffers.put(out) }()
	started, some, n := false, false, 0
	err := q.encodeAll(q.r.Context(), counted(objects, &n), func(text []byte) error {
		if !some {
			out = append(out, around.First...)
			some = true
		}
		out = append(out, text...)
		if started && len(out) < flushAt {
			return nil
		}
		started = true
		_, err := q.w.Write(out)
		out = out[:0]
		return err
	})
	if err != nil && !started {
		q.w.Header().Del("Content-Type")
		return err
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !some {
		out = append(out, around.Empty...)
	}
	_, _ = q.w.Write(append(out, around.End(n)...)) // the client may be gone
	return nil
}

// flushAt is the size at which output is written.
const flushAt = 64 << 10

// envelope makes the envelope of a list.
func (q *request) envelope(meta ListMeta) (*Envelope, error) {
	gvk := q.resource.GroupVersionKind()
	of := Listed{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String(), YAML: q.format.yaml}
	switch q.format.shape {
	case metadataOnly:
		of.Kind, of.APIVersion = "PartialObjectMetadata", metav1.SchemeGroupVersion.String()
	case table:
		of.Kind, of.APIVersion, of.Columns = "Table", metav1.SchemeGroupVersion.String(), q.columns()
	}
	return of.Envelope(meta)
}

// writeObject writes one JSON document in the negotiated format.
func (q *request) writeObject(text []byte) error {
	text, err := q.finishObject(text)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", q.format.contentType())
	_, _ = q.w.Write(text) // the client may be gone
	return nil
}

// finishObject makes a response of one JSON document, or of one message.
func (q *request) finishObject(text []byte) ([]byte, error) {
	switch {
	case q.format.yaml:
		return yaml.JSONToYAML(escapeForYAML(text))
	case q.format.protobuf:
		return text, nil
	}
	return append(text, '\n'), nil
}
