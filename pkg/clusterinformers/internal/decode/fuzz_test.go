package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
)

// fuzzKinds are the kinds that the fuzzers decode: between them they have every
// codec.
var fuzzKinds = []schema.GroupVersionKind{
	podKind,
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	{Group: "apps", Version: "v1", Kind: "ControllerRevision"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Event"},
	{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview"},
	{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"},
	{Version: "v1", Kind: "Node"},
}

// runOracle calls the oracle, in which generated code may panic.
func runOracle(f func() error) (err error) {
	defer recovered(&err)
	return f()
}

// sameOutcome fails the test unless got is an error where want is. It reports
// whether there is a result to compare.
func sameOutcome(t *testing.T, got, want error) bool {
	t.Helper()
	switch {
	case errors.Is(got, ErrUnknownField), errors.Is(got, errRefused):
		return false // stock would drop the field; what is refused may kill it
	case errors.Is(got, ErrUnfit) && (want == nil || errors.Is(got, ErrMalformed)):
		return want == nil // it decodes alike, and is not kept
	case (got == nil) != (want == nil):
		t.Fatalf("error %v, stock's %v", got, want)
	case got != nil && !errors.Is(got, ErrMalformed):
		t.Fatalf("error %v is not %v", got, ErrMalformed)
	}
	return got == nil
}

// realJSON adds some real objects as seeds.
func realJSON(f *testing.F, add func(sample)) {
	n := map[schema.GroupVersionKind]int{}
	for _, s := range samples(f) {
		if len(s.json) < 3000 && n[s.gvk] < 2 {
			n[s.gvk]++
			add(s)
		}
	}
}

func FuzzJSONObject(f *testing.F) {
	realJSON(f, func(s sample) { f.Add(s.json) })
	for _, s := range []string{
		`{"metadata":{"managedFields":[{"a":[1e9,"\u0041"]}],"labels":{"b":"c","a":null}}}`,
		`{"z":[1.50,-0,1e21,12345678901234567890,"\ud83d\ude80\ud83d\u003c\/"],"a":{"b":{},"a":[]}}`,
	} {
		f.Add([]byte(s))
	}
	d := mustNew(f, podKind, JSON, Rules{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var rec, want aggregate.Record
		stock := runOracle(func() (err error) { want, err = oracleObject(podKind, JSON, data); return err })
		err := d.Object(data, &rec)
		if sameOutcome(t, err, stock) {
			sameRecord(t, &rec, &want)
			if err == nil {
				served(t, podKind, &rec)
			}
			for _, r := range someRules {
				if got, want := newShaper(r).shape(rec.Body), oracleRules(t, r, rec.Body); !bytes.Equal(got, want) {
					t.Fatalf("%+v of %s gives %s, want %s", r, rec.Body, got, want)
				}
			}
		}
	})
}

func FuzzProtobufObject(f *testing.F) {
	for i, gvk := range fuzzKinds {
		for range 4 {
			obj, err := scheme.New(gvk)
			if err != nil {
				f.Fatal(err)
			}
			random(uint64(i)).fill(reflect.ValueOf(obj).Elem(), 6)
			f.Add(uint8(i), encodeProtobuf(f, gvk, obj)[len(envelopeOf(gvk, nil)):])
		}
	}
	decoders := make([]*Decoder, len(fuzzKinds))
	for i, gvk := range fuzzKinds {
		decoders[i] = mustNew(f, gvk, Protobuf, Rules{})
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		i := int(kind) % len(fuzzKinds)
		// Whole envelopes, and messages whose envelope is sound.
		if !bytes.HasPrefix(data, protobufPrefix) {
			data = envelopeOf(fuzzKinds[i], data)
		}
		var rec, want aggregate.Record
		err := decoders[i].Object(data, &rec)
		if errors.Is(err, errRefused) {
			return
		}
		stock := runOracle(func() (err error) { want, err = oracleObject(fuzzKinds[i], Protobuf, data); return err })
		if sameOutcome(t, err, stock) {
			sameRecord(t, &rec, &want)
			if err == nil {
				served(t, fuzzKinds[i], &rec)
			}
		}
	})
}

// oracleEvents is what client-go makes of a watch: frames, then events, then
// objects.
func oracleEvents(enc Encoding, text []byte) (out []Event, err error) {
	defer recovered(&err)
	frames := json.NewDecoder(bytes.NewReader(text))
	for {
		var we metav1.WatchEvent
		if enc == JSON {
			var raw json.RawMessage
			if err := frames.Decode(&raw); err != nil {
				return out, err
			}
			if err := utiljson.Unmarshal(raw, &we); err != nil {
				return out, err
			}
		} else {
			if len(text) == 0 {
				return out, io.EOF
			}
			if len(text) < 4 || uint32(len(text)-4) < binary.BigEndian.Uint32(text) {
				return out, io.ErrUnexpectedEOF
			}
			n := 4 + int(binary.BigEndian.Uint32(text))
			if err := we.Unmarshal(text[4:n]); err != nil {
				return out, err
			}
			text = text[n:]
		}
		ev := Event{Type: watch.EventType(we.Type)}
		switch ev.Type {
		case watch.Error:
			ev.Status = &metav1.Status{}
			if enc == JSON {
				err = utiljson.Unmarshal(we.Object.Raw, ev.Status)
			} else {
				var obj runtime.Object
				gvk := schema.GroupVersionKind{Version: "v1", Kind: "Status"}
				obj, actual, failed := protobuf.NewSerializer(scheme, scheme).Decode(we.Object.Raw, &gvk, nil)
				if err = failed; err == nil && *actual != gvk {
					err = errors.New("another kind")
				}
				if err == nil {
					ev.Status = obj.(*metav1.Status)
					ev.Status.TypeMeta = metav1.TypeMeta{}
				}
			}
		case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
			ev.Record, err = oracleObject(podKind, enc, we.Object.Raw)
			if err == nil && ev.Type == watch.Bookmark {
				var u unstructured.Unstructured
				if err = utiljson.Unmarshal(ev.Record.Body, &u.Object); err == nil {
					ev.InitialEventsEnd = u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
				}
				ev.Record = aggregate.Record{ResourceVersion: ev.Record.ResourceVersion}
			}
		default:
			err = fmt.Errorf("type %q", ev.Type)
		}
		if err != nil {
			return out, err
		}
		out = append(out, ev)
	}
}

func fuzzEvents(t *testing.T, d *Decoder, enc Encoding, text []byte) {
	got, err := readEvents(d, bytes.NewReader(text), len(text)+1)
	if errors.Is(err, ErrUnknownField) || errors.Is(err, errRefused) {
		return
	}
	for _, e := range got {
		if errors.Is(e.Unfit, ErrMalformed) {
			return // the standard path ends there
		}
	}
	want, stock := oracleEvents(enc, text)
	if errors.Is(err, io.EOF) != errors.Is(stock, io.EOF) || err == nil {
		t.Fatalf("ends with %v, stock with %v", err, stock)
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, then %v; stock %d, then %v", len(got), err, len(want), stock)
	}
	for i := range got {
		g, w := &got[i], &want[i]
		if g.Type != w.Type || g.Type == watch.Error && !reflect.DeepEqual(g.Status, w.Status) {
			t.Fatalf("event %d is %v %+v, stock's %v %+v", i, g.Type, g.Status, w.Type, w.Status)
		}
		if g.InitialEventsEnd != w.InitialEventsEnd {
			t.Fatalf("event %d ends the initial events: %v, stock's %v", i, g.InitialEventsEnd, w.InitialEventsEnd)
		}
		sameRecord(t, &g.Record, &w.Record)
	}
}

func FuzzJSONEvents(f *testing.F) {
	f.Add([]byte(podEvent(watch.Added, "a", "1") + "\n" + podEvent(watch.Bookmark, "", "2") + "\n" + podEvent(watch.Deleted, "a", "3")))
	f.Add([]byte(podEvent(watch.Added, "a", "1") + podEvent(watch.Modified, "a", "3") + "\n\n"))
	f.Add([]byte("{\n\"object\":{\"metadata\":{}},\"type\":\"ADDED\"}\n"))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`))
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`))
	d := mustNew(f, podKind, JSON, Rules{})
	f.Fuzz(func(t *testing.T, text []byte) { fuzzEvents(t, d, JSON, text) })
}

func FuzzProtobufEvents(f *testing.F) {
	pod := encodeProtobuf(f, podKind, &podFixture)
	status := encodeProtobuf(f, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &metav1.Status{Code: 410})
	f.Add(slices.Concat(frame(f, watch.Added, pod), frame(f, watch.Bookmark, pod), frame(f, watch.Error, status)))
	f.Add(frame(f, watch.Deleted, envelopeOf(podKind, nil)))
	d := mustNew(f, podKind, Protobuf, Rules{})
	f.Fuzz(func(t *testing.T, text []byte) { fuzzEvents(t, d, Protobuf, text) })
}

// oracleList is what client-go makes of a list.
func oracleList(enc Encoding, body []byte) (m ListMeta, out []aggregate.Record, err error) {
	defer recovered(&err)
	var items [][]byte
	if enc == Protobuf {
		gvk := podListKind
		obj, actual, err := protobuf.NewSerializer(scheme, scheme).Decode(body, &gvk, nil)
		if err != nil {
			return m, nil, err
		}
		if *actual != gvk {
			return m, nil, errors.New("another kind")
		}
		l, err := meta.ListAccessor(obj)
		if err != nil {
			return m, nil, err
		}
		m = ListMeta{l.GetResourceVersion(), l.GetContinue(), l.GetRemainingItemCount()}
		err = meta.EachListItem(obj, func(o runtime.Object) error {
			o.(metav1.Object).SetManagedFields(nil)
			j, err := json.Marshal(o)
			items = append(items, j)
			return err
		})
		if err != nil {
			return m, nil, err
		}
	} else {
		var l struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if !strings.HasPrefix(strings.TrimLeft(string(body), " \t\r\n"), "{") {
			return m, nil, errors.New("not an object")
		}
		strict, err := strictJSON(body, &l)
		if err != nil {
			return m, nil, err
		}
		if strict {
			return m, nil, errors.New("a member twice")
		}
		m = ListMeta{l.Metadata.ResourceVersion, l.Metadata.Continue, l.Metadata.RemainingItemCount}
		for _, i := range l.Items {
			items = append(items, i)
		}
	}
	for _, i := range items {
		rec, err := oracleObject(podKind, JSON, i)
		if err != nil {
			return m, nil, err
		}
		out = append(out, rec)
	}
	return m, out, nil
}

// strictJSON decodes and reports whether the list has items or metadata twice,
// which List refuses.
func strictJSON(body []byte, into any) (twice bool, err error) {
	if err := utiljson.Unmarshal(body, into); err != nil {
		return false, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return false, err
	}
	seen := map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false, err
		}
		seen[key.(string)]++
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return false, err
		}
	}
	return seen["items"] > 1 || seen["metadata"] > 1, nil
}

func FuzzList(f *testing.F) {
	l := podList(2)
	j, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(j)
	f.Add([]byte(`{"x":[1e999],"metadata":{"resourceVersion":"1"},"items":[{"b":1,"a":2},{"a":"\ud800"}]}`))
	f.Add(encodeProtobuf(f, podListKind, l))
	decoders := map[Encoding]*Decoder{JSON: mustNew(f, podKind, JSON, Rules{}), Protobuf: mustNew(f, podKind, Protobuf, Rules{})}
	f.Fuzz(func(t *testing.T, body []byte) {
		for enc, d := range decoders {
			var got []Event
			var bad error
			m, err := d.List(body, func(r *aggregate.Record, unfit error) error {
				got = append(got, taken(&Event{Record: *r}))
				if errors.Is(unfit, ErrMalformed) {
					bad = unfit
				}
				return nil
			})
			if errors.Is(err, errRefused) || bad != nil {
				continue
			}
			wantMeta, want, stock := oracleList(enc, body)
			if !sameOutcome(t, err, stock) {
				continue
			}
			if !reflect.DeepEqual(m, wantMeta) || len(got) != len(want) {
				t.Fatalf("%d items, %+v; stock %d, %+v", len(got), m, len(want), wantMeta)
			}
			for i := range got {
				sameRecord(t, &got[i].Record, &want[i])
			}
		}
	})
}
