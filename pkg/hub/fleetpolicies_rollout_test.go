package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
)

// labels is a library with a policy whose parameter is the label that is bad.
func labels(t *testing.T) shelf {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "shelf", Files: []policy.File{{Path: "labels.rego", Data: []byte(`# METADATA
# title: Labels
# custom: {severity: low, kinds: [Pod], parameters: {type: object, properties: {label: {type: string, default: bad}}}}
package acme.labels

violation contains {"msg": "has the label"} if input.object.metadata.labels[input.parameters.label]
`)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return shelf{set}
}

func labelPolicy(label string) []byte {
	return fmt.Appendf(nil, "apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: labels}\nspec:\n  package: acme.labels\n  parameters: {label: %s}\n  rollout: {shadow: 720h, maxNew: 100}\n", label)
}

// bound returns the label that is bad by the binding of policy labels, and by the version that is to take its place.
func (j *evaluator) bound() string {
	state := j.loop.State()
	if state == nil { // it has just started
		return "nothing"
	}
	for b := range state.Bindings() {
		if b.Name != "labels" {
			continue
		}
		out := fmt.Sprint(b.Parameters["label"])
		if b.Next != nil {
			out += fmt.Sprintf(" > %v, whole %t", b.Next.Binding.Parameters["label"], b.Next.Whole)
		}
		return out
	}
	return "nothing"
}

func (j *evaluator) awaitBound(t *testing.T, want string) {
	t.Helper()
	if err := until(func() error {
		if got := j.bound(); got != want {
			return fmt.Errorf("bound is %s, want %s", got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// inPhase waits until policy labels says that its candidate is in a phase, "" for none.
func inPhase(t *testing.T, phase v1alpha1.RolloutPhase) *v1alpha1.FleetPolicy {
	t.Helper()
	return awaitPolicy(t, "labels", func(fp *v1alpha1.FleetPolicy) bool {
		r := fp.Status.Rollout
		if r == nil || r.Effective == nil || fp.Status.ObservedGeneration != fp.Generation {
			return false
		}
		return phase == "" && r.Candidate == nil || r.Candidate != nil && r.Candidate.Phase == phase
	})
}

// record has the hub say that a candidate is in a phase, as another leader has decided.
func record(t *testing.T, phase v1alpha1.RolloutPhase, message string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"rollout": map[string]any{"candidate": map[string]any{"phase": phase, "message": message}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shared.client.Resource(v1alpha1.Resource(v1alpha1.FleetPolicies)).Patch(t.Context(), "labels", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// TestFleetPolicies_RollOutParameters: the version in effect stays in effect until the hub says that the
// other one has taken its place, for any leader, and for processes that start meanwhile.
func TestFleetPolicies_RollOutParameters(t *testing.T) {
	index, become := pods(t, "bad", "bad", "ugly")
	opts := hub.EventsOptions{Instance: "federator-0", Interval: 100 * time.Millisecond}
	a := newEvaluator(t, index, labels(t), opts)
	become(aggregate.Synced)
	apply := func(label string) {
		t.Helper()
		if err := until(func() error { return shared.Fleet.Hub.Apply(t.Context(), labelPolicy(label)) }); err != nil {
			t.Fatal(err)
		}
	}
	apply("bad")
	first := inPhase(t, "").Status.Rollout.Effective
	a.awaitBound(t, "bad")

	apply("ugly")
	fp := inPhase(t, v1alpha1.RolloutShadow)
	c := fp.Status.Rollout.Candidate
	if e := fp.Status.Rollout.Effective; e.Digest != first.Digest || !strings.Contains(string(e.Parameters.Raw), "bad") || c.Digest == first.Digest || c.Package != first.Package {
		t.Errorf("effective %+v, candidate %+v", e, c)
	}
	if n := len(fp.Status.Versions); n != 1 {
		t.Errorf("%d versions have taken effect", n)
	}
	if ready := meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Ready); !strings.Contains(ready.Message, "version "+string(c.Digest[:12])+" rolls out: in shadow until ") {
		t.Errorf("ready: %s", ready.Message)
	}
	a.awaitBound(t, "bad > ugly, whole false")
	expectEvent(t, fp.UID, "Normal VersionInShadow: version "+string(c.Digest[:12]))
	expectPhase(t, a, "shadow")

	// A process that starts binds the same, though the spec says nothing of the former parameters.
	a.lead.Store(false)
	b := newEvaluator(t, index, labels(t), opts)
	b.lead.Store(false)
	b.awaitBound(t, "bad > ugly, whole false")
	record(t, v1alpha1.RolloutWaves, "")
	a.awaitBound(t, "bad > ugly, whole true") // it has no waves

	record(t, v1alpha1.RolloutPromoted, "")
	a.awaitBound(t, "ugly")
	b.awaitBound(t, "ugly")
	b.lead.Store(true)
	fp = inPhase(t, "")
	if e := fp.Status.Rollout.Effective; e.Digest != c.Digest || !strings.Contains(string(e.Parameters.Raw), "ugly") {
		t.Errorf("effective %+v", e)
	}
	awaitPolicy(t, "labels", func(fp *v1alpha1.FleetPolicy) bool {
		v := fp.Status.Versions
		return len(v) == 2 && v[1].Digest == c.Digest
	})
}

// TestFleetPolicies_TakeAVersionBack: what was in effect is, until there is another version or the former one again.
func TestFleetPolicies_TakeAVersionBack(t *testing.T) {
	index, become := pods(t, "bad", "ugly", "ugly")
	a := newEvaluator(t, index, labels(t), hub.EventsOptions{Instance: "federator-0", Interval: 100 * time.Millisecond})
	become(aggregate.Synced)
	apply := func(label string) {
		t.Helper()
		text := strings.Replace(string(labelPolicy(label)), "spec:", "spec:\n  mode: Enforce", 1)
		if err := until(func() error { return shared.Fleet.Hub.Apply(t.Context(), []byte(text)) }); err != nil {
			t.Fatal(err)
		}
	}
	apply("bad")
	inPhase(t, "")
	apply("ugly")
	c := inPhase(t, v1alpha1.RolloutShadow).Status.Rollout.Candidate
	a.lead.Store(false)
	record(t, v1alpha1.RolloutTakenBack, "it finds too much")
	a.awaitBound(t, "bad")
	a.lead.Store(true)
	want := "version " + string(c.Digest[:12]) + " was taken back: it finds too much"
	awaitPolicy(t, "labels", func(fp *v1alpha1.FleetPolicy) bool {
		is := meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Enforcing)
		return is != nil && is.Status == metav1.ConditionFalse && is.Reason == "TakenBack" && is.Message == want
	})
	apply("worse") // another one
	inPhase(t, v1alpha1.RolloutShadow)
	apply("bad")
	fp := inPhase(t, "")
	if len(fp.Status.Versions) != 1 {
		t.Errorf("%+v", fp.Status.Versions)
	}
	a.awaitBound(t, "bad")
}

// TestFleetPolicies_EvidenceOfAllProcesses: a version whose new violations are within the bound at each process is taken back by
// their sum. Until all say what they find nothing becomes of it, and a process that does not lead decides nothing.
func TestFleetPolicies_EvidenceOfAllProcesses(t *testing.T) {
	var a, b *evaluator
	var answers atomic.Bool // b does
	all := func(policy, of string) (evidence.Part, error) {
		if !answers.Load() {
			return evidence.Part{}, errors.New("process b says nothing")
		}
		x, y := a.Evidence()[policy], b.Evidence()[policy]
		if x.Of != of || y.Of != of {
			return evidence.Part{}, errors.New("a process compares other versions")
		}
		x.Part.Add(&y.Part)
		return x.Part, nil
	}
	opts := hub.EventsOptions{Instance: "federator-0", Interval: 100 * time.Millisecond}
	of := func(labels ...string) *aggregate.Index {
		index, become := pods(t, labels...)
		become(aggregate.Synced)
		return index
	}
	b = newSharingEvaluator(t, of("bad", "ugly", "ugly"), labels(t), opts, all)
	b.lead.Store(false)
	a = newSharingEvaluator(t, of("ugly"), labels(t), opts, all)
	apply := func(label string) {
		t.Helper()
		text := strings.Replace(string(labelPolicy(label)), "shadow: 720h, maxNew: 100", "shadow: 0s, maxNew: 2", 1)
		if err := until(func() error { return shared.Fleet.Hub.Apply(t.Context(), []byte(text)) }); err != nil {
			t.Fatal(err)
		}
	}
	apply("bad")
	inPhase(t, "")
	apply("ugly")
	awaitPolicy(t, "labels", func(fp *v1alpha1.FleetPolicy) bool {
		r := fp.Status.Rollout
		return r != nil && r.Candidate != nil && r.Candidate.Message == "its shadow begins once it is known what all processes find: process b says nothing"
	})
	b.awaitBound(t, "bad > ugly, whole false")
	answers.Store(true)
	c := inPhase(t, v1alpha1.RolloutTakenBack).Status.Rollout.Candidate
	if e := c.Evidence; e == nil || !e.Complete || e.Subjects != 4 || e.New != 3 || e.Gone != 1 || !strings.HasPrefix(c.Message, "it finds 3 violations on 4 subjects") {
		t.Errorf("%+v: %s", c.Evidence, c.Message)
	}
	b.awaitBound(t, "bad")

	// Another process leads, while the one before says nothing: what was recorded stays, and nothing becomes of a newer one.
	answers.Store(false)
	a.lead.Store(false)
	b.lead.Store(true)
	apply("worse")
	awaitPolicy(t, "labels", func(fp *v1alpha1.FleetPolicy) bool {
		r := fp.Status.Rollout
		return r.Candidate != nil && r.Candidate.Digest != c.Digest && r.Candidate.Phase == v1alpha1.RolloutShadow && strings.HasSuffix(r.Candidate.Message, "process b says nothing")
	})
	answers.Store(true)
	fp := inPhase(t, "")
	if e := fp.Status.Rollout.Effective; !strings.Contains(string(e.Parameters.Raw), "worse") {
		t.Errorf("%+v is in effect", e)
	}
	a.awaitBound(t, "worse")
}

// expectPhase waits until the metrics say which phase a rollout is in.
func expectPhase(t *testing.T, j *evaluator, phase string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(j.Metrics())
	if err := until(func() error {
		families, err := registry.Gather()
		if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
			return fmt.Errorf("%v: %w", families, err)
		}
		if m := families[0].GetMetric()[0]; m.GetLabel()[0].GetValue() != phase || m.GetLabel()[1].GetValue() != "labels" || m.GetGauge().GetValue() != 1 {
			return fmt.Errorf("%v", m)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
