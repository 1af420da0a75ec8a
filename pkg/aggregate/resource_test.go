package aggregate_test

import (
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
)

// TestScope_KeepsTheResourceItWasReadUnder, until it has been read under another:
// that is a new state of all its objects, and older snapshots keep what they had.
func TestScope_KeepsTheResourceItWasReadUnder(t *testing.T) {
	const kind = aggregate.Kind("Vault.acme.io")
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	open := func(member, resource string) *aggregate.Scope {
		t.Helper()
		s, err := x.OpenScopeAs(member, kind, "acme.io/v1", resource)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fill := func(s *aggregate.Scope) {
		t.Helper()
		item := s.Item(&aggregate.Record{Name: "v", UID: "u", ResourceVersion: "7", Body: []byte(`{"apiVersion":"acme.io/v1","kind":"Vault"}`)})
		if _, err := s.Replace([]aggregate.Item{item}, aggregate.Status{State: aggregate.Synced}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(s *aggregate.Snapshot, of string, all ...string) {
		t.Helper()
		o, _ := s.Get(aggregate.Ref{Member: "a/a", Kind: kind, Name: "v"})
		info, _ := s.Scope("a/a", kind)
		if o.IsZero() || o.Resource() != of || info.Resource != of || s.Resource("a/a", kind) != of || !slices.Equal(s.Resources(kind), all) {
			t.Errorf("object %t of %q, scope of %q, kind of %q; want %q of %q", !o.IsZero(), o.Resource(), info.Resource, s.Resources(kind), of, all)
		}
	}
	for _, m := range []string{"a/a", "b/b"} {
		if err := x.PutMember(aggregate.Member{Name: m, UID: m}); err != nil {
			t.Fatal(err)
		}
	}
	s := open("a/a", "vaults")
	fill(s)
	fill(open("b/b", "vaults"))
	first := x.Snapshot()
	want(first, "vaults", "vaults")
	s.Close()
	s = open("a/a", "chests")
	s.SetStatus(aggregate.Status{State: aggregate.Syncing})
	if _, err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	want(x.Snapshot(), "vaults", "vaults")
	cursor := x.Cursor(x.Snapshot())
	fill(s)
	want(x.Snapshot(), "chests", "chests", "vaults")
	want(first, "vaults", "vaults")
	batch, _ := cursor.Poll()
	for d := range batch.Deltas() {
		if d.Before.Resource() != "vaults" || d.After.Resource() != "chests" || d.After.Revision() <= d.Before.Revision() {
			t.Errorf("reported a change from %q to %q", d.Before.Resource(), d.After.Resource())
		}
	}
	scopes := 0
	for d := range batch.Scopes() {
		if scopes++; d.Before.Resource != "vaults" || d.After.Resource != "chests" {
			t.Errorf("reported scope %+v", d)
		}
	}
	if scopes != 1 {
		t.Errorf("reported %d scopes", scopes)
	}
	x.RemoveMember("b/b")
	want(x.Snapshot(), "chests", "chests")
	s.Remove()
	if got := x.Snapshot().Resources(kind); len(got) != 0 {
		t.Errorf("of a kind that nobody holds: %q", got)
	}
	for kind, names := range first.AllResources() {
		if kind != "Vault.acme.io" || !slices.Equal(names, []string{"vaults"}) {
			t.Errorf("%s %q", kind, names)
		}
	}
}
