package hubside

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
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

	"federator.dev/federator/pkg/agent/internal/identity"
)

// TestAttack_AnExpiredCAIsNotUsed: it is left out when the Secret is read, and not after. A process that runs when the
// oldest of two expires shows a certificate that has expired to every agent, until it is restarted; and it makes a new one for each
// handshake of the last twelve hours.
func TestAttack_AnExpiredCAIsNotUsed(t *testing.T) {
	made := time.Now().Add(-authorityLife + time.Hour)
	data, err := newAuthority(made)
	must(t, err)
	newer, err := newAuthority(time.Now())
	must(t, err)
	maps.Copy(data, newer)
	all, err := parseAuthorities(data, time.Now())
	must(t, err)
	later := time.Now().Add(2 * time.Hour) // the process runs
	cert, err := all.oldest(later).serving([]string{"federator.example"}, later)
	must(t, err)
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: "federator.example", Roots: identity.Pool(all.certificates()), CurrentTime: later}); err != nil {
		t.Errorf("federator's own certificate, although there is a CA that is valid: %v", err)
	}
}

// TestAttack_RotatingWithAClockThatIsBehind: rotate-ca runs where the operator is. By a clock that is behind, the new CA is the
// oldest, federator serves by it at once, and no agent knows it.
func TestAttack_RotatingWithAClockThatIsBehind(t *testing.T) {
	now := time.Now()
	data, err := newAuthority(now)
	must(t, err)
	first, err := parseAuthorities(data, now)
	must(t, err)
	added, err := newAuthority(now.Add(-time.Hour)) // as RotateAuthority does with time.Now()
	must(t, err)
	maps.Copy(data, added)
	all, err := parseAuthorities(data, now)
	must(t, err)
	if identity.Digest(all.oldest(now).cert) != identity.Digest(first[0].cert) {
		t.Error("federator's own certificate is of the CA that was just added")
	}
}

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
	members, err := newMemberInformers(client, nil, newRegistry(1), slog.New(slog.DiscardHandler))
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
