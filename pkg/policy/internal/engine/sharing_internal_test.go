package engine

import (
	"fmt"
	"runtime"
	"testing"
	"weak"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/value"
)

const twinsText = `# METADATA
# title: Twins
# custom: {severity: low, kinds: ["Deployment.apps"]}
package twins

violation contains {"msg": "none"} if input.object.spec.replicas == 0
`

func twinWorld(t *testing.T, objects int) (*Engine, *aggregate.Index, *module.Set) {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/eu", UID: "eu"}); err != nil {
		t.Fatal(err)
	}
	s, err := index.OpenScope("fleet/eu", "Deployment.apps", "apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range objects {
		s.Upsert(s.Item(&aggregate.Record{Namespace: "shop", Name: fmt.Sprint("d", i), UID: fmt.Sprint(i), ResourceVersion: "1", Body: fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d%d","namespace":"shop"},"spec":{"replicas":0}}`, i)}))
	}
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	set, err := module.Load([]module.Source{{Files: []module.File{{Path: "twins.rego", Data: []byte(twinsText)}}}}, module.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Set: set, Bindings: []binding.Binding{{Name: "twins", Package: "twins"}}, Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	return e, index, set
}

// TestWorker_HoldsNoBindingWhenIdle: one that is gone would be held with all its verdicts.
func TestWorker_HoldsNoBindingWhenIdle(t *testing.T) {
	e, index, set := twinWorld(t, 100)
	if _, err := e.Reset(t.Context(), index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	gone := weak.Make(e.bindings[0])
	if _, err := e.Configure(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
	}
	if gone.Value() != nil {
		t.Error("a binding that is gone is held")
	}
	runtime.KeepAlive(e)
}

// TestCache_SharesADocumentLargerThanItsRoom: a document by name of a thousand members with 9 KiB each takes more
// than the cache's room: it is what evaluations share most.
func TestCache_SharesADocumentLargerThanItsRoom(t *testing.T) {
	e, index, _ := twinWorld(t, 1)
	if _, err := e.Reset(t.Context(), index.Snapshot(), nil); err != nil {
		t.Fatal(err)
	}
	w := e.newWorker()
	built := 0
	for range 10 {
		w.reset(e.bindings[0], "fleet/eu")
		if _, err := w.evaluation.cached(documentKey{section: readNamed, a: "ConfigMap", b: "shop", c: "big"}, func() (value.Value, error) {
			built++
			return value.True, w.evaluation.charge(9 << 20)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if built != 1 {
		t.Errorf("10 evaluations build the document %d times", built)
	}
}
