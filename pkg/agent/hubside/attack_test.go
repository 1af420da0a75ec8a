package hubside

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"federator.dev/federator/api/v1alpha1"
)

// TestAttack_OneMemberKeepsAllAgentsOut (law 7): on a hub that lists, without WatchList (before Kubernetes 1.34), one Member whose
// status is not decoded fails the list of all, and a federator that starts lets no agent of any namespace in. (The API server takes
// the time: pkg/agent has the test.)
func TestAttack_OneMemberKeepsAllAgentsOut(t *testing.T) {
	of := func(name, contact string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "Member",
			"metadata": map[string]any{"name": name, "namespace": "edge", "uid": name}, "spec": map[string]any{"agent": map[string]any{}},
			"status": map[string]any{"lastContactTime": contact},
		}}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.Resource(v1alpha1.Members): "MemberList"},
		of("honest", "2020-01-01T00:00:00Z"), of("hostile", "2020-01-01t00:00:00z"))
	members, err := newMemberInformers(client, nil, newRegistry(1, time.Hour), slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	members.run(ctx, &running)
	if !members.synced(ctx) {
		t.Error("the Members are not known: nobody may connect")
	}
}

// TestAttack_ALostAgentIsNotTakenBackForAnother: an agent that loses one replica is written to be not connected, though
// it is connected to another, that says so ten seconds later: policies and people that watch connected see it flap.
func TestAttack_ALostAgentIsNotTakenBackForAnother(t *testing.T) {
	now, yes := time.Now(), true
	m := &v1alpha1.Member{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	m.Status = *stampedStatus(now, now.Add(time.Hour), &yes)
	m.Status.Process = "federator-0"
	w := &statusWriter{process: "federator-0", started: now.Add(-time.Hour), written: map[types.UID]time.Time{}}
	other := &statusWriter{process: "federator-1", started: now.Add(-time.Hour), written: map[types.UID]time.Time{}}
	connected := state{connected: true, version: "v1", heard: now, expires: now.Add(time.Hour)}
	if other.due(m, connected, now) {
		t.Fatal("the other says that it is connected, too: the test is wrong")
	}
	if w.due(m, state{}, now) {
		t.Error("federator-0 writes at once that the agent is not connected, which federator-1 has")
	}
}
