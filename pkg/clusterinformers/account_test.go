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

func (v viewsSource) Run(ctx context.Context, set func([]Spec)) error {
	for {
		select {
		case view := <-v:
			set(view)
		case <-ctx.Done():
			return nil
		}
	}
}

func TestAccountIsEmptyWhenTheMemberHasLeft(t *testing.T) {
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
	eventually(t, "the member is synced", 20*time.Second, func() bool { ready, _ := m.Ready(); return ready })
	mb := m.list()[0]
	var wantObjects, wantBytes int64
	for info := range index.Snapshot().Scopes("fleet/a") {
		wantObjects += int64(info.Objects)
		wantBytes += info.Bytes
	}
	if o, b := mb.account.charged(); o != wantObjects || b != wantBytes || o < 7 {
		t.Errorf("%d objects and %d bytes are charged, %d and %d are held", o, b, wantObjects, wantBytes)
	}
	views <- []Spec{}
	<-mb.done
	if o, b := mb.account.charged(); o != 0 || b != 0 {
		t.Errorf("%d objects and %d bytes are charged to a member that has left", o, b)
	}
	if n := len(m.slots.fleet) + len(mb.syncs); n != 0 {
		t.Errorf("%d slots are held", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestMembersShareOneBudget(t *testing.T) {
	fleet := newFleetAccount(1000)
	limit := Budget{Bytes: 900, Objects: 100}
	var members [4]*account
	var stakes [4]stake
	for i := range members {
		members[i] = &account{limit: limit, fleet: fleet}
		members[i].open()
	}
	hog, small := members[0], members[1:]
	if !hog.charge(&stakes[0], 1, 850) || hog.charge(&stakes[0], 1, 100) {
		t.Error("a member alone has its own budget, and no more")
	}
	for i, m := range small {
		if !m.charge(&stakes[i+1], 1, 250) {
			t.Errorf("member %d has not its share while another has most", i+1)
		}
		if m.charge(&stakes[i+1], 1, 1) {
			t.Errorf("member %d has more than its share while there is none", i+1)
		}
	}
	if hog.charge(&stakes[0], 0, 1) || !hog.charge(&stakes[0], 0, -850) {
		t.Error("a member above its share cannot grow, but can shrink")
	}
	if !small[0].charge(&stakes[1], 0, 200) {
		t.Error("what one has given back another may have")
	}
	for i, m := range members {
		m.close(&stakes[i])
	}
	if fleet.bytes != 0 || fleet.members != 0 {
		t.Errorf("%d bytes of %d members are left", fleet.bytes, fleet.members)
	}
}
