package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/test/kube"
)

// agentIdle counts the bytes of the link to an agent of whose member nothing changes, as TLS has them.
func agentIdle(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.startAgent(ctx, kube.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := manyKinds(ctx, r.fleet.Members[0], 30); err != nil {
		return nil, err
	}
	got, err := b.idleBytes(ctx, r)
	return []row{got}, err
}

// idlePeriod has bookmarks and audits of security in it, in the share that they have of a day.
const idlePeriod = 40 * time.Minute

// idleBytes follows the member for a while.
func (b *bench) idleBytes(ctx context.Context, r *agentRig) (row, error) {
	period := max(b.soak, idlePeriod)
	f, err := followAs(ctx, followOptions{agents: r.server}, contexts{r.spec}, "*")
	if err != nil {
		return row{}, err
	}
	defer f.stop()
	if err := f.synced(ctx, 0); err != nil {
		return row{}, err
	}
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := wait(90 * time.Second); err != nil { // what follows a start is over
		return row{}, err
	}
	from, to := r.received()
	started := time.Now()
	if err := wait(period); err != nil {
		return row{}, err
	}
	after, sent := r.received()
	perDay := func(n int64) float64 { return float64(n) / time.Since(started).Seconds() * 86400 / 1e6 }
	note := fmt.Sprintf("of TLS, in %s, with %d watches; %.2f MB of them to the agent; goal 5", period, len(f.manager.Members()[0].Details), perDay(sent-to))
	return lower("agent/idle", "MB/day", perDay(after-from+sent-to), 0, note), nil
}

// manyKinds has a member serve so many kinds more.
func manyKinds(ctx context.Context, c *kube.ControlPlane, n int) error {
	var manifests strings.Builder
	for i := range n {
		fmt.Fprintf(&manifests, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadget%[1]ds.bench.example.com}
spec:
  group: bench.example.com
  scope: Namespaced
  names: {plural: gadget%[1]ds, singular: gadget%[1]d, kind: Gadget%[1]d}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, i)
	}
	return c.Apply(ctx, []byte(manifests.String()))
}
