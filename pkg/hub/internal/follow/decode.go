package follow

import (
	"context"
	stdjson "encoding/json"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"
)

// Resource is read object by object: one that cannot be decoded, such as one of another version of its
// CustomResourceDefinition, keeps no other from being read.
type Resource[T any, P Object[T]] struct {
	Client    rest.Interface
	Namespace string // "": all
	Name      string // the plural
}

// Object is a pointer to an object.
type Object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// unreadable is what is known of an object that cannot be decoded.
type unreadable struct {
	metav1.PartialObjectMetadata
	err error
}

func (r Resource[T, P]) request(opts metav1.ListOptions) *rest.Request {
	return r.Client.Get().Namespace(r.Namespace).Resource(r.Name).VersionedParams(&opts, metav1.ParameterCodec).SetHeader("Accept", "application/json")
}

// page lists a page.
func (r Resource[T, P]) page(ctx context.Context, opts metav1.ListOptions) (page[P], error) {
	result := r.request(opts).Do(ctx)
	if err := result.Error(); err != nil {
		return page[P]{}, err
	}
	text, err := result.Raw()
	if err != nil {
		return page[P]{}, err
	}
	var list struct {
		metav1.ListMeta `json:"metadata"`
		Items           []stdjson.RawMessage `json:"items"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil {
		return page[P]{}, err
	}
	out := page[P]{ListMeta: list.ListMeta}
	for _, item := range list.Items {
		switch o := decode[T, P](item).(type) {
		case *unreadable:
			out.unreadable = append(out.unreadable, o)
		case P:
			out.items = append(out.items, o)
		}
	}
	return out, nil
}

// Each lists page by page, so that the objects are never in memory at once, and yields those that can be decoded.
func (r Resource[T, P]) Each(ctx context.Context, yield func(P)) error {
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		p, err := r.timedPage(ctx, opts)
		if err != nil {
			return err
		}
		for _, o := range p.items {
			yield(o)
		}
		if opts.Continue = p.Continue; opts.Continue == "" {
			return nil
		}
	}
}

func (r Resource[T, P]) timedPage(ctx context.Context, opts metav1.ListOptions) (page[P], error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	return r.page(ctx, opts)
}

// watch watches. Objects of events are P or *unreadable, or the Status of an error.
func (r Resource[T, P]) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	body, err := r.request(opts).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(&eventDecoder[T, P]{body, stdjson.NewDecoder(body)}, apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")), nil
}

// eventDecoder implements watch.Decoder.
type eventDecoder[T any, P Object[T]] struct {
	body   io.ReadCloser
	events *stdjson.Decoder
}

// Decode implements watch.Decoder.
func (d *eventDecoder[T, P]) Decode() (watch.EventType, runtime.Object, error) {
	var e struct {
		Type   watch.EventType
		Object stdjson.RawMessage
	}
	if err := d.events.Decode(&e); err != nil {
		return "", nil, err
	}
	if e.Type == watch.Error {
		status := &metav1.Status{}
		return e.Type, status, json.UnmarshalCaseSensitivePreserveInts(e.Object, status)
	}
	return e.Type, decode[T, P](e.Object), nil
}

// Close implements watch.Decoder.
func (d *eventDecoder[T, P]) Close() { _ = d.body.Close() }

// decode returns a P or an *unreadable.
func decode[T any, P Object[T]](text []byte) runtime.Object {
	o := P(new(T))
	err := json.UnmarshalCaseSensitivePreserveInts(text, o)
	if err == nil {
		return o
	}
	u := &unreadable{err: err}
	_ = json.UnmarshalCaseSensitivePreserveInts(text, &u.PartialObjectMetadata) // as far as it can be
	return u
}
