package decode

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"federator.dev/federator/pkg/aggregate"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(apiextensions.AddToScheme(s))
	utilruntime.Must(apiregistration.AddToScheme(s))
	return s
}()

// Supports reports whether a kind can be decoded from protobuf.
func Supports(gvk schema.GroupVersionKind) bool {
	return scheme.Recognizes(gvk)
}

func (d *Decoder) toJSON(data []byte) ([]byte, error) {
	if d.enc == JSON {
		return data, nil
	}
	s := protobuf.NewSerializer(scheme, scheme)
	obj, _, err := s.Decode(data, &d.gvk, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return stdjson.Marshal(obj)
}

func (d *Decoder) stock(data []byte, rec *aggregate.Record) error {
	raw, err := d.toJSON(data)
	if err != nil {
		return err
	}
	var m map[string]any
	if err := utiljson.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return d.record(m, rec)
}

func (d *Decoder) record(m map[string]any, rec *aggregate.Record) error {
	if m == nil {
		return fmt.Errorf("%w: no object", ErrMalformed)
	}
	if s, _ := m["apiVersion"].(string); s == "" {
		m["apiVersion"] = d.gvk.GroupVersion().String()
	}
	if s, _ := m["kind"].(string); s == "" {
		m["kind"] = d.gvk.Kind
	}
	u := unstructured.Unstructured{Object: m}
	unstructured.RemoveNestedField(m, "metadata", "managedFields")
	if d.rules.Redact {
		for _, f := range []string{"data", "binaryData", "stringData"} {
			if vals, ok := m[f].(map[string]any); ok {
				for k := range vals {
					vals[k] = ""
				}
			}
		}
		a := u.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		delete(a, "kubectl.kubernetes.io/last-applied-configuration")
		a["federator.dev/redacted"] = "true"
		u.SetAnnotations(a)
	}
	for _, p := range d.rules.Drop {
		unstructured.RemoveNestedField(m, p...)
	}
	*rec = aggregate.Record{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion()}
	for k, v := range u.GetLabels() {
		rec.Labels = append(rec.Labels, aggregate.Label{Key: k, Value: v})
	}
	slices.SortFunc(rec.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	for _, o := range u.GetOwnerReferences() {
		rec.Owners = append(rec.Owners, aggregate.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: string(o.UID), Controller: o.Controller != nil && *o.Controller})
	}
	var b bytes.Buffer
	e := stdjson.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	rec.Body = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return nil
}

func (d *Decoder) stockEvent(b []byte, ev *Event) error {
	*ev = Event{Bytes: len(b)}
	var we metav1.WatchEvent
	var err error
	if d.enc == Protobuf {
		err = we.Unmarshal(b)
	} else {
		err = stdjson.Unmarshal(b, &we)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	ev.Type = watch.EventType(we.Type)
	raw := we.Object.Raw
	switch ev.Type {
	case watch.Error:
		ev.Status = &metav1.Status{}
		if d.enc == Protobuf {
			obj, _, err := protobuf.NewSerializer(scheme, scheme).Decode(raw, &schema.GroupVersionKind{Version: "v1", Kind: "Status"}, ev.Status)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrMalformed, err)
			}
			ev.Status = obj.(*metav1.Status)
			return nil
		}
		return stdjson.Unmarshal(raw, ev.Status)
	case watch.Bookmark:
		j, err := d.toJSON(raw)
		if err != nil {
			return err
		}
		var m map[string]any
		if err := utiljson.Unmarshal(j, &m); err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		u := unstructured.Unstructured{Object: m}
		ev.Record.ResourceVersion = u.GetResourceVersion()
		ev.InitialEventsEnd = u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		return nil
	}
	return d.stock(raw, &ev.Record)
}

// List decodes a list.
func (d *Decoder) List(body []byte, each func(*aggregate.Record) error) (ListMeta, error) {
	raw := body
	if d.enc == Protobuf {
		gvk := d.gvk
		gvk.Kind += "List"
		obj, _, err := protobuf.NewSerializer(scheme, scheme).Decode(body, &gvk, nil)
		if err != nil {
			return ListMeta{}, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if raw, err = stdjson.Marshal(obj); err != nil {
			return ListMeta{}, err
		}
	}
	var m struct {
		Metadata metav1.ListMeta
		Items    []stdjson.RawMessage
	}
	if err := stdjson.Unmarshal(raw, &m); err != nil {
		return ListMeta{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	for _, item := range m.Items {
		var o map[string]any
		if err := utiljson.Unmarshal(item, &o); err != nil {
			return ListMeta{}, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		var rec aggregate.Record
		if err := d.record(o, &rec); err != nil {
			return ListMeta{}, err
		}
		if err := each(&rec); err != nil {
			return ListMeta{}, err
		}
	}
	return ListMeta{m.Metadata.ResourceVersion, m.Metadata.Continue, m.Metadata.RemainingItemCount}, nil
}
