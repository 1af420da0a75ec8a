package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
)

var podListKind = schema.GroupVersionKind{Version: "v1", Kind: "PodList"}

func podList(n int) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "token", RemainingItemCount: new(int64(5))}}
	for i := range n {
		p := podFixture.DeepCopy()
		p.Name = fmt.Sprint("pod-", i)
		l.Items = append(l.Items, *p)
	}
	return l
}

func TestList_DecodesItemsInPlace(t *testing.T) {
	l := podList(3)
	asJSON, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, asJSON, "", "\t"); err != nil {
		t.Fatal(err)
	}
	item, err := json.Marshal(&l.Items[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := oracleObject(podKind, JSON, item)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		enc  Encoding
		body []byte
	}{
		"protobuf":      {Protobuf, encodeProtobuf(t, podListKind, l)},
		"json":          {JSON, asJSON},
		"indented json": {JSON, indented.Bytes()},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustNew(t, podKind, c.enc, Rules{})
			var names []string
			m, err := d.List(c.body, func(r *aggregate.Record, _ error) error {
				if len(names) == 0 {
					sameRecord(t, r, &want)
				}
				names = append(names, strings.Clone(r.Name))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(names, []string{"pod-0", "pod-1", "pod-2"}) {
				t.Errorf("items %q", names)
			}
			if m.ResourceVersion != "77" || m.Continue != "token" || m.RemainingItemCount == nil || *m.RemainingItemCount != 5 {
				t.Errorf("list metadata %+v", m)
			}
			if d.Fallbacks() > 0 {
				t.Errorf("%d fall-backs", d.Fallbacks())
			}
			stop := errors.New("enough")
			if _, err := d.List(c.body, func(*aggregate.Record, error) error { return stop }); !errors.Is(err, stop) {
				t.Errorf("error %v, want that of the callback", err)
			}
			if _, err := d.List(c.body[:len(c.body)-5], func(*aggregate.Record, error) error { return nil }); !errors.Is(err, ErrMalformed) {
				t.Errorf("a list cut short: error %v, want %v", err, ErrMalformed)
			}
		})
	}
}

func TestList_OtherShapes(t *testing.T) {
	for body, want := range map[string]string{
		`{"items":null}`: "0 ok", `{"items":[]}`: "0 ok", `{}`: "0 ok", ` { } `: "0 ok",
		`{"metadata":null,"items":[ {} , {"a":1} ]}`: "2 ok",
		`{"items":[{"metadata":{"n":1e999}}]}`:       "1 ok",
		`{"x":1e999,"items":[{}],"metadata":{}}`:     "1 ok",
		`{"it\u0065ms":[{}]}`:                        "1 ok",
		`{"Items":[{}]}`:                             "0 ok",
		`{"items":[{}],"items":[]}`:                  "1 malformed",
		`{"items":[{"a":1,"a":2}]}`:                  "1 ok",
		`{"items":[{}]}{}`:                           "1 malformed",
		`{"items":[{},]}`:                            "1 malformed",
		`{"items":[{}],}`:                            "1 malformed",
		`{,}`:                                        "0 malformed",
		`{"items":[null]}`:                           "1 ok",
		`{"items":{}}`:                               "0 malformed",
		`{"items":[{}}`:                              "1 malformed",
		`{"metadata":[],"items":[]}`:                 "0 malformed",
		`{"items" [{}]}`:                             "0 malformed",
		`[]`:                                         "0 malformed", `null`: "0 malformed", ``: "0 malformed",
	} {
		t.Run(body, func(t *testing.T) {
			n := 0
			_, err := mustNew(t, podKind, JSON, Rules{}).List([]byte(body), func(*aggregate.Record, error) error { n++; return nil })
			got := fmt.Sprint(n, " ok")
			if errors.Is(err, ErrMalformed) {
				got = fmt.Sprint(n, " malformed")
			} else if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s (%v), want %s", got, err, want)
			}
		})
	}
}

func TestDecoder_CanonicalizesJSON(t *testing.T) {
	head := `{"apiVersion":"v1","kind":"Pod"`
	for in, want := range map[string]struct {
		body  string
		falls uint64
	}{
		`{}`:                            {head + `}`, 0},
		`{"kind":"","apiVersion":7}`:    {head + `}`, 0},
		`{"kind":"X","apiVersion":"y"}`: {`{"apiVersion":"y","kind":"X"}`, 0},
		` { "z" : 1 , "kind" : "Pod" , "b" : [ 1 , { "y" : null , "x" : true } ] } `: {`{"apiVersion":"v1","b":[1,{"x":true,"y":null}],"kind":"Pod","z":1}`, 0},
		`{"z":[1.0,-0,1e2,1E400e]}`: {"", 0},
		`{"z":[1.50,-0,-0.0,1e2,1e21,1e-7,9223372036854775807,9223372036854775808,123456789012345678901234567890]}`: {
			head + `,"z":[1.5,0,-0,100,1e+21,1e-7,9223372036854775807,9223372036854776000,1.2345678901234568e+29]}`, 0,
		},
		`{"z":"\u003c\u0026\/\u00e9\ud83d\ude80\ud83d\u2028\u0007\u0008\n` + "\u2029\x7f" + `"}`: {
			head + `,"z":"<&/é🚀` + "\ufffd" + `\u2028\u0007\b\n\u2029` + "\x7f" + `"}`, 0,
		},
		`{"z":"` + "\xff" + `"}`: {head + `,"z":"` + "\ufffd" + `"}`, 1},
		`{"z":1,"z":{"a":2}}`:    {head + `,"z":{"a":2}}`, 1},
		`{"\u007a":1,"a\n":2}`:   {`{"a\n":2,"apiVersion":"v1","kind":"Pod","z":1}`, 1},
		`{"metadata":{"managedFields":[{"a":"\ud800"}],"name":"n"}}`:            {head + `,"metadata":{"name":"n"}}`, 0},
		`{"metadata":{"a":1,"managedFields":[{},{"x":[]}]}}`:                    {head + `,"metadata":{"a":1}}`, 0},
		`{"metadata":{"managedFields":null}}`:                                   {head + `,"metadata":{}}`, 0},
		`{"metadata":{"managedFields":[1e999]}}`:                                {"", 0},
		`{"metadata":{"managedFields":["\x"]}}`:                                 {"", 0},
		`{"spec":{"metadata":{"managedFields":[]}}}`:                            {head + `,"spec":{"metadata":{"managedFields":[]}}}`, 0},
		`{"metadata":"none"}`:                                                   {head + `,"metadata":"none"}`, 0},
		`{"z":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`:     {head + `,"z":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, 1},
		`{"z":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`: {"", 0},
		`{"z":01}`: {"", 0}, `{"z":+1}`: {"", 0}, `{"z":.5}`: {"", 0}, `{"z":nul}`: {"", 0}, `{"z":"` + "\n" + `"}`: {"", 0},
		`{} x`: {"", 0}, `[]`: {"", 0}, `null`: {"", 0}, `{"z"}`: {"", 0}, `{"z":}`: {"", 0}, `{"z":1,}`: {"", 0}, `{"z":"\u12"}`: {"", 0},
	} {
		t.Run(in[:min(len(in), 60)], func(t *testing.T) {
			stock, oracleErr := oracleObject(podKind, JSON, []byte(in))
			if (oracleErr != nil) != (want.body == "") || oracleErr == nil && string(stock.Body) != want.body {
				t.Fatalf("the test is wrong: stock gives %s, %v", stock.Body, oracleErr)
			}
			d := mustNew(t, podKind, JSON, Rules{})
			var rec aggregate.Record
			err := d.Object([]byte(in), &rec)
			if want.body == "" {
				if !errors.Is(err, ErrMalformed) {
					t.Errorf("error %v, want %v", err, ErrMalformed)
				}
				return
			}
			decoded(t, err)
			sameRecord(t, &rec, &stock)
			if d.Fallbacks() != want.falls {
				t.Errorf("%d fall-backs, want %d", d.Fallbacks(), want.falls)
			}
		})
	}
}

func TestDecoder_MetadataOfTheWrongTypeIsAbsent(t *testing.T) {
	for _, metadata := range []string{
		`{"name":1,"namespace":null,"uid":[],"resourceVersion":{"a":"b"}}`,
		`{"labels":{"a":null,"b":"x"}}`, `{"labels":{"a":1,"b":"x"}}`, `{"labels":[]}`, `{"labels":null}`, `{"labels":{}}`,
		`{"labels":{"b":"\"","a\u0001":"\\u"},"name":"\n"}`,
		`{"ownerReferences":[{"name":"a","controller":true},{"name":1,"controller":"true","uid":"u"}]}`,
		`{"ownerReferences":[{"name":"a"},1]}`, `{"ownerReferences":{}}`, `{"ownerReferences":[]}`,
	} {
		t.Run(metadata, func(t *testing.T) {
			in := []byte(`{"metadata":` + metadata + `}`)
			want, err := oracleObject(podKind, JSON, in)
			if err != nil {
				t.Fatal(err)
			}
			rec := aggregate.Record{Name: "stale", Labels: []aggregate.Label{{Key: "stale"}}, Owners: []aggregate.Owner{{Name: "stale"}}}
			decoded(t, mustNew(t, podKind, JSON, Rules{}).Object(in, &rec))
			sameRecord(t, &rec, &want)
		})
	}
}
