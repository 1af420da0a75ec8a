package shards

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/test/kube/tcpproxy"
)

// TestShards_ShareAFleet: three processes answer for all members, and judge them by what all have, while one is killed and
// comes back, is cut off from the others, and all are rolled. An informer holds what there is, and no answer is short
// without saying so.
func TestShards_ShareAFleet(t *testing.T) {
	f := newFleet(t, setup{replication: 1})
	f.put(0, "once-a")
	f.put(1, "once-a")
	f.put(2, "once-b")
	never := f.truth() // but for what is named once-…
	for key := range never {
		if strings.Contains(key, "/once-") {
			delete(never, key)
		}
	}
	for _, s := range f.processes {
		s.start()
	}
	f.exact("at the start")
	f.judged("at the start")
	stop := f.probe(t.Context(), never)
	informed := f.inform(f.processes[0])

	f.put(2, "once-a")
	f.drop(1, "once-a")
	f.exact("after changes")
	f.judged("after changes")
	f.queried("after changes")
	informed("after changes")

	f.processes[1].Kill()
	f.put(1, "once-b")
	f.exact("after one was killed")
	f.judged("after one was killed")
	informed("after one was killed")

	f.processes[1].start()
	f.put(0, "once-b")
	f.exact("after it is back")
	f.judged("after it is back")

	f.do(f.processes[2].peers.Set(tcpproxy.Mode{State: tcpproxy.BlackHole}))
	f.put(1, "once-c")
	f.put(2, "once-c")
	f.cutOff(f.processes[2])
	f.do(f.processes[2].peers.Set(tcpproxy.Mode{}))
	f.exact("after one was cut off")
	f.judged("after one was cut off")
	informed("after one was cut off")

	for _, s := range []*shard{f.processes[2], f.processes[1]} {
		f.do(s.Stop(patience))
		s.start()
		f.exact("after " + s.name + " was rolled")
	}
	f.judged("after all were rolled")
	f.queried("after all were rolled")
	informed("after all were rolled")

	answers, partial := 0, 0
	for _, a := range stop() {
		if a.err == nil {
			answers++
			if !a.whole {
				partial++
			}
		}
	}
	// How many are partial depends on how fast the faults above follow each other; what each is
	// compared with was checked as it came.
	if whole := answers - partial; whole < 20 {
		t.Errorf("only %d of %d answers were whole", whole, answers)
	}
	t.Logf("%d answers, of which %d said that members were missing", answers, partial)
}

// cutOff waits until no process says that it knows violations that are not there: what rests on a process that is cut off
// is Unknown.
func (f *fleet) cutOff(lost *shard) {
	f.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		for _, s := range f.alive() {
			got, err := s.violations(f.t.Context())
			if err != nil {
				continue // it does not answer for the other
			}
			want := f.wanted()
			for key, list := range got {
				for _, text := range list {
					if strings.HasPrefix(text, "Known") && !slices.Contains(want[key], text) {
						f.t.Errorf("%s, while %s is cut off: %s: %s", s.name, lost.name, key, text)
					}
				}
			}
		}
	}
}

// inform runs a stock informer at a process. What it returns waits until it holds what the members have.
func (f *fleet) inform(s *shard) func(what string) {
	f.t.Helper()
	client, err := kubernetes.NewForConfig(s.config("/flat"))
	f.do(err)
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	f.t.Cleanup(factory.Shutdown)
	f.t.Cleanup(cancel)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		f.t.Fatal("the informer does not sync")
	}
	return func(what string) {
		f.t.Helper()
		f.until(what+": the informer holds what there is", func() error {
			got := map[string]string{}
			for _, obj := range informer.GetStore().List() {
				cm := obj.(*corev1.ConfigMap) //nolint:errcheck // it is one of ConfigMaps
				a := cm.Annotations
				got[a["federator.dev/member"]+"/"+a["federator.dev/original-namespace"]+"/"+cmp.Or(a["federator.dev/original-name"], cm.Name)] = string(cm.UID) + "@" + a["federator.dev/resource-version"]
			}
			return differ(f.truth(), got)
		})
	}
}
