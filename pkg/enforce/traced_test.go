package enforce_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/tracing"
)

// follow has Deployments follow the one that is called leader.
const follow = `# METADATA
# title: Followers
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package follow

view.leader[input.ref.namespace] contains input.object.spec.replicas if input.ref.name == "leader"

violation contains {"msg": sprintf("%d, not %d", [input.object.spec.replicas, e.value]), "remedy": {"action": "patch", "patch": {"spec": {"replicas": e.value}}}} if {
	some e in data.fleet.views.follow.leader[input.ref.namespace]
	e.value != input.object.spec.replicas
}

violation contains {"msg": "no leader", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 0}}}} if {
	count([e | some e in data.fleet.views.follow.leader[input.ref.namespace]]) == 0
}
`

// causes says which changes intents come of.
func causes(a *fakeActor) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, i := range a.policies["b"].intents {
		parts = append(parts, fmt.Sprintf("%s of %s at %d", i.Remedy.Target.Name, i.Cause.Name, i.Cause.Revision))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func TestCorrector_IntentsNameTheChangesTheyComeOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "p.rego", Data: []byte(follow)}}}}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		exporter := tracetest.NewInMemoryExporter()
		tracer, err := tracing.New(tracing.Options{Exporter: exporter, Sampling: 1, Judged: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		sent := make(chan error)
		go func() { sent <- tracer.Run(ctx) }()
		index := newIndex(t)
		scope := scopeOf(t, index)
		for _, name := range []string{"leader", "db", "web"} {
			put(t, scope, name, 2)
		}
		a := &fakeActor{policies: map[string]actorState{}}
		c := enforce.NewCorrector(a, nil).WithTracer(tracer)
		startLoop(t, enforce.Options{Index: index, Set: set, Bindings: []policy.Binding{{Name: "b", Package: "follow"}}, Tracer: tracer, Changed: c.Changed})
		synctest.Wait()
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce})
		want := func(what, want string) {
			t.Helper()
			if got := causes(a); got != want {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		want("nothing is wrong", "")

		put(t, scope, "leader", 3)
		led := index.Snapshot().Revision()
		want("what others read has changed", fmt.Sprintf("db of leader at %d, web of leader at %[1]d", led))

		put(t, scope, "web", 1)
		own := index.Snapshot().Revision()
		want("a target has changed, too", fmt.Sprintf("db of leader at %d, web of web at %d", led, own))

		gone := index.Snapshot().Revision() + 1
		tracer.Committed(&tracing.Commit{Member: "fleet/a", Kind: "Deployment.apps", Revision: uint64(gone), Changes: 1, At: 1}, []tracing.Stamp{{
			Namespace: "shop", Name: "leader", Deleted: true, Position: 1, Read: 1, Began: 1, Decoded: 1,
		}})
		if position := scope.Delete("shop", "leader"); position != 1 {
			t.Errorf("position %d", position)
		}
		if revision, err := scope.Commit(); err != nil || revision != gone {
			t.Fatal(revision, err)
		}
		want("what others read was deleted", fmt.Sprintf("db of leader at %d, web of leader at %[1]d", gone))

		// Of a policy that is enforced from now on it is not known: the target's own change is named.
		if err := c.SetSpecs(nil); err != nil {
			t.Fatal(err)
		}
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce})
		db, _ := index.Snapshot().Get(deployment("db"))
		want("nobody remembers", fmt.Sprintf("db of db at %d, web of web at %d", db.Revision(), own))

		time.Sleep(2 * time.Second) // what is sent is sent each second
		synctest.Wait()
		id, _ := tracer.TraceOf("", "", uint64(gone))
		var names []string
		for _, s := range exporter.GetSpans() {
			if s.SpanContext.TraceID() == id {
				names = append(names, s.Name)
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != "batch change commit decode evaluation read view" {
			t.Errorf("the deletion was traced as %q", got)
		}
		end()
		<-sent
	})
}
