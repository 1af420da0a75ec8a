package catalog_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// canonical makes of JSON what the index holds.
func canonical(t testing.TB, line []byte) []byte {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var object map[string]any
	ok(t, decoder.Decode(&object))
	if meta, is := object["metadata"].(map[string]any); is {
		delete(meta, "managedFields")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	ok(t, encoder.Encode(object))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// realObjects are the canonical objects of a file of the corpus.
func realObjects(t testing.TB, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(corpusGlob), file+".jsonl"))
	if err != nil {
		t.Skip("the corpus is absent")
	}
	var out [][]byte
	for line := range bytes.Lines(b) {
		out = append(out, canonical(t, line))
	}
	return out
}

func served(kind, group, version, plural string, namespaced bool) catalog.ServedResource {
	return catalog.ServedResource{
		Kind: aggregate.MakeKind(kind, group), Namespaced: namespaced, Singular: strings.ToLower(kind),
		Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural},
	}
}

// fakeFleet serves resources that a test sets.
type fakeFleet struct {
	mu      sync.Mutex
	list    []catalog.ServedResource
	changed chan struct{}
}

func newFakeFleet(list ...catalog.ServedResource) *fakeFleet {
	return &fakeFleet{list: list, changed: make(chan struct{})}
}

func (s *fakeFleet) Resources() ([]catalog.ServedResource, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.changed
}

func (s *fakeFleet) serve(list ...catalog.ServedResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
	close(s.changed)
	s.changed = make(chan struct{})
}

// fleet is an index and its writers.
type fleet struct {
	t      testing.TB
	index  *aggregate.Index
	scopes map[string]*aggregate.Scope
}

func newFleet(t testing.TB) *fleet {
	t.Helper()
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(5)})
	ok(t, err)
	return &fleet{t, x, map[string]*aggregate.Scope{}}
}

func (f *fleet) join(name, version string, apis ...string) {
	f.t.Helper()
	ok(f.t, f.index.PutMember(aggregate.Member{Name: name, UID: "uid-" + name, Version: version, APIs: apis}))
}

// keep opens a scope at a version, with objects.
func (f *fleet) keep(member string, kind aggregate.Kind, version string, objects ...string) {
	f.t.Helper()
	key := member + " " + string(kind)
	s := f.scopes[key]
	if s == nil {
		var err error
		s, err = f.index.OpenScope(member, kind, version)
		ok(f.t, err)
		f.scopes[key] = s
	}
	for _, object := range objects {
		body := canonical(f.t, []byte(object))
		var meta struct {
			Metadata struct{ Name, Namespace, UID, ResourceVersion string }
		}
		ok(f.t, json.Unmarshal(body, &meta))
		s.Upsert(s.Item(&aggregate.Record{
			Namespace: meta.Metadata.Namespace, Name: meta.Metadata.Name, UID: meta.Metadata.UID,
			ResourceVersion: meta.Metadata.ResourceVersion, Body: body,
		}))
	}
	f.state(member, kind, aggregate.Synced)
}

func (f *fleet) state(member string, kind aggregate.Kind, state aggregate.State) {
	f.t.Helper()
	s := f.scopes[member+" "+string(kind)]
	s.SetStatus(aggregate.Status{State: state})
	_, err := s.Commit()
	ok(f.t, err)
}

// viewOf is the view of a fleet of one member that has one resource.
func viewOf(t testing.TB, s catalog.ServedResource, held string) *catalog.View {
	t.Helper()
	f := newFleet(t)
	f.join("fleet/a", "v1.36.0", held)
	f.keep("fleet/a", s.Kind, held)
	return catalog.New(newFakeFleet(s)).View(f.index.Snapshot())
}

// ask gets a path of discovery, and returns the answer's code and body.
func ask(t testing.TB, v *catalog.View, snapshot *aggregate.Snapshot, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/fleet"+path, nil)
	target, err := route.Parse(r.URL)
	ok(t, err)
	if err := v.ServeDiscovery(w, r, snapshot, target); err != nil {
		status, is := err.(apierrors.APIStatus) //nolint:errorlint // the door says so
		if !is {
			t.Fatalf("%s: %v", path, err)
		}
		return int(status.Status().Code), err.Error()
	}
	return w.Code, w.Body.String()
}
