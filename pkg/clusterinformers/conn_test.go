package clusterinformers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

func asLong(d time.Duration) time.Duration { return d }

// TestConn_OnlyWhoIsProbedSharesTheRateOfProbes: members whose credentials are refused are asked once a
// minute, and those without credentials never.
func TestConn_OnlyWhoIsProbedSharesTheRateOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &atomic.Int64{}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		start := func(failure error) *conn {
			c := newConn(func(context.Context, *memberclient.Client) error { return failure }, func() {}, asLong)
			c.away = away
			c.setClient(memberclient.New(nil, http.DefaultClient), nil)
			running.Go(func() { c.run(ctx) })
			return c
		}
		other := newConn(nil, nil, nil)
		other.away = away
		for range 100 {
			start(apierrors.NewUnauthorized("expired"))
		}
		unreachable := make([]*conn, 100)
		for n := range unreachable {
			unreachable[n] = start(errors.New("connection refused"))
		}
		time.Sleep(time.Second)
		if d := other.longestDelay(maxProbeDelay); d != 100*probeInterval {
			t.Errorf("beside 100 members that are probed and 100 that are not, another is probed every %s", d)
		}
		for _, c := range unreachable {
			c.setClient(nil, connection.Refuse(connection.InvalidKubeconfig, "no"))
		}
		time.Sleep(time.Second)
		if d := other.longestDelay(maxProbeDelay); d != fewProbeDelay {
			t.Errorf("beside members that are not probed any more another is probed every %s", d)
		}
	})
}

// TestConn_WhatNeedNotBeKnownDelaysNoProbe: a server holds a request for a resourceVersion that it has not
// reached for 3 s. A member that is lost meanwhile is probed at once, and what was not verified is, later.
func TestConn_WhatNeedNotBeKnownDelaysNoProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes, verified atomic.Int64
		c := newConn(func(context.Context, *memberclient.Client) error { probes.Add(1); return nil }, func() {}, asLong)
		c.verify = func(ctx context.Context, _ *memberclient.Client) error {
			select {
			case <-time.After(3 * time.Second):
				verified.Add(1)
			case <-ctx.Done():
			}
			return nil
		}
		client := memberclient.New(nil, http.DefaultClient)
		c.setClient(client, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() { c.run(ctx) })
		time.Sleep(time.Second)
		c.reportFailure(client, errors.New("connection reset"))
		time.Sleep(time.Second)
		if n := probes.Load(); n < 2 {
			t.Errorf("a second after it was lost the member was probed %d times", n)
		}
		time.Sleep(10 * time.Second)
		if verified.Load() == 0 {
			t.Error("what was not verified as it was lost never is")
		}
	})
}
