package intents_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/intents"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/test/seed"
)

// filler sets every exported field of a value to something that is not zero, and fails for what it cannot set: a new
// field is tested, or fails the test.
type filler struct {
	t    *testing.T
	rand *rand.Rand
	some bool // only some fields, lists and maps are set; empty ones differ from none
	api  bool // in what the hub stores: there, empty lists are none
}

// local are the unexported fields that are not sent, and why that is right.
var local = map[string]string{
	"Intent.admit": "it asks about rollbacks, which no Corrector says",
}

func (f *filler) text() string {
	parts := []string{"a", "ü", "<&>", "\u2028", "\"", "\\", "\n", "\x00", "日", " ", "\ufffd"}
	var b strings.Builder
	for range 1 + f.rand.IntN(6) {
		b.WriteString(parts[f.rand.IntN(len(parts))])
	}
	return b.String()
}

func (f *filler) fill(v reflect.Value, path string) {
	if f.some && f.rand.IntN(3) == 0 && path != "Intent.Parts[]" { // each of which is one
		return
	}
	switch x := v.Addr().Interface().(type) {
	case **remediate.Window:
		w, err := remediate.NewWindow("30 2 * * 1-5", time.Duration(1+f.rand.IntN(1e6))*time.Second, "Europe/Vienna")
		if err != nil {
			f.t.Fatal(err)
		}
		*x = w
		return
	case *time.Time:
		*x = time.Unix(f.rand.Int64N(1e9), f.rand.Int64N(1e9)).UTC()
		return
	case *json.RawMessage:
		*x = json.RawMessage(" {\"a\" :\t[\"<&>\" , 1.0e1,\"\xff\"]}\n"[:9+f.rand.IntN(18)]) // as it is, JSON or not
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1 + f.rand.Int64N(1<<31-2))
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1 + f.rand.Uint64()>>57)
		if v.Kind() == reflect.Uint64 {
			v.SetUint(1 + f.rand.Uint64()>>1)
		}
	case reflect.Float64:
		v.SetFloat(f.rand.Float64())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		n := 1 + f.rand.IntN(3)
		if f.some && !f.api {
			n--
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), path+"[]")
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		n := 1 + f.rand.IntN(3)
		if f.some {
			n--
		}
		for range n {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, path+" key")
			f.fill(value, path+" value")
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		if was := f.api; strings.HasSuffix(v.Type().PkgPath(), "/api/v1alpha1") {
			f.api = true
			defer func() { f.api = was }()
		}
		for n := range v.NumField() {
			field := v.Type().Field(n)
			name := v.Type().Name() + "." + field.Name
			if !field.IsExported() {
				if local[name] == "" {
					f.t.Fatalf("%s %s is not sent: say why that is right, or send it", path, name)
				}
				continue
			}
			if name == "Intent.Parts" && strings.Contains(path, "Parts") {
				continue // parts have none
			}
			f.fill(v.Field(n), path+"."+field.Name)
		}
	default:
		f.t.Fatalf("%s: nobody knows how to send %v", path, v.Type())
	}
}

// TestMarshal_LosesNothing: what is decoded is what was encoded, in every field.
func TestMarshal_LosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 1))
	for n := range 500 {
		f := &filler{t: t, rand: r, some: n%2 == 1}
		var i remediate.Intent
		f.fill(reflect.ValueOf(&i).Elem(), "Intent")
		text, err := intents.MarshalIntent(&i)
		if err != nil {
			t.Fatal(err)
		}
		got, err := intents.UnmarshalIntent(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !reflect.DeepEqual(*got, i) {
			t.Fatalf("sent %#v\ngot %#v\nas %s", i, *got, text)
		}
		var s remediate.RolloutSpec
		f.fill(reflect.ValueOf(&s).Elem(), "RolloutSpec")
		if text, err = intents.MarshalSpec(&s); err != nil {
			t.Fatal(err)
		}
		again, err := intents.UnmarshalSpec(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !reflect.DeepEqual(*again, s) {
			t.Fatalf("sent %#v\ngot %#v\nas %s", s, *again, text)
		}
	}
}

// TestMarshal_RefusesWhatJSONWouldChange.
func TestMarshal_RefusesWhatJSONWouldChange(t *testing.T) {
	if _, err := intents.MarshalIntent(&remediate.Intent{Message: "\xff"}); err == nil {
		t.Error("it was encoded as something else")
	}
	if _, err := intents.UnmarshalIntent([]byte(`{"Binding": "b", "New": 1}`)); err == nil {
		t.Error("what another version says was taken by half")
	}
}
