package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/test/git"
)

// rig is a process that reconciles the hub's PolicySources.
type rig struct {
	manager *policysource.Manager
	sources *hub.PolicySources
	lead    atomic.Bool
	stop    func()
}

// newRig starts one. It ends with the test, or with stop. config nil is an
// administrator's.
func newRig(t *testing.T, leads bool, config *rest.Config) *rig {
	t.Helper()
	return newDiffingRig(t, leads, config, nil)
}

// newDiffingRig starts one whose commits are compared, with more options.
func newDiffingRig(t *testing.T, leads bool, config *rest.Config, diff func(context.Context, policysource.Candidate) (policysource.Difference, error), more ...func(*hub.PolicySourcesOptions)) *rig {
	t.Helper()
	realHub(t)
	if config == nil {
		config = hubConfig()
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r := &rig{}
	m, err := policysource.NewManager(policysource.Options{
		Base:     []policy.Source{{Name: "shipped", Files: []policy.File{{Path: "p.rego", Data: []byte(rego("shipped", "x"))}}}},
		Approved: func(source, commit string) bool { return r.sources.CommitApproved(source, commit) }, Diff: diff, AllowFile: true, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.manager = m
	r.lead.Store(leads)
	events, err := hub.NewEvents(hub.EventsOptions{Config: hubConfig(), IsLeader: r.lead.Load, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	opts := hub.PolicySourcesOptions{
		Config: config, Manager: m, SecretNamespaces: []string{"git"}, ReservedNames: []string{"shipped"}, IsLeader: r.lead.Load, Events: events, Logger: log,
	}
	for _, change := range more {
		change(&opts)
	}
	r.sources, err = hub.NewPolicySources(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- events.Run(ctx) }()
	go func() { done <- m.Run(ctx) }()
	go func() { done <- r.sources.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range 3 {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		r.stop()
		for _, kind := range []string{v1alpha1.PolicySources, v1alpha1.FleetPolicies} {
			if err := shared.client.Resource(v1alpha1.Resource(kind)).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// rego is a policy that objects to Pods with a label.
func rego(pkg, label string) string {
	return fmt.Sprintf(`# METADATA
# title: No %[2]s
# description: Pods have no label %[2]s.
# custom:
#   severity: low
#   kinds: ["Pod"]
package %[1]s

violation contains {"msg": "has the label"} if input.object.metadata.labels.%[2]s
`, pkg, label)
}

// tree is a repository with one policy, and more files.
func tree(pkg, label string, more ...string) map[string]string {
	out := map[string]string{"policies/" + pkg + ".rego": rego(pkg, label)}
	for i := 0; i < len(more); i += 2 {
		out["policies/"+more[i]] = more[i+1]
	}
	return out
}

func newRepo(t *testing.T, root, name string) *git.Repo {
	t.Helper()
	r, err := git.Init(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func commit(t *testing.T, r *git.Repo, files map[string]string) string {
	t.Helper()
	hash, err := r.Commit(files)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// create makes a PolicySource of a spec.
func create(t *testing.T, name string, spec map[string]any) {
	t.Helper()
	all := map[string]any{"path": "policies", "interval": "1h"}
	maps.Copy(all, spec)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "PolicySource", "metadata": map[string]any{"name": name}, "spec": all,
	}}
	if _, err := shared.client.Resource(v1alpha1.Resource(v1alpha1.PolicySources)).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// change merges a patch into an object, with a field manager.
func change(t *testing.T, resource, name, manager, patch string) {
	t.Helper()
	if _, err := shared.client.Resource(v1alpha1.Resource(resource)).
		Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}); err != nil {
		t.Fatal(err)
	}
}

// ask annotates a PolicySource, so that its repository is checked.
func ask(t *testing.T, name, value string) {
	t.Helper()
	change(t, v1alpha1.PolicySources, name, "kubectl-annotate", fmt.Sprintf(`{"metadata":{"annotations":{"federator.dev/sync":%q}}}`, value))
}

func read[T any](t *testing.T, resource, name string) (*T, error) {
	t.Helper()
	o, err := shared.client.Resource(v1alpha1.Resource(resource)).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out)
}

// status summarizes the status of a PolicySource.
func status(ps *v1alpha1.PolicySource) string {
	var out []string
	for _, c := range ps.Status.Conditions {
		out = append(out, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return strings.Join(out, " ")
}

// await waits until the summarized status of a PolicySource contains all of some words.
func await(t *testing.T, name string, words ...string) *v1alpha1.PolicySource {
	t.Helper()
	return awaitSource(t, name, func(ps *v1alpha1.PolicySource) bool {
		all := " " + status(ps) + " "
		for _, w := range words {
			if !strings.Contains(all, " "+w+" ") {
				return false
			}
		}
		return true
	})
}

func awaitSource(t *testing.T, name string, ok func(*v1alpha1.PolicySource) bool) *v1alpha1.PolicySource {
	t.Helper()
	var out *v1alpha1.PolicySource
	if err := until(func() (err error) {
		if out, err = read[v1alpha1.PolicySource](t, v1alpha1.PolicySources, name); err == nil && !ok(out) {
			text, _ := json.Marshal(out.Status)
			err = fmt.Errorf("%s: %s", name, text)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// awaitActive waits until a commit is active and the source is Ready.
func awaitActive(t *testing.T, name, hash string) *v1alpha1.PolicySource {
	t.Helper()
	return awaitSource(t, name, func(ps *v1alpha1.PolicySource) bool {
		return ps.Status.ActiveCommit != nil && string(ps.Status.ActiveCommit.Hash) == hash && meta.IsStatusConditionTrue(ps.Status.Conditions, v1alpha1.Ready)
	})
}

func TestPolicySources_BadCommitIsNotInEffect(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	good := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{
		"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"},
		"ceiling": map[string]any{
			"maxMode": "Enforce", "namespaces": []any{"shop-*"}, "members": map[string]any{"names": []any{"fleet/*"}},
			"actions": []any{map[string]any{"verbs": []any{"patch"}, "kinds": []any{"Pod"}}},
		},
	})
	ps := awaitActive(t, "team", good)
	want := "Fetched=True/Fetched Verified=True/NotAskedFor Compiled=True/Compiled Tested=True/Passed Bounded=True/NoBound Ready=True/Active Applied=True/Applied"
	if got := status(ps); got != want {
		t.Errorf("conditions:\n%s, want\n%s", got, want)
	}
	a := ps.Status.ActiveCommit
	if a.Ref != "refs/heads/main" || a.Path != "policies" || a.Author != "Ann <ann@example.com>" || a.Time == nil || a.Since == nil || ps.Status.ObservedCommit == nil ||
		ps.Status.LastContact == nil || ps.Status.ObservedGeneration != ps.Generation {
		t.Errorf("%+v", ps.Status)
	}
	if ok, why := r.sources.Current("team"); !ok || why != "" {
		t.Errorf("current: %v, %q", ok, why)
	}
	from := r.sources.Origin("team")
	if from.Source != "team" || from.Commit != good || from.Path != "policies/team.rego" || from.Hold != "" || from.Ceiling == nil || from.Ceiling.Mode != policy.Enforce {
		t.Errorf("origin: %+v", from)
	}
	if from := r.sources.Origin("shipped"); !reflect.DeepEqual(from, hub.Origin{}) {
		t.Errorf("what comes with federator has the origin %+v", from)
	}
	if v := r.sources.CeilingVersion("team"); v == "" || v != from.Ceiling.Version || r.sources.CeilingVersion("nobody") != "" {
		t.Errorf("ceiling %q is planned under, and %q asked for", from.Ceiling.Version, v)
	}
	c := r.sources.Ceilings()["team"]
	if len(c.Actions) != 1 || c.Actions[0].Verbs[0] != "patch" || c.Actions[0].Kinds[0] != "Pod" || c.Namespaces[0] != "shop-*" || c.Members.Names[0] != "fleet/*" {
		t.Errorf("ceiling: %+v", c)
	}

	bad := commit(t, repo, tree("team", "a", "team.rego", rego("team", "a")+"\nx := nosuch(1)\n"))
	ask(t, "team", "one")
	ps = await(t, "team", "Ready=False/Compile", "Fetched=True/Fetched", "Compiled=False/Compile", "Tested=Unknown/NotReached")
	if string(ps.Status.ActiveCommit.Hash) != good || string(ps.Status.ObservedCommit.Hash) != bad || ps.Status.LastSync != "one" {
		t.Errorf("%+v", ps.Status)
	}
	ready := meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.Ready)
	if !strings.Contains(ready.Message, "policies/team.rego:11") || len(ps.Status.Findings) == 0 || ps.Status.Findings[0].Line != 11 || ps.Status.Findings[0].File != "policies/team.rego" {
		t.Errorf("%q, %+v", ready.Message, ps.Status.Findings)
	}
	if ok, why := r.sources.Current("team"); ok || !strings.Contains(why, "Compile") || r.sources.Origin("team").Hold != why {
		t.Errorf("current: %v, %q", ok, why)
	}

	// An emptied path is as bad.
	commit(t, repo, map[string]string{"README.md": "gone"})
	ask(t, "team", "two")
	if ps = await(t, "team", "Ready=False/Emptied", "Compiled=False/Emptied"); string(ps.Status.ActiveCommit.Hash) != good {
		t.Errorf("%+v", ps.Status)
	}
	next := commit(t, repo, tree("team", "b"))
	ask(t, "team", "three")
	if ps = awaitActive(t, "team", next); len(ps.Status.Findings) != 0 && ps.Status.Findings[0].Severity != v1alpha1.SeverityWarning || ps.Status.LastSync != "three" {
		t.Errorf("%+v", ps.Status)
	}
}

func TestPolicySources_UnchangedStatusIsNotWritten(t *testing.T) {
	r := newRig(t, true, nil)
	root := t.TempDir()
	repo, barrier := newRepo(t, root, "r"), newRepo(t, root, "b")
	hash := commit(t, repo, tree("team", "a", "fp.yaml", fleetPolicy("fp", "team", "Observe")))
	other := commit(t, barrier, tree("other", "a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	awaitActive(t, "team", hash)
	before := await(t, "team", "Applied=True/Applied")
	check := func(what string) {
		t.Helper()
		now, err := read[v1alpha1.PolicySource](t, v1alpha1.PolicySources, "team")
		if err != nil {
			t.Fatal(err)
		}
		if late := now.Status.LastContact.Sub(before.Status.LastContact.Time) >= time.Minute; now.ResourceVersion != before.ResourceVersion && !late {
			t.Errorf("%s: the status was written again:\n%+v\n%+v", what, before.Status, now.Status)
		}
	}
	contact := r.manager.State().Status["team"].Contact
	if err := r.manager.Sync("team"); err != nil {
		t.Fatal(err)
	}
	if err := until(func() error {
		if !r.manager.State().Status["team"].Contact.After(contact) {
			return errors.New("no contact")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	create(t, "barrier", map[string]any{"url": "file://" + barrier.Dir}) // comes later, and is done when all before it is
	awaitActive(t, "barrier", other)
	check("a sync that brought nothing")

	// Another process that takes over writes the same.
	r.stop()
	r = newRig(t, true, nil)
	if err := until(func() error {
		if ok, why := r.sources.Current("team"); !ok {
			return errors.New(why)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	next := commit(t, barrier, tree("other", "b"))
	ask(t, "barrier", "x")
	awaitActive(t, "barrier", next)
	check("a restart")
}

func TestPolicySources_OnlyTheLeaderWrites(t *testing.T) {
	r := newRig(t, false, nil)
	repo := newRepo(t, t.TempDir(), "r")
	hash := commit(t, repo, tree("team", "a", "fp.yaml", fleetPolicy("fp", "team", "Observe")))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	if err := until(func() error {
		if ok, why := r.sources.Current("team"); !ok {
			return errors.New(why)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if set, _ := r.sources.Policies(); set.Package("team") == nil {
		t.Error("the package is not there")
	}
	ps, err := read[v1alpha1.PolicySource](t, v1alpha1.PolicySources, "team")
	if err != nil || len(ps.Status.Conditions) > 0 {
		t.Errorf("%+v, %v", ps, err)
	}
	if _, err := read[v1alpha1.FleetPolicy](t, v1alpha1.FleetPolicies, "fp"); !apierrors.IsNotFound(err) {
		t.Errorf("a FleetPolicy: %v", err)
	}
	r.lead.Store(true)
	awaitActive(t, "team", hash)
	if _, err := read[v1alpha1.FleetPolicy](t, v1alpha1.FleetPolicies, "fp"); err != nil {
		t.Error(err)
	}
}

func TestPolicySources_DeletedSourceRemovesPackagesOnly(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	hash := commit(t, repo, tree("team", "a", "fp.yaml", fleetPolicy("fp", "team", "Observe")))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	awaitActive(t, "team", hash)
	if err := shared.client.Resource(v1alpha1.Resource(v1alpha1.PolicySources)).Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := until(func() error {
		if set, _ := r.sources.Policies(); set.Package("team") != nil || !reflect.DeepEqual(r.sources.Origin("team"), hub.Origin{}) {
			return errors.New("the policies are still there")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if ok, _ := r.sources.Current("team"); ok || len(r.sources.Ceilings()) > 0 {
		t.Error("the source is still there")
	}
	if _, err := read[v1alpha1.FleetPolicy](t, v1alpha1.FleetPolicies, "fp"); err != nil {
		t.Error(err)
	}
}

func TestPolicySources_InvalidOnesDoNotAffectOthers(t *testing.T) {
	newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	hash := commit(t, repo, tree("team", "a"))
	create(t, "shipped", map[string]any{"url": "file://" + repo.Dir})
	create(t, "bound", map[string]any{"url": "file://" + repo.Dir, "maxDiff": int64(3)}) // commits cannot be compared here
	create(t, "elsewhere", map[string]any{"url": "https://git.invalid/r", "secretRef": map[string]any{"namespace": "kube-system", "name": "token"}})
	create(t, "missing", map[string]any{"url": "https://git.invalid/r", "secretRef": map[string]any{"namespace": "git", "name": "missing"}})
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	await(t, "shipped", "Ready=False/NameReserved")
	await(t, "bound", "Ready=False/Invalid", "Fetched=False/Invalid", "Applied=Unknown/NotReached")
	await(t, "elsewhere", "Ready=False/SecretNotAllowed")
	await(t, "missing", "Ready=False/SecretNotFound")
	awaitActive(t, "team", hash)
}
