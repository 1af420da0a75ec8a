package reading

import (
	"bytes"
	"encoding/json"
	"iter"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// freshnessKey is the annotation of a list that says which members it is not
// fresh for.
const freshnessKey = "federator.dev/freshness"

// listMeta is the metadata of a list.
type listMeta struct {
	ResourceVersion    string            `json:"resourceVersion"`
	Continue           string            `json:"continue,omitempty"`
	RemainingItemCount *int64            `json:"remainingItemCount,omitempty"`
	Annotations        map[string]string `json:"annotations,omitempty"`
}

// list answers a list of one snapshot.
func (q *request) list() error {
	find := q.find()
	meta := listMeta{ResourceVersion: revisionString(q.snapshot.Revision())}
	fresh, err := q.freshness(find.Visible())
	if err != nil {
		return err
	}
	if err := meta.say(fresh); err != nil {
		return err
	}
	objects := find.List(q.r.Context())
	if q.params.Limit > 0 {
		if objects, err = q.page(find, &meta); err != nil {
			return err
		}
	}
	return q.write(meta, objects)
}

// say adds what is not fresh.
func (m *listMeta) say(fresh []selection.NotSynced) error {
	if len(fresh) == 0 {
		return nil
	}
	text, err := json.Marshal(fresh)
	m.Annotations = map[string]string{freshnessKey: string(text)}
	return err
}

// binding is what a continue token of this list is good for.
func (q *request) binding() selection.Binding {
	gvr := schema.GroupVersionResource{Group: q.info.APIGroup, Version: q.info.APIVersion, Resource: q.info.Resource}
	return selection.Bind(q.caller.User(), q.target.Prefix, gvr.String(), q.info.Namespace, q.params.LabelSelector, q.params.FieldSelector)
}

// resume takes a list up where its token says, and returns the snapshot it
// began with: what the resource and its members were then counts to its end.
func (q *request) resume(newest *aggregate.Snapshot) (*aggregate.Snapshot, error) {
	binding := q.binding()
	token, err := q.o.Sealer.Open(binding, q.params.Continue)
	if err != nil {
		return nil, err
	}
	q.after = token.After
	if token.Revision == 0 || token.Revision == newest.Revision() {
		return newest, nil
	}
	pinned, ok := q.o.Pins.Snapshot(token.Revision, newest.Revision(), q.o.Now())
	if !ok {
		return nil, q.o.Sealer.Expired(binding, token.After)
	}
	return pinned, nil
}

// page takes the first objects, and says in meta whether more follow.
func (q *request) page(find selection.Find, meta *listMeta) (iter.Seq2[aggregate.Object, error], error) {
	var page []aggregate.Object
	more := false
	for o, err := range find.List(q.r.Context()) {
		if err != nil {
			return nil, err
		}
		if int64(len(page)) == q.params.Limit {
			more = true
			break
		}
		page = append(page, o)
	}
	if more {
		last := page[len(page)-1].Position()
		q.o.Pins.Pin(q.snapshot, q.caller.User().GetName(), q.o.Index.Snapshot().Revision(), q.o.Now())
		meta.Continue = q.o.Sealer.Seal(q.binding(), selection.Token{Revision: q.snapshot.Revision(), After: last})
		// As an API server, that knows it where nothing is selected.
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
	return each(page), nil
}

func each(objects []aggregate.Object) iter.Seq2[aggregate.Object, error] {
	return func(yield func(aggregate.Object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// write sends a list. What fails once it has begun ends the connection, so that
// a part is never taken for the whole.
func (q *request) write(meta listMeta, objects iter.Seq2[aggregate.Object, error]) error {
	head, err := q.head(meta)
	if err != nil {
		return err
	}
	if q.format.yaml {
		return q.writeYAML(head, objects)
	}
	q.w.Header().Set("Content-Type", q.format.contentType())
	out := append(q.buffers.get(), head...)
	defer func() { q.buffers.put(out) }()
	began := false
	err = q.encode(q.r.Context(), objects, func(text []byte) error {
		out = append(out, text...)
		if began && len(out) < flushAt {
			return nil
		}
		began = true
		_, err := q.w.Write(out)
		out = out[:0]
		return err
	})
	if err != nil && !began {
		q.w.Header().Del("Content-Type")
		return err
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = q.w.Write(append(out, "]}\n"...)) // the client may be gone
	return nil
}

// flushAt is the size of what is written at once.
const flushAt = 64 << 10

// head is the list up to its first item.
func (q *request) head(meta listMeta) ([]byte, error) {
	gvk := q.resource.GroupVersionKind()
	kind, version, items := gvk.Kind+"List", gvk.GroupVersion().String(), "items"
	switch q.format.shape {
	case partial:
		kind, version = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	case table:
		kind, version, items = "Table", metav1.SchemeGroupVersion.String(), "rows"
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	head := append([]byte(`{"kind":`), appendString(nil, kind)...)
	head = append(append(head, `,"apiVersion":`...), appendString(nil, version)...)
	head = append(append(head, `,"metadata":`...), text...)
	if q.format.shape == table {
		if text, err = json.Marshal(q.columns()); err != nil {
			return nil, err
		}
		head = append(append(head, `,"columnDefinitions":`...), text...)
	}
	return append(head, `,"`+items+`":[`...), nil
}

func (q *request) writeYAML(head []byte, objects iter.Seq2[aggregate.Object, error]) error {
	var all bytes.Buffer
	all.Write(head)
	err := q.encode(q.r.Context(), objects, func(text []byte) error {
		all.Write(text)
		return nil
	})
	if err != nil {
		return err
	}
	all.WriteString("]}")
	return q.send(all.Bytes())
}

// send writes one JSON document in the format that is wanted.
func (q *request) send(text []byte) error {
	if q.format.yaml {
		var err error
		if text, err = yaml.JSONToYAML(escapeForYAML(text)); err != nil {
			return err
		}
	} else {
		text = append(text, '\n')
	}
	q.w.Header().Set("Content-Type", q.format.contentType())
	_, _ = q.w.Write(text) // the client may be gone
	return nil
}
