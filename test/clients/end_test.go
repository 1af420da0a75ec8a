package clients

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"federator.dev/federator/test/kube"
)

// end ends federator while informers follow it, and shows that client-go logs no error:
// not of the watches that end, nor of a server that is not there, nor when the informers
// are stopped.
func (r *rig) end(t *testing.T) {
	var own sink
	before := len(logged.since(0))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), own.logger()))
	var running sync.WaitGroup
	var refused []*refusals
	for at, site := range map[place]string{fleet: "", flat: "", members: home} {
		target, err := r.target(at, site, administrator)
		must(t, err)
		c, err := newClients(target.config)
		must(t, err)
		t.Cleanup(c.http.CloseIdleConnections)
		n := &refusals{RoundTripper: c.http.Transport}
		c.http.Transport = n
		refused = append(refused, n)
		for _, i := range []cache.SharedIndexInformer{
			typedPods(c, 0), dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0).ForResource(boats).Informer(),
		} {
			running.Go(func() { i.RunWithContext(ctx) })
			if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
				t.Fatal("an informer has not synced")
			}
		}
	}
	if err := r.fed.stop(); err != nil {
		t.Error(err)
	}
	err := kube.Until(t.Context(), patience, func() error {
		for _, n := range refused {
			if n.Load() < 2 {
				return fmt.Errorf("%d requests were refused", n.Load())
			}
		}
		return nil
	})
	cancel()
	running.Wait()
	must(t, err)
	for _, line := range append(own.since(0), logged.since(before)...) {
		t.Errorf("logged: %s", line)
	}
}

// refusals counts requests that came to nobody.
type refusals struct {
	http.RoundTripper
	atomic.Int32
}

func (n *refusals) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		n.Add(1)
	}
	return resp, err
}

// CloseIdleConnections does as http.Client asks.
func (n *refusals) CloseIdleConnections() { n.RoundTripper.(*counting).CloseIdleConnections() }
