package resources_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const asYAML = "application/yaml"

// decodeJSON decodes JSON into values that can be compared.
func decodeJSON(t testing.TB, b []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return o
}

// newLargeFleet returns a fleet with many objects, of all kinds.
func newLargeFleet(t testing.TB) *fleet {
	t.Helper()
	f := newFleet(t, settings{})
	for _, m := range memberNames[:3] {
		f.join(m)
		f.put(testObject{kind: nodes, member: m, name: "n0"}, testObject{kind: hpas, member: m, namespace: "blue", name: "web"})
		for i := range 40 { // more than a block that one goroutine encodes
			o := pod(m, "blue", fmt.Sprintf("p%02d", i), "app", `a"b`)
			o.node, o.phase = "n0", "Running"
			f.put(o)
		}
	}
	f.put(pod("a/east", "red", "alone"))
	f.commit()
	return f
}

// TestFormat_AllAgree: YAML is the JSON, metadata is that of the objects, and a
// Table's rows have what a client asks to be included.
func TestFormat_AllAgree(t *testing.T) {
	f := newLargeFleet(t)
	for _, path := range []string{
		"/fleet/api/v1/pods", "/members/a/west/api/v1/pods", "/fleet/api/v1/nodes", "/members/a/west/api/v1/nodes",
		"/fleet/apis/autoscaling/v1/horizontalpodautoscalers", "/fleet/apis/autoscaling/v2/horizontalpodautoscalers",
	} {
		jsonList := f.mustAsk(all, path, nil, "")
		whole := decodeJSON(t, jsonList.body)
		asText := f.mustAsk(all, path, nil, asYAML)
		converted, err := yaml.YAMLToJSON(asText.body)
		ok(t, err)
		if got := decodeJSON(t, converted); !reflect.DeepEqual(got, whole) || asText.header.Get("Content-Type") != asYAML {
			t.Errorf("%s: YAML differs: %s", path, asText.body)
		}
		wantYAMLOf(t, path, jsonList, asText)
		partial := f.mustAsk(all, path, nil, asPartial)
		rows := f.mustAsk(all, path, nil, asTable)
		included := f.mustAsk(all, path, values("includeObject", "Object"), asTable)
		bare := f.mustAsk(all, path, values("includeObject", "None"), asTable)
		if partial.list.Kind != "PartialObjectMetadataList" || rows.list.Kind != "Table" || rows.list.APIVersion != "meta.k8s.io/v1" {
			t.Errorf("%s: %s, %s", path, partial.list.Kind, rows.list.Kind)
		}
		for what, a := range map[string]answer{"partial": partial, "rows": rows, "included": included, "bare": bare} {
			if !reflect.DeepEqual(decodeJSON(t, a.body)["metadata"], whole["metadata"]) || len(a.list.Items)+len(a.list.Rows) != len(jsonList.list.Items) {
				t.Fatalf("%s: %s differs: %.300s", path, what, a.body)
			}
		}
		gv := strings.TrimPrefix(strings.Join(strings.Split(path[strings.Index(path, "/api"):], "/")[2:4], "/"), "/")
		if strings.Contains(path, "/api/") {
			gv = "v1"
		}
		inFleet := strings.HasPrefix(path, "/fleet")
		for i, o := range jsonList.list.Items {
			if field(o, "apiVersion") != gv {
				t.Errorf("%s: an object of %s", path, field(o, "apiVersion"))
			}
			want := map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
			if !reflect.DeepEqual(partial.list.Items[i], want) || !reflect.DeepEqual(decodeJSON(t, rows.list.Rows[i].Object.Raw), want) {
				t.Fatalf("%s: metadata differs: %v, %s, want %v", path, partial.list.Items[i], rows.list.Rows[i].Object.Raw, want)
			}
			if !reflect.DeepEqual(decodeJSON(t, included.list.Rows[i].Object.Raw), o) || len(bare.list.Rows[i].Object.Raw) > 0 && string(bare.list.Rows[i].Object.Raw) != "null" {
				t.Fatalf("%s: %s, %s, want %v", path, included.list.Rows[i].Object.Raw, bare.list.Rows[i].Object.Raw, o)
			}
			cells, columns := rows.list.Rows[i].Cells, rows.list.ColumnDefinitions
			if len(cells) != len(columns) || !reflect.DeepEqual(cells, bare.list.Rows[i].Cells) {
				t.Fatalf("%s: %d cells in %d columns, or others without objects", path, len(cells), len(columns))
			}
			first := 0
			if inFleet {
				first = 1
				if columns[0].Name != "Cluster" || cells[0] != field(o, "metadata", "annotations", "federator.dev/member") {
					t.Errorf("%s: %s %v", path, columns[0].Name, cells[0])
				}
			}
			if columns[first].Name != "Name" || cells[first] != field(o, "metadata", "name") {
				t.Errorf("%s: %s %v", path, columns[first].Name, cells[first])
			}
		}
	}
}

// wantYAMLOf holds YAML to what kube-apiserver makes of the whole JSON at once.
func wantYAMLOf(t *testing.T, what string, of, got answer) {
	t.Helper()
	want, err := yaml.JSONToYAML(of.body)
	ok(t, err)
	if !bytes.Equal(got.body, want) {
		t.Errorf("%s:\n%.600s\nwant\n%.600s", what, got.body, want)
	}
}

// TestYAML_OfListsIsThatOfTheWholeDocument, item by item though it is made.
func TestYAML_OfListsIsThatOfTheWholeDocument(t *testing.T) {
	f := newLargeFleet(t)
	for _, c := range []struct{ path, query string }{
		{"/fleet/api/v1/pods", ""}, {"/fleet/api/v1/pods", "limit=1"}, {"/fleet/api/v1/pods", "labelSelector=none=such"},
	} {
		for _, as := range []string{"", ";as=Table;g=meta.k8s.io;v=v1", ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
			query, err := url.ParseQuery(c.query)
			ok(t, err)
			inJSON := f.mustAsk(all, c.path, query, "application/json"+as)
			wantYAMLOf(t, c.path+" "+c.query+as, inJSON, f.mustAsk(all, c.path, query, asYAML+as))
		}
	}
}

// heapAtWrites measures the live heap while an answer is written.
type heapAtWrites struct {
	header       http.Header
	writes, sent int
	most         uint64
}

func (w *heapAtWrites) Header() http.Header { return w.header }
func (w *heapAtWrites) WriteHeader(int)     {}

func (w *heapAtWrites) Write(p []byte) (int, error) {
	if w.sent += len(p); w.writes%16 == 0 {
		w.most = max(w.most, liveHeap())
	}
	w.writes++
	return len(p), nil
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestYAML_ListsAreStreamed: the memory of an answer in YAML does not grow
// with its length.
func TestYAML_ListsAreStreamed(t *testing.T) {
	f := newFleet(t, settings{})
	f.join("a/east")
	for i := range 8000 {
		o := pod("a/east", "blue", fmt.Sprintf("p%04d", i))
		o.node = strings.Repeat("x", 4<<10)
		f.put(o)
	}
	f.commit()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // each holds a few blocks
	base := liveHeap()
	w := &heapAtWrites{header: http.Header{}}
	if status := f.serve(w, f.request(t.Context(), "/fleet/api/v1/pods", nil, asYAML), all); status.Code != 0 {
		t.Fatal(status)
	}
	const enough = 12 << 20 // what is read ahead, of 35 MB
	if held := int64(w.most) - int64(base); w.sent < 2*enough || held > enough {
		t.Errorf("%d KiB were sent, and live heap grew by %d KiB", w.sent>>10, held>>10)
	}
	t.Logf("%d KiB sent in %d writes, live heap grew by %d KiB", w.sent>>10, w.writes, (int64(w.most)-int64(base))>>10)
}

// TestFormat_SingleObjectsAgree in their formats, and with the list.
func TestFormat_SingleObjectsAgree(t *testing.T) {
	f := newLargeFleet(t)
	const path = "/fleet/api/v1/namespaces/red/pods/alone"
	o := f.mustAsk(all, "/fleet/api/v1/namespaces/red/pods", nil, "").list.Items[0]
	if got := f.mustAsk(all, path, nil, "").object(t); !reflect.DeepEqual(got, o) {
		t.Errorf("%v, want %v", got, o)
	}
	converted, err := yaml.YAMLToJSON(f.mustAsk(all, path, nil, asYAML).body)
	ok(t, err)
	if got := decodeJSON(t, converted); !reflect.DeepEqual(got, o) {
		t.Errorf("YAML: %v, want %v", got, o)
	}
	if got := f.mustAsk(all, path, nil, asPartial).object(t); field(got, "kind") != "PartialObjectMetadata" || !reflect.DeepEqual(got["metadata"], o["metadata"]) {
		t.Errorf("metadata: %v, want that of %v", got, o)
	}
	table := f.mustAsk(all, path, values("includeObject", "Object"), asTable).list
	if table.Kind != "Table" || len(table.Rows) != 1 || !reflect.DeepEqual(decodeJSON(t, table.Rows[0].Object.Raw), o) {
		t.Errorf("table: %+v, want %v", table, o)
	}
}

// TestFormat_EventsAgreeWithLists in every format; watches that send the same share
// its bytes, and those that do not do not.
func TestFormat_EventsAgreeWithLists(t *testing.T) {
	f := newLargeFleet(t)
	start := f.index.Snapshot().Revision()
	type kind struct{ path, accept, include string }
	var kinds []kind
	for _, path := range []string{fleetPods, "/members/a/east/api/v1/pods"} {
		for _, accept := range []string{"", asPartial, asTable, asYAML} {
			kinds = append(kinds, kind{path, accept, ""})
		}
		kinds = append(kinds, kind{path, asTable, "Object"}, kind{path, asTable, "None"})
	}
	open := map[kind][]*stream{}
	for _, k := range kinds {
		for range 2 {
			open[k] = append(open[k], f.watch(all, k.path, values("resourceVersion", text(start), "includeObject", k.include, "allowWatchBookmarks", "1"), k.accept))
		}
	}
	f.put(pod("a/east", "green", "p0"), pod("a/east", "green", "p1"))
	f.commit()
	for _, k := range kinds {
		accept := k.accept
		if accept == asYAML {
			accept = "" // streams are JSON
		}
		list := f.mustAsk(all, k.path, values("includeObject", k.include, "fieldSelector", "metadata.namespace=green"), accept).list
		first, second := open[k][0].end(), open[k][1].end()
		if string(open[k][0].lines) != string(open[k][1].lines) || len(first) != 3 || len(second) != 3 {
			t.Fatalf("%v: two watches differ, or are not of 3 events:\n%s\n%s", k, open[k][0].lines, open[k][1].lines)
		}
		if got := open[k][0].header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%v: %s", k, got)
		}
		for i, e := range first[:2] {
			if accept != asTable {
				if e.Type != "ADDED" || !reflect.DeepEqual(e.Object, list.Items[i]) {
					t.Errorf("%v: %s, want %v", k, e.text, list.Items[i])
				}
				continue
			}
			var table struct{ Object metav1.Table }
			ok(t, json.Unmarshal([]byte(e.text), &table))
			got := table.Object
			if len(got.Rows) != 1 || !reflect.DeepEqual(got.Rows[0].Cells, list.Rows[i].Cells) || string(got.Rows[0].Object.Raw) != string(list.Rows[i].Object.Raw) {
				t.Errorf("%v: %s, want %+v", k, e.text, list.Rows[i])
			}
			if want := list.ColumnDefinitions; i == 0 && !slices.Equal(got.ColumnDefinitions, want) || i > 0 && got.ColumnDefinitions != nil {
				t.Errorf("%v: columns of event %d: %v", k, i, got.ColumnDefinitions)
			}
		}
		bookmark := map[string]string{"": "Pod", asPartial: "PartialObjectMetadata", asTable: "Table"}[accept]
		if e := first[2]; e.Type != "BOOKMARK" || field(e.Object, "kind") != bookmark || e.revision() != text(f.index.Snapshot().Revision()) {
			t.Errorf("%v: %s, want a bookmark as a %s", k, e.text, bookmark)
		}
	}
}

// TestFormat_HonorsAcceptQuality among the formats that can be served.
func TestFormat_HonorsAcceptQuality(t *testing.T) {
	f := newLargeFleet(t)
	for accept, want := range map[string]string{
		"":                                  "application/json PodList",
		"*/*":                               "application/json PodList",
		"application/*":                     "application/json PodList",
		"application/json;stream=watch":     "application/json PodList",
		asTable + ",application/json":       "application/json Table",
		"application/json;q=0.5," + asTable: "application/json Table",
		"application/json;q=0.5,application/yaml;q=0.4":                            "application/json PodList",
		"application/yaml,application/json":                                        "application/yaml",
		"application/vnd.kubernetes.protobuf,application/json":                     "application/vnd.kubernetes.protobuf",
		"application/json,application/vnd.kubernetes.protobuf;q=.9":                "application/json PodList",
		"application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json;q=0.1": "application/json PodList",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1":         "application/json PartialObjectMetadataList",
		"text/html,;;,application/json;q=x,application/json":                       "application/json PodList",
		"application/vnd.kubernetes.protobuf":                                      "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1":          "406",
		"application/json;q=0":                                                     "406",
		"application/json;as=Table;g=meta.k8s.io;v=v2":                             "406",
		"application/json;as=Dream;g=meta.k8s.io;v=v1":                             "406",
		";": "406",
	} {
		a := f.ask(all, fleetPods, nil, accept)
		got := strings.TrimSpace(a.header.Get("Content-Type") + " " + a.list.Kind)
		if a.code != http.StatusOK {
			got = fmt.Sprint(a.code)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
}
