package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Schedules of a third kind (version*.go) are those of the write path in which versions of policies
// roll out, too, as the hub does that: a version takes the place of the former one in the next wave
// once that has begun, is promoted once the last one is done, and may be taken back or replaced by
// another one at any time. Each generation writes something that no other one does.

// versions gives a dispatcher the intents of two versions: of the former one in members whose wave the
// new one does not have.
type versions struct{ *remediate.Dispatcher }

// SetIntents implements enforce.Actor.
func (v versions) SetIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, intents []remediate.Intent, ready bool) error {
	return v.Dispatcher.SetIntents(binding, spec, totals, ofVersions(binding, &spec, intents), ready)
}

// UpdateIntents implements enforce.Actor.
func (v versions) UpdateIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, intents []remediate.Intent, gone []policy.Ref, ready bool) error {
	return v.Dispatcher.UpdateIntents(binding, spec, totals, ofVersions(binding, &spec, intents), gone, ready)
}

func ofVersions(binding string, spec *remediate.RolloutSpec, intents []remediate.Intent) []remediate.Intent {
	out := slices.Clone(intents)
	for n := range out {
		i := &out[n]
		generation := spec.Generation
		if r := spec.Replaces; r != nil && !slices.ContainsFunc(spec.Waves[:r.Promoted], func(w remediate.Wave) bool { return w.Members[i.Remedy.Target.Member] }) {
			i.Former, generation = true, r.Generation
		}
		i.Version = fmt.Sprintf("%x", generation)
		for _, body := range []*json.RawMessage{&i.Remedy.Patch, &i.Remedy.Object} {
			if len(*body) > 0 {
				*body = labelled(*body, "version-"+binding, generation)
			}
		}
	}
	return out
}

// labelled adds a label to what is written, which no policy reads. Each has its own: two managers of one
// contend for it.
func labelled(body []byte, key, generation string) json.RawMessage {
	var o map[string]any
	must(json.Unmarshal(body, &o))
	meta, _ := o["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		o["metadata"] = meta
	}
	labels, _ := meta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		meta["labels"] = labels
	}
	labels[key] = generation
	text, err := json.Marshal(o)
	must(err)
	return text
}

// rolling is how a version of a policy takes the place of the one that people wanted before.
type rolling struct {
	former   wish
	promoted int
}

func (r *rolling) String() string {
	return fmt.Sprintf("in the place of %s in %d waves", r.former.key(), r.promoted)
}

// spec is the rollout as the hub's controllers read it.
func (r *rolling) spec() *enforce.VersionRollout {
	if r == nil {
		return nil
	}
	return &enforce.VersionRollout{Former: enforce.FormerVersion{Generation: r.former.key(), Source: "git"}, Promoted: r.promoted}
}

// isFormer reports whether a write is of the version whose place the wanted one takes.
func (x *wish) isFormer(o write) bool {
	return x.replaces != nil && o.generation == x.replaces.former.key()
}

// offerVersions offers that versions of policies roll out, and what becomes of them.
func (w *world) offerVersions(add func(int, string, func())) {
	if !w.versions {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.policies)) {
		switch x := w.policies[name]; {
		case x.gone:
		case x.replaces == nil:
			add(1, "version", func() { w.rollOut(x, *x) })
		default:
			add(1, "version", func() { w.rollOut(x, x.replaces.former) })
			add(1, "take back", func() { w.become(x, x.replaces.former) })
		}
	}
	w.offerPromotions(add)
}

// offerPromotions offers what follows from how far waves have come, by what the hub has recorded.
func (w *world) offerPromotions(add func(int, string, func())) {
	for _, name := range slices.Sorted(maps.Keys(w.policies)) {
		x := w.policies[name]
		if x.replaces == nil {
			continue
		}
		now := w.rollout(name)
		wave, _ := now["wave"].(int64)
		of := now["generation"] == x.key()
		switch {
		case of && now["phase"] == string(v1alpha1.WaveDone) && x.replaces.promoted == 2:
			add(5, "promote", func() {
				next := *x
				next.waves, next.replaces = x.replaces.former.waves, nil
				w.become(x, next)
			})
		case x.replaces.promoted == 0 || of && x.replaces.promoted == 1 && wave > 1:
			add(5, "advance", func() {
				next := *x
				next.replaces = &rolling{x.replaces.former, x.replaces.promoted + 1}
				w.become(x, next)
			})
		}
	}
}

// rollOut has another generation of a policy take the place of a former one.
func (w *world) rollOut(x *wish, former wish) {
	next := former
	next.generation, next.waves, next.replaces = len(w.wishes[x.policy]), true, &rolling{former, w.choices.below(2)}
	kept := next
	kept.replaces, kept.waves = nil, former.waves
	w.wishes[x.policy] = append(w.wishes[x.policy], &kept)
	w.become(x, next)
}

// become makes another wish of a policy what people want of it now.
func (w *world) become(x *wish, next wish) {
	next.version, next.suspended = x.version+1, x.suspended
	w.want(func() { w.policies[x.policy] = &next })
	w.note("hub: %v", &next)
}

// RunVersions runs the schedule of a seed in which versions roll out.
func RunVersions(t *testing.T, seed uint64) Result { return playVersions.run(t, seed) }

// playVersions plays a schedule of the write path in which versions roll out.
var playVersions Player = func(t *testing.T, c *choices) Result {
	return bubble(t, func(ctx context.Context) Result {
		w := drawWorld(ctx, c, true)
		w.run(minSteps + c.below(60))
		return Result{Steps: w.step, Failure: w.failure, History: w.history, States: w.states, choices: c.made}
	})
}
