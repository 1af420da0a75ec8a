package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/test/clitest"
	"federator.dev/federator/test/git"
	"federator.dev/federator/test/kube"
)

// tierPolicy wants a label on the ConfigMaps that say so, and knows how to set it.
const tierPolicy = `# METADATA
# title: Managed ConfigMaps have a tier
# description: A ConfigMap with label managed has label tier.
# custom:
#   severity: medium
#   kinds: [ConfigMap]
#   remedies: [{action: patch, kind: ConfigMap}]
package acme.tier

violation contains {
	"msg": "no tier",
	"remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": "gold"}}}},
} if {
	input.object.metadata.labels.managed
	not input.object.metadata.labels.tier == "gold"
}
`

const tierTest = `package acme.tier_test

import data.acme.tier

test_no_tier if {
	count(tier.violation) == 1 with input as {"object": {"metadata": {"labels": {"managed": "yes"}}}}
}

test_tier if {
	count(tier.violation) == 0 with input as {"object": {"metadata": {"labels": {"managed": "yes", "tier": "gold"}}}}
}
`

// job is a hub, a member and a repository, with federator as it is run.
type job struct {
	t      *testing.T
	hub    *kube.Hub
	member *kube.ControlPlane
	repo   *git.Repo
}

func (j *job) applyHub(manifest string) {
	j.t.Helper()
	clitest.Eventually(j.t, "the hub accepts it", func() error { return j.hub.Apply(j.t.Context(), []byte(manifest)) })
}

func (j *job) commit(files map[string]string) {
	j.t.Helper()
	if _, err := j.repo.Commit(files); err != nil {
		j.t.Fatal(err)
	}
}

// sync asks the source for a look at the repository now.
func (j *job) sync(mark string) {
	j.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"federator.dev/sync":%q}}}`, mark)
	err := j.hub.Client().CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis/federator.dev/v1alpha1/policysources/git").Body([]byte(patch)).Do(j.t.Context()).Error()
	if err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) get(into any, path ...string) error {
	body, err := j.hub.Client().CoreV1().RESTClient().Get().AbsPath(append([]string{"/apis/federator.dev/v1alpha1"}, path...)...).Do(j.t.Context()).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (j *job) acknowledge(halt string) {
	j.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"federator.dev/acknowledge":%q}}}`, halt)
	err := j.hub.Client().CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis/federator.dev/v1alpha1/fleetpolicies/tier").Body([]byte(patch)).Do(j.t.Context()).Error()
	if err != nil {
		j.t.Fatal(err)
	}
}

// tier is a ConfigMap's label on the member.
func (j *job) tier(name string) string {
	j.t.Helper()
	m, err := j.member.Client().CoreV1().ConfigMaps("default").Get(j.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	return m.Labels["tier"]
}

func (j *job) configMap(name string) {
	j.t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: default, labels: {managed: \"yes\"}}\ndata: {a: b}\n", name)
	if err := j.member.Apply(j.t.Context(), []byte(text)); err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) relabel(name, tier string) {
	j.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"tier":%q}}}`, tier)
	if _, err := j.member.Client().CoreV1().ConfigMaps("default").Patch(j.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) awaitTier(name, tier string) {
	j.t.Helper()
	clitest.Eventually(j.t, name+" is corrected", func() error {
		if got := j.tier(name); got != tier {
			return fmt.Errorf("its tier is %q", got)
		}
		return nil
	})
}

func (j *job) awaitPolicy(what string, ok func(*v1alpha1.FleetPolicy) bool) *v1alpha1.FleetPolicy {
	j.t.Helper()
	fp := &v1alpha1.FleetPolicy{}
	clitest.Eventually(j.t, what, func() error {
		*fp = v1alpha1.FleetPolicy{}
		if err := j.get(fp, "fleetpolicies", "tier"); err != nil {
			return err
		}
		if !ok(fp) {
			text, err := json.Marshal(fp.Status)
			return fmt.Errorf("%s %w", text, err)
		}
		return nil
	})
	return fp
}

const fleetPolicy = `apiVersion: federator.dev/v1alpha1
kind: FleetPolicy
metadata: {name: tier}
spec:
  package: acme.tier
  mode: Enforce
  limits: {maxAffected: {policy: {count: %d}}}
`

func newJob(t *testing.T) *job {
	t.Helper()
	f := kube.StartTest(t, kube.Options{Members: 1})
	j := &job{t: t, hub: f.Hub, member: f.Members[0]}
	if err := j.hub.InstallCRDs(t.Context(), "../../charts/federator/crds"); err != nil {
		t.Fatal(err)
	}
	j.applyHub("apiVersion: v1\nkind: Namespace\nmetadata: {name: federator}\n")
	if err := j.hub.Register(t.Context(), kube.Cluster{Namespace: "fleet", Name: "eu-1", Kubeconfig: j.member.Kubeconfig()}); err != nil {
		t.Fatal(err)
	}
	var err error
	if j.repo, err = git.Init(filepath.Join(t.TempDir(), "policies")); err != nil {
		t.Fatal(err)
	}
	j.commit(map[string]string{"tier.rego": tierPolicy, "tier_test.rego": tierTest})
	return j
}

// TestEnforcement_CommitCorrectsTheFleet is the main job: from git to a corrected object, and what
// must not happen.
func TestEnforcement_CommitCorrectsTheFleet(t *testing.T) {
	j := newJob(t)
	j.configMap("one")
	hubFile := clitest.WriteFile(t, "hub.kubeconfig", string(j.hub.Kubeconfig()))
	config := clitest.WriteFile(t, "federator.yaml", fmt.Sprintf(`
sources: {kubeconfig: %s, clusterAPI: {namespaces: [fleet]}}
network: {allow: [127.0.0.0/8]}
query: {priority: false, mcp: true}
policies: {hub: true, allowFile: true}
`, hubFile))
	r := start(t, "--config", config)
	ready(t, r)
	j.applyHub(fmt.Sprintf(`apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: git}
spec:
  url: file://%s
  interval: 10s
  ceiling: {maxMode: Enforce, actions: [{verbs: [patch], kinds: [ConfigMap]}]}
`, j.repo.Dir))
	j.applyHub(fmt.Sprintf(fleetPolicy, 2))

	// A violation that was there, and a drift.
	j.awaitTier("one", "gold")
	j.relabel("one", "silver")
	j.awaitTier("one", "gold")
	fp := j.awaitPolicy("the status reports it", func(fp *v1alpha1.FleetPolicy) bool {
		return fp.Status.Totals != nil && fp.Status.Totals.Violations == 0 && fp.Status.Actions != nil && fp.Status.Actions.Succeeded > 0 && fp.Status.Origin != nil
	})
	if fp.Status.Origin.Source != "git" || !strings.HasSuffix(fp.Status.Origin.Path, "tier.rego") || len(fp.Status.Origin.Commit) != 40 {
		t.Errorf("origin %+v", fp.Status.Origin)
	}
	// The member has a correction before the hub has its outcome.
	var actions v1alpha1.ActionList
	clitest.Eventually(t, "each correction is an Action that succeeded", func() error {
		actions = v1alpha1.ActionList{}
		if err := j.get(&actions, "actions"); err != nil {
			return err
		}
		if len(actions.Items) != 2 {
			return fmt.Errorf("%d Actions, want 2", len(actions.Items))
		}
		for _, a := range actions.Items {
			if a.Status.Phase != v1alpha1.PhaseSucceeded {
				return fmt.Errorf("action %s: %+v", a.Name, a.Status)
			}
		}
		return nil
	})
	for _, a := range actions.Items {
		if a.Spec.Target.Member != "fleet/eu-1" || a.Spec.Target.Name != "one" || a.Spec.Violation != "no tier" ||
			a.Spec.Origin.Commit != fp.Status.Origin.Commit || a.Inverse == nil {
			t.Errorf("action %+v %+v", a.Spec, a.Status)
		}
	}
	answersQuestions(t, j, r, hubFile)
	answersTools(t, r, hubFile)

	// Too many at once: nothing is written until somebody acknowledges.
	for _, name := range []string{"two", "three", "four"} {
		j.configMap(name)
	}
	fp = j.awaitPolicy("the policy is halted", func(fp *v1alpha1.FleetPolicy) bool { return fp.Status.Halted != nil })
	if fp.Status.Halted.Reason != v1alpha1.OverLimit {
		t.Errorf("halt %+v", fp.Status.Halted)
	}
	corrected := 0
	for _, name := range []string{"two", "three", "four"} {
		if j.tier(name) == "gold" {
			corrected++
		}
	}
	if corrected > 1 { // one may have come alone, within the limit
		t.Errorf("%d ConfigMaps were written over a limit of 2", corrected)
	}
	// An acknowledgement allows what was too many then; those that come later are too
	// many again.
	clitest.Eventually(t, "what is acknowledged is corrected", func() error {
		var fp v1alpha1.FleetPolicy
		if err := j.get(&fp, "fleetpolicies", "tier"); err != nil {
			return err
		}
		if fp.Status.Halted != nil {
			j.acknowledge(fp.Status.Halted.ID)
		}
		for _, name := range []string{"two", "three", "four"} {
			if got := j.tier(name); got != "gold" {
				return fmt.Errorf("%s has tier %q", name, got)
			}
		}
		return nil
	})
	clitest.Eventually(t, "Actions say whose acknowledgement they follow", func() error {
		if err := j.get(&actions, "actions"); err != nil {
			return err
		}
		followed := 0
		for _, a := range actions.Items {
			if a.Status.AcknowledgedHalt != "" && a.Status.AcknowledgedBy != "" && a.Status.AcknowledgedAt != nil {
				followed++
			}
			if a.Spec.Target.Name == "one" && a.Status.AcknowledgedHalt != "" {
				t.Errorf("action %+v came before the halt", a.Status)
			}
		}
		if followed < 2 { // one may have come alone, within the limit
			return fmt.Errorf("%d Actions of %d follow one", followed, len(actions.Items))
		}
		return nil
	})

	// Its Events report it, as kubectl describe shows them.
	clitest.Eventually(t, "Events report it", func() error {
		events, err := j.hub.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=FleetPolicy,involvedObject.name=tier,involvedObject.uid=" + string(fp.UID),
		})
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for i := range events.Items {
			there[events.Items[i].Reason] = true
		}
		for _, reason := range []string{"Corrected", "Halted", "Acknowledged"} {
			if !there[reason] {
				return fmt.Errorf("no Event %s among %v", reason, there)
			}
		}
		return nil
	})

	// A commit that does not compile: what was good is observed, and not enforced.
	j.commit(map[string]string{"tier.rego": strings.Replace(tierPolicy, "not input", "nothing input", 1)})
	j.sync("broken")
	clitest.Eventually(t, "the source says what is wrong", func() error {
		var ps v1alpha1.PolicySource
		if err := j.get(&ps, "policysources", "git"); err != nil {
			return err
		}
		for _, f := range ps.Status.Findings {
			if strings.HasSuffix(f.File, "tier.rego") && f.Line > 0 {
				return nil
			}
		}
		return fmt.Errorf("status %+v", ps.Status)
	})
	j.awaitPolicy("enforcement is held", func(fp *v1alpha1.FleetPolicy) bool {
		for _, c := range fp.Status.Conditions {
			if c.Type == v1alpha1.Enforcing {
				return c.Reason == "Held"
			}
		}
		return false
	})
	j.relabel("one", "silver")
	j.awaitPolicy("the violation is seen", func(fp *v1alpha1.FleetPolicy) bool { return fp.Status.Totals.Violations == 1 })
	if got := j.tier("one"); got != "silver" {
		t.Errorf("a policy whose newest commit is broken corrects: tier %q", got)
	}

	// What ends lets another process act at once.
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	lease, err := j.hub.Client().CoordinationV1().Leases("federator").Get(t.Context(), election.LeaseName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lease after the end: %+v, %v", lease.Spec, err)
	}
}
