package decode

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"federator.dev/federator/pkg/aggregate"
)

// corpusGlob are the real objects, beside the project.
const corpusGlob = "../../../../../shared/corpus/*.jsonl"

// sample is one real object.
type sample struct {
	gvk  schema.GroupVersionKind
	json []byte
}

// samples reads the hand-made objects and, where it is there, the corpus.
func samples(t testing.TB) []sample {
	t.Helper()
	paths, err := filepath.Glob("testdata/objects/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	corpus, err := filepath.Glob(corpusGlob)
	if err != nil {
		t.Fatal(err)
	}
	if len(corpus) == 0 {
		t.Log("the corpus is absent: only the hand-made objects are tried")
	}
	var out []sample
	for _, p := range append(paths, corpus...) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewReader(bytes.NewReader(b)); ; {
			line, err := s.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 {
				var tm metav1.TypeMeta
				if err := json.Unmarshal(line, &tm); err != nil {
					t.Fatalf("%s: %v", p, err)
				}
				out = append(out, sample{tm.GroupVersionKind(), line})
			}
			if err != nil {
				break
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("no samples")
	}
	return out
}

// protobuf returns the sample in protobuf, if its kind has it and the real
// object fits the type.
func (s sample) protobuf(t testing.TB) ([]byte, bool) {
	t.Helper()
	if !Supports(s.gvk) {
		return nil, false
	}
	obj, err := scheme.New(s.gvk)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(s.json, obj); err != nil {
		return nil, false
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(obj, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), true
}

func TestDecoder_RealObjectsDecodeAsTheStandardDecoderDoes(t *testing.T) {
	counts, left := map[Encoding]int{}, 0
	falls := map[Encoding]uint64{}
	decoders := map[string]*Decoder{}
	try := func(s sample, enc Encoding, data []byte) {
		key := s.gvk.String() + enc.String()
		d := decoders[key]
		if d == nil {
			d = mustNew(t, s.gvk, enc, Rules{})
			decoders[key] = d
		}
		want, err := oracleObject(s.gvk, enc, data)
		if err != nil {
			t.Fatalf("%v as %v: %v", s.gvk, enc, err)
		}
		before := d.Fallbacks()
		var rec aggregate.Record
		switch err := d.Object(data, &rec); {
		case errors.Is(err, ErrUnfit): // a manifest that no API server has seen
			left++
			t.Logf("%v %s/%s as %v: %v", s.gvk, rec.Namespace, rec.Name, enc, err)
		case err != nil:
			t.Fatalf("%v as %v: %v\n%.500s", s.gvk, enc, err, s.json)
		}
		sameRecord(t, &rec, &want)
		counts[enc]++
		if n := d.Fallbacks() - before; n > 0 {
			falls[enc] += n
			t.Logf("fall-back: %v %s/%s as %v", s.gvk, rec.Namespace, rec.Name, enc)
		}
	}
	for _, s := range samples(t) {
		if s.gvk.Kind == "" || strings.HasSuffix(s.gvk.Kind, "List") {
			continue
		}
		try(s, JSON, s.json)
		if b, ok := s.protobuf(t); ok {
			try(s, Protobuf, b)
		}
	}
	t.Logf("%v objects, %v fall-backs, %d unfit", counts, falls, left)
	if left > (counts[JSON]+counts[Protobuf])/20 {
		t.Errorf("%d of %v real objects are said to be unfit", left, counts)
	}
	for enc, n := range falls {
		if n > uint64(counts[enc]/100) {
			t.Errorf("%d of %d objects as %v fell back", n, counts[enc], enc)
		}
	}
}
