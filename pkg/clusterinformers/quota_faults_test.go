package clusterinformers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
	"federator.dev/federator/test/sim"
)

// TestQuota_EmptyWhateverFailsBeforeTheMemberIsRemoved removes a member again and again while its
// server is cut off, drops watches and forgets what was, and while objects that do not fit a window
// are on their way.
func TestQuota_EmptyWhateverFailsBeforeTheMemberIsRemoved(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	fleet, err := sim.New(sim.Options{Members: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	member := fleet.Members()[0]
	for i := range 20 {
		err := member.Create(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("big-", i)}, Data: map[string]string{"big": strings.Repeat("x", 100_000)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	const budget = 1 << 30
	views := make(viewsSource)
	m, err := New(Options{Index: index, Sources: []Source{views}, Logger: slog.New(slog.DiscardHandler), Budget: Budget{FleetBytes: budget}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := member.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for round := range 12 {
		views <- []Spec{{Name: "fleet/a", UID: "a", Kubeconfig: kubeconfig, Trusted: true}}
		await(t, "the member has joined", 20*time.Second, func() bool { return len(m.sortedMembers()) == 1 })
		mb := m.sortedMembers()[0]
		await(t, "something is charged", 20*time.Second, func() bool {
			_, b := mb.quota.Used()
			ready := round < 8
			if !ready {
				ready, _ = m.Ready()
			}
			return b > 0 && ready
		})
		for i := range 20 {
			err := member.Modify(configMaps, "default", fmt.Sprint("big-", i), func(o sim.Object) {
				o.SetLabels(map[string]string{"round": fmt.Sprint(round)})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		switch round % 4 {
		case 1:
			member.Cut()
		case 2:
			member.DropWatches()
		case 3:
			member.Compact()
			member.DropWatches()
		}
		views <- []Spec{}
		<-mb.done
		if o, b := mb.quota.Used(); o != 0 || b != 0 {
			t.Errorf("round %d: %d objects and %d bytes are charged to a member that has left", round, o, b)
		}
		if lists, starts := m.slots.InUse(), m.starts.InUse(); lists != 0 || starts != 0 {
			t.Errorf("round %d: %d lists and %d starts are under way", round, lists, starts)
		}
		if round%4 == 1 {
			if err := member.Restore(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var usage quota.Usage
	all := quota.Member{Limits: quota.Limits{Bytes: 2 * budget}, Fleet: m.fleetQuota}
	all.AddScope()
	if !all.Charge(&usage, 0, budget) || all.Charge(&usage, 0, 1) {
		t.Error("the fleet's budget is another than before")
	}
}
