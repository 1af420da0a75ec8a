package clusterinformers_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/sim"
)

// TestMember_ItsRoleIsOfItsSpec: what this process is to a member reaches the index with what is
// read of it, and so does another role, without anything being read again.
func TestMember_ItsRoleIsOfItsSpec(t *testing.T) {
	r := follow(t, sim.Options{Members: 1, Kinds: kindsOf("ConfigMap")}, func(r *rig, _ *clusterinformers.Options) {
		r.source.view[0].Role = aggregate.Joining
	})
	name := r.source.view[0].Name
	role := func() aggregate.Role {
		m, _ := r.index.Snapshot().Member(name)
		return m.Role
	}
	if got := role(); got != aggregate.Joining {
		t.Fatalf("the role is %d", got)
	}
	lists := r.fleet.Members()[0].Requests().Verb("list")
	spec := r.source.view[0]
	spec.Role = aggregate.Judge
	r.source.set(spec)
	r.until("it judges the member", func() bool { return role() == aggregate.Judge })
	if got := r.fleet.Members()[0].Requests().Verb("list"); got != lists {
		t.Errorf("%d lists for another role", got-lists)
	}
}
