package clusterinformers

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/sim"
)

// viewsSource gives the views that come through a channel.
type viewsSource chan []Spec

func (v viewsSource) Run(ctx context.Context, set func(View)) error {
	for {
		select {
		case view := <-v:
			set(View{Members: view})
		case <-ctx.Done():
			return nil
		}
	}
}

func TestQuota_EmptyWhenTheMemberIsRemoved(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	fleet, err := sim.New(sim.Options{Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	member := fleet.Members()[0]
	for _, name := range []string{"a", "b", "c"} {
		if err := member.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	// What is charged while it comes is given back.
	if err := member.Create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "big"}, Data: map[string]string{"big": strings.Repeat("x", 500_000)},
	}); err != nil {
		t.Fatal(err)
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	views := make(viewsSource)
	m, err := New(Options{Index: index, Sources: []Source{views}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	kubeconfig, err := member.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	views <- []Spec{{Name: "fleet/a", UID: "a", Kubeconfig: kubeconfig, Trusted: true}}
	await(t, "the member is synced", 20*time.Second, func() bool { ready, _ := m.Ready(); return ready })
	mb := m.sortedMembers()[0]
	var wantObjects, wantBytes int64
	for info := range index.Snapshot().Scopes("fleet/a") {
		wantObjects += int64(info.Objects)
		wantBytes += info.Bytes
	}
	if o, b := mb.quota.Used(); o != wantObjects || b != wantBytes || o < 7 {
		t.Errorf("%d objects and %d bytes are charged, %d and %d are held", o, b, wantObjects, wantBytes)
	}
	views <- []Spec{}
	<-mb.done
	if o, b := mb.quota.Used(); o != 0 || b != 0 {
		t.Errorf("%d objects and %d bytes are charged to a member that has left", o, b)
	}
	if n := m.slots.InUse(); n != 0 {
		t.Errorf("%d slots are held", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", limit, what)
		}
	}
}
