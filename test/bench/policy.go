package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// Passes over the pods, of which the fastest counts: what else the machine does
// makes passes slower, never faster.
const passes = 5

// reviews compares the pods that a core evaluates with four policies with those that
// Gatekeeper's engine does, and shows what each gain gives by itself.
func reviews(ctx context.Context, b *bench) ([]row, error) {
	pods := b.n(2_000)
	var got figures
	if err := b.child(ctx, "policy-reviews", &got, b.corpus, strconv.Itoa(pods)); err != nil {
		return nil, err
	}
	rate := func(key string) float64 { return 1e6 / got[key] }
	note := fmt.Sprintf("%d pods, 4 policies, %.0f equal violations, one core; %.0f µs a pod, frameworks/constraint %.0f from JSON", pods, got["violations"], got["ours"], got["theirs"])
	rows := []row{
		higher("policy/reviews_per_core", "pods/CPU-s", rate("ours"), rate("theirs"), note+"; goal 25x"),
		higher("policy/reviews_per_core_each", "pods/CPU-s", rate("each"), rate("theirs"), "ours without twins: every verdict evaluated"),
		higher("policy/reviews_per_core_decoded", "pods/CPU-s", rate("ours"), rate("theirs-decoded"), "ours from stored bytes still, the framework's objects held decoded as maps"),
		higher("policy/gain_twins", "pods/CPU-s", rate("ours"), rate("each"), fmt.Sprintf("%.0f %% of the verdicts were found for a Pod that is alike; baseline: policies that read the name, so that none is", 100*got["shared"])),
		higher("policy/gain_shared_document", "pods/CPU-s", rate("ours"), rate("alone"), "baseline: one engine for each of the policies, which decompresses and decodes by itself"),
		higher("policy/gain_read_mask", "pods/CPU-s", rate("ours"), rate("whole"), "baseline: the same policies with a rule that reads the Pod whole: larger documents, and no twins"),
		lower("policy/gain_unchanged", "µs", got["heartbeat"], got["changed"], "CPU of a delta that changes the status, beside one that changes a label, 4 policies that read no status"),
	}
	parts, err := b.documents(ctx)
	if err != nil {
		return rows, err
	}
	return append(rows,
		lower("policy/gain_document", "µs", parts["whole"], parts["map"], "stored bytes to an ast.Value; baseline JSON to map to ast.Value"),
		lower("policy/gain_document_mask", "µs", parts["typical"], parts["whole"], "what eight paths read of a Pod, beside the Pod whole"),
	), nil
}

var benchLine = regexp.MustCompile(`(?m)^BenchmarkValue/(\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

// documents runs the benchmark of documents beside their package, µs each.
func (b *bench) documents(ctx context.Context) (figures, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "BenchmarkValue", "-benchtime", "1s", "-count", "3", "./pkg/policy/internal/document")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	got := figures{}
	for _, m := range benchLine.FindAllSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return nil, err
		}
		if was, ok := got[string(m[1])]; !ok || ns/1e3 < was {
			got[string(m[1])] = ns / 1e3
		}
	}
	b.progress("   documents %v", got)
	return got, nil
}

// policyReviews measures CPU per pod in µs, in a process with one core.
func policyReviews(ctx context.Context, corpus string, pods int) (figures, error) {
	runtime.GOMAXPROCS(1)
	p, err := newPodSet(corpus, 1, pods)
	if err != nil {
		return nil, err
	}
	index, scopes, err := p.fill(ctx)
	if err != nil {
		return nil, err
	}
	s := index.Snapshot()
	out := figures{}
	set, bindings, err := loadRules(compared, "")
	if err != nil {
		return nil, err
	}
	engine, err := newEngine(set, bindings)
	if err != nil {
		return nil, err
	}
	per := float64(pods)
	if out["ours"], err = fastest(per, func() error { return reset(ctx, s, engine) }); err != nil {
		return nil, err
	}
	stats := engine.Stats()
	out["shared"] = float64(stats.Memoized) / float64(stats.Evaluations)
	if err := p.alone(ctx, s, out, set, bindings); err != nil {
		return nil, err
	}
	ours, err := violationsOf(engine.State())
	if err != nil {
		return nil, err
	}
	if err := p.deltas(ctx, index, scopes[0], engine, out); err != nil {
		return nil, err
	}
	theirs, err := p.framework(ctx, out)
	if err != nil {
		return nil, err
	}
	if !maps.Equal(ours, theirs) {
		return nil, fmt.Errorf("the engines differ: %d violations, the framework has %d: %s", len(ours), len(theirs), difference(ours, theirs))
	}
	out["violations"] = float64(len(ours))
	return out, nil
}

func newEngine(set *policy.Set, bindings []policy.Binding) (*policy.Engine, error) {
	return policy.NewEngine(policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1, Limits: policy.Limits{Evaluation: time.Minute}})
}

func reset(ctx context.Context, s *aggregate.Snapshot, engines ...*policy.Engine) error {
	for _, e := range engines {
		if _, err := e.Reset(ctx, s, nil); err != nil {
			return err
		}
	}
	return nil
}

// fastest returns the CPU of the fastest of several passes, in µs of each of n.
func fastest(n float64, pass func() error) (float64, error) {
	best := 0.0
	for range passes {
		runtime.GC()
		cpu := cpuTime()
		if err := pass(); err != nil {
			return 0, err
		}
		if took := float64((cpuTime() - cpu).Nanoseconds()) / 1e3 / n; best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// alone measures what is left without one gain or the other.
func (s *podSet) alone(ctx context.Context, at *aggregate.Snapshot, out figures, set *policy.Set, bindings []policy.Binding) error {
	var engines []*policy.Engine
	for i := range bindings {
		e, err := newEngine(set, bindings[i:i+1])
		if err != nil {
			return err
		}
		engines = append(engines, e)
	}
	var err error
	if out["alone"], err = fastest(float64(s.perMember), func() error { return reset(ctx, at, engines...) }); err != nil {
		return err
	}
	// Rules that never hold, for what they read.
	for name, extra := range map[string]string{
		"whole": `violation contains {"msg": "empty"} if input.object == {}`,
		"each":  `violation contains {"msg": "unnamed"} if input.ref.name == ""`,
	} {
		set, bindings, err := loadRules(compared, "\n"+extra+"\n")
		if err != nil {
			return err
		}
		e, err := newEngine(set, bindings)
		if err != nil {
			return err
		}
		if out[name], err = fastest(float64(s.perMember), func() error { return reset(ctx, at, e) }); err != nil {
			return err
		}
		if stats := e.Stats(); stats.Memoized > 0 {
			return fmt.Errorf("%s: %d evaluations were shared", name, stats.Memoized)
		}
	}
	return nil
}

// deltas measures what a delta costs the engine that changes nothing that a policy
// reads, and one that does.
func (s *podSet) deltas(ctx context.Context, index *aggregate.Index, scope *aggregate.Scope, engine *policy.Engine, out figures) error {
	for _, what := range []string{"heartbeat", "changed"} {
		change := func(body map[string]any, round int) {
			if what == "changed" {
				meta := body["metadata"].(map[string]any)
				labels, _ := meta["labels"].(map[string]any)
				labels = maps.Clone(labels)
				if labels == nil {
					labels = map[string]any{}
				}
				labels["bench"] = fmt.Sprint("round-", round)
				meta["labels"] = labels
				return
			}
			body["status"] = map[string]any{"phase": "Running", "message": fmt.Sprint("beat ", round)}
		}
		round, best := 0, 0.0
		for range passes {
			round++
			cursor := index.Cursor(index.Snapshot())
			if err := s.change(scope, round, what, change); err != nil {
				return err
			}
			batch, ok := cursor.Poll()
			if !ok {
				return fmt.Errorf("%s: nothing has changed", what)
			}
			before := engine.Stats()
			cpu := cpuTime()
			if _, err := engine.Apply(ctx, batch, nil); err != nil {
				return err
			}
			took := float64((cpuTime() - cpu).Nanoseconds()) / 1e3 / float64(s.perMember)
			if best == 0 || took < best {
				best = took
			}
			after := engine.Stats()
			evaluated := after.Evaluations - before.Evaluations
			if want := map[string]int{"heartbeat": 0, "changed": 1}[what] * s.perMember; evaluated != int64(want) {
				return fmt.Errorf("%s: %d evaluations of %d deltas, want %d", what, evaluated, s.perMember, want)
			}
		}
		out[what] = best
	}
	return nil
}

// change commits all pods with what edit does to their bodies.
func (s *podSet) change(scope *aggregate.Scope, round int, what string, edit func(body map[string]any, round int)) error {
	bodies := make([][]byte, len(s.bodies))
	for i, text := range s.bodies[:min(len(s.bodies), s.perMember)] {
		var body map[string]any
		if err := json.Unmarshal(text, &body); err != nil {
			return err
		}
		edit(body, round)
		var err error
		if bodies[i], err = json.Marshal(body); err != nil {
			return err
		}
	}
	var rec aggregate.Record
	for i := range s.perMember {
		s.record(&rec, 0, i, 0)
		rec.ResourceVersion = fmt.Sprint(what, round, i)
		rec.Body = bodies[i%len(bodies)]
		scope.Upsert(scope.Item(&rec))
	}
	_, err := scope.Commit()
	return err
}

// violationsOf are all violations of a state, with how often each is said.
func violationsOf(s *policy.State) (map[string]int, error) {
	all := map[string]int{}
	for b := range s.Bindings() {
		for v := range s.Findings(b.Name, "") {
			if v.State == policy.Error {
				return nil, fmt.Errorf("%s %s: %s", b.Name, v.Subject, v.Message)
			}
			for _, x := range v.Violations {
				var details any
				if err := json.Unmarshal(x.Details, &details); err != nil {
					return nil, err
				}
				text, err := said(v.Binding, v.Subject.Ref.Namespace+"/"+v.Subject.Ref.Name, x.Msg, details)
				if err != nil {
					return nil, err
				}
				all[text]++
			}
		}
	}
	return all, nil
}

// difference is one violation that only one of both has.
func difference(a, b map[string]int) string {
	for _, m := range []map[string]int{a, b} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if a[k] != b[k] {
				return fmt.Sprintf("%q %d times, the framework %d", k, a[k], b[k])
			}
		}
	}
	return ""
}
