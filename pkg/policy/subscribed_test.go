package policy_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy"
)

const sameApp = `# METADATA
# title: Reads who else has the app
# custom: {severity: low, kinds: ["Deployment.apps"]}
package test.app

view.apps[input.object.spec.app] contains true if true

violation contains {"msg": "several"} if count(data.fleet.views["test.app"].apps[input.object.spec.app]) > 1
`

// toldOf returns an index of what an engine exports.
func toldOf(t testing.TB, x *policy.Export) *aggregate.Index {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(7)})
	if err != nil {
		t.Fatal(err)
	}
	for m := range x.Members() {
		if err := index.PutMember(m); err != nil {
			t.Fatal(err)
		}
		for s := range x.Scopes(m.Name) {
			w, err := index.OpenScope(m.Name, s.Kind, s.Version)
			if err != nil {
				t.Fatal(err)
			}
			var items []aggregate.Item
			if err := x.Records(m.Name, s.Kind, func(rec *aggregate.Record) error {
				items = append(items, w.Item(rec))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Replace(items, s.Status); err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
	}
	return index
}

func worldOf(t *testing.T, member, name, app string) *world {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, w, op{Do: "join", Member: member, UID: 1},
		op{Do: "reopen", Member: member, Kind: "Deployment.apps", Version: "apps/v1", State: aggregate.Synced},
		deployment(member, name, map[string]any{"app": app}))
	return w
}

// TestEngine_SetHeld has a verdict wait for the one key that it reads of another process, and no other.
func TestEngine_SetHeld(t *testing.T) {
	t.Parallel()
	set := load(t, sameApp)
	bindings := bindingsOf(set)
	other, _ := engineOn(t, worldOf(t, "fleet/b", "web", "shop"), policy.EngineOptions{Set: set, Bindings: bindings, Exports: true})
	own := worldOf(t, "fleet/a", "web", "shop")
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Exports: true, Subscribe: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(t.Context(), own.index.Snapshot(), toldOf(t, other.State().Export()).Snapshot()); err != nil {
		t.Fatal(err)
	}
	subject := policy.Subject{Ref: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}
	is := func(when string, want policy.VerdictState, evaluations int64) {
		t.Helper()
		v, ok := e.State().Get(bindings[0].Name, subject)
		if !ok || v.State != want || (want == policy.Unknown) != isWaiting(&v) || (want == policy.Unknown) == e.State().BindingSynced(bindings[0].Name) {
			t.Errorf("%s: %t %+v, want %s", when, ok, v, want)
		}
		if got := e.Stats().Evaluations; got != evaluations {
			t.Errorf("%s: %d evaluations, want %d", when, got, evaluations)
		}
	}
	hold := func(held *interest.Set) {
		t.Helper()
		if _, err := e.SetHeld(t.Context(), held); err != nil {
			t.Fatal(err)
		}
	}
	is("before anything is held", policy.Unknown, 1)
	wanted := e.State().Wanted()
	if wanted.Size() != 1 || wanted.IsEverything() {
		t.Fatalf("%d keys are wanted, of one that is read", wanted.Size())
	}
	var b interest.Builder
	b.AddAll(interest.View("another"))
	hold(b.Take())
	is("with keys that nothing reads", policy.Unknown, 1)
	hold(wanted)
	is("with the key", policy.Known, 2)
	if v, _ := e.State().Get(bindings[0].Name, subject); len(v.Violations) != 1 {
		t.Errorf("the other's object is not seen: %+v", v)
	}
	hold(wanted.With(interest.Everything()))
	is("with more", policy.Known, 2)
	hold(nil)
	is("when nothing is held any more", policy.Unknown, 3)
	hold(wanted)
	mustDo(t, own, deployment("fleet/a", "web", map[string]any{"app": "pay"}))
	cursor := own.index.Cursor(e.State().Snapshot)
	apply(t, e, cursor)
	is("with another key", policy.Unknown, 5)
	if now := e.State().Wanted(); !now.Covers(wanted) || now.Size() != 2 {
		t.Errorf("%d keys are wanted", now.Size())
	}
	// What gone policies have read is not asked for.
	if _, err := e.Configure(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	if !e.State().Wanted().Empty() || e.Stats().Asked != 0 {
		t.Errorf("without bindings %d keys are wanted of %d reads", e.State().Wanted().Size(), e.Stats().Asked)
	}
	if _, err := other.SetHeld(t.Context(), wanted); err == nil {
		t.Error("an engine that does not subscribe is told what it holds")
	}
	if s := other.State(); !s.Wanted().IsEverything() || !s.Held().IsEverything() {
		t.Error("an engine that does not subscribe has not everything")
	}
}
