package hub_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// fleetPolicy is a manifest.
func fleetPolicy(name, pkg, mode string) string {
	return fmt.Sprintf("apiVersion: federator.dev/v1alpha1\nkind: FleetPolicy\nmetadata:\n  name: %s\n  labels: {team: shop}\nspec:\n  package: %s\n  mode: %s\n", name, pkg, mode)
}

// awaitPolicy waits until a FleetPolicy is as it is to be.
func awaitPolicy(t *testing.T, name string, ok func(*v1alpha1.FleetPolicy) bool) *v1alpha1.FleetPolicy {
	t.Helper()
	var out *v1alpha1.FleetPolicy
	if err := until(func() (err error) {
		if out, err = read[v1alpha1.FleetPolicy](t, v1alpha1.FleetPolicies, name); err == nil && !ok(out) {
			err = fmt.Errorf("%+v", out)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// missing checks that there is no FleetPolicy of a name.
func missing(t *testing.T, name string) {
	t.Helper()
	if _, err := read[v1alpha1.FleetPolicy](t, v1alpha1.FleetPolicies, name); !apierrors.IsNotFound(err) {
		t.Errorf("FleetPolicy %s: %v", name, err)
	}
}

func TestManifests_AreAppliedToTheHub(t *testing.T) {
	newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	hash := commit(t, repo, tree("team", "a",
		"all.yaml", "# all\n---\n"+fleetPolicy("one", "team", "Observe")+"---\n"+fleetPolicy("two", "team", "Observe"),
		"three.yml", fleetPolicy("three", "team", "DryRun"), ".ci/x.yaml", "kind: Pipeline\napiVersion: ci/v1\n", "values.yaml", "a: 1\n"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	ps := awaitActive(t, "team", hash)
	if got := ps.Status.FleetPolicies; got == nil || string(got.Commit) != hash || got.Synced != 3 || got.Failed+got.Pruned+got.Kept != 0 {
		t.Errorf("%+v", got)
	}
	fp := awaitPolicy(t, "one", func(*v1alpha1.FleetPolicy) bool { return true })
	if fp.Labels["federator.dev/source"] != "team" || fp.Labels["team"] != "shop" || fp.Spec.Source != "team" || fp.Spec.Package != "team" ||
		len(fp.ManagedFields) != 1 || fp.ManagedFields[0].Manager != "federator/source/team" || fp.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("%+v", fp)
	}

	// Unchanged manifests are not written; removed ones are deleted.
	hash = commit(t, repo, tree("team", "a", "all.yaml", fleetPolicy("one", "team", "Observe"), "three.yml", fleetPolicy("three", "team", "Observe")))
	ask(t, "team", "1")
	ps = awaitActive(t, "team", hash)
	if got := ps.Status.FleetPolicies; got.Synced != 2 || got.Pruned != 1 || got.Kept != 0 {
		t.Errorf("%+v", got)
	}
	missing(t, "two")
	if now := awaitPolicy(t, "one", func(*v1alpha1.FleetPolicy) bool { return true }); now.ResourceVersion != fp.ResourceVersion {
		t.Error("a FleetPolicy was written that did not change")
	}
	awaitPolicy(t, "three", func(fp *v1alpha1.FleetPolicy) bool { return fp.Spec.Mode == v1alpha1.Observe })

	// A deleted one is created again.
	if err := shared.client.Resource(v1alpha1.Resource(v1alpha1.FleetPolicies)).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitPolicy(t, "one", func(now *v1alpha1.FleetPolicy) bool { return now.UID != fp.UID })
}

func TestManifests_PruneWithinMaxPrune(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	all := []string{"a.yaml", fleetPolicy("one", "team", "Observe"), "b.yaml", fleetPolicy("two", "team", "Observe"), "c.yaml", fleetPolicy("three", "team", "Observe")}
	hash := commit(t, repo, tree("team", "a", all...))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	awaitActive(t, "team", hash)
	// One with the label that the source has not applied is not pruned.
	text := strings.ReplaceAll(fleetPolicy("alike", "team", "Observe"), "{team: shop}", "{federator.dev/source: team}")
	if err := realHub(t).Apply(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
	hash = commit(t, repo, tree("team", "a", all[4:]...))
	ask(t, "team", "1")
	ps := await(t, "team", "Applied=False/TooManyPrunes", "Ready=False/TooManyPrunes")
	if got := ps.Status.FleetPolicies; string(got.Commit) != hash || got.Kept != 2 || got.Pruned != 0 || got.Synced != 1 {
		t.Errorf("%+v", got)
	}
	if c := meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.Applied); !strings.Contains(c.Message, "(one, two)") || !strings.Contains(c.Message, "federator.dev/allow-prune="+hash) {
		t.Error(c.Message)
	}
	for _, name := range []string{"one", "two", "three"} {
		awaitPolicy(t, name, func(*v1alpha1.FleetPolicy) bool { return true })
	}
	if ok, why := r.sources.Current("team"); ok || !strings.Contains(why, "TooManyPrunes") {
		t.Errorf("%v, %q", ok, why)
	}
	// The annotation allows this commit, not another one.
	change(t, v1alpha1.PolicySources, "team", "kubectl-annotate", `{"metadata":{"annotations":{"federator.dev/allow-prune":"`+strings.Repeat("0", 40)+`","federator.dev/sync":"2"}}}`)
	awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool { return ps.Status.LastSync == "2" })
	awaitPolicy(t, "one", func(*v1alpha1.FleetPolicy) bool { return true })
	change(t, v1alpha1.PolicySources, "team", "kubectl-annotate", `{"metadata":{"annotations":{"federator.dev/allow-prune":"`+hash+`"}}}`)
	ps = awaitActive(t, "team", hash)
	if got := ps.Status.FleetPolicies; got.Kept != 0 || got.Pruned != 2 {
		t.Errorf("%+v", got)
	}
	missing(t, "one")
	missing(t, "two")
	awaitPolicy(t, "alike", func(*v1alpha1.FleetPolicy) bool { return true })
}

func TestManifests_FirstSourceKeepsAName(t *testing.T) {
	r := newRig(t, true, nil)
	root := t.TempDir()
	first, second := newRepo(t, root, "first"), newRepo(t, root, "second")
	if err := realHub(t).Apply(t.Context(), []byte(strings.ReplaceAll(fleetPolicy("byhand", "b", "Observe"), "\n  labels: {team: shop}", ""))); err != nil {
		t.Fatal(err)
	}
	one := commit(t, first, tree("a", "x", "a.yaml", fleetPolicy("shared", "a", "Observe")))
	create(t, "first", map[string]any{"url": "file://" + first.Dir})
	awaitActive(t, "first", one)
	two := commit(t, second, tree("b", "x", "a.yaml", fleetPolicy("shared", "b", "Observe"), "b.yaml", fleetPolicy("mine", "b", "Observe"), "c.yaml", fleetPolicy("byhand", "b", "DryRun")))
	create(t, "aasecond", map[string]any{"url": "file://" + second.Dir}) // its name is before the other's
	ps := await(t, "aasecond", "Applied=False/NameTaken", "Ready=True/Active")
	if got := ps.Status.FleetPolicies; string(got.Commit) != two || got.Synced != 1 || got.Failed != 2 {
		t.Errorf("%+v", got)
	}
	var said []string
	for _, f := range ps.Status.Findings {
		said = append(said, fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Message))
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, `policies/a.yaml:1 FleetPolicy "shared": it already exists on the hub, applied by source "first"`) || !strings.Contains(all, `policies/c.yaml:1 FleetPolicy "byhand": it already exists on the hub`) {
		t.Error(all)
	}
	if fp := awaitPolicy(t, "shared", func(*v1alpha1.FleetPolicy) bool { return true }); fp.Spec.Package != "a" || fp.Labels["federator.dev/source"] != "first" {
		t.Errorf("%+v", fp)
	}
	if fp := awaitPolicy(t, "byhand", func(*v1alpha1.FleetPolicy) bool { return true }); fp.Spec.Mode != v1alpha1.Observe || fp.Labels["federator.dev/source"] != "" {
		t.Errorf("%+v", fp)
	}
	if ok, why := r.sources.Current("aasecond"); !ok {
		t.Error(why)
	}
	// A name that is given up is free.
	one = commit(t, first, tree("a", "x"))
	ask(t, "first", "1")
	awaitActive(t, "first", one)
	awaitPolicy(t, "shared", func(fp *v1alpha1.FleetPolicy) bool { return fp.Labels["federator.dev/source"] == "aasecond" })
}

func TestManifests_FieldsOfOthersStay(t *testing.T) {
	newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	hash := commit(t, repo, tree("team", "a", "a.yaml", fleetPolicy("fp", "team", "DryRun")))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir})
	awaitActive(t, "team", hash)
	change(t, v1alpha1.FleetPolicies, "fp", "kubectl-edit", `{"spec":{"mode":"Observe"}}`)
	ps := await(t, "team", "Applied=False/Contended", "Ready=True/Active")
	if c := meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.Applied); !strings.Contains(c.Message, "kubectl-edit") || !strings.Contains(c.Message, "spec.mode") {
		t.Error(c.Message)
	}
	if fp := awaitPolicy(t, "fp", func(*v1alpha1.FleetPolicy) bool { return true }); fp.Spec.Mode != v1alpha1.Observe {
		t.Errorf("%+v", fp.Spec)
	}
	hash = commit(t, repo, tree("team", "a", "a.yaml", fleetPolicy("fp", "team", "Observe")))
	ask(t, "team", "1")
	awaitActive(t, "team", hash)
	await(t, "team", "Applied=True/Applied")
}

func TestManifests_OneInvalidRejectsAll(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	good := fleetPolicy("fp", "team", "Observe")
	hash := commit(t, repo, tree("team", "a", "a.yaml", good))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "maxPrune": int64(10)})
	awaitActive(t, "team", hash)
	was := awaitPolicy(t, "fp", func(*v1alpha1.FleetPolicy) bool { return true })
	files := map[string]struct{ text, line, says string }{
		"role.yaml":     {good + "---\n# a role\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\n", "11", `this is a "ClusterRole"`},
		"source.yaml":   {"apiVersion: federator.dev/v1alpha1\nkind: PolicySource\nmetadata: {name: x}\n", "1", `this is a "PolicySource"`},
		"kind.yaml":     {"kind: FleetPolicy\n", "1", "of nothing"},
		"list.json":     {`{"apiVersion":"v1","kind":"List","items":[]}`, "1", `this is a "List"`},
		"other.yaml":    {strings.Replace(fleetPolicy("o", "team", "Observe"), "spec:\n", "spec:\n  source: shipped\n", 1), "1", `spec.source is "shipped"`},
		"ack.yaml":      {strings.Replace(fleetPolicy("k", "team", "Observe"), "labels: {team: shop}", "annotations: {federator.dev/acknowledge: x}", 1), "1", "federator.dev/acknowledge can only be set on the hub"},
		"final.yaml":    {strings.Replace(fleetPolicy("f", "team", "Observe"), "labels: {team: shop}", "finalizers: [a/b]", 1), "1", "metadata.finalizers"},
		"status.yaml":   {fleetPolicy("s", "team", "Observe") + "status: {}\n", "1", "status is not"},
		"twice.yaml":    {good + "---\n" + fleetPolicy("t", "team", "Observe") + "---\n" + fleetPolicy("t", "team", "Observe"), "19", `FleetPolicy "t" is also in policies/twice.yaml:10`},
		"notyaml.yaml":  {"a: [\n", "1", "invalid YAML"},
		"noname.yaml":   {fleetPolicy(`""`, "team", "Observe"), "1", "metadata.name"},
		"field.yaml":    {fleetPolicy("w", "team", "Observe") + "  nosuch: 1\n", "1", `unknown field "spec.nosuch"`},
		"type.yaml":     {fleetPolicy("w", "team", "Observe") + "  force: 1\n", "1", "spec.force"},
		"duplicate.yml": {good + "  mode: Enforce\n", "1", "already"},
	}
	more := []string{}
	for name, f := range files {
		more = append(more, name, f.text)
	}
	hash = commit(t, repo, tree("team", "b", more...))
	ask(t, "team", "1")
	ps := await(t, "team", "Applied=False/Refused", "Ready=False/Refused", "Compiled=True/Compiled")
	if string(ps.Status.ActiveCommit.Hash) != hash {
		t.Errorf("%+v", ps.Status)
	}
	for name, f := range files {
		found := false
		for _, x := range ps.Status.Findings {
			found = found || x.File == "policies/"+name && fmt.Sprint(x.Line) == f.line && strings.Contains(x.Message, f.says) && x.Severity == v1alpha1.SeverityError
		}
		if !found {
			t.Errorf("%s:%s: no finding that says %q in %+v", name, f.line, f.says, ps.Status.Findings)
		}
	}
	if ok, why := r.sources.Current("team"); ok || !strings.Contains(why, "Refused") {
		t.Errorf("%v, %q", ok, why)
	}
	// If the hub does not admit one, nothing of the commit is applied and nothing is pruned.
	hash = commit(t, repo, tree("team", "b", "new.yaml", fleetPolicy("new", "team", "Observe"), "zbad.yaml", fleetPolicy("zbad", "team", "Nosuch")))
	ask(t, "team", "2")
	ps = awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool {
		return string(ps.Status.ActiveCommit.Hash) == hash && meta.IsStatusConditionFalse(ps.Status.Conditions, v1alpha1.Applied)
	})
	if len(ps.Status.Findings) == 0 || ps.Status.Findings[0].File != "policies/zbad.yaml" || !strings.Contains(ps.Status.Findings[0].Message, "Nosuch") {
		t.Errorf("%+v", ps.Status.Findings)
	}
	missing(t, "new")
	if fp := awaitPolicy(t, "fp", func(*v1alpha1.FleetPolicy) bool { return true }); fp.ResourceVersion != was.ResourceVersion {
		t.Error("a FleetPolicy was written because of a commit that was refused")
	}
	hash = commit(t, repo, tree("team", "b", "new.yaml", fleetPolicy("new", "team", "Observe")))
	ask(t, "team", "3")
	awaitActive(t, "team", hash)
	missing(t, "fp")
	if err := until(func() error {
		if ok, why := r.sources.Current("team"); !ok {
			return errors.New(why)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
