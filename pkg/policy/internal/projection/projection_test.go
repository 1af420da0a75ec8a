package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/projection"
	"federator.dev/federator/pkg/policy/internal/value"
)

var (
	ref = aggregate.Ref{Member: "f/a", Kind: "Pod", Namespace: "n", Name: "x"}
	pod = &module.Package{Name: "p", Kinds: []module.KindRef{{Kind: "Pod"}}}
)

func object(t *testing.T, body string) aggregate.Object {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.PutMember(aggregate.Member{Name: "f/a"}); err != nil {
		t.Fatal(err)
	}
	s, err := x.OpenScope("f/a", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	s.Upsert(s.Item(&aggregate.Record{Namespace: "n", Name: "x", UID: "u", ResourceVersion: "1", Body: []byte(body)}))
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	o, _ := x.Snapshot().Get(ref)
	return o
}

func plan(masks []*mask.Mask, views ...string) *projection.Kind {
	var fleet []map[module.KindRef]*mask.Mask
	for _, m := range masks {
		fleet = append(fleet, map[module.KindRef]*mask.Mask{{Kind: "Pod"}: m})
	}
	var of []projection.View
	for i, name := range views {
		of = append(of, projection.View{Name: name, ID: uint32(i), Pkg: pod}) // It is small.
	}
	return projection.NewPlan(fleet, of).Of("Pod")
}

// TestPlan_DigestIsOfWhatIsRead: equal in two processes exactly when their policies read the same.
func TestPlan_DigestIsOfWhatIsRead(t *testing.T) {
	all, exists := mask.Whole(), &mask.Mask{}
	image := mask.Path(all, "spec", "containers", "*", "image")
	labels := mask.Path(all, "metadata", "labels")
	butA := &mask.Mask{Elem: all, Fields: map[string]*mask.Mask{"a": nil}}
	different := map[string]string{}
	for name, k := range map[string]*projection.Kind{
		"nothing": plan(nil), "exists": plan([]*mask.Mask{exists}), "image": plan([]*mask.Mask{image}), "labels": plan([]*mask.Mask{labels}),
		"both": plan([]*mask.Mask{image, labels}), "view": plan(nil, "v"), "views": plan(nil, "v", "w"), "mask and view": plan([]*mask.Mask{image}, "v"),
		"elements": plan([]*mask.Mask{{Elem: all}}), "elements but a": plan([]*mask.Mask{butA}), "all": plan([]*mask.Mask{all}),
	} {
		if same, taken := different[k.Digest]; taken {
			t.Errorf("%s and %s have the digest %q", name, same, k.Digest)
		}
		different[k.Digest] = name
	}
	for name, pair := range map[string][2]*projection.Kind{
		"order of masks":  {plan([]*mask.Mask{image, labels}), plan([]*mask.Mask{labels, image})},
		"order of views":  {plan(nil, "v", "w"), plan(nil, "w", "v")},
		"twice":           {plan([]*mask.Mask{image, image}, "v"), plan([]*mask.Mask{image}, "v", "v")},
		"the same fields": {plan([]*mask.Mask{{Elem: all}}), plan([]*mask.Mask{{Elem: all, Fields: map[string]*mask.Mask{"a": all}}})},
	} {
		if pair[0].Digest != pair[1].Digest {
			t.Errorf("%s: %q and %q", name, pair[0].Digest, pair[1].Digest)
		}
	}
	if k := plan(nil); k.Digest != "" {
		t.Errorf("nothing is read, and the digest is %q", k.Digest)
	}
}

// TestWriter_IsReadAsItWas writes contributions and what is read of an object, and reads them.
func TestWriter_IsReadAsItWas(t *testing.T) {
	o := object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"é\"\\"},"name":"x"},"spec":{"n":1e3,"secret":"s"}}`)
	keys, values := []string{"", "a\"b", "é\u2028"}, []string{`[1]`, `[{"x":"\u003c"},[]]`, `["é"]`}
	v := matview.New(0, pod, module.View{Name: "v"})
	v.ByObject = true
	v.Apply(ref, matview.WrittenContribution(ref, keys, values, 1000), 1<<20, func(string) {})
	broken := matview.New(1, pod, module.View{Name: "w"})
	broken.ByObject = true
	broken.Apply(ref, matview.FailedContribution(ref, strings.Repeat("why ", 1000)), 1<<20, func(string) {})
	views := []*matview.View{v.Freeze(), broken.Freeze()}
	k := plan([]*mask.Mask{mask.Path(mask.Whole(), "metadata", "labels"), mask.Path(mask.Whole(), "spec", "n")}, "v", "w")
	var w projection.Writer
	body, some := w.Append(nil, k, o, func(id uint32) *matview.View { return views[id] })
	if !some {
		t.Fatal("there is nothing")
	}
	if strings.Contains(string(body), "secret") || len(body) > 2000 {
		t.Errorf("it says %s", body)
	}
	var a value.Arena
	got := projection.Contribution(&a, body, "v", ref, 1000)
	back := matview.New(0, pod, module.View{Name: "v"})
	back.ByObject = true
	back.Apply(ref, got, 1<<20, func(string) {})
	found, why := back.KeysFor(ref)
	if why != "" || fmt.Sprintf("%q", found) != fmt.Sprintf("%q", keys) {
		t.Errorf("keys %q %s, want %q", found, why, keys)
	}
	for i, key := range keys {
		if text := back.ValuesOf(ref, key); text != values[i] {
			t.Errorf("%q has %s, want %s", key, text, values[i])
		}
	}
	if c := projection.Contribution(&a, body, "w", ref, 1000); !c.Failed() {
		t.Error("what failed is known")
	}
	if c := projection.Contribution(&a, body, "v", ref, 10); !c.Failed() {
		t.Error("it contributes more than it may")
	}
	text, err := projection.ObjectOf(body)
	if err != nil || string(text) != `{"metadata":{"labels":{"a":"é\"\\"}},"spec":{"n":1e3}}` {
		t.Errorf("the object is %s, %v", text, err)
	}
	if body, some := w.Append(nil, plan(nil, "v"), object(t, `{}`), func(uint32) *matview.View { return nil }); some || len(body) != 0 {
		t.Errorf("of nothing it says %q", body)
	}
}

// TestWriter_SaysWhatItCannotRead: an object that is malformed is not one without content.
func TestWriter_SaysWhatItCannotRead(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)
	var w projection.Writer
	body, some := w.Append(nil, plan([]*mask.Mask{mask.Whole()}), object(t, deep), nil)
	if !some {
		t.Fatal("there is nothing")
	}
	if o, err := projection.ObjectOf(body); err == nil {
		t.Errorf("the object is %.100s", o)
	}
}

// FuzzContribution reads what another process may say: it is a contribution within its bound, or one that failed.
func FuzzContribution(f *testing.F) {
	for _, body := range []string{
		``, `{`, `null`, `{"c":{"v":{"k":[1]}}}`, `{"c":{"v":{"k":[1],"k":[2]}}}`, `{"c":{"v":{"k":[]}}}`, `{"c":{"v":{"k":1}}}`, `{"c":{"v":[]}}`,
		`{"c":{"v":{"b":[1],"a":[2]}}}`, `{"c":{"v":{"k":[1}}}`, `{"c":{"v":{"k":[{"b":1,"a":2}]}}}`, `{"f":{"v":1}}`, `{"f":{"v":""}}`, `{"f":{"v":"why"}}`, `{"c":{"v":{"\ud800":[01]}}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var a value.Arena
		c := projection.Contribution(&a, body, "v", ref, 100)
		v := matview.New(0, pod, module.View{Name: "v"})
		v.ByObject = true
		v.Apply(ref, c, 1<<20, func(string) {})
		keys, _ := v.KeysFor(ref)
		size := 0
		for _, key := range keys {
			size += len(key) + len(v.ValuesOf(ref, key))
			for e := range v.Entries(key) {
				if list, err := e.Parse(nil); err != nil || len(list) == 0 {
					t.Fatalf("%q: entry %q has %v, %v", body, e.Values, list, err)
				}
			}
		}
		if size > 100 {
			t.Fatalf("%q contributes %d bytes", body, size)
		}
		if o, err := projection.ObjectOf(body); err == nil {
			_, _ = value.DecodeCopy(o, mask.Whole()) // it may fail
		}
	})
}
