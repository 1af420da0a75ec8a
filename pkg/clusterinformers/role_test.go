package clusterinformers_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

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

// TestMember_StandsByOnceItIsRead: until then its judge knows more of it, and a policy that reads the member would find less than
// before in what has been read here.
func TestMember_StandsByOnceItIsRead(t *testing.T) {
	clear := func() {}
	r := newRig(t, sim.Options{Members: 1, Kinds: kindsOf("ConfigMap")}, func(r *rig, _ *clusterinformers.Options) {
		r.source.view[0].Role = aggregate.Standby
		clear = r.fleet.Members()[0].Faults().Add(sim.Fault{Kind: schema.GroupResource{Resource: "configmaps"}, Hang: true})
	}).start()
	name, faults := r.source.view[0].Name, r.fleet.Members()[0].Faults()
	role := func() aggregate.Role {
		m, _ := r.index.Snapshot().Member(name)
		return m.Role
	}
	r.until("it is being read", func() bool { return faults.Seen() > 0 })
	if got := role(); got != aggregate.StandbyUnread {
		t.Errorf("while it is being read the role is %d", got)
	}
	clear()
	r.until("it is read, and stands by", func() bool { return role() == aggregate.Standby })
	if info, _ := r.index.Snapshot().Scope(name, "ConfigMap"); info.Status.State != aggregate.Synced {
		t.Errorf("it stands by, and its ConfigMaps are %s", info.Status.State)
	}
}
