package enforce_test

import (
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

const byHost = `# METADATA
# title: One host, one member
# custom: {severity: high, kinds: ["Ingress.networking.k8s.io"], subject: view.hosts}
package hosts

view.hosts[input.object.spec.host] contains input.ref.name

violation contains {"msg": "several"} if count({e.ref.member | some e in input.entries}) > 1
`

// sharing is one of two processes that share a fleet.
type sharing struct {
	index, peers *aggregate.Index
	loop         *enforce.Loop
	batches      []*aggregate.Batch
}

// newSharing has the indexes of a process that judges a member, and is to be told of another one's.
func newSharing(t *testing.T, member, other string) *sharing {
	t.Helper()
	p := &sharing{index: newIndex(t), peers: newIndex(t)}
	if err := p.index.PutMember(aggregate.Member{Name: member, UID: member}); err != nil {
		t.Fatal(err)
	}
	if err := p.peers.PutMember(aggregate.Member{Name: other, UID: other}); err != nil {
		t.Fatal(err)
	}
	scope, err := p.index.OpenScope(member, "Ingress.networking.k8s.io", "networking.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	scope.SetStatus(aggregate.Status{State: aggregate.Synced})
	scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: member, ResourceVersion: "1", Body: []byte(`{"spec":{"host":"a.example"}}`)}))
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
	scope.Close()
	return p
}

func startSharing(t *testing.T, set *policy.Set, member, other string) *sharing {
	t.Helper()
	p := newSharing(t, member, other)
	p.loop = startLoop(t, enforce.Options{
		Index: p.index, Peers: p.peers, Exports: true, Set: set, Bindings: []policy.Binding{{Name: "hosts", Package: "hosts"}},
		KeyOwner: policy.KeyOwner{Self: member, Now: []string{"fleet/a", "fleet/b"}},
		Changed:  func(_ *policy.Changes, batch *aggregate.Batch) { p.batches = append(p.batches, batch) },
	})
	return p
}

// tell tells a process what the other one exports.
func (p *sharing) tell(t *testing.T, x *policy.Export) {
	t.Helper()
	for m := range x.Members() {
		for s := range x.Scopes(m.Name) {
			w, err := p.peers.OpenScope(m.Name, s.Kind, s.Version)
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
}

// TestLoop_FollowsPeers has two loops share a fleet: what one exports, the other evaluates, and each key is judged once.
func TestLoop_FollowsPeers(t *testing.T) {
	set := loadText(t, byHost)
	synctest.Test(t, func(t *testing.T) {
		a, b := startSharing(t, set, "fleet/a", "fleet/b"), startSharing(t, set, "fleet/b", "fleet/a")
		total := func() (c policy.Counts) {
			synctest.Wait()
			c.Add(a.loop.State().Total("hosts"))
			c.Add(b.loop.State().Total("hosts"))
			return c
		}
		if got := total(); got.Known != 0 || got.Violations != 0 {
			t.Errorf("before anything is told: %+v", got)
		}
		for _, p := range []*sharing{a, b} { // nor does anybody say that nothing is wrong
			if p.loop.State().Synced {
				t.Error("before anything is told all is said to have been read")
			}
		}
		a.tell(t, b.loop.State().Export())
		b.tell(t, a.loop.State().Export())
		if got := total(); got != (policy.Counts{Known: 1, Violations: 1}) {
			t.Errorf("when all is told: %+v", got)
		}
		if !a.loop.State().Synced || !b.loop.State().Synced {
			t.Error("when all is told it is said that something is missing")
		}
		for _, p := range []*sharing{a, b} {
			if last := p.batches[len(p.batches)-1]; last == nil || last.After != p.loop.State().Snapshot {
				t.Error("a batch of the peers' index is none of the own one")
			} else {
				for d := range last.Deltas() {
					t.Errorf("of the own index has changed %s", d.Ref)
				}
			}
			owner := policy.KeyOwner{Self: "fleet/a", Now: []string{"fleet/a"}}
			if p == b {
				owner.Self = "fleet/b"
			}
			if err := p.loop.SetKeyOwner(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.loop.State().Total("hosts"); got != (policy.Counts{Known: 1, Violations: 1}) {
			t.Errorf("the one that has all keys: %+v", got)
		}
		if got := b.loop.State().Total("hosts"); got != (policy.Counts{}) {
			t.Errorf("the one that has none: %+v", got)
		}
		// While one has other policies, the other knows that it does not know.
		if err := b.loop.Configure(t.Context(), set, nil); err != nil {
			t.Fatal(err)
		}
		other := loadText(t, byHost+"\nview.others[input.ref.name] contains true\n")
		if err := a.loop.Configure(t.Context(), other, []policy.Binding{{Name: "hosts", Package: "hosts"}}); err != nil {
			t.Fatal(err)
		}
		if got := a.loop.State().Total("hosts"); got.Known != 0 || got.Unknown != 1 {
			t.Errorf("while the other one has other policies: %+v", got)
		}
	})
}
