package offline_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
)

const fleetManifests = `# a comment alone
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: eu-1
  namespace: fleet
  labels: {topology.kubernetes.io/region: eu}
spec:
  topology: {version: v1.36.3}
---
apiVersion: v1
kind: Secret
metadata:
  name: password
  annotations: {federator.dev/member: fleet/eu-1}
data: {key: c2VjcmV0}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: shop}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: web, namespace: shop, annotations: {federator.dev/member: fleet/us-1}}
  spec: {rules: [{host: a.example.com}]}
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: p}
  spec: {priority: 9007199254740993}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets}}
`

func read(t *testing.T, text string, opts offline.Options) (*offline.Fleet, error) {
	t.Helper()
	o, err := offline.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return o, o.Add("fleet.yaml", strings.NewReader(text), "")
}

// dump lists what a snapshot holds.
func dump(t *testing.T, s *aggregate.Snapshot) string {
	t.Helper()
	var b strings.Builder
	for m := range s.Members() {
		fmt.Fprintf(&b, "member %s %v %s\n", m.Name, m.Labels, m.Version)
		for scope := range s.Scopes(m.Name) {
			fmt.Fprintf(&b, "scope %s %s %s %s %d\n", scope.Kind, scope.Version, scope.Status.State, scope.Status.Reason, scope.Objects)
			objects, err := s.List(aggregate.Query{Kind: scope.Kind, Members: []string{m.Name}})
			if err != nil {
				t.Fatal(err)
			}
			for o := range objects {
				body, err := o.AppendBody(nil)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "%s %s %s %s\n", o.Ref(), o.UID(), o.ResourceVersion(), body)
			}
		}
	}
	return b.String()
}

func TestFleet_FromManifests(t *testing.T) {
	o, err := read(t, fleetManifests, offline.Options{DefaultMember: "fleet/eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	index, err := o.Index([]aggregate.Kind{"Deployment.apps"})
	if err != nil {
		t.Fatal(err)
	}
	s := index.Snapshot()
	eu, ok := s.Member("fleet/eu-1")
	if !ok || eu.Version != "v1.36.3" || !slices.Equal(eu.Labels, []aggregate.Label{{Key: "topology.kubernetes.io/region", Value: "eu"}}) {
		t.Errorf("member fleet/eu-1: %+v, %v", eu, ok)
	}
	for _, c := range []struct {
		ref  aggregate.Ref
		want string // in the body
	}{
		{aggregate.Ref{Member: "fleet/eu-1", Kind: "Secret", Namespace: "default", Name: "password"}, `"data":{"key":""}`},
		{aggregate.Ref{Member: "fleet/eu-1", Kind: "Namespace", Name: "shop"}, `"name":"shop"`},
		{aggregate.Ref{Member: "fleet/us-1", Kind: "Ingress.networking.k8s.io", Namespace: "shop", Name: "web"}, `"host":"a.example.com"`},
		{aggregate.Ref{Member: "fleet/eu-1", Kind: "Pod", Namespace: "default", Name: "p"}, `"priority":9007199254740993`},
		{aggregate.Ref{Member: "fleet/eu-1", Kind: "Widget.example.com", Namespace: "default", Name: "w"}, `"namespace":"default"`},
	} {
		object, ok := s.Get(c.ref)
		if !ok {
			t.Errorf("%s is not there", c.ref)
			continue
		}
		body, err := object.AppendBody(nil)
		if err != nil || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: %s, %v: want %s", c.ref, body, err, c.want)
		}
		if object.UID() == "" || object.ResourceVersion() == "" {
			t.Errorf("%s has UID %q, resourceVersion %q", c.ref, object.UID(), object.ResourceVersion())
		}
	}
	for _, member := range []string{"fleet/eu-1", "fleet/us-1"} {
		for _, kind := range []aggregate.Kind{"Deployment.apps", "Pod", "Ingress.networking.k8s.io"} {
			if info, ok := s.Scope(member, kind); !ok || !info.Status.State.Complete() {
				t.Errorf("%s %s is %v: what manifests do not hold is not there", member, kind, info.Status)
			}
		}
	}
}

func TestFleet_RefusesInvalidManifests(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kind: Pod\nmetadata: {name: p}", "fleet.yaml: document 1: apiVersion is required"},
		{"apiVersion: v1\nkind: Pod", "metadata is required"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {}", "Pod without metadata.name"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: 1}", "metadata.name is not a string"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: 1}}", "metadata.labels is not a map of strings"},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {federator.dev/member: x}}", `member "x" is not <namespace>/<name>`},
		{"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}", "document 2: manifests/default Pod default/p is also in fleet.yaml: document 1"},
		{"apiVersion: v1\nkind: Pod\nkind: Pod\nmetadata: {name: p}", "already set"},
		{"- a", "not an object"},
		{`{"apiVersion":"v1"`, "document 1"},
		{"apiVersion: v1\nkind: List\nitems: [1]", "item 1: not an object"},
	} {
		_, err := read(t, c.text, offline.Options{})
		if !errors.Is(err, offline.ErrManifest) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
	o, err := read(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\napiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: b}", offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Index(nil); !errors.Is(err, offline.ErrManifest) || !strings.Contains(err.Error(), "apps/v1beta1 here and at apps/v1") {
		t.Errorf("two versions of a kind: %v", err)
	}
	if _, err := offline.New(offline.Options{DefaultMember: "x"}); !errors.Is(err, offline.ErrManifest) {
		t.Errorf("a member without namespace: %v", err)
	}
}

func TestFleet_ReadsDirectoriesRecursively(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}", "below/b.JSON": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}` + "\n" + `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}`,
		".git/d.yaml": "broken: [", "README.md": "broken: [",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, err := offline.New(offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.AddPath(dir, "fleet/eu-1"); err != nil {
		t.Fatal(err)
	}
	if o.Objects() != 3 {
		t.Errorf("%d objects", o.Objects())
	}
}

func TestSnapshot_IsLoadedAsItWasSaved(t *testing.T) {
	o, err := read(t, fleetManifests, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	index, err := o.Index(nil)
	if err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/us-1", "Node", "v1")
	if err != nil {
		t.Fatal(err)
	}
	scope.SetStatus(aggregate.Status{State: aggregate.Forbidden, Reason: "list nodes: forbidden"})
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "snapshot")
	taken := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := offline.SaveSnapshot(dir, index.Snapshot(), taken); err != nil {
		t.Fatal(err)
	}
	saved, err := offline.LoadSnapshot(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := dump(t, saved.Index.Snapshot()), dump(t, index.Snapshot()); got != want {
		t.Errorf("loaded:\n%s\nsaved:\n%s", got, want)
	}
	if !saved.Taken.Equal(taken) || saved.Revision != index.Snapshot().Revision() {
		t.Errorf("taken %v at %d", saved.Taken, saved.Revision)
	}
	if err := offline.SaveSnapshot(dir, index.Snapshot(), taken); err == nil {
		t.Error("a snapshot was saved over another")
	}
}

func TestLoadSnapshot_RefusesBrokenOnes(t *testing.T) {
	o, err := read(t, fleetManifests, offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	index, err := o.Index(nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, breakIt := range map[string]func(dir string) error{
		"no fleet.yaml": func(dir string) error { return os.Remove(filepath.Join(dir, "fleet.yaml")) },
		"a file that is gone": func(dir string) error {
			return os.Remove(filepath.Join(dir, "manifests_default", "Pod.jsonl.gz"))
		},
		"a file that is cut": func(dir string) error {
			return os.Truncate(filepath.Join(dir, "manifests_default", "Pod.jsonl.gz"), 40)
		},
		"an unknown field":  edit("members:", "surprise: 1\nmembers:"),
		"another version":   edit("snapshot/v1", "snapshot/v2"),
		"an object too few": edit("objects: 1", "objects: 2"),
		"a way out":         edit("file: manifests_default/Pod", "file: ../manifests_default/Pod"),
	} {
		dir := filepath.Join(t.TempDir(), "snapshot")
		if err := offline.SaveSnapshot(dir, index.Snapshot(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := breakIt(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := offline.LoadSnapshot(dir); !errors.Is(err, offline.ErrSnapshot) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func edit(old, with string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, "fleet.yaml")
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(data), old) {
			return fmt.Errorf("no %q in %s", old, data)
		}
		return os.WriteFile(path, []byte(strings.Replace(string(data), old, with, 1)), 0o600)
	}
}
