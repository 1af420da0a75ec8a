package catalog_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
)

// TestCatalog_AgainstARealServer compares with an API server that holds real objects.
func TestCatalog_AgainstARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	r := startReal(t)
	t.Run("Tables equal the server's", r.tables)
	t.Run("objects at other versions equal the server's", r.versions)
	t.Run("discovery equals the server's", r.discovery)
	t.Run("kubectl reads it", r.kubectl)
	t.Run("openapi", r.openapi)
}

// ages are durations as printers write them.
var ages = regexp.MustCompile(`\b(\d+(y|d|h|m|s))+\b`)

// plain turns cells into what JSON makes of them, without ages.
func plain(t *testing.T, cells []any) []any {
	t.Helper()
	b, err := json.Marshal(cells)
	ok(t, err)
	var out []any
	ok(t, json.Unmarshal(b, &out))
	for i, c := range out {
		if s, is := c.(string); is {
			out[i] = ages.ReplaceAllString(s, "<age>")
		}
	}
	return out
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	ok(t, err)
	return string(b)
}

// path is where a resource is listed.
func path(r *catalog.Resource) string {
	if r.Resource.Group == "" {
		return "/api/" + r.Resource.Version + "/" + r.Resource.Resource
	}
	return "/apis/" + r.Resource.GroupVersion().String() + "/" + r.Resource.Resource
}

func (r *real) tables(t *testing.T) {
	snapshot := r.index.Snapshot()
	kinds, rows := map[aggregate.Kind]bool{}, 0
	for res := range r.catalog.View(snapshot).Resources() {
		var table struct {
			metav1.Table `json:",inline"`
			Rows         []struct {
				Cells      []any                        `json:"cells"`
				Conditions []metav1.TableRowCondition   `json:"conditions"`
				Object     metav1.PartialObjectMetadata `json:"object"`
			} `json:"rows"`
		}
		r.get(t, path(res), "application/json;as=Table;v=v1;g=meta.k8s.io", &table)
		if want, got := asJSON(t, table.ColumnDefinitions), asJSON(t, res.Columns()); want != got {
			t.Errorf("%s: columns\n%s, want\n%s", path(res), got, want)
			continue
		}
		compared := 0
		for _, row := range table.Rows {
			o, found := snapshot.Get(aggregate.Ref{Member: memberName, Kind: res.Kind, Namespace: row.Object.Namespace, Name: row.Object.Name})
			if !found || o.ResourceVersion() != row.Object.ResourceVersion {
				continue // the server has written since: leases, its own services
			}
			body, err := o.AppendBody(nil)
			ok(t, err)
			got, err := res.Row(body)
			ok(t, err)
			if want := plain(t, row.Cells); !reflect.DeepEqual(want, plain(t, got.Cells)) || asJSON(t, row.Conditions) != asJSON(t, got.Conditions) {
				t.Errorf("%s %s: row\n%v, want\n%v", path(res), row.Object.Name, plain(t, got.Cells), want)
			}
			compared++
		}
		if compared < len(table.Rows)/2 {
			t.Errorf("%s: only %d of %d rows are in the index", path(res), compared, len(table.Rows))
		}
		if compared > 0 {
			kinds[res.Kind] = true
			rows += compared
		}
	}
	t.Logf("%d rows of %d kinds compared", rows, len(kinds))
	if len(kinds) < 15 {
		t.Errorf("rows of %d kinds compared, want at least 15", len(kinds))
	}
	r.stored.Range(func(kind, _ any) bool {
		if !kinds[kind.(aggregate.Kind)] {
			t.Errorf("objects of %s were created, and none compared", kind)
		}
		return true
	})
}

// versions compares what conversion makes with what the server says at the same
// version.
func (r *real) versions(t *testing.T) {
	snapshot := r.index.Snapshot()
	converted := 0
	for res := range r.catalog.View(snapshot).Resources() {
		if res.Held == res.Resource.GroupVersion().String() {
			continue
		}
		var list struct{ Items []map[string]any }
		r.get(t, path(res), "application/json", &list)
		for _, item := range list.Items {
			meta := item["metadata"].(map[string]any)
			namespace, _ := meta["namespace"].(string)
			o, found := snapshot.Get(aggregate.Ref{Member: memberName, Kind: res.Kind, Namespace: namespace, Name: meta["name"].(string)})
			if !found || o.ResourceVersion() != meta["resourceVersion"] {
				continue
			}
			delete(meta, "managedFields")
			delete(item, "apiVersion")
			delete(item, "kind")
			body, err := o.AppendBody(nil)
			ok(t, err)
			got, err := res.AppendAt(nil, body)
			ok(t, err)
			var object map[string]any
			ok(t, json.Unmarshal(got, &object))
			if object["apiVersion"] != res.Resource.GroupVersion().String() {
				t.Errorf("%s: apiVersion %v", path(res), object["apiVersion"])
			}
			delete(object, "apiVersion")
			delete(object, "kind")
			if want, got := asJSON(t, item), asJSON(t, object); want != got {
				t.Errorf("%s:\n%s, want\n%s", path(res), got, want)
			}
			converted++
		}
	}
	t.Logf("%d objects converted", converted)
	if converted == 0 {
		t.Error("no object was converted")
	}
}
