package columns_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/internal/rows"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/columns"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fleet serves resources.
type fleet []catalog.ServedResource

var never = make(chan struct{})

func (f fleet) Resources() ([]catalog.ServedResource, <-chan struct{}) { return f, never }

const (
	pods    aggregate.Kind = "Pod"
	secrets aggregate.Kind = "Secret"
	widgets aggregate.Kind = "Widget.shop.example"
	nodes   aggregate.Kind = "Node"
	deploys aggregate.Kind = "Deployment.apps"
)

func served(kind aggregate.Kind, version, plural string, namespaced bool) catalog.ServedResource {
	name, group := kind.Split()
	return catalog.ServedResource{
		Kind: kind, Namespaced: namespaced, Singular: strings.ToLower(name),
		Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
	}
}

var everything = fleet{
	served(pods, "v1", "pods", true), served(secrets, "v1", "secrets", true), served(widgets, "v1", "widgets", true),
	served(nodes, "v1", "nodes", false), served(deploys, "v1", "deployments", true),
}

const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.shop.example","uid":"d"},
"spec":{"group":"shop.example","names":{"kind":"Widget","plural":"widgets"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,
"additionalPrinterColumns":[
{"name":"Size","type":"integer","jsonPath":".spec.size"},
{"name":"Ready","type":"boolean","jsonPath":".status.ready"},
{"name":"Load","type":"number","jsonPath":".status.load"},
{"name":"Last Seen","type":"date","jsonPath":".status.seen"},
{"name":"Name","type":"string","jsonPath":".spec.title"},
{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}]}]}}`

// world is a member with objects.
type world struct {
	index *aggregate.Index
	view  *catalog.View
}

func newWorld(t testing.TB, objects map[aggregate.Kind][]string) *world {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(5)})
	ok(t, err)
	ok(t, x.PutMember(aggregate.Member{
		Name: "fleet/a", UID: "u", APIs: []string{"apps/v1", "shop.example/v1", "v1"}, Labels: []aggregate.Label{{Key: "env", Value: "prod"}},
	}))
	objects["CustomResourceDefinition.apiextensions.k8s.io"] = []string{definition}
	for kind, list := range objects {
		version := map[aggregate.Kind]string{widgets: "shop.example/v1", deploys: "apps/v1", "CustomResourceDefinition.apiextensions.k8s.io": "apiextensions.k8s.io/v1"}[kind]
		if version == "" {
			version = "v1"
		}
		s, err := x.OpenScope("fleet/a", kind, version)
		ok(t, err)
		for i, text := range list {
			var o map[string]any
			ok(t, json.Unmarshal([]byte(text), &o))
			meta := o["metadata"].(map[string]any)
			body, err := json.Marshal(o) // its keys are sorted
			ok(t, err)
			r := &aggregate.Record{Name: meta["name"].(string), UID: fmt.Sprintf("uid-%d", i), ResourceVersion: "1", Body: body}
			r.Namespace, _ = meta["namespace"].(string)
			labels, _ := meta["labels"].(map[string]any)
			for k, v := range labels {
				r.Labels = append(r.Labels, aggregate.Label{Key: k, Value: v.(string)})
			}
			slices.SortFunc(r.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
			s.Upsert(s.Item(r))
		}
		s.SetStatus(aggregate.Status{State: aggregate.Synced})
		_, err = s.Commit()
		ok(t, err)
	}
	return &world{x, catalog.New(everything).View(x.Snapshot())}
}

func (w *world) set(t testing.TB, kind aggregate.Kind, chosen string, printer bool) (*columns.Set, error) {
	t.Helper()
	r, known := w.view.Kind(kind)
	if !known {
		t.Fatalf("%s is not served", kind)
	}
	var list []rows.Chosen
	if chosen != "" {
		var err error
		list, err = rows.ParseChosen(chosen)
		ok(t, err)
	}
	return columns.New(r, list, printer)
}

// row returns the one row of a kind by the names of columns: cells as JSON, "redacted" and "invalid" where they are that.
func (w *world) row(t *testing.T, kind aggregate.Kind, chosen string, printer bool) map[string]string {
	t.Helper()
	set, err := w.set(t, kind, chosen, printer)
	ok(t, err)
	snapshot := w.index.Snapshot()
	text, err := rows.AppendHeader(nil, &rows.Header{Metadata: rows.Metadata{ResourceVersion: "1"}, Objects: string(kind), Columns: set.Columns()})
	ok(t, err)
	e := set.Encoder(snapshot.Member)
	list, err := snapshot.List(aggregate.Query{Kind: kind})
	ok(t, err)
	n := 0
	for o := range list {
		body, err := o.AppendBody(nil)
		ok(t, err)
		text, err = e.Append(text, o, body)
		ok(t, err)
		n++
	}
	in, err := rows.NewReader(strings.NewReader(string(rows.AppendEnd(text, n))))
	ok(t, err)
	row, err := in.Next()
	ok(t, err)
	out := map[string]string{}
	for i, c := range set.Columns() {
		switch cell := row.Cells[i]; {
		case slices.Contains(row.Redacted, i):
			out[c.Name] = "redacted"
		case slices.Contains(row.Invalid, i):
			out[c.Name] = "invalid"
		case cell == nil:
			out[c.Name] = "null"
		default:
			out[c.Name] = string(cell)
			if !json.Valid(cell) {
				t.Errorf("%s: %s is no JSON", c.Name, cell)
			}
		}
	}
	return out
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s is %s, want %s", name, got[name], w)
		}
	}
}

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"x","creationTimestamp":"2026-01-02T03:04:05Z",
"labels":{"app":"web","quote":"a"},"annotations":{"a.b/c":"x,y"}},
"spec":{"nodeName":"n1","containers":[{"name":"a","image":"i1","resources":{"requests":{"cpu":"250m","memory":"1Gi"}}},{"name":"b","image":"i2"}]},
"status":{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-02T04:04:05+01:00",
"containerStatuses":[{"name":"a","ready":true,"restartCount":4,"state":{"running":{}},"lastState":{"terminated":{"finishedAt":"2026-01-02T03:04:05Z","exitCode":1}}},
{"name":"b","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`

func TestSet_PodAsItsTableAndChosenColumns(t *testing.T) {
	w := newWorld(t, map[aggregate.Kind][]string{pods: {pod}})
	compare(t, w.row(t, pods, `phase=.status.phase,images:list=.spec.containers[*].image,image=.spec.containers.image,cpu:quantity=.spec.containers.resources.requests.cpu,`+
		`started:timestamp=.status.startTime,none=.status.reason,empty:int=.status.nothing,ready0:bool=.status.containerStatuses.ready,app=label:app,env=memberLabel:env,no=label:no,`+
		`note=.metadata.annotations['a.b/c'],spec:json=.spec.containers.resources,bad:int=.status.phase,badtime:timestamp=.status.phase,badquantity:quantity=.status.phase,`+
		`host=.spec.hostNetwork,uid2=.metadata.uid`, true), map[string]string{
		"member": `"fleet/a"`, "namespace": `"shop"`, "name": `"web"`, "uid": `"x"`, "created": `"2026-01-02T03:04:05Z"`,
		"labels": `{"app":"web","quote":"a"}`,
		"ready":  `"1/2"`, "status": `"CrashLoopBackOff"`, "restarts": "4", "ip": `"10.0.0.1"`, "node": `"n1"`, "nominated_node": "null",
		"phase": `"Running"`, "images": `["i1","i2"]`, "image": "invalid", "cpu": `"250m"`, "started": `"2026-01-02T03:04:05Z"`, "none": "null", "empty": "null",
		"ready0": "invalid", "app": `"web"`, "env": `"prod"`, "no": "null", "note": `"x,y"`, "spec": `"{\"requests\":{\"cpu\":\"250m\",\"memory\":\"1Gi\"}}"`,
		"bad": "invalid", "badtime": "invalid", "badquantity": "invalid", "host": `"false"`, "uid2": `"uid-0"`,
	})
	set, err := w.set(t, pods, "", true)
	ok(t, err)
	types := map[string]rows.Type{}
	for _, c := range set.Columns() {
		types[c.Name] = c.Type
	}
	for name, want := range map[string]rows.Type{"restarts": rows.Int, "created": rows.Timestamp, "labels": rows.Labels, "status": rows.String} {
		if types[name] != want {
			t.Errorf("%s is a %s, want %s", name, types[name], want)
		}
	}
	if _, has := types["age"]; has {
		t.Error("there is an age, which differs with each export")
	}
	if set, err = w.set(t, pods, "", false); err != nil || len(set.Columns()) != len(rows.Fixed) {
		t.Errorf("without the printer's: %v, %v", set.Columns(), err)
	}
}

// TestSet_TimesAreInUTC, and others are no times.
func TestSet_TimesAreInUTC(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-02T03:04:05Z": `"2026-01-02T03:04:05Z"`, "2026-02-28T23:59:59Z": `"2026-02-28T23:59:59Z"`, "2024-02-29T00:00:00Z": `"2024-02-29T00:00:00Z"`,
		"2026-01-02T03:04:05.123456Z": `"2026-01-02T03:04:05.123456Z"`, "2026-01-02T04:04:05+01:00": `"2026-01-02T03:04:05Z"`,
		"2026-02-29T00:00:00Z": "invalid", "2026-13-02T03:04:05Z": "invalid", "2026-00-02T03:04:05Z": "invalid", "2026-01-00T03:04:05Z": "invalid", "2026-01-02T24:04:05Z": "invalid",
		"2026-01-02T03:60:05Z": "invalid", "2026-01-02T03:04:60Z": "invalid", "2026-01-02 03:04:05Z": "invalid", "0000-01-02T03:04:05Z": "invalid", "": "invalid", "2026-01-0xT03:04:05Z": "invalid",
	} {
		w := newWorld(t, map[aggregate.Kind][]string{widgets: {`{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w","creationTimestamp":"` + text + `"}}`}})
		compare(t, w.row(t, widgets, "", false), map[string]string{"created": want})
	}
}

func TestSet_CountsOfBuiltinKindsAreIntegers(t *testing.T) {
	w := newWorld(t, map[aggregate.Kind][]string{
		deploys: {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":3},"status":{"updatedReplicas":2,"readyReplicas":1,"availableReplicas":1}}`},
	})
	compare(t, w.row(t, deploys, "", true), map[string]string{"ready": `"1/3"`, "up_to_date": "2", "available": "1", "created": "null"})
}

func TestSet_CustomKindAsItsDefinition(t *testing.T) {
	w := newWorld(t, map[aggregate.Kind][]string{widgets: {
		`{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop"},"spec":{"size":3,"title":"a \"title\""},"status":{"ready":false,"load":0.5,"seen":"2026-01-02T03:04:05Z"}}`,
	}})
	compare(t, w.row(t, widgets, "", true), map[string]string{
		"size": "3", "ready": "false", "load": "0.5", "last_seen": `"2026-01-02T03:04:05Z"`, "name": `"w"`, "name_2": `"a \"title\""`,
	})
	// Members need not be real API servers.
	w = newWorld(t, map[aggregate.Kind][]string{widgets: {
		`{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","creationTimestamp":"never"},"spec":{"size":"big","title":7},"status":{"seen":["x","y"]}}`,
	}})
	compare(t, w.row(t, widgets, "", true), map[string]string{"size": "null", "ready": "null", "last_seen": "invalid", "created": "invalid"})
}

func TestSet_RedactedIsNotEmpty(t *testing.T) {
	secret := func(annotations string) map[aggregate.Kind][]string {
		return map[aggregate.Kind][]string{secrets: {
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"shop","annotations":{` + annotations + `}},"type":"Opaque","data":{"key":"","other":""}}`,
		}}
	}
	const chosen = `key=.data.key,none=.data.none,all:json=.data,applied=.metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']`
	compare(t, newWorld(t, secret(`"federator.dev/redacted":"true"`)).row(t, secrets, chosen, true), map[string]string{
		"type": `"Opaque"`, "data": "2", "key": "redacted", "none": "null", "all": "redacted", "applied": "redacted",
	})
	compare(t, newWorld(t, secret(``)).row(t, secrets, chosen, true), map[string]string{"key": `""`, "none": "null", "all": `"{\"key\":\"\",\"other\":\"\"}"`, "applied": "null"})
}

func TestSet_ClusterScopedHasNoNamespace(t *testing.T) {
	w := newWorld(t, map[aggregate.Kind][]string{nodes: {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"nodeInfo":{"kubeletVersion":"v1.36.0"}}}`}})
	compare(t, w.row(t, nodes, "off:bool=.spec.unschedulable", true), map[string]string{"namespace": "null", "version": `"v1.36.0"`, "off": "false"})
}

// TestSet_QuantitiesCostNothing, nor are they infinite: what a custom resource has there is its author's.
func TestSet_QuantitiesCostNothing(t *testing.T) {
	w := newWorld(t, map[aggregate.Kind][]string{widgets: {
		`{"apiVersion":"shop.example/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"small":"1e-2147483647","large":"1e400","long":"0.` + strings.Repeat("0", 1<<18) + `1","good":"2E"}}`,
	}})
	compare(t, w.row(t, widgets, "small:quantity=.spec.small,large:quantity=.spec.large,long:quantity=.spec.long,good:quantity=.spec.good", false), map[string]string{
		"small": "invalid", "large": "invalid", "long": "invalid", "good": `"2E"`,
	})
}

func TestNew_NamesTheColumnInErrors(t *testing.T) {
	w := newWorld(t, map[aggregate.Kind][]string{pods: {pod}})
	for _, chosen := range []string{"x=status", "x=.status[", "x=.", "x=label:", "x=memberLabel:a b", "x=.status.containers[0].name", "x=", "ready=.status.phase", "Ready=.status.phase"} {
		if _, err := w.set(t, pods, chosen, true); err == nil || !strings.Contains(err.Error(), chosen[:1]) {
			t.Errorf("%s: %v", chosen, err)
		}
	}
}

// BenchmarkAppend encodes 500 real pods.
func BenchmarkAppend(b *testing.B) {
	text, err := os.ReadFile(filepath.Join("../../../../../shared/corpus", "core_Pod.jsonl"))
	if err != nil {
		b.Skip("the corpus is absent")
	}
	var list []string
	for i := 0; len(list) < 500; i++ {
		for line := range strings.Lines(string(text)) {
			list = append(list, strings.Replace(line, `"name":"`, fmt.Sprintf(`"name":"x%d-`, len(list)), 1))
		}
	}
	w := newWorld(b, map[aggregate.Kind][]string{pods: list[:500]})
	for _, printer := range []bool{true, false} {
		b.Run(fmt.Sprintf("printer=%t", printer), func(b *testing.B) {
			set, err := w.set(b, pods, "phase=.status.phase", printer)
			ok(b, err)
			snapshot := w.index.Snapshot()
			e := set.Encoder(snapshot.Member)
			b.ReportAllocs()
			n := 0
			var body, out []byte
			for b.Loop() {
				objects, err := snapshot.List(aggregate.Query{Kind: pods})
				ok(b, err)
				for o := range objects {
					body, err = o.AppendBody(body[:0])
					ok(b, err)
					out, err = e.Append(out[:0], o, body)
					ok(b, err)
					n++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/row")
		})
	}
}
