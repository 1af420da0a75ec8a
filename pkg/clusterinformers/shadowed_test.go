package clusterinformers_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/pkg/clusterinformers"
)

// TestManager_FirstSourceHasTheMember: what two sources describe is one member, as the first of them says, until that
// says so no more; it is logged once.
func TestManager_FirstSourceHasTheMember(t *testing.T) {
	second := newFixed()
	var spec clusterinformers.Spec
	object := func(kind string) *corev1.ObjectReference {
		return &corev1.ObjectReference{Kind: kind, Namespace: "fleet", Name: "a"}
	}
	r := newRig(t, fewKinds(), func(r *rig, o *clusterinformers.Options) {
		o.Sources = append(o.Sources, second)
		spec = r.source.view[0]
		r.source.view[0].Object = object("Cluster")
		other := spec
		other.UID, other.Object = "uid-of-another", object("ClusterProfile")
		second.view = []clusterinformers.Spec{other}
	}).start()
	m := r.fleet.Members()[0]
	r.synced(m)
	describes := func(kind string) func() bool {
		return func() bool { o := r.manager.Describes(spec.Name); return o != nil && o.Kind == kind }
	}
	if !describes("Cluster")() || len(r.manager.Members()) != 1 {
		t.Errorf("described by %v, %d members", r.manager.Describes(spec.Name), len(r.manager.Members()))
	}
	second.set(second.view...)
	r.source.set(r.source.view...)
	if n := r.log.count("two sources describe the member: the first one counts"); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	r.source.set()
	r.until("the second source has it", describes("ClusterProfile"))
	if uid := r.status(m).UID; uid != "uid-of-another" {
		t.Errorf("its UID is %q", uid)
	}
	second.set()
	r.until("nothing describes it", func() bool { return len(r.manager.Members()) == 0 && r.manager.Describes(spec.Name) == nil })
}
