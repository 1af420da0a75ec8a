package aggregate_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestSnapshot_ShapeIsOfEverythingButObjects, and ChangedOf of objects alone.
func TestSnapshot_ShapeIsOfEverythingButObjects(t *testing.T) {
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	var pods *aggregate.Scope
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		_, err := pods.Commit()
		must(err)
	}
	item := func(rv string) aggregate.Item {
		return pods.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: rv, Body: []byte(`{"apiVersion":"v1","kind":"Pod","rv":"` + rv + `"}`)})
	}
	open := func(version, resource string) {
		t.Helper()
		var err error
		pods, err = x.OpenScopeAs("fleet/a", "Pod", version, resource)
		must(err)
	}
	synced := aggregate.Status{State: aggregate.Synced}
	for _, step := range []struct {
		what             string
		do               func()
		reshapes, object bool
	}{
		{"a member joins", func() { must(x.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"})) }, true, false},
		{"it is as it was", func() { must(x.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"})) }, false, false},
		{"a label changes", func() {
			must(x.PutMember(aggregate.Member{Name: "fleet/a", UID: "a", Labels: []aggregate.Label{{Key: "env", Value: "prod"}}}))
		}, true, false},
		{"a scope is opened", func() { open("v1", "pods") }, true, true},
		{"its state changes", func() { pods.SetStatus(synced); commit() }, true, false},
		{"an object comes", func() { pods.Upsert(item("1")); commit() }, false, true},
		{"it changes", func() { pods.Upsert(item("2")); commit() }, false, true},
		{"a list of the same", func() { _, err := pods.Replace([]aggregate.Item{item("2")}, synced); must(err) }, false, false},
		{"a list of another", func() { _, err := pods.Replace([]aggregate.Item{item("3")}, synced); must(err) }, false, true},
		{"the reason changes", func() { pods.SetStatus(aggregate.Status{State: aggregate.Synced, Reason: "x"}); commit() }, true, false},
		{"both", func() { pods.SetStatus(synced); pods.Delete("shop", "web"); commit() }, true, true},
		{"another writer", func() { pods.Close(); open("v1", "pods") }, false, false},
		{"another resource", func() {
			pods.Close()
			open("v1", "podz")
			_, err := pods.Replace([]aggregate.Item{item("4")}, synced)
			must(err)
		}, true, true},
		{"the scope goes", func() { pods.Remove() }, true, true},
		{"the member leaves", func() { x.RemoveMember("fleet/a") }, true, false},
	} {
		before := x.Snapshot()
		step.do()
		after := x.Snapshot()
		is, _ := after.Scope("fleet/a", "Pod")
		if got := before.Shape() != after.Shape(); got != step.reshapes {
			t.Errorf("%s: shape %d, then %d", step.what, before.Shape(), after.Shape())
		}
		if got := before.ChangedOf("Pod") != after.ChangedOf("Pod"); got != step.object {
			t.Errorf("%s: objects changed at %d, then at %d", step.what, before.ChangedOf("Pod"), after.ChangedOf("Pod"))
		}
		if after.Shape() > after.Revision() || after.ChangedOf("Pod") > after.Revision() {
			t.Errorf("%s: shape %d, objects at %d, at revision %d", step.what, after.Shape(), after.ChangedOf("Pod"), after.Revision())
		}
		objects, bytes := after.Size()
		if objects != is.Objects || (bytes > 0) != (objects > 0) {
			t.Errorf("%s: %d objects in %d bytes, want %d", step.what, objects, bytes, is.Objects)
		}
	}
}
