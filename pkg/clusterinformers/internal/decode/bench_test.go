package decode

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientwatch "k8s.io/client-go/rest/watch"

	"federator.dev/federator/pkg/aggregate"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// benchPod is the real pod (hand-made, without the corpus) whose JSON is
// nearest to 7 kB, which is 5 kB without managedFields.
func benchPod(b *testing.B) sample {
	var best sample
	distance := func(s sample) int { return max(len(s.json)-7000, 7000-len(s.json)) }
	for _, s := range samples(b) {
		if s.gvk == podKind && (best.json == nil || distance(s) < distance(best)) {
			best = s
		}
	}
	return best
}

// compare measures ours, and beside it how many times as long stock takes.
func compare(b *testing.B, size int, ours, stock func() error) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := ours(); err != nil {
			b.Fatal(err)
		}
	}
	per := float64(b.Elapsed()) / float64(b.N)
	start, n := time.Now(), 0
	for ; n < 100 || time.Since(start) < 500*time.Millisecond; n++ {
		if err := stock(); err != nil {
			b.Fatal(err)
		}
	}
	other := float64(time.Since(start)) / float64(n)
	b.ReportMetric(other, "stock-ns/op")
	b.ReportMetric(other/per, "x-faster")
}

func BenchmarkProtobufObject(b *testing.B) {
	data, ok := benchPod(b).protobuf(b)
	if !ok {
		b.Fatal("the pod has no protobuf")
	}
	d := mustNew(b, podKind, Protobuf, Rules{})
	var rec aggregate.Record
	serializer := protobuf.NewSerializer(scheme, scheme)
	compare(b, len(data), func() error { return d.Object(data, &rec) }, func() error {
		obj, _, err := serializer.Decode(data, nil, nil)
		if err != nil {
			return err
		}
		obj.(*corev1.Pod).ManagedFields = nil
		_, err = json.Marshal(obj)
		return err
	})
	b.ReportMetric(float64(len(rec.Body)), "body-bytes")
}

func BenchmarkJSONObject(b *testing.B) {
	data := benchPod(b).json
	d := mustNew(b, podKind, JSON, Rules{})
	var rec aggregate.Record
	compare(b, len(data), func() error { return d.Object(data, &rec) }, func() error {
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(data); err != nil {
			return err
		}
		u.SetManagedFields(nil)
		_, err := json.Marshal(u.Object)
		return err
	})
	b.ReportMetric(float64(len(rec.Body)), "body-bytes")
}

func BenchmarkRedactedObject(b *testing.B) {
	data := benchPod(b).json
	d := mustNew(b, podKind, JSON, Rules{Redact: true, Drop: [][]string{{"status", "conditions"}}})
	var rec aggregate.Record
	compare(b, len(data), func() error { return d.Object(data, &rec) }, func() error {
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(data); err != nil {
			return err
		}
		u.SetManagedFields(nil)
		unstructured.RemoveNestedField(u.Object, "status", "conditions")
		_, err := json.Marshal(u.Object)
		return err
	})
}

func BenchmarkProtobufEvents(b *testing.B) {
	data, ok := benchPod(b).protobuf(b)
	if !ok {
		b.Fatal("the pod has no protobuf")
	}
	one := frame(b, watch.Modified, data)
	e := mustNew(b, podKind, Protobuf, Rules{}).Events(&repeat{one: one}, frameLimit)
	var ev Event
	stock := clientwatch.NewDecoder(streaming.NewDecoder(
		protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(&repeat{one: one})), protobuf.NewRawSerializer(scheme, scheme),
	), protobuf.NewSerializer(scheme, scheme))
	compare(b, len(one), func() error { return e.Next(&ev) }, func() error {
		_, obj, err := stock.Decode()
		if err != nil {
			return err
		}
		_, err = json.Marshal(obj)
		return err
	})
}

func BenchmarkJSONEvents(b *testing.B) {
	one := append(append([]byte(`{"type":"MODIFIED","object":`), benchPod(b).json...), "}\n"...)
	e := mustNew(b, podKind, JSON, Rules{}).Events(&repeat{one: one}, frameLimit)
	var ev Event
	s := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, jsonserializer.SerializerOptions{})
	stock := clientwatch.NewDecoder(streaming.NewDecoder(
		jsonserializer.Framer.NewFrameReader(io.NopCloser(&repeat{one: one})), s), unstructured.UnstructuredJSONScheme)
	compare(b, len(one), func() error { return e.Next(&ev) }, func() error {
		_, obj, err := stock.Decode()
		if err != nil {
			return err
		}
		_, err = json.Marshal(obj.(*unstructured.Unstructured).Object)
		return err
	})
}
