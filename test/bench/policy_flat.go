package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/policies"
)

const (
	flatDeltas = 2000
	flatWarmup = 200
)

// keyed are policies of the library that compare objects of different members: by the
// keys of a view, and by the index of names.
var keyed = []string{"federator.network.unique_host", "federator.workloads.image_skew"}

// flatCost compares what single deltas cost in fleets of three sizes.
func flatCost(ctx context.Context, b *bench) ([]row, error) {
	var got [3]figures
	var objects [3]int
	for i, n := range []int{10_000, 100_000, 1_000_000} {
		objects[i] = b.n(n)
		if err := b.child(ctx, "policy-flat", &got[i], b.corpus, strconv.Itoa(objects[i])); err != nil {
			return nil, err
		}
	}
	small, large := got[0], got[2]
	for _, what := range []string{"evaluations", "reads", "views"} {
		if small[what] != got[1][what] || small[what] != large[what] {
			return nil, fmt.Errorf("%s of %d deltas: %v, %v and %v at %v objects, not the same", what, flatDeltas, small[what], got[1][what], large[what], objects)
		}
	}
	each := func(what string) float64 { return large[what] / flatDeltas }
	return []row{
		{
			Name: "policy/flat_evaluations", Unit: "a delta", Value: each("evaluations"),
			Note: fmt.Sprintf("as many as depend on it, and the same for each of %d deltas at %d, %d and %d objects; %.2f reads, %.2f evaluations of views; unique_host by view, image_skew by name", flatDeltas, objects[0], objects[1], objects[2], each("reads"), each("views")),
		},
		lower("policy/flat_cost", "µs p50", large["p50"], small["p50"], fmt.Sprintf("of a delta, %d objects beside %d; %.0f at %d; means %.0f, %.0f and %.0f; goal at most 1.5 times as long", objects[2], objects[0], got[1]["p50"], objects[1], small["mean"], got[1]["mean"], large["mean"])),
		{Name: "policy/flat_heap", Unit: "MiB", Value: large["heap"] / mib, Note: fmt.Sprintf("index and engine, %.0f s to evaluate all, %.0f findings", large["reset"], large["findings"])},
	}, nil
}

// flatSet are policies of the library with their bindings.
func flatSet() (*policy.Set, []policy.Binding, []aggregate.Kind, error) {
	src, err := policy.ReadSource("library", policies.FS)
	if err != nil {
		return nil, nil, nil, err
	}
	set, err := policy.Load([]policy.Source{src}, policy.LoadOptions{})
	if err != nil {
		return nil, nil, nil, err
	}
	var bindings []policy.Binding
	var kinds []aggregate.Kind
	for _, name := range keyed {
		p := set.Package(name)
		if p == nil {
			return nil, nil, nil, fmt.Errorf("the library has no %s", name)
		}
		bindings = append(bindings, policy.Binding{Name: name, Package: name})
		for _, k := range p.Kinds {
			kinds = append(kinds, k.Kind)
		}
	}
	return set, bindings, kinds, nil
}

// dependents knows by itself which subjects read what a delta changes.
type dependents struct {
	hosts map[int]int    // how many Ingresses serve a host
	names map[string]int // how many Deployments have a namespace and name
}

func (s *appSet) dependents() (*dependents, error) {
	d := &dependents{hosts: map[int]int{}, names: map[string]int{}}
	for m := range appMembers {
		for i := range s.counts[ingress] {
			d.hosts[s.host(m, i)]++
		}
	}
	list, err := s.index.Snapshot().List(aggregate.Query{Kind: deployment})
	if err != nil {
		return nil, err
	}
	for o := range list {
		d.names[o.Namespace()+"/"+o.Name()]++
	}
	return d, nil
}

// flatWriter makes deltas: odd ones take back what the one before did.
type flatWriter struct {
	s      *appSet
	d      *dependents
	random *rand.Rand
	m, i   int
	host   int
}

// change commits one change, and says how many verdicts depend on it: of the
// Ingresses of both hosts of one that moves, or of the Deployments of the name of one
// whose image changes.
func (w *flatWriter) change(round int) (depend int, err error) {
	back := round%2 == 1
	kind := []aggregate.Kind{deployment, ingress}[round/2%2]
	for again := !back; again; {
		w.m, w.i = w.random.IntN(appMembers), w.random.IntN(w.s.counts[kind])
		// The last host may have fewer Ingresses than the others.
		again = kind == ingress && w.s.host(w.m, w.i) == len(w.d.hosts)-1
	}
	var item aggregate.Item
	if kind == deployment {
		item = w.s.item(kind, w.m, w.i, 2*variants*(round+1)+2*(1-round%2), false)
		depend = w.d.names[namespaceOf(w.i)+"/"+nameOf(kind, w.m, w.i)]
	} else {
		home := w.s.host(w.m, w.i)
		from, to := w.host, home
		if !back {
			w.host = (home + 1 + w.random.IntN(len(w.d.hosts)-2)) % (len(w.d.hosts) - 1)
			from, to = home, w.host
		}
		depend = w.d.hosts[from] + w.d.hosts[to]
		w.d.hosts[from]--
		w.d.hosts[to]++
		namespace, name := namespaceOf(w.i), nameOf(kind, w.m, w.i)
		item = w.s.scopes[kind][w.m].Item(&aggregate.Record{
			Namespace: namespace, Name: name, UID: fmt.Sprintf("%s-%d-%d", kind, w.m, w.i), ResourceVersion: fmt.Sprint("moved-", round),
			Body: ingressBody(namespace, name, to),
		})
	}
	scope := w.s.scopes[kind][w.m]
	scope.Upsert(item)
	_, err = scope.Commit()
	return depend, err
}

func policyFlat(ctx context.Context, corpus string, objects int) (figures, error) {
	set, bindings, kinds, err := flatSet()
	if err != nil {
		return nil, err
	}
	s, err := newAppSet(ctx, corpus, objects, map[aggregate.Kind]int{deployment: 50, ingress: 50}, kinds)
	if err != nil {
		return nil, err
	}
	d, err := s.dependents()
	if err != nil {
		return nil, err
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Limits: policy.Limits{Evaluation: time.Minute}})
	if err != nil {
		return nil, err
	}
	out := figures{}
	at := s.index.Snapshot()
	cursor := s.index.Cursor(at)
	started := time.Now()
	if err := running(ctx, e, func(ctx context.Context) error { return reset(ctx, at, e) }); err != nil {
		return nil, err
	}
	out["reset"] = time.Since(started).Seconds()
	out["heap"] = heap()
	w := &flatWriter{s: s, d: d, random: rand.New(rand.NewPCG(1, 1))} // the same deltas in every run
	before := e.Stats()
	took := make([]time.Duration, 0, flatDeltas)
	for round := range flatWarmup + flatDeltas {
		if round == flatWarmup {
			before, took = e.Stats(), took[:0]
		}
		was := e.Stats().Evaluations
		depend, err := w.change(round)
		if err != nil {
			return nil, err
		}
		batch, ok := cursor.Poll()
		if !ok {
			return nil, fmt.Errorf("delta %d: nothing has changed", round)
		}
		started := time.Now()
		if _, err := e.Apply(ctx, batch, nil); err != nil {
			return nil, err
		}
		took = append(took, time.Since(started))
		if n := e.Stats().Evaluations - was; n != int64(depend) {
			return nil, fmt.Errorf("delta %d: %d evaluations, %d subjects depend on it", round, n, depend)
		}
	}
	after := e.Stats()
	out["evaluations"] = float64(after.Evaluations - before.Evaluations)
	out["reads"] = float64(after.Reads - before.Reads)
	out["views"] = float64(after.ViewEvaluations - before.ViewEvaluations)
	sum := time.Duration(0)
	for _, t := range took {
		sum += t
	}
	out["mean"] = float64(sum.Nanoseconds()) / 1e3 / float64(len(took))
	out["p50"], out["p99"] = ms(took, 0.5)*1e3, ms(took, 0.99)*1e3
	return out, flatVerdicts(e.State(), bindings, out)
}

// flatVerdicts counts findings, and refuses Errors: they would be no evaluations.
func flatVerdicts(s *policy.State, bindings []policy.Binding, out figures) error {
	for _, b := range bindings {
		t := s.Total(b.Name)
		if t.Errors > 0 || t.Unknown > 0 || t.Known == 0 {
			return fmt.Errorf("%s: %+v", b.Name, t)
		}
		out["findings"] += float64(t.Violations)
	}
	return nil
}
