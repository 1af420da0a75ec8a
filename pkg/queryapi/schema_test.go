package queryapi_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/openapi"
	"federator.dev/federator/test/queryserver"
)

// described returns what a server says of its questions.
func described(t *testing.T, s *server) (*spec3.OpenAPI, string) {
	t.Helper()
	doc := &spec3.OpenAPI{}
	resp, body := s.get(t, "/openapi/v3/query/v1", s.Token())
	if err := json.Unmarshal([]byte(body), doc); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %v: %s", resp.StatusCode, err, body)
	}
	return doc, body
}

// conforms holds an answer to what is said of it.
func conforms(t *testing.T, what string, doc *spec3.OpenAPI, response *spec3.Response, resp *http.Response, body string) {
	t.Helper()
	media := response.Content[resp.Header.Get("Content-Type")]
	if media == nil {
		t.Errorf("%s: %s is not described", what, resp.Header.Get("Content-Type"))
		return
	}
	if err := openapi.Conforms(doc, media.Schema, []byte(body)); err != nil {
		t.Errorf("%s: %v: %s", what, err, body)
	}
}

// away hears of members a while ago.
type away struct{ queryserver.Fleet }

func (away) LastContact(string, aggregate.Kind) time.Time { return time.Now().Add(-time.Minute) }

func TestOpenAPI_AnswersAreAsOpenAPISays(t *testing.T) {
	index := newIndex(t)
	// A member with all that answers may have: labels, relations, what is not fresh.
	if err := index.PutMember(aggregate.Member{Name: "red/us-1", UID: "us", Version: "v1.36.3", Labels: []aggregate.Label{{Key: "env", Value: "test"}}}); err != nil {
		t.Fatal(err)
	}
	for kind, version := range map[aggregate.Kind]string{"Deployment.apps": "apps/v1", "Pod": "v1"} {
		scope, err := index.OpenScope("red/us-1", kind, version)
		if err != nil {
			t.Fatal(err)
		}
		record := &aggregate.Record{
			Namespace: "shop", Name: "web", UID: string(kind), ResourceVersion: "7",
			Body: []byte(`{"apiVersion":"` + version + `","kind":"x","metadata":{"name":"web","namespace":"shop"}}`),
		}
		if kind == "Pod" {
			record.Owners = []aggregate.Owner{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "Deployment.apps"}}
		}
		scope.Upsert(scope.Item(record))
		scope.SetStatus(aggregate.Status{State: aggregate.Stale, Reason: "out of reach"})
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Index, o.Fleet = index, away{served}
	})
	doc, _ := described(t, s)
	table := http.Header{"Accept": {"application/json;as=Table;g=meta.k8s.io;v=v1"}}
	var all strings.Builder
	for _, question := range []string{
		"count?resource=pods", "count?resource=pods&resource=deployments&groupBy=member&groupBy=label:x", "count?resource=pods&namespace=none&groupBy=kind",
		"find?resource=pods&resource=namespaces&namePrefix=we", "find?resource=pods&namePrefix=nothing",
		"related?member=red/us-1&resource=pods&namespace=shop&name=web", "related?member=red/eu-1&resource=namespaces&name=shop&pretty=true",
		"members", "members?labelSelector=federator.dev/member%3Dred.none",
	} {
		name, _, _ := strings.Cut(question, "?")
		ok := doc.Paths.Paths["/query/v1/"+name].Get.Responses.StatusCodeResponses[http.StatusOK]
		for what, header := range map[string]http.Header{question: nil, question + " as a Table": table} {
			resp, body := s.ask(t, s.client(t), "GET", "/query/v1/"+question, s.Token(), header, nil)
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %d %s", what, resp.StatusCode, body)
			}
			conforms(t, what, doc, ok, resp, body)
			all.WriteString(body)
		}
	}
	for _, sign := range []string{`"key":["red/us-1",""]`, `"relation":"owns"`, `"age":"1m`, `"reason":"the member is unreachable, or is being relisted"`, `"labels":{"env":"test"}`, `"Stale":2`, `"items":[]`, `"rows":[]`} {
		if !strings.Contains(all.String(), sign) {
			t.Errorf("the test has seen no answer with %s", sign)
		}
	}
	for _, wrong := range []string{"count", "count?resource=nopes", "related?member=red/us-1&resource=pods&namespace=shop&name=none", "members?labelSelector=a%3Db", "count?resource=pods&require=synced"} {
		name, _, _ := strings.Cut(wrong, "?")
		resp, body := s.get(t, "/query/v1/"+wrong, s.Token())
		if resp.StatusCode < 400 {
			t.Errorf("%s: %d %s", wrong, resp.StatusCode, body)
		}
		conforms(t, wrong, doc, doc.Paths.Paths["/query/v1/"+name].Get.Responses.Default, resp, body)
	}
}

// Everything has a field of each type that answers may have.
type Everything struct {
	inner
	metav1.TypeMeta `json:",inline"`

	Text    aggregate.Kind          `json:"text"`
	Plain   bool                    // its name is that of the field
	State   aggregate.State         `json:"state"`
	Many    []Part                  `json:"many,omitempty"`
	One     *Part                   `json:"one,omitempty"`
	States  map[aggregate.State]int `json:"states,omitempty"`
	Lists   map[string][]string     `json:"lists,omitempty"`
	Bytes   []byte                  `json:"bytes,omitempty"`
	Raw     json.RawMessage         `json:"raw,omitempty"`
	Any     any                     `json:"any"`
	Small   int32                   `json:"small"`
	Tiny    uint8                   `json:"tiny"`
	Large   uint64                  `json:"large"`
	Ratio   float64                 `json:"ratio"`
	Half    float32                 `json:"half,omitzero"`
	Skipped chan int                `json:"-"`
	hidden  chan int
}

type inner struct {
	Number int `json:"number"`
}

// Part has parts of its own.
type Part struct {
	Parts []Part `json:"parts,omitempty"`
}

// telling is a question that describes itself.
type telling struct {
	question
	description queryapi.Operation
}

func (q telling) Describe() queryapi.Operation { return q.description }

func answering(values ...Everything) telling {
	return telling{
		func(w http.ResponseWriter, r *http.Request, _ queryapi.Caller) error {
			w.Header().Set("Content-Type", "application/json")
			return json.NewEncoder(w).Encode(values[len(r.URL.RawQuery)])
		},
		queryapi.Operation{Description: "Everything.", Response: Everything{}, Parameters: []queryapi.Parameter{{Name: "n", Description: "Which."}}},
	}
}

func TestOpenAPI_TypesAreDescribedAsTheyAreEncoded(t *testing.T) {
	question := answering(Everything{hidden: nil}, Everything{
		inner: inner{1}, TypeMeta: metav1.TypeMeta{Kind: "Everything", APIVersion: "v1"}, Text: "Pod", Plain: true, State: aggregate.Synced,
		Many: []Part{{}}, One: &Part{}, States: map[aggregate.State]int{aggregate.Stale: 1},
		Lists: map[string][]string{"a": {"b"}}, Bytes: []byte("a"), Raw: json.RawMessage(`[null]`), Any: []int{1},
		Small: math.MinInt32, Tiny: 255, Large: 1 << 52, Ratio: 0.5, Half: 1,
	})
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Queries["everything"] = question
	})
	doc, _ := described(t, s)
	text, err := json.Marshal(doc.Components.Schemas["Everything"])
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	err = errors.Join(json.Unmarshal(text, &got), json.Unmarshal([]byte(`{
		"type": "object",
		"required": ["number", "text", "Plain", "state", "any", "small", "tiny", "large", "ratio"],
		"properties": {
			"number": {"type": "integer", "format": "int64"},
			"kind": {"type": "string"},
			"apiVersion": {"type": "string"},
			"text": {"type": "string"},
			"Plain": {"type": "boolean"},
			"state": {"type": "string"},
			"many": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
			"one": {"$ref": "#/components/schemas/Part"},
			"states": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
			"lists": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
			"bytes": {"type": "string", "format": "byte"},
			"raw": {},
			"any": {},
			"small": {"type": "integer", "format": "int32"},
			"tiny": {"type": "integer", "format": "int32", "minimum": 0},
			"large": {"type": "integer", "format": "int64", "minimum": 0},
			"ratio": {"type": "number", "format": "double"},
			"half": {"type": "number", "format": "float"}
		}
	}`), &want))
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
	doc.Components.Schemas["Part"].Properties["parts"] = *spec.ArrayProperty(&spec.Schema{}) // a validator has no end of it
	for _, query := range []string{"", "n"} {
		resp, body := s.get(t, "/query/v1/everything?"+query, s.Token())
		conforms(t, "everything?"+query, doc, doc.Paths.Paths["/query/v1/everything"].Get.Responses.StatusCodeResponses[http.StatusOK], resp, body)
	}
}

func TestOpenAPI_PanicsAtTypesThatItCannotDescribe(t *testing.T) {
	type (
		Status  struct{ Code int } // Kubernetes has one, too
		Timed   struct{ T metav1.Time }
		Channel struct{ C chan int }
		Failed  struct{ Err error }
		Pointer struct{ P *int }
		Inside  struct{ *Part }
		Hiding  struct {
			inner
			Number int `json:"number"`
		}
		Quoted struct {
			N int `json:",string"`
		}
	)
	for why, answer := range map[string]any{
		"implements json.Marshaler": Timed{}, "(chan int): it has no schema": Channel{}, "(error): it has no schema": Failed{},
		"has no name": struct{ N int }{}, "keys that are not text": map[int]string{}, "has the name of": []Status{},
		"has P, which may be null": Pointer{}, "has Part, which may be null": Inside{}, "has number twice": Hiding{}, "has N in quotes": Quoted{},
	} {
		func() {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			defer func() {
				problem, _ := recover().(string)
				if !strings.HasPrefix(problem, "queryapi: no OpenAPI schema for ") || !strings.Contains(problem, why) {
					t.Errorf("%T: %q, want %q", answer, problem, why)
				}
			}()
			_, err = queryapi.New(queryapi.Options{
				Index: newIndex(t), Fleet: served, Logger: slog.New(slog.DiscardHandler), Listener: l, Local: true,
				Queries: map[string]queryapi.Query{"wrong": telling{description: queryapi.Operation{Response: answer}}},
			})
			t.Errorf("%T: %v", answer, err)
		}()
	}
}

func TestOpenAPI_DescriptionIsValid(t *testing.T) {
	s := start(t, func(o *queryapi.Options) {
		local(o)
		watched := telling{description: queryapi.Operation{Events: []any{Part{}}, Parameters: []queryapi.Parameter{{Name: "watch", Type: "boolean"}}}}
		o.Queries["everything"], o.Queries["watched"] = answering(), watched
	})
	doc, text := described(t, s)
	if _, err := handler3.ToV3ProtoBinary([]byte(text)); err != nil {
		t.Errorf("it is no OpenAPI: %v", err)
	}
	refs := regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]*)"`).FindAllStringSubmatch(text, -1)
	if len(refs) == 0 || len(refs) != strings.Count(text, "$ref") {
		t.Errorf("%d of %d references lead to components", len(refs), strings.Count(text, "$ref"))
	}
	used := map[string]bool{}
	for _, ref := range refs {
		used[ref[1]] = true
		if doc.Components.Schemas[ref[1]] == nil {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
	for name := range doc.Components.Schemas {
		if !used[name] {
			t.Errorf("nothing leads to %s", name)
		}
	}
	media := func(path string) []string {
		return slices.Sorted(maps.Keys(doc.Paths.Paths[path].Get.Responses.StatusCodeResponses[http.StatusOK].Content))
	}
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	for path, want := range map[string][]string{
		"/query/v1/count": {"application/json", table}, "/query/v1/find": {"application/json", table}, "/query/v1/related": {"application/json", table}, "/query/v1/members": {"application/json", table},
		"/query/v1/everything": {"application/json"}, "/query/v1/watched": {"application/json;stream=watch"}, "/query/v1/whoami": nil,
	} {
		if got := media(path); !slices.Equal(got, want) {
			t.Errorf("%s answers with %q, want %q", path, got, want)
		}
	}
}
