package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// fewRego corrects Deployments that have too few replicas.
const fewRego = `# METADATA
# title: Two replicas
# custom: {severity: high, kinds: ["Deployment.apps"], remedies: [{action: patch, kind: Deployment.apps}]}
package few

violation contains {"msg": "too few", "remedy": {"action": "patch", "patch": {"spec": {"replicas": 2}}}} if input.object.spec.replicas < 2
`

// nobody is the members and the hub of a dispatcher that writes nothing.
type nobody struct{}

func (nobody) Client(string, policy.Kind, string) (*remediate.Client, error) {
	return nil, errors.New("nothing is written")
}

// RoundTrip answers every list of Actions: there are none.
func (nobody) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind":"ActionList","apiVersion":"federator.dev/v1alpha1","items":[]}`)),
	}, nil
}

// deltaCost compares what a delta costs, from its commit until its correction is wanted,
// beside a thousand and beside a hundred thousand corrections that wait.
func deltaCost(ctx context.Context, b *bench) ([]row, error) {
	var rows []row
	for _, mode := range []policy.Mode{policy.Enforce, policy.Observe} {
		var p50 [3]float64
		sizes := []int{b.n(1_000), b.n(10_000), b.n(100_000)}
		for i, n := range sizes {
			var err error
			if p50[i], err = deltasBeside(ctx, n, mode); err != nil {
				return nil, err
			}
			b.progress("%s: %d wanted: %.0f µs", mode, n, p50[i])
		}
		name := "enforce/delta_cost"
		if mode == policy.Observe {
			name += "_observed"
		}
		rows = append(rows, lower(name, "µs p50", p50[2], p50[0],
			fmt.Sprintf("of a delta beside %d wanted corrections and beside %d; %.0f at %d; goal at most 1.5 times as long", sizes[2], sizes[0], p50[1], sizes[1])))
	}
	return rows, nil
}

func deltasBeside(ctx context.Context, wanted int, mode policy.Mode) (float64, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return 0, err
	}
	const member = "bench/member-0"
	if err := index.PutMember(aggregate.Member{Name: member, UID: member}); err != nil {
		return 0, err
	}
	scope, err := index.OpenScope(member, deployment, "apps/v1")
	if err != nil {
		return 0, err
	}
	item := func(i, version, replicas int) aggregate.Item {
		name := "app-" + strconv.Itoa(i)
		return scope.Item(&aggregate.Record{
			Namespace: namespaceOf(i), Name: name, UID: name, ResourceVersion: strconv.Itoa(version), Update: version > 1,
			Body: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":%d}}`, name, namespaceOf(i), replicas),
		})
	}
	items := make([]aggregate.Item, 0, wanted)
	for i := range wanted {
		items = append(items, item(i, 1, 1))
	}
	if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		return 0, err
	}
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "few.rego", Data: []byte(fewRego)}}}}, policy.LoadOptions{})
	if err != nil {
		return 0, err
	}
	hub, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://hub"}, &http.Client{Transport: nobody{}})
	if err != nil {
		return 0, err
	}
	dispatcher, err := remediate.New(remediate.Options{Clients: nobody{}, Hub: hub.CoreV1().RESTClient()})
	if err != nil {
		return 0, err
	}
	corrector := enforce.NewCorrector(dispatcher, nil)
	if err := corrector.SetSpecs(map[string]enforce.EnforcementSpec{"few": {Mode: mode, Suspend: true}}); err != nil {
		return 0, err
	}
	evaluated := make(chan aggregate.Revision, 16)
	ctx, cancel := context.WithCancel(ctx)
	loop, err := enforce.New(enforce.Options{
		Index: index, Set: set, Bindings: []policy.Binding{{Name: "few", Package: "few"}},
		Changed: func(c *policy.Changes, b *aggregate.Batch) {
			corrector.Changed(c, b)
			select {
			case evaluated <- c.After.Snapshot.Revision():
			case <-ctx.Done():
			}
		},
	})
	if err != nil {
		cancel()
		return 0, err
	}
	ended := make(chan error, 2)
	go func() { ended <- loop.Run(ctx) }()
	go func() { ended <- dispatcher.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
		<-ended
	}()
	// Long enough that neither what filling left to collect nor a cycle of the
	// collector is most of it, and of as many targets whatever waits beside them.
	const deltas, warmup, targets = 3000, 500, 1000
	runtime.GC()
	took := make([]time.Duration, 0, warmup+deltas)
	for round := range warmup + deltas {
		// A target changes in what counts; then it is well; then it is not again.
		scope.Upsert(item(round%min(wanted, targets), 2+round, []int{0, 5, 1}[round%3]))
		started := time.Now()
		if _, err := scope.Commit(); err != nil {
			return 0, err
		}
		for newest := index.Snapshot().Revision(); ; {
			var at aggregate.Revision
			select {
			case at = <-evaluated:
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
			if at >= newest {
				break
			}
		}
		took = append(took, time.Since(started))
	}
	s := corrector.Status("few")
	if s.Corrections < wanted*9/10 && wanted > 1000 {
		return 0, fmt.Errorf("%d corrections are wanted of %d", s.Corrections, wanted)
	}
	took = took[warmup:]
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1e3, nil
}
