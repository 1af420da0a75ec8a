package hub

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// TestReports_StrangersClusterHidesNothing: a Cluster that is no member (sources.clusterAPI is not set, or it looks elsewhere)
// and is called as a Member has nothing to do with that Member's reports.
func TestReports_StrangersClusterHidesNothing(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "edge/eu-1", UID: "uid-of-member"}); err != nil {
		t.Fatal(err)
	}
	r := &Reports{opts: ReportsOptions{Namespaces: []string{""}, Describes: func(string) *corev1.ObjectReference {
		return &corev1.ObjectReference{APIVersion: "federator.dev/v1alpha1", Kind: "Member", Namespace: "edge", Name: "eu-1", UID: "uid-of-member"}
	}}}
	state := &policy.State{Snapshot: index.Snapshot()}
	if key, p := r.location(state, "edge/eu-1", nil); p == nil {
		t.Fatalf("without a Cluster: %v", key)
	}
	clusters := map[string]metav1.OwnerReference{"edge/eu-1": {Kind: "Cluster", Name: "eu-1", UID: "uid-of-cluster"}}
	if _, p := r.location(state, "edge/eu-1", clusters); p == nil {
		t.Error("somebody has created a Cluster edge/eu-1, and the reports of the Member edge/eu-1 are gone")
	}
}
