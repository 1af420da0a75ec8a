//go:build linux

package engine

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"federator.dev/federator/internal/cputime"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/binding"
	"federator.dev/federator/pkg/policy/internal/module"
)

// BenchmarkSampling is what it costs to know what lines take: the same engine evaluates all Deployments of a fleet
// with samples and without, in turns. ratio is of the medians of their CPU times.
func BenchmarkSampling(b *testing.B) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		b.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/eu", UID: "eu"}); err != nil {
		b.Fatal(err)
	}
	s, err := index.OpenScope("fleet/eu", "Deployment.apps", "apps/v1")
	if err != nil {
		b.Fatal(err)
	}
	const objects = 4000
	for i := range objects {
		s.Upsert(s.Item(&aggregate.Record{Namespace: "shop", Name: fmt.Sprint("d", i), UID: fmt.Sprint(i), ResourceVersion: "1", Body: fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"n":"%d"},"name":"d%d","namespace":"shop"},"spec":{"replicas":%d,"template":{"spec":{"containers":[{"image":"web:%d","name":"web"}]}}}}`, i, i, i%3, i)}))
	}
	s.SetStatus(aggregate.Status{State: aggregate.Synced})
	if _, err := s.Commit(); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile("testdata/sampling.rego")
	if err != nil {
		b.Fatal(err)
	}
	set, err := module.Load([]module.Source{{Files: []module.File{{Path: "sampling.rego", Data: text}}}}, module.Options{})
	if err != nil {
		b.Fatal(err)
	}
	e, err := New(Options{Set: set, Bindings: []binding.Binding{{Name: "sampling", Package: "sampling"}}, Parallelism: 1})
	if err != nil {
		b.Fatal(err)
	}
	bound := e.bindings[0]
	profile := bound.profile
	evaluate := func(sampled bool) time.Duration {
		if bound.profile = nil; sampled {
			bound.profile = profile
		}
		runtime.GC()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		start := cputime.Thread() // the machine has other work
		if _, err := e.Reset(b.Context(), index.Snapshot(), nil); err != nil {
			b.Fatal(err)
		}
		return cputime.Thread() - start
	}
	evaluate(true)
	var with, without []time.Duration
	for b.Loop() {
		with, without = append(with, evaluate(true)), append(without, evaluate(false))
	}
	slices.Sort(with)
	slices.Sort(without)
	half := len(with) / 2
	_, samples := profile.Top(1)
	b.ReportMetric(float64(with[half])/float64(without[half]), "ratio")
	b.ReportMetric(float64(without[half])/objects/1e3, "µs/evaluation")
	b.ReportMetric(float64(samples), "samples")
}
