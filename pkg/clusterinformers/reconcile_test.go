package clusterinformers

import (
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
)

// A member is reconciled at every discovery and wake-up, of which most find nothing new.
func TestMember_ReconcilesOnlyWhatHasChanged(t *testing.T) {
	const kind aggregate.Kind = "Thing.nobody.example"
	f := newMetricsFleet(t, 1, 0, false)
	m, mb := f.manager, f.member(0)
	mb.resources, mb.findings = catalog.APIResources{}, 1
	mb.discoveredAt = time.Now()
	known := connectionState{connection.Connected, ""}
	reconcile := func() (all bool) {
		t.Helper()
		before := mb.reconciled
		mb.reconcile(t.Context(), m.catalog.Changed(), known)
		return mb.reconciled != before
	}
	state := func() aggregate.State {
		info, _ := m.opts.Index.Snapshot().Scope(mb.name, kind)
		return info.Status.State
	}
	expect := func(what string, all bool) {
		t.Helper()
		if got := reconcile(); got != all {
			t.Errorf("%s: reconciled %t, want %t", what, got, all)
		}
	}
	expect("at first", true)
	expect("the same again", false)
	mb.discoveredAt = time.Now() // it found the same
	expect("the same, later", false)

	m.RequireKinds([]aggregate.Kind{kind})
	expect("a kind is required", true)
	if got := state(); got != aggregate.Unknown {
		t.Errorf("it is %s before the member is discovered again", got)
	}
	expect("no discovery yet", false)
	mb.discoveredAt = time.Now()
	expect("a discovery that finds the same", true)
	if got := state(); got != aggregate.NotServed {
		t.Errorf("it is %s once the member was discovered again", got)
	}
	mb.discoveredAt = time.Now()
	expect("another one", false)

	known = connectionState{connection.Disconnected, connection.Unreachable}
	expect("the connection is lost", true)
	mb.expireDiscovery()
	expect("what was discovered is not fresh", true)
	mb.mu.Lock()
	mb.resets++
	mb.mu.Unlock()
	expect("another cluster answers", true)
}
