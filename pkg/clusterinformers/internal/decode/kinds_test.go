package decode

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"

	"federator.dev/federator/pkg/aggregate"
)

// filler fills objects with random values.
type filler struct{ *rand.Rand }

func random(seed uint64) filler { return filler{rand.New(rand.NewPCG(1, seed))} }

var texts = []string{
	"", "a", "app.kubernetes.io/name", "nginx", "<a href=\"x\">&</a>", "tab\tnew\nline\\", "\x00\x1f\x7f",
	"größe", "日本語", "\u2028\u2029", "🚀", "0123456789012345678901234567890123456789", "\ufffd",
}

func (f filler) text() string { return texts[f.IntN(len(texts))] }

func (f filler) json() []byte {
	all := []string{
		`{}`, `{"b":1,"a":[1.50,-0,1e3,12345678901234567890,{"z":null,"y":"\u003cx\u003e"}]}`, `null`, `"text"`, `[true,false]`,
		`{"kind":"X","apiVersion":"v1"}`, ` { "spaced" : [ 1 , 2 ] } `, `123`, `-1.5e-9`,
	}
	return []byte(all[f.IntN(len(all))])
}

func (f filler) fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.Time:
		if f.IntN(4) > 0 {
			*p = metav1.Unix(f.Int64N(300000000000)-60000000000, 0)
		}
		return
	case *metav1.MicroTime:
		if f.IntN(4) > 0 {
			*p = metav1.NewMicroTime(time.Unix(f.Int64N(4000000000), f.Int64N(1e9)))
		}
		return
	case *metav1.Duration:
		p.Duration = time.Duration(f.Int64N(1 << 50))
		return
	case *metav1.FieldsV1:
		p.SetRawBytes([]byte(`{"f:a":{".":{},"f:b":{}}}`))
		return
	case *metav1.TypeMeta:
		return
	case *resource.Quantity:
		q := []string{"0", "1", "100m", "1500m", "128Mi", "1024Ki", "1e3", "0.5", "12345678901234567890123", "-3", "1.5Gi"}
		*p = resource.MustParse(q[f.IntN(len(q))])
		return
	case *intstr.IntOrString:
		*p = intstr.FromInt32(f.Int32())
		if f.IntN(2) == 0 {
			*p = intstr.FromString(f.text())
		}
		return
	case *runtime.RawExtension:
		if f.IntN(4) > 0 {
			p.Raw = f.json()
		}
		return
	case *apiextensions.JSON:
		p.Raw = f.json()
		return
	}
	many := f.IntN(3)
	if depth > 12 {
		many = 0
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(int32(f.Uint32())) >> f.IntN(32))
		if v.Kind() == reflect.Int64 && f.IntN(3) == 0 {
			v.SetInt(int64(f.Uint64()))
		}
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(f.Uint64() >> (32 + f.IntN(32)))
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, -1.5, 1e21, 1e-7, 1e20, 123456789012345678, 0.1}[f.IntN(8)])
	case reflect.Pointer:
		if depth <= 12 && f.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		if f.IntN(4) > 0 || v.Type().Elem().Kind() == reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), many, many))
		}
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		if f.IntN(4) > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range many {
				k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				f.fill(k, depth+1)
				f.fill(e, depth+1)
				v.SetMapIndex(k, e)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth+1)
			}
		}
	}
}

// kinds returns the kinds of the scheme that are objects with protobuf.
func kinds(t testing.TB) []schema.GroupVersionKind {
	t.Helper()
	var out []schema.GroupVersionKind
	for gvk, typ := range scheme.AllKnownTypes() {
		_, meta := typ.FieldByName("ObjectMeta")
		if gvk.Version == runtime.APIVersionInternal || !meta || !unmarshals(typ) {
			continue
		}
		out = append(out, gvk)
	}
	if len(out) < 150 {
		t.Fatalf("only %d kinds", len(out))
	}
	return out
}

func encodeProtobuf(t testing.TB, gvk schema.GroupVersionKind, obj runtime.Object) []byte {
	t.Helper()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(obj, &b); err != nil {
		t.Fatalf("%v: %v", gvk, err)
	}
	return b.Bytes()
}

func TestDecoder_EveryKindDecodesAsTheStandardDecoderDoes(t *testing.T) {
	const rounds = 30
	all, falls := 0, map[string]uint64{}
	for _, gvk := range kinds(t) {
		if !Supports(gvk) {
			_, _, err := typed(gvk)
			t.Errorf("%v is not supported: %v", gvk, err)
			continue
		}
		d := mustNew(t, gvk, Protobuf, Rules{})
		f := random(uint64(len(gvk.String())))
		for round := range rounds {
			obj, err := scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			if round > 0 { // first the empty object
				f.fill(reflect.ValueOf(obj).Elem(), 0)
			}
			data := encodeProtobuf(t, gvk, obj)
			want, err := oracleObject(gvk, Protobuf, data)
			if err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			var rec aggregate.Record
			decoded(t, d.Object(data, &rec))
			sameRecord(t, &rec, &want)
			all++
		}
		// Unions of schemas with both sides set are not valid, and fall back.
		if n := d.Fallbacks(); n > 0 && gvk.Kind != "CustomResourceDefinition" {
			falls[gvk.String()] = n
		}
	}
	t.Logf("%d objects, fall-backs %v", all, falls)
	if len(falls) > 0 {
		t.Errorf("valid objects fell back: %v", falls)
	}
}

func TestList_EveryListKindHasTheExpectedShape(t *testing.T) {
	n := 0
	for _, gvk := range kinds(t) {
		list, err := scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if runtime.IsNotRegisteredError(err) {
			continue // reviews are not listed
		}
		if err != nil {
			t.Fatal(err)
		}
		typ, _, err := typed(gvk)
		if err != nil {
			t.Fatal(err)
		}
		if err := listOf(reflect.TypeOf(list).Elem(), typ); err != nil {
			t.Errorf("%v: %v", gvk, err)
		}
		n++
	}
	if n < 100 {
		t.Errorf("only %d lists", n)
	}
}

func TestDecoder_ReportsUnknownFields(t *testing.T) {
	// Field 999, a varint.
	extra := []byte{0xb8, 0x3e, 1}
	// wrap puts content into field num of a message.
	wrap := func(num int, content []byte) []byte {
		if len(content) > 127 {
			t.Fatal("too long for a byte")
		}
		return append([]byte{byte(num<<3 | wireBytes), byte(len(content))}, content...)
	}
	for name, raw := range map[string][]byte{
		"object":        extra,
		"metadata":      wrap(1, extra),
		"creation time": wrap(1, wrap(8, append([]byte{1<<3 | wireVarint, 1}, extra...))),
		"container":     wrap(2, wrap(2, extra)),
		"quantity":      wrap(2, wrap(32, nil)),
	} {
		if name == "quantity" {
			// spec.containers[].resources.limits["a"]
			entry := append(wrap(1, []byte("a")), wrap(2, append(wrap(1, []byte("1")), extra...))...)
			raw = wrap(2, wrap(2, wrap(8, wrap(1, entry))))
		}
		t.Run(name, func(t *testing.T) {
			d := mustNew(t, podKind, Protobuf, Rules{})
			var rec aggregate.Record
			known := encodeProtobuf(t, podKind, &podFixture)
			if err := d.Object(known, &rec); err != nil {
				t.Fatal(err)
			}
			data := envelopeOf(podKind, raw)
			if _, err := oracleObject(podKind, Protobuf, data); err != nil {
				t.Fatalf("the standard decoder refuses it: %v", err)
			}
			if err := d.Object(data, &rec); !errors.Is(err, ErrUnknownField) {
				t.Errorf("error %v, want %v", err, ErrUnknownField)
			}
			if err := d.Object(envelopeOf(podKind, append(bytes.Clone(raw), 0xff)), &rec); !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v, want %v", err, ErrMalformed)
			}
		})
	}
}

// envelopeOf puts a message into an envelope.
func envelopeOf(gvk schema.GroupVersionKind, raw []byte) []byte {
	version, kind := gvk.ToAPIVersionAndKind()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		panic(err)
	}
	return append(bytes.Clone(protobufPrefix), b...)
}

func TestDecoder_HostileProtobufIsAnError(t *testing.T) {
	crd := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	nest := func(depth int, open func([]byte) []byte) []byte {
		var b []byte
		for range depth {
			b = open(b)
		}
		return b
	}
	field := func(num int, content []byte) []byte {
		var head []byte
		head = append(head, byte(num<<3|wireBytes))
		n := len(content)
		for n >= 0x80 {
			head = append(head, byte(n)|0x80)
			n >>= 7
		}
		return append(append(head, byte(n)), content...)
	}
	// not.not.not… (JSONSchemaProps.not is field 28, two bytes of tag)
	deep := nest(10100, func(b []byte) []byte {
		out := field(1, b)
		return append([]byte{0xe2, 0x01}, out[1:]...)
	})
	group := bytes.Repeat([]byte{0x0b}, 1<<20) // start of group 1, a million times
	quantity := append([]byte{1<<3 | wireBytes}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f)
	entry := append(field(1, []byte("cpu")), field(2, quantity)...)
	slow := append(field(1, []byte("cpu")), field(2, field(1, []byte("1e-2147483648")))...)
	groups := append(field(1, []byte("cpu")), field(2, group)...)
	for name, c := range map[string]struct {
		gvk schema.GroupVersionKind
		raw []byte
	}{
		"schemas":            {crd, field(2, field(7, field(4, field(1, deep))))},
		"length overflow":    {podKind, field(2, field(2, field(8, field(1, entry))))},
		"slow quantity":      {podKind, field(2, field(2, field(8, field(1, slow))))},
		"groups":             {podKind, group},
		"groups in quantity": {podKind, field(2, field(2, field(8, field(1, groups))))},
		"half a varint":      {podKind, []byte{0xff}},
		"length beyond":      {podKind, []byte{1<<3 | wireBytes, 5, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustNew(t, c.gvk, Protobuf, Rules{})
			var rec aggregate.Record
			err := d.Object(envelopeOf(c.gvk, c.raw), &rec)
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v, want %v", err, ErrMalformed)
			}
		})
	}
}

func TestDecoder_RefusesOtherKinds(t *testing.T) {
	d := mustNew(t, schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Protobuf, Rules{})
	var rec aggregate.Record
	for _, data := range [][]byte{encodeProtobuf(t, podKind, &podFixture), nil, []byte("k8s\x00"), []byte(`{"kind":"Service"}`)} {
		if err := d.Object(data, &rec); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.20q: error %v, want %v", data, err, ErrMalformed)
		}
	}
	if _, err := New(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, Protobuf, Rules{}); err == nil {
		t.Error("a kind without types is decoded from protobuf")
	}
	if _, err := New(podKind, Encoding(7), Rules{}); err == nil {
		t.Error(fmt.Sprint(Encoding(7)) + " is accepted")
	}
}
