package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/policies"
)

const hostileDeltas = 4000

// hostileRules want more than their share: of time, of memory, of results, of
// what can be stored; see the test of package policy, which holds each to what is
// said of it.
var hostileRules = map[string]string{
	"comprehension": `violation contains {"msg": "never"} if {
	xs := numbers.range(1, 100000)
	count([1 | some x in xs; some y in xs; x * y == input.object.spec.replicas]) < 0
}`,
	"result": `violation contains {"msg": "large", "details": d} if {
	line := sprintf("%01000d", [1])
	d := [concat("", [line, format_int(i, 10)]) | some i in numbers.range(1, 10000)]
}`,
	"many":  `violation contains {"msg": sprintf("%d", [i])} if some i in numbers.range(1, 2000)`,
	"range": `violation contains {"msg": "x"} if count(numbers.range(0, 1000000000)) > 0`,
	"product": `violation contains {"msg": "x"} if {
	s := concat("", [sprintf("%01000d", [i]) | some i in numbers.range(1, 100)])
	t := replace(s, "0", s)
	t != ""
}`,
	"regex": `violation contains {"msg": "x"} if regex.match(concat("", ["(", concat("|", [sprintf("a{%d}{1000}", [i]) | some i in numbers.range(1, 1000)]), ")"]), "aaaa")`,
	"deep": `view.next[key] contains value if {
	key := input.ref.name
	value := input.ref.name
}

hop(x) := y if {
	some e in data.fleet.views["hostile.deep"].next[x]
	y := e.value
}

violation contains {"msg": "x"} if {
	some a in numbers.range(1, 1000)
	some b in numbers.range(1, 1000)
	hop(hop(hop(hop(input.ref.name)))) == sprintf("%d %d", [a, b])
}`,
	"composite": `view.keys[key] contains true if key := [input.ref.name, input.ref.namespace]

violation contains {"msg": "x"} if data.fleet.views["hostile.composite"].keys.a`,
	"broken": `violation contains {"msg": "fine"}

violation contains {"msg": "broken"} if 1 / (count(input.object.spec) - count(input.object.spec)) > 0`,
}

// good is the policy of the library that is measured.
const good = "federator.workloads.image_skew"

// hostileNeighbours measures what one binding's evaluations take, alone and beside
// bindings that misbehave.
func hostileNeighbours(ctx context.Context, b *bench) ([]row, error) {
	var got figures
	if err := b.child(ctx, "policy-hostile", &got, b.corpus, strconv.Itoa(b.n(10_000))); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d evaluations of image_skew for a delta, %d deltas, beside %d hostile policies of which %.0f end in quarantine; baseline alone", namesakes, hostileDeltas, len(hostileRules), got["quarantined"])
	return []row{
		lower("policy/hostile_p50", "µs", got["beside-p50"], got["alone-p50"], note+"; goal at most 1.1 times as long"),
		lower("policy/hostile_p99", "µs", got["beside-p99"], got["alone-p99"], fmt.Sprintf("longest %.0f, alone %.0f; goal under the budget of one evaluation, 100,000, which %.0f overran, alone %.0f", got["beside-max"], got["alone-max"], got["beside-overruns"], got["alone-overruns"])),
		lower("policy/hostile_to_verdict", "ms p50", got["beside-verdict-p50"], got["alone-verdict-p50"], fmt.Sprintf("from the commit to the state of all bindings, p99 %.2f, longest %.0f, while the hostile ones overrun their budgets; alone p99 %.2f", got["beside-verdict-p99"], got["beside-verdict-max"], got["alone-verdict-p99"])),
	}, nil
}

// hostileSet is the good policy, and hostile ones about the objects of deltas.
func hostileSet(beside bool) (*policy.Set, []policy.Binding, error) {
	src, err := policy.ReadSource("library", policies.FS)
	if err != nil {
		return nil, nil, err
	}
	sources, bindings := []policy.Source{src}, []policy.Binding{{Name: good, Package: good}}
	if beside {
		hostile := policy.Source{Name: "hostile"}
		for name, rules := range hostileRules {
			text := fmt.Sprintf("# METADATA\n# title: %s\n# custom: {severity: low, kinds: [\"Deployment.apps\"]}\npackage hostile.%s\n\n%s\n", name, name, rules)
			hostile.Files = append(hostile.Files, policy.File{Path: name + ".rego", Data: []byte(text)})
			bindings = append(bindings, policy.Binding{
				Name: name, Package: "hostile." + name,
				Members: policy.MemberSelector{Names: []string{"bench/member-0"}}, Match: policy.Match{Namespaces: []string{"fresh"}},
			})
		}
		sources = append(sources, hostile)
	}
	set, err := policy.Load(sources, policy.LoadOptions{})
	return set, bindings, err
}

func policyHostile(ctx context.Context, corpus string, objects int) (figures, error) {
	s, err := newAppSet(ctx, corpus, objects, map[aggregate.Kind]int{deployment: 100}, []aggregate.Kind{"StatefulSet.apps", "DaemonSet.apps"})
	if err != nil {
		return nil, err
	}
	for m := 1; m < namesakes; m++ {
		for i := range hostileDeltas {
			s.scopes[deployment][m].Upsert(s.fresh(m, i, 0))
		}
		if _, err := s.scopes[deployment][m].Commit(); err != nil {
			return nil, err
		}
	}
	out := figures{}
	took := map[string]*neighbours{"warmup": {}, "alone": {}, "beside": {}}
	// Twice each, as what else the machine does comes and goes.
	for _, name := range []string{"warmup", "alone", "beside", "alone", "beside"} {
		if err := took[name].measure(ctx, s, name == "beside", out); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, n := range took {
		for k, q := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
			out[name+"-"+k], out[name+"-verdict-"+k] = ms(n.each, q)*1e3, ms(n.verdict, q)
		}
		out[name+"-overruns"] = float64(n.overruns)
	}
	return out, nil
}

// neighbours are what deltas took.
type neighbours struct {
	each, verdict []time.Duration // the good policy's evaluations; from the commit to the state
	overruns      int64           // of the good policy
}

// fresh is one of the Deployments that deltas put into the first member, or of their
// namesakes in others, with an image of its version.
func (s *appSet) fresh(m, i, version int) aggregate.Item {
	t := s.bodies[deployment][i%len(s.bodies[deployment])]
	return s.scopes[deployment][m].Item(&aggregate.Record{
		Namespace: "fresh", Name: fmt.Sprint("d", i), UID: fmt.Sprint("fresh-", m, "-", i), ResourceVersion: strconv.Itoa(version + 1),
		Labels: t.labels, Body: t.variants[version%variants],
	})
}

// measure applies deltas one by one. Hostile policies see the objects that the deltas
// make, and nothing before: they overrun their budgets in the midst of it.
func (x *neighbours) measure(ctx context.Context, s *appSet, beside bool, out figures) error {
	set, bindings, err := hostileSet(beside)
	if err != nil {
		return err
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings})
	if err != nil {
		return err
	}
	scope := s.scopes[deployment][0]
	for i := range hostileDeltas {
		scope.Delete("fresh", fmt.Sprint("d", i))
	}
	if _, err := scope.Commit(); err != nil {
		return err
	}
	return running(ctx, e, func(ctx context.Context) error {
		at := s.index.Snapshot()
		if err := reset(ctx, at, e); err != nil {
			return err
		}
		heap() // so that both begin at a collection
		cursor := s.index.Cursor(at)
		was, _ := e.State().Health(good)
		for i := range hostileDeltas {
			item := s.fresh(0, i, 1)
			started := time.Now()
			scope.Upsert(item)
			if _, err := scope.Commit(); err != nil {
				return err
			}
			batch, ok := cursor.Poll()
			if !ok {
				return fmt.Errorf("delta %d: nothing has changed", i)
			}
			if _, err := e.Apply(ctx, batch, nil); err != nil {
				return err
			}
			x.verdict = append(x.verdict, time.Since(started))
			is, _ := e.State().Health(good)
			// What overran, on a machine that does much else, is evaluated again.
			if n := is.Evaluations - was.Evaluations; n != namesakes && is.Overruns == 0 || is.Errors > is.Overruns {
				return fmt.Errorf("delta %d: %d evaluations, %d errors", i, n, is.Errors)
			}
			x.each = append(x.each, time.Duration(is.Nanoseconds-was.Nanoseconds))
			was = is
		}
		x.overruns += was.Overruns
		return hostileHealth(e.State(), bindings, out)
	})
}

// hostileHealth counts those in quarantine, and refuses hostile policies that are
// bounded by nothing.
func hostileHealth(s *policy.State, bindings []policy.Binding, out figures) error {
	out["quarantined"] = 0
	for _, b := range bindings {
		h, _ := s.Health(b.Name)
		switch {
		case b.Name == good:
			if t := s.Total(b.Name); t.Violations == 0 || len(h.Quarantines) > 0 {
				return fmt.Errorf("the good one: %+v, %+v", t, h)
			}
		case len(h.Quarantines) > 0:
			out["quarantined"]++
		case s.Total(b.Name).Known > 0:
			return fmt.Errorf("%s is not bounded: %+v", b.Name, h)
		}
	}
	return nil
}
