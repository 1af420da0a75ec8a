package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// timeRounds is how many instants are fired, and how many deltas are applied, one after the other.
const timeRounds = 2000

// timeStart is the time of the first evaluation; the instants are the seconds after it.
var timeStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// timeRule asks whether the instant of an object has passed, and otherRule reads something else by the same text:
// as many reads, of as many keys.
const (
	timeRule  = `data.fleet.passed[input.object.spec.until]`
	otherRule = `data.fleet.scopes[input.ref.member][input.object.spec.until]`
)

// recordedTime measures what an instant that is waited for takes, and what it costs to fire one.
func recordedTime(ctx context.Context, b *bench) ([]row, error) {
	objects := b.n(1_000_000)
	var got figures
	if err := b.child(ctx, "policy-time", &got, b.corpus, strconv.Itoa(objects)); err != nil {
		return nil, err
	}
	n := float64(objects)
	return []row{
		{Name: "policy/time_record", Unit: "B", Value: (got["heap-time"] - got["heap-other"]) / n, Note: fmt.Sprintf("heap of an instant at %d of them, in any order, beside the read itself, which is %.0f B; goal under 40", objects, got["heap-other"]/n)},
		lower("policy/time_fire", "µs p50", got["fire"], got["delta"], fmt.Sprintf("firing an instant of one of %d subjects, beside a delta of such a subject; %.2f and %.2f evaluations; goal the same", objects, got["fire-evaluations"], got["delta-evaluations"])),
	}, nil
}

// timedObject is an object that names an instant, so many seconds after the start.
func timedObject(scope *aggregate.Scope, i, seconds int) aggregate.Item {
	until := timeStart.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339)
	name := fmt.Sprintf("o%07d", i)
	return scope.Item(&aggregate.Record{
		Namespace: "shop", Name: name, UID: name, ResourceVersion: strconv.Itoa(seconds),
		Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop"},"spec":{"until":%q}}`, name, until),
	})
}

func timeEngine(rule string, clock func() time.Time) (*policy.Engine, error) {
	text := "# METADATA\n# title: Time\n# custom: {severity: low, kinds: [Pod]}\npackage timed\n\nviolation contains {\"msg\": \"passed\"} if " + rule + "\n"
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "timed.rego", Data: []byte(text)}}}}, policy.LoadOptions{})
	if err != nil {
		return nil, err
	}
	bindings, _ := policy.DefaultBindings(set, nil)
	return policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Clock: clock, Parallelism: 1})
}

func policyTime(ctx context.Context, _ string, objects int) (figures, error) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, err
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		return nil, err
	}
	scope, err := index.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		return nil, err
	}
	items, late := make([]aggregate.Item, 0, objects), []int(nil)
	for i, seconds := range rand.New(rand.NewPCG(1, 1)).Perm(objects) {
		items = append(items, timedObject(scope, i, seconds+1))
		if seconds >= objects/2 && len(late) < timeRounds {
			late = append(late, i)
		}
	}
	if _, err := scope.Replace(items, aggregate.Status{State: aggregate.Synced}); err != nil {
		return nil, err
	}
	now := timeStart
	out := figures{}
	for name, rule := range map[string]string{"heap-other": otherRule, "heap-time": timeRule} {
		before := heap()
		e, err := timeEngine(rule, func() time.Time { return now })
		if err != nil {
			return nil, err
		}
		if err := reset(ctx, index.Snapshot(), e); err != nil {
			return nil, err
		}
		out[name] = heap() - before
		if s := e.Stats(); s.Edges != objects || rule == timeRule && s.Instants != objects {
			return nil, fmt.Errorf("%d reads and %d instants of %d objects", s.Edges, s.Instants, objects)
		}
		if rule != timeRule {
			continue
		}
		f := &fired{engine: e, scope: scope, cursor: index.Cursor(e.State().Snapshot)}
		if err := f.measure(ctx, late, &now, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fired is an engine for which time passes, and to which deltas come.
type fired struct {
	engine *policy.Engine
	scope  *aggregate.Scope
	cursor *aggregate.Cursor
}

// measure fires an instant and applies a delta in turns. The delta gives an object whose instant is late one that
// has passed, so that as much comes of either.
func (f *fired) measure(ctx context.Context, late []int, now *time.Time, out figures) error {
	rounds := float64(len(late))
	var fires, deltas []time.Duration
	var evaluated [2]int64
	last := f.engine.Stats().Evaluations
	count := func(i int) {
		n := f.engine.Stats().Evaluations
		evaluated[i] += n - last
		last = n
	}
	for _, i := range late {
		*now = now.Add(time.Second)
		at := time.Now()
		changes, err := f.engine.Advance(ctx)
		if err != nil {
			return err
		}
		fires = append(fires, time.Since(at))
		if count(0); changes == nil {
			return fmt.Errorf("nothing is due at %v", *now)
		}
		f.scope.Upsert(timedObject(f.scope, i, 0))
		if _, err := f.scope.Commit(); err != nil {
			return err
		}
		batch, _ := f.cursor.Poll()
		at = time.Now()
		if _, err := f.engine.Apply(ctx, batch, nil); err != nil {
			return err
		}
		deltas = append(deltas, time.Since(at))
		count(1)
	}
	out["fire"], out["delta"] = 1000*ms(fires, 0.5), 1000*ms(deltas, 0.5)
	out["fire-evaluations"], out["delta-evaluations"] = float64(evaluated[0])/rounds, float64(evaluated[1])/rounds
	return nil
}
