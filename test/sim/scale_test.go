package sim_test

import (
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/test/sim"
	"federator.dev/federator/test/sim/siblings"
)

// heap is the live heap in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func TestFleet_ManyMembersAndPodsAreCheap(t *testing.T) {
	const members, pods = 100, 500
	corpus := siblings.Open("")
	before := heap()
	fleet := start(t, sim.Options{Members: members})
	started := heap()
	for i, m := range fleet.Members() {
		set, err := corpus.Pods(pods, 10, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Load(podResource, set); err != nil {
			t.Fatal(err)
		}
	}
	loaded := heap()
	perMember, perPod := (started-before)/members, (loaded-started)/(members*pods)
	t.Logf("%d bytes of heap per idle member, %d per pod", perMember, perPod)
	if perMember > 200<<10 || perPod > 400 {
		t.Errorf("%d bytes of heap per idle member, want at most 200 KiB; %d per pod, want at most 400", perMember, perPod)
	}

	yes := true
	var group errgroup.Group
	group.SetLimit(20)
	for _, m := range fleet.Members() {
		client := clientFor(t, m.RESTConfig())
		group.Go(func() error {
			w, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{
				SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			})
			if err != nil {
				return err
			}
			defer w.Stop()
			n := 0
			for ev := range w.ResultChan() {
				if ev.Type == watch.Bookmark {
					break
				}
				n++
			}
			if n != pods {
				t.Errorf("%s sent %d pods", m.Name(), n)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
