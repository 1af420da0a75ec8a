package hub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policysource"
)

// pods is an index of one member with Pods of one label each.
func pods(t *testing.T, labels ...string) (*aggregate.Index, func(aggregate.State)) {
	t.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/a", "Pod", "v1")
	if err != nil {
		t.Fatal(err)
	}
	for i, label := range labels {
		name := fmt.Sprintf("pod-%d", i)
		scope.Upsert(scope.Item(&aggregate.Record{
			Namespace: "shop", Name: name, UID: name, ResourceVersion: "1", Labels: []aggregate.Label{{Key: label, Value: "x"}},
			Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{%q:"x"},"name":%q,"namespace":"shop"}}`, label, name),
		}))
	}
	become := func(state aggregate.State) {
		scope.SetStatus(aggregate.Status{State: state})
		if _, err := scope.Commit(); err != nil {
			t.Error(err)
		}
	}
	if _, err := scope.Commit(); err != nil {
		t.Fatal(err)
	}
	return index, become
}

// TestFleetPolicies_DiffHoldsBackWideCommits counts what a commit changes on the fleet:
// by its policies, and by the FleetPolicies that it brings.
func TestFleetPolicies_DiffHoldsBackWideCommits(t *testing.T) {
	var policies atomic.Pointer[hub.FleetPolicies]
	r := newDiffingRig(t, true, nil, func(ctx context.Context, c policysource.Candidate) (policysource.Difference, error) {
		f := policies.Load()
		if f == nil {
			return policysource.Difference{}, errors.New("not yet")
		}
		return f.Diff(ctx, c)
	})
	index, become := pods(t, "a", "a", "b", "b", "b")
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	dispatcher := newDispatcher(t)
	corrector := enforce.NewCorrector(dispatcher, log)
	loop, err := enforce.New(enforce.Options{Index: index, Set: r.manager.State().Set, Changed: corrector.Changed, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	f, err := hub.NewFleetPolicies(hub.FleetPoliciesOptions{
		Config: hubConfig(), Library: r.sources, Loop: loop, Corrector: corrector, Dispatcher: dispatcher, IsLeader: r.lead.Load, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, run := range []func(context.Context) error{loop.Run, f.Run} {
		running.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	policies.Store(f)

	repo := newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, tree("team", "a", "team.yaml", fleetPolicy("team", "team", "Observe")))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "maxDiff": 4})
	ps := awaitActive(t, "team", first)
	if ps.Status.LastDiff != nil {
		t.Errorf("before anything has been listed, it is told: %+v", ps.Status.LastDiff)
	}

	// What has not been listed cannot be compared: the bound holds the commit back.
	commit(t, repo, tree("team", "b", "team.yaml", fleetPolicy("team", "team", "Observe")))
	ask(t, "team", "one")
	await(t, "team", "Bounded=False/NotTold")
	become(aggregate.Synced)
	if err := until(func() error {
		if s := loop.State(); s == nil || !s.Synced {
			return errors.New("not synced")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	// Three Pods with b instead of two with a are five violations that appear or go.
	ask(t, "team", "two")
	ps = await(t, "team", "Bounded=False/TooWide", "Ready=False/TooWide")
	if d := ps.Status.LastDiff; d == nil || d.Appeared != 3 || d.Cleared != 2 || d.Changed != 0 || d.Unknown != 0 || d.Allowed != 4 {
		t.Errorf("%+v", d)
	}
	if string(ps.Status.ActiveCommit.Hash) != first {
		t.Errorf("active is %s", ps.Status.ActiveCommit.Hash)
	}

	// A FleetPolicy that excludes all of them takes two away.
	narrow := commit(t, repo, tree("team", "a", "team.yaml", fleetPolicy("team", "team", "Observe")+"  match: {namespaces: [other]}\n"))
	ask(t, "team", "three")
	ps = awaitActive(t, "team", narrow)
	if d := ps.Status.LastDiff; d == nil || d.Appeared != 0 || d.Cleared != 2 || d.Changed != 0 || d.Enforcement != 0 {
		t.Errorf("%+v", d)
	}
	awaitPolicy(t, "team", func(fp *v1alpha1.FleetPolicy) bool { return len(fp.Spec.Match.Namespaces) == 1 })

	// Others to be corrected are no other verdicts, but count as well.
	for n, text := range []string{
		fleetPolicy("team", "team", "DryRun"),
		fleetPolicy("team", "team", "Observe") + "  limits: {maxAffected: {policy: {percent: 100}}}\n",
		fleetPolicy("team", "team", "Observe") + "  members: {names: [\"*/*\"]}\n",
	} {
		widened := commit(t, repo, tree("team", "a", "team.yaml", text+"  match: {namespaces: [other]}\n"))
		ask(t, "team", fmt.Sprint("enforcement-", n))
		ps = awaitActive(t, "team", widened)
		if d := ps.Status.LastDiff; d == nil || d.Appeared+d.Cleared+d.Changed != 0 || d.Enforcement != 1 {
			t.Errorf("%d: %+v", n, d)
		}
		narrow = commit(t, repo, tree("team", "a", "team.yaml", fleetPolicy("team", "team", "Observe")+"  match: {namespaces: [other]}\n"))
		ask(t, "team", fmt.Sprint("narrow-", n))
		awaitActive(t, "team", narrow)
	}
	// As many as are violations then.
	wide := commit(t, repo, tree("team", "a", "team.yaml", fleetPolicy("team", "team", "Observe")))
	ask(t, "team", "wide")
	awaitActive(t, "team", wide)
	awaitPolicy(t, "team", func(fp *v1alpha1.FleetPolicy) bool { return len(fp.Spec.Match.Namespaces) == 0 })
	if err := until(func() error {
		if n := loop.State().Total("team").Violations; n != 2 {
			return fmt.Errorf("%d violations", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	tried := commit(t, repo, tree("team", "a", "team.yaml", fleetPolicy("team", "team", "DryRun")))
	ask(t, "team", "tried")
	ps = awaitActive(t, "team", tried)
	if d := ps.Status.LastDiff; d == nil || d.Appeared+d.Cleared+d.Changed != 0 || d.Enforcement != 2 || ps.Status.Packages[0] != "team" {
		t.Errorf("%+v, packages %q", d, ps.Status.Packages)
	}
}
