package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// gatekeeperVerdicts compares unchanged templates with Gatekeeper's engine, every verdict
// evaluated: nothing comes of Pods that are alike.
func gatekeeperVerdicts(ctx context.Context, b *bench) ([]row, error) {
	pods, held := b.n(2_000), b.n(20_000) // so that what is there once hardly counts
	var got, kept figures
	if err := b.child(ctx, "gatekeeper-verdicts", &got, b.corpus, strconv.Itoa(pods)); err != nil {
		return nil, err
	}
	if err := b.child(ctx, "gatekeeper-memory", &kept, b.corpus, strconv.Itoa(held)); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d pods, 4 templates, %.0f equal violations, one core, every verdict evaluated; %.0f µs a pod, frameworks/constraint %.0f from JSON",
		pods, got["violations"], got["ours"], got["theirs"])
	return []row{
		higher("gatekeeper/verdicts", "pods/CPU-s", 1e6/got["ours"], 1e6/got["theirs"], note+"; goal 8x"),
		lower("gatekeeper/memory", "B/pod", kept["our-bytes"], kept["their-bytes"], fmt.Sprintf(
			"%d pods: index (%.0f B), verdicts and reads, beside the objects decoded, as Gatekeeper's data has them; goal 1/20", held, kept["index-bytes"])),
	}, nil
}

// templateFiles are the rules as templates and constraints in a file.
func templateFiles(rules []rule) ([]policy.File, error) {
	var out []policy.File
	for _, r := range rules {
		parameters := r.parameters
		if parameters == nil {
			parameters = map[string]any{}
		}
		for suffix, doc := range map[string]map[string]any{
			"template": {
				"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": map[string]any{"name": lowerCase(r.kind)},
				"spec": map[string]any{
					"crd": map[string]any{"spec": map[string]any{
						"names":      map[string]any{"kind": r.kind},
						"validation": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
					}},
					"targets": []any{map[string]any{"target": frameworkTarget, "code": []any{
						map[string]any{"engine": "Rego", "source": map[string]any{"version": "v1", "rego": r.template()}},
					}}},
				},
			},
			"constraint": {
				"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": r.kind, "metadata": map[string]any{"name": r.name},
				"spec": map[string]any{"match": map[string]any{"kinds": []any{map[string]any{"apiGroups": []any{""}, "kinds": []any{"Pod"}}}}, "parameters": parameters},
			},
		} {
			text, err := json.Marshal(doc)
			if err != nil {
				return nil, err
			}
			out = append(out, policy.File{Path: r.name + "-" + suffix + ".json", Data: text})
		}
	}
	return out, nil
}

// gatekeeperReviews measures CPU per pod in µs, in a process with one core.
func gatekeeperReviews(ctx context.Context, corpus string, pods int) (figures, error) {
	runtime.GOMAXPROCS(1)
	p, err := newPodSet(corpus, 1, pods)
	if err != nil {
		return nil, err
	}
	index, _, err := p.fill(ctx)
	if err != nil {
		return nil, err
	}
	engine, err := templateEngine()
	if err != nil {
		return nil, err
	}
	s, out := index.Snapshot(), figures{}
	if out["ours"], err = fastest(float64(pods), func() error { return reset(ctx, s, engine) }); err != nil {
		return nil, err
	}
	if n := engine.Stats().Memoized; n > 0 {
		return nil, fmt.Errorf("%d verdicts were shared", n)
	}
	ours, err := violationsOf(engine.State())
	if err != nil {
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

// gatekeeperMemory measures bytes per pod.
func gatekeeperMemory(ctx context.Context, corpus string, pods int) (figures, error) {
	p, err := newPodSet(corpus, 1, pods)
	if err != nil {
		return nil, err
	}
	out := figures{}
	if err := p.decodedBytes(out); err != nil {
		return nil, err
	}
	before := heap()
	index, _, err := p.fill(ctx)
	if err != nil {
		return nil, err
	}
	out["index-bytes"] = (heap() - before) / float64(pods)
	engine, err := templateEngine()
	if err != nil {
		return nil, err
	}
	if err := reset(ctx, index.Snapshot(), engine); err != nil {
		return nil, err
	}
	out["our-bytes"] = (heap() - before) / float64(pods)
	runtime.KeepAlive(index)
	runtime.KeepAlive(engine)
	return out, nil
}

// templateEngine is an engine of the compared rules, as templates.
func templateEngine() (*policy.Engine, error) {
	files, err := templateFiles(compared)
	if err != nil {
		return nil, err
	}
	set, err := policy.Load([]policy.Source{{Files: files}}, policy.LoadOptions{})
	if err != nil {
		return nil, err
	}
	var bindings []policy.Binding
	for _, r := range compared {
		bindings = append(bindings, policy.Binding{
			Name: r.name, Package: "gatekeeper." + lowerCase(r.kind), Constraint: r.kind + "/" + r.name,
			// With an exemption no evaluation is shared: none matches.
			Exemptions: []policy.Exemption{{Names: []string{"no such pod"}, Reason: "every verdict is evaluated"}},
		})
	}
	return newEngine(set, bindings)
}

// decodedBytes measures the pods as Gatekeeper holds them.
func (s *podSet) decodedBytes(out figures) error {
	before := heap()
	decoded := make([]*unstructured.Unstructured, s.perMember)
	var rec aggregate.Record
	for i := range decoded {
		s.record(&rec, 0, i, i+1)
		decoded[i] = &unstructured.Unstructured{}
		if err := decoded[i].UnmarshalJSON(rec.Body); err != nil {
			return err
		}
	}
	out["their-bytes"] = (heap() - before) / float64(s.perMember)
	runtime.KeepAlive(decoded)
	return nil
}
