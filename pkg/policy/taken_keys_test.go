package policy_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

// keyReads has keys as subjects, whose verdicts read other keys of others.
const keyReads = `# METADATA
# title: Nobody needs what somebody has
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.apps}
package test.keys

view.apps[input.object.spec.app] contains true if true

view.needs[input.object.spec.needs] contains true if true

violation contains {"msg": "it is needed"} if count(data.fleet.views["test.keys"].needs[input.key]) > 0
`

// TestState_AwaitsWhatKeysThatAreTakenOverReadOfOthers, as it does of members.
func TestState_AwaitsWhatKeysThatAreTakenOverReadOfOthers(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, keyReads), map[string]any{"needs": "shop"})
	k.tell(aggregate.Synced, false)
	k.hold(k.engine.State().Wanted())
	own := func(now string) {
		t.Helper()
		if _, err := k.engine.SetKeyOwner(t.Context(), policy.KeyOwner{Self: "me", Now: []string{now}}); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(want int) {
		t.Helper()
		v, _ := k.engine.State().Get("test.keys", policy.Subject{Key: "shop"})
		if len(v.Violations) != want {
			t.Errorf("it finds %+v", v)
		}
	}
	own("another")
	k.join("fleet/a")
	mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": "shop"}))
	k.is("another process judges keys", true)
	own("me")
	k.is("it is given keys", false)
	if k.engine.State().HoldsKeys() {
		t.Error("the one that has judged the keys may let go of them")
	}
	finds(0)
	k.tell(aggregate.Synced, true)
	k.is("it is told", false)
	k.hold(k.engine.State().Wanted())
	k.is("all is held that these read", true)
	finds(1)
	if !k.engine.State().HoldsKeys() {
		t.Error("the one that has judged the keys may not let go of them")
	}
}

// TestState_AwaitsWhatAMemberThatIsLetGoWasReadFor_AfterAReset: as where a batch says that it is let go of.
func TestState_AwaitsWhatAMemberThatIsLetGoWasReadFor_AfterAReset(t *testing.T) {
	t.Parallel()
	k := newTaker(t, load(t, sameApp), map[string]any{"app": "shop"})
	k.tell(aggregate.Synced, false)
	k.join("fleet/a")
	k.join("fleet/b")
	standby, _ := k.own.index.Snapshot().Member("fleet/b")
	standby.Role = aggregate.Standby
	if err := k.own.index.PutMember(standby); err != nil {
		t.Fatal(err)
	}
	mustDo(t, k.own, deployment("fleet/a", "web", map[string]any{"app": "shop"}), deployment("fleet/b", "web", map[string]any{"app": "shop"}))
	k.is("all is read here", true)
	mustDo(t, k.own, op{Do: "leave", Member: "fleet/b"})
	own, told := k.own.index.Snapshot(), k.told.Snapshot()
	if _, err := k.engine.Reset(t.Context(), own, told); err != nil {
		t.Fatal(err)
	}
	k.cursor, k.heard = k.own.index.Cursor(own), k.told.Cursor(told)
	k.is("the other is let go of", false, "fleet/a")
	k.tell(aggregate.Synced, true)
	k.is("it is told", false, "fleet/a")
	k.hold(k.engine.State().Wanted())
	k.is("that is held", true)
}

// BenchmarkTakeovers is of a pass for one object of 1,000 members, with 100 bindings, where all are held that these read of others,
// and where they are taken over.
func BenchmarkTakeovers(b *testing.B) {
	const members, bindings = 1000, 100
	set := load(b, sameApp)
	var bound []policy.Binding
	for n := range bindings {
		bound = append(bound, policy.Binding{Name: fmt.Sprintf("b%d", n), Package: "test.app"})
	}
	others, err := newWorld()
	if err != nil {
		b.Fatal(err)
	}
	mustDo(b, others, op{Do: "join", Member: "fleet/z", UID: 1}, op{Do: "reopen", Member: "fleet/z", Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced})
	other, _ := engineOn(b, others, policy.EngineOptions{Set: set, Bindings: bound, Exports: true})
	told := toldOf(b, other.State().Export()).Snapshot()
	own, err := newWorld()
	if err != nil {
		b.Fatal(err)
	}
	for n := range members {
		member := fmt.Sprintf("fleet/m%04d", n)
		mustDo(b, own, op{Do: "join", Member: member, UID: n + 1}, op{Do: "reopen", Member: member, Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced})
		for i := range 5 {
			mustDo(b, own, deployment(member, fmt.Sprint("web", i), map[string]any{"app": fmt.Sprint(n, "-", i)}))
		}
	}
	for _, all := range []bool{true, false} {
		b.Run(fmt.Sprintf("held=%t", all), func(b *testing.B) {
			var held *interest.Set
			if all {
				held = interest.Everything()
			}
			e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bound, Exports: true, Subscribe: true, Held: held})
			if err != nil {
				b.Fatal(err)
			}
			at := own.index.Snapshot()
			if _, err := e.Reset(b.Context(), at, told); err != nil {
				b.Fatal(err)
			}
			cursor := own.index.Cursor(at)
			n := 0
			for b.Loop() {
				n++
				mustDo(b, own, deployment("fleet/m0000", "web", map[string]any{"app": fmt.Sprint(n)}))
				apply(b, e, cursor)
			}
		})
	}
}
