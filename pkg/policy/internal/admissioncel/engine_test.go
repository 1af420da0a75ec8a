package admissioncel_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

const member = "fleet/a"

// loaded judges objects of a member as the product does: by policies that were loaded from
// a file, with an engine that follows the index.
type loaded struct {
	index    *aggregate.Index
	scopes   map[aggregate.Kind]*aggregate.Scope
	engine   *policy.Engine
	cursor   *aggregate.Cursor
	bindings []policy.Binding
}

func load(t *testing.T, file string, objects []*unstructured.Unstructured) *loaded {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: file, Data: data}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &loaded{scopes: map[aggregate.Kind]*aggregate.Scope{}}
	if w.index, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)}); err != nil {
		t.Fatal(err)
	}
	if err := w.index.PutMember(aggregate.Member{Name: member, UID: "a"}); err != nil {
		t.Fatal(err)
	}
	for kind, gvr := range resources {
		at := aggregate.MakeKind(kind, gvr.Group)
		scope, err := w.index.OpenScopeAs(member, at, gvr.GroupVersion().String(), gvr.Resource)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := scope.Replace(nil, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
		w.scopes[at] = scope
	}
	for _, o := range objects {
		w.put(t, o)
	}
	w.bindings, _ = policy.DefaultBindings(set, nil)
	if w.engine, err = policy.NewEngine(policy.EngineOptions{Set: set, Bindings: w.bindings, Limits: policy.Limits{Evaluation: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	snapshot := w.index.Snapshot()
	if _, err := w.engine.Reset(t.Context(), snapshot, nil); err != nil {
		t.Fatal(err)
	}
	w.cursor = w.index.Cursor(snapshot)
	return w
}

func refOf(o *unstructured.Unstructured) aggregate.Ref {
	return aggregate.Ref{Member: member, Kind: aggregate.MakeKind(o.GetKind(), o.GroupVersionKind().Group), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (w *loaded) put(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o.Object); err != nil {
		t.Fatal(err)
	}
	record := &aggregate.Record{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: "1", Body: bytes.TrimSpace(body.Bytes())}
	for k, v := range o.GetLabels() {
		record.Labels = append(record.Labels, aggregate.Label{Key: k, Value: v})
	}
	slices.SortFunc(record.Labels, func(a, b aggregate.Label) int { return strings.Compare(a.Key, b.Key) })
	scope := w.scopes[refOf(o).Kind]
	scope.Upsert(scope.Item(record))
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (w *loaded) apply(t *testing.T) {
	t.Helper()
	batch, ok := w.cursor.Poll()
	if !ok {
		t.Fatal("nothing changed")
	}
	if _, err := w.engine.Apply(t.Context(), batch, nil); err != nil {
		t.Fatal(err)
	}
}

// compare reports where the engine's verdicts on an object that comes and goes differ from
// what the API server says: the violations of a binding, or its error, are its warnings, or
// what the API server denies the object for.
func (w *loaded) compare(t *testing.T, o *unstructured.Unstructured, server answer) (violations, failures int) {
	t.Helper()
	w.put(t, o)
	w.apply(t)
	var denials []string
	for _, b := range w.bindings {
		v, _ := w.engine.State().Get(b.Name, policy.Subject{Ref: refOf(o)})
		var found []string
		for _, x := range v.Violations {
			if !slices.Contains(found, x.Msg) { // the API server's warnings are once each, too
				found = append(found, x.Msg)
			}
		}
		violations += len(found)
		failed := v.State == policy.Error
		if failed {
			failures++
			found = append(found, v.Message)
		}
		if b.Package == "admission.denied" || strings.HasPrefix(v.Message, "failed to configure binding: ") {
			denials = append(denials, found...)
			continue
		}
		said := warningsOf(server, strings.TrimPrefix(b.Constraint, "ValidatingAdmissionPolicyBinding/"))
		slices.Sort(found)
		// An error hides what else would deny.
		if !slices.Equal(found, said) && !(failed && slices.Contains(said, v.Message)) {
			t.Errorf("%s on %s: the engine has %s %q, the server %q", b.Name, refOf(o), v.State, found, said)
		}
	}
	switch is := func(m string) bool { return strings.HasSuffix(server.err.Error(), "denied request: "+m) }; {
	case server.err == nil && len(denials) > 0, server.err != nil && !slices.ContainsFunc(denials, is):
		t.Errorf("%s: the engine denies it for %q, the server says %v", refOf(o), denials, server.err)
	}
	w.scopes[refOf(o).Kind].Delete(o.GetNamespace(), o.GetName())
	if _, err := w.scopes[refOf(o).Kind].Commit(); err != nil {
		t.Fatal(err)
	}
	w.apply(t)
	return violations, failures
}

// warningsOf are those of a binding, sorted.
func warningsOf(server answer, binding string) (out []string) {
	for _, warning := range server.warnings {
		if _, message, ok := strings.Cut(warning, "' with binding '"+binding+"': "); ok {
			out = append(out, message)
		}
	}
	slices.Sort(out)
	return out
}
