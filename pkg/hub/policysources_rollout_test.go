package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
)

// says writes into the status of a FleetPolicy how far a version of its package has come, as who
// configures the policies does.
func says(t *testing.T, name, digest string, phase v1alpha1.RolloutPhase, message string) {
	t.Helper()
	now := metav1.Now()
	is := v1alpha1.PolicyRolloutStatus{Candidate: &v1alpha1.CandidateVersion{
		Digest: v1alpha1.Digest(digest), Package: v1alpha1.Digest(digest), Phase: phase, Began: now, Since: now, Message: message,
	}}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"rollout": is}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shared.client.Resource(v1alpha1.Resource(v1alpha1.FleetPolicies)).
		Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// awaitRollout waits until a commit has come to a phase, and the source says so.
func awaitRollout(t *testing.T, name, hash string, phase v1alpha1.RolloutPhase) *v1alpha1.PolicySource {
	t.Helper()
	return awaitSource(t, name, func(ps *v1alpha1.PolicySource) bool {
		r := ps.Status.Rollout
		return r != nil && string(r.Commit) == hash && r.Phase == phase && string(ps.Status.ObservedCommit.Hash) == hash
	})
}

func readyOf(ps *v1alpha1.PolicySource) *metav1.Condition {
	return meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.Ready)
}

// awaitManager waits until a process has a commit of a source active.
func awaitManager(t *testing.T, r *rig, source, hash string) {
	t.Helper()
	if err := until(func() error {
		if got := r.manager.State().Policies[source].Commit.Hash; got != hash {
			return fmt.Errorf("%s is active", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// candidateDigest waits until a process has a commit as a candidate, and returns the digest of its package.
func candidateDigest(t *testing.T, r *rig, source, hash, pkg string) (digest string) {
	t.Helper()
	if err := until(func() error {
		c := r.manager.State().Candidates[source]
		if c.Commit.Hash != hash {
			return fmt.Errorf("%q rolls out", c.Commit.Hash)
		}
		digest = c.Set.Digest(pkg)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return digest
}

// TestPolicySources_CommitIsActiveOnceAllPoliciesHaveIt: in every process, and its manifests
// are applied then.
func TestPolicySources_CommitIsActiveOnceAllPoliciesHaveIt(t *testing.T) {
	r, follower := newRig(t, true, nil), newRig(t, false, nil)
	repo := newRepo(t, t.TempDir(), "r")
	manifests := func(mode string) []string {
		return []string{"one.yaml", fleetPolicy("one", "team", mode), "two.yaml", fleetPolicy("two", "team", "Observe")}
	}
	first := commit(t, repo, tree("team", "a", manifests("Observe")...))
	create(t, "team", map[string]any{
		"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "rollout": map[string]any{"shadow": "10m"}, "ceiling": map[string]any{"maxMode": "Enforce", "actions": []any{map[string]any{"verbs": []any{"patch"}, "kinds": []any{"Pod"}}}},
	})
	ps := awaitActive(t, "team", first)
	if ps.Status.Rollout != nil {
		t.Errorf("there was nothing before it: %+v", ps.Status.Rollout)
	}
	if got := r.sources.SourceRollout("team"); got == nil || got.Shadow.Duration != 10*time.Minute || got.MaxNew.StrVal != "5%" || r.sources.SourceRollout("none") != nil {
		t.Errorf("%+v", got)
	}

	second := commit(t, repo, tree("team", "b", manifests("DryRun")...))
	ask(t, "team", "1")
	awaitRollout(t, "team", second, v1alpha1.RolloutShadow)
	ps = awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool { return strings.Contains(ps.Status.Rollout.Message, "one") })
	if c := readyOf(ps); c.Status != metav1.ConditionFalse || c.Reason != "InRollout" || !strings.Contains(c.Message, second) || !strings.Contains(c.Message, "phase Shadow: 2 of 2 policies wait") {
		t.Errorf("%+v", c)
	}
	if is := ps.Status.Rollout; is.Policies != 2 || is.Waiting != 2 || string(ps.Status.ActiveCommit.Hash) != first || !meta.IsStatusConditionTrue(ps.Status.Conditions, v1alpha1.Bounded) {
		t.Errorf("%+v", ps.Status)
	}
	digest := candidateDigest(t, r, "team", second, "team")
	candidateDigest(t, follower, "team", second, "team")
	if from := r.sources.Origin("team"); from.Hold != "" || from.Commit != first {
		t.Errorf("%+v", from)
	}
	st := r.manager.State()
	if set, _ := r.sources.Policies(); set != st.Beside {
		t.Error("the packages are not those with the candidate's beside them")
	}
	if name := st.Beside.Candidate("team"); name != "" {
		if from := r.sources.Origin(name); from.Commit != second || from.Source != "team" || from.Path != "policies/team.rego" || from.Hold != "" || from.Ceiling == nil || from.Ceiling.Mode != "Enforce" {
			t.Errorf("%s: %+v", name, from)
		}
	}

	says(t, "one", digest, v1alpha1.RolloutWaves, "in effect in wave 1 of 2")
	ps = awaitRollout(t, "team", second, v1alpha1.RolloutWaves)
	if ps.Status.Rollout.Waiting != 2 || !strings.Contains(readyOf(ps).Message, "phase Waves") {
		t.Errorf("%+v", ps.Status.Rollout)
	}
	says(t, "one", digest, v1alpha1.RolloutPromoted, "")
	ps = awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool { return ps.Status.Rollout.Waiting == 1 })
	if ps.Status.Rollout.Phase != v1alpha1.RolloutShadow || string(ps.Status.ActiveCommit.Hash) != first {
		t.Errorf("%+v", ps.Status.Rollout)
	}
	// Until then nothing of its manifests is applied.
	awaitPolicy(t, "one", func(fp *v1alpha1.FleetPolicy) bool { return fp.Spec.Mode == v1alpha1.Observe })
	says(t, "two", digest, v1alpha1.RolloutPromoted, "")
	ps = awaitActive(t, "team", second)
	if ps.Status.Rollout != nil || len(r.manager.State().Candidates) != 0 {
		t.Errorf("%+v", ps.Status.Rollout)
	}
	awaitManager(t, follower, "team", second)
	awaitPolicy(t, "one", func(fp *v1alpha1.FleetPolicy) bool { return fp.Spec.Mode == v1alpha1.DryRun })
	expectEvent(t, ps.UID, "Normal RolloutBegan: commit "+second+" rolls out")
	expectEvent(t, ps.UID, "Normal RolloutPromoted: commit "+second)

	// Manifests alone change no package.
	third := commit(t, repo, tree("team", "b", manifests("Observe")...))
	ask(t, "team", "2")
	if ps = awaitActive(t, "team", third); ps.Status.Rollout != nil {
		t.Errorf("%+v", ps.Status.Rollout)
	}
}

// TestPolicySources_CommitIsTakenBackAsAWhole: it stays back over restarts, and all of its policies observe.
func TestPolicySources_CommitIsTakenBackAsAWhole(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, tree("team", "a", "one.yaml", fleetPolicy("one", "team", "Observe")))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "rollout": map[string]any{}})
	awaitActive(t, "team", first)
	second := commit(t, repo, tree("team", "b", "one.yaml", fleetPolicy("one", "team", "Observe")))
	ask(t, "team", "1")
	awaitRollout(t, "team", second, v1alpha1.RolloutShadow)
	if why := r.sources.TakenBack("team"); why != "" {
		t.Error(why)
	}
	says(t, "one", candidateDigest(t, r, "team", second, "team"), v1alpha1.RolloutTakenBack, "it finds 9 violations")
	back := func(r *rig) {
		t.Helper()
		ps := await(t, "team", "Ready=False/TakenBack", "Compiled=True/Compiled")
		if is := ps.Status.Rollout; is == nil || is.Phase != v1alpha1.RolloutTakenBack || string(is.Commit) != second || string(ps.Status.ActiveCommit.Hash) != first ||
			!strings.Contains(readyOf(ps).Message, `policy "one": it finds 9 violations`) {
			t.Errorf("%+v", ps.Status)
		}
		if err := until(func() error {
			if hold, why := r.sources.Origin("team").Hold, r.sources.TakenBack("team"); why == "" || !strings.Contains(hold, why) || !strings.Contains(why, "it finds 9 violations") {
				return fmt.Errorf("hold %q, taken back %q", hold, why)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if len(r.manager.State().Candidates) != 0 {
			t.Error("there is a candidate")
		}
	}
	back(r)
	ps := awaitSource(t, "team", func(*v1alpha1.PolicySource) bool { return true })
	expectEvent(t, ps.UID, `Warning RolloutTakenBack: commit `+second+` was taken back: policy "one": it finds 9 violations`)
	// After a restart, what its FleetPolicy says makes no difference.
	says(t, "one", strings.Repeat("0", 64), v1alpha1.RolloutShadow, "")
	r.lead.Store(false)
	follower := newRig(t, false, nil)
	back(follower)
	follower.lead.Store(true)
	back(follower)
	third := commit(t, repo, tree("team", "c", "one.yaml", fleetPolicy("one", "team", "Observe")))
	ask(t, "team", "2")
	awaitRollout(t, "team", third, v1alpha1.RolloutShadow)
	if err := until(func() error {
		if hold := follower.sources.Origin("team").Hold; hold != "" {
			return errors.New(hold)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestPolicySources_ApprovalEndsTheShadow: one of what rolls out, not one of how much it changes.
func TestPolicySources_ApprovalEndsTheShadow(t *testing.T) {
	var wide atomic.Bool
	var mu sync.Mutex
	approved := map[string]remediate.Approved{}
	r := newDiffingRig(t, true, nil, func(context.Context, policysource.Candidate) (policysource.Difference, error) {
		if wide.Load() {
			return policysource.Difference{Appeared: 100}, nil
		}
		return policysource.Difference{}, nil
	}, func(o *hub.PolicySourcesOptions) {
		o.Approved = func(source, commit string) remediate.Approved {
			mu.Lock()
			defer mu.Unlock()
			return approved[source+" "+commit]
		}
	})
	give := func(hash string, is remediate.Approved) {
		mu.Lock()
		approved["team "+hash] = is
		mu.Unlock()
		r.sources.Trigger()
	}
	met := remediate.Approved{Met: true, Until: time.Now().Add(time.Hour), Given: []v1alpha1.GivenApproval{
		{Name: "a", By: "ann", At: metav1.Unix(time.Now().Unix()-60, 0), Expires: metav1.Unix(time.Now().Unix()+3600, 0)},
	}}
	repo := newRepo(t, t.TempDir(), "r")
	one := func(label string) map[string]string {
		return tree("team", label, "one.yaml", fleetPolicy("one", "team", "Observe"))
	}
	first := commit(t, repo, one("a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "rollout": map[string]any{}, "maxDiff": 10})
	awaitActive(t, "team", first)
	if list := r.sources.WideCommits(); len(list) != 0 {
		t.Errorf("%+v", list)
	}

	second := commit(t, repo, one("b"))
	ask(t, "team", "1")
	ps := awaitRollout(t, "team", second, v1alpha1.RolloutShadow)
	waits := func(hash string, since time.Time) {
		t.Helper()
		if err := until(func() error {
			list := r.sources.WideCommits()
			if len(list) != 1 || list[0].Hash != hash || list[0].Active != first || list[0].Commits.Head() != hash || !list[0].Since.Equal(since) {
				return fmt.Errorf("%+v, want %s since %s", list, hash, since)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	waits(second, ps.Status.Rollout.Began.Time)
	if r.sources.ShadowApproved("team", second) {
		t.Error("nobody has approved")
	}
	give(second, met)
	if !r.sources.ShadowApproved("team", second) || r.sources.ShadowApproved("team", first) || r.sources.ShadowApproved("none", second) {
		t.Error("it is approved, and nothing else")
	}
	ps = awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool { return len(ps.Status.Approvals) == 1 })
	if c := meta.FindStatusCondition(ps.Status.Conditions, v1alpha1.Bounded); c.Reason != "WithinBound" {
		t.Errorf("%+v", c)
	}
	give(second, remediate.Approved{})
	awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool { return len(ps.Status.Approvals) == 0 })

	// One that changes too much, and is approved: its shadow is not over therefore, in the second
	// in which it begins or later.
	wide.Store(true)
	third := commit(t, repo, one("c"))
	ask(t, "team", "2")
	ps = await(t, "team", "Bounded=False/TooWide")
	if ps.Status.Rollout != nil || len(r.manager.State().Candidates) != 0 {
		t.Errorf("%+v", ps.Status.Rollout)
	}
	waits(third, ps.CreationTimestamp.Time)
	give(third, met)
	ps = awaitRollout(t, "team", third, v1alpha1.RolloutShadow)
	give(third, remediate.Approved{}) // what is asked for now is another
	waits(third, ps.Status.Rollout.Began.Add(time.Second))
	ps = await(t, "team", "Bounded=True/Approved", "Ready=False/InRollout")
	if len(ps.Status.Approvals) != 1 || ps.Status.Approvals[0].Name != "a" {
		t.Errorf("%+v", ps.Status.Approvals)
	}
}

// TestPolicySources_CandidateParameters are those that its manifest has, of the FleetPolicies that the source has applied, as long as
// applying it would set them.
func TestPolicySources_CandidateParameters(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	manifests := func(size string) []string {
		return []string{"one.yaml", fleetPolicy("one", "team", "Observe") + "  parameters: {size: " + size + "}\n", "two.yaml", fleetPolicy("two", "team", "Observe")}
	}
	first := commit(t, repo, tree("team", "a", manifests("small")...))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "rollout": map[string]any{}})
	awaitActive(t, "team", first)
	get := func(name string) *v1alpha1.FleetPolicy {
		t.Helper()
		return awaitPolicy(t, name, func(*v1alpha1.FleetPolicy) bool { return true })
	}
	says := func(fp *v1alpha1.FleetPolicy, want string) {
		t.Helper()
		got := "nothing"
		if is, ok := r.sources.CandidateParameters(fp); ok {
			if got = "none"; is != nil {
				got = string(is.Raw)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", fp.Name, got, want)
		}
	}
	says(get("one"), "nothing")
	second := commit(t, repo, tree("team", "b", manifests("large")...))
	ask(t, "team", "1")
	awaitRollout(t, "team", second, v1alpha1.RolloutShadow)
	says(get("one"), `{"size":"large"}`)
	says(get("two"), "none")
	other := get("two")
	other.Labels = nil
	says(other, "nothing")
	other = get("one")
	other.Spec.Package = "other"
	says(other, "nothing")
	change(t, v1alpha1.FleetPolicies, "one", "kubectl-edit", `{"spec":{"parameters":{"size":"mine"}}}`)
	says(get("one"), "nothing")
	third := commit(t, repo, tree("team", "c", "two.yaml", fleetPolicy("two", "team", "Observe")+"  parameters: {size: huge}\n"))
	ask(t, "team", "2")
	awaitRollout(t, "team", third, v1alpha1.RolloutShadow)
	says(get("two"), `{"size":"huge"}`)
	says(get("one"), "nothing")
}

// TestPolicySources_OneFleetPolicyAsksForARollout: of its package, or of its source.
func TestPolicySources_OneFleetPolicyAsksForARollout(t *testing.T) {
	newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	manifests := []string{"one.yaml", fleetPolicy("one", "team", "Observe") + "  rollout: {shadow: 1h}\n", "two.yaml", fleetPolicy("two", "team", "Observe")}
	first := commit(t, repo, tree("team", "a", manifests...))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}})
	awaitActive(t, "team", first)
	second := commit(t, repo, tree("team", "b", manifests...))
	ask(t, "team", "1")
	awaitRollout(t, "team", second, v1alpha1.RolloutShadow)
	// The other one does not wait.
	awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool { r := ps.Status.Rollout; return r.Policies == 2 && r.Waiting == 1 })
	// Asked for no more, it is active.
	change(t, v1alpha1.FleetPolicies, "one", "kubectl-edit", `{"spec":{"rollout":null}}`)
	if ps := awaitActive(t, "team", second); ps.Status.Rollout != nil {
		t.Errorf("%+v", ps.Status.Rollout)
	}
}

// TestPolicySources_PackagesWithoutPolicyRollOut: without verdicts there is nothing to wait for.
func TestPolicySources_PackagesWithoutPolicyRollOut(t *testing.T) {
	newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "rollout": map[string]any{}})
	awaitActive(t, "team", first)
	second := commit(t, repo, tree("team", "b"))
	ask(t, "team", "1")
	ps := awaitActive(t, "team", second)
	expectEvent(t, ps.UID, "Normal RolloutPromoted: commit "+second)
}

// TestPolicySources_CommitEvidenceOfAllProcesses: what has no FleetPolicy waits until all processes say what they find.
func TestPolicySources_CommitEvidenceOfAllProcesses(t *testing.T) {
	var answers atomic.Pointer[evidence.Commit]
	var asked atomic.Pointer[string]
	sharing := func(o *hub.PolicySourcesOptions) {
		o.State = func() *policy.State { return nil } // nothing is evaluated here yet
		o.Evidence = func(source, of string) (evidence.Commit, error) {
			of = source + " " + of
			if asked.Store(&of); answers.Load() == nil {
				return evidence.Commit{}, errors.New("process b says nothing")
			}
			return *answers.Load(), nil
		}
	}
	newDiffingRig(t, true, nil, nil, sharing)
	follower := newDiffingRig(t, false, nil, nil, sharing)
	repo := newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}, "rollout": map[string]any{"shadow": "0s", "maxNew": 0}})
	awaitActive(t, "team", first)
	second := commit(t, repo, tree("team", "b"))
	ask(t, "team", "1")
	ps := awaitSource(t, "team", func(ps *v1alpha1.PolicySource) bool {
		return ps.Status.Rollout != nil && strings.Contains(ps.Status.Rollout.Message, "its shadow begins once it is known what all processes find: process b says nothing")
	})
	if r := ps.Status.Rollout; r.Evidence == nil || r.Evidence.Complete || r.Waiting != 1 {
		t.Errorf("%+v", r)
	}
	compares := first + "/" + second + ` "policies" "policies"`
	if of := "team " + compares; *asked.Load() != of {
		t.Errorf("asked for %q, want %q", *asked.Load(), of)
	}
	if err := until(func() error {
		if said, ok := follower.sources.Evidence()["team"]; !ok || said.Of != compares {
			return fmt.Errorf("the follower says %+v", said)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	answers.Store(&evidence.Commit{Parts: map[string]evidence.CommitPart{"team": {Part: evidence.Part{Complete: true, Subjects: 5, New: 1}}}})
	ps = awaitRollout(t, "team", second, v1alpha1.RolloutTakenBack)
	if e := ps.Status.Rollout.Evidence; e == nil || !e.Complete || e.Subjects != 5 || e.New != 1 {
		t.Errorf("%+v", ps.Status.Rollout)
	}
	answers.Store(&evidence.Commit{Parts: map[string]evidence.CommitPart{"team": {Part: evidence.Part{Complete: true, Subjects: 5}}}})
	third := commit(t, repo, tree("team", "c"))
	ask(t, "team", "2")
	awaitActive(t, "team", third)
	awaitManager(t, follower, "team", third)
}
