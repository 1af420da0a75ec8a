package hub

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/approval"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/remediate"
)

type noPlans struct{}

func (noPlans) Status(string) (remediate.Status, bool)                   { return remediate.Status{}, false }
func (noPlans) SetApprovals(string, map[types.UID]remediate.Approved)    {}
func (noPlans) AcknowledgeUntil(string, string, string, time.Time) error { return nil }

// TestApprovals_AreUnknownBeforeTheHubAnswers: that is not the same as too few. What has no
// Approvals is known.
func TestApprovals_AreUnknownBeforeTheHubAnswers(t *testing.T) {
	a, err := NewApprovals(ApprovalsOptions{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "federator", Dispatcher: noPlans{}, IsLeader: func() bool { return true },
		Required: func() (map[string][]v1alpha1.ApprovalRequirement, bool) { return nil, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	given := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}, Spec: v1alpha1.ApprovalSpec{FleetPolicy: "hosts", Plan: "abc", By: "ann"}}
	if err := a.informer.GetIndexer().Add(given); err != nil {
		t.Fatal(err)
	}
	a.changed(nil, given)
	now := time.Now()
	of := func(hash v1alpha1.Digest) remediate.Approved {
		return a.count(&subject{
			key: approval.PlanKey("hosts", v1alpha1.PlanGeneration, hash), resource: v1alpha1.FleetPolicies, name: "hosts", requirements: approval.All(nil, approval.Authors{}),
		}, now).approved()
	}
	if got := of("abc"); got.Met || !got.Unknown {
		t.Errorf("an Approval: %+v", got)
	}
	if got := of("def"); got.Met || got.Unknown || got.Required != 1 {
		t.Errorf("no Approval: %+v", got)
	}
}

// TestPolicySources_FollowersFollowTheLeader: it counts Approvals of commits, and they take
// over what it has made active.
func TestPolicySources_FollowersFollowTheLeader(t *testing.T) {
	leads, met := false, remediate.Approved{}
	s := &PolicySources{
		opts: PolicySourcesOptions{
			IsLeader: func() bool { return leads }, Approved: func(source, commit string) remediate.Approved {
				if source != "git" || commit != "new" {
					return remediate.Approved{}
				}
				return met
			},
		},
		sources: cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1alpha1.PolicySource{}, 0, nil),
	}
	ps := &v1alpha1.PolicySource{ObjectMeta: metav1.ObjectMeta{Name: "git"}}
	ps.Status.ActiveCommit = &v1alpha1.Commit{Hash: "old"}
	if err := s.sources.GetStore().Add(ps); err != nil {
		t.Fatal(err)
	}
	check := func(what string, want bool) {
		t.Helper()
		if got := s.CommitApproved("git", "new"); got != want {
			t.Errorf("%s: %t", what, got)
		}
	}
	check("another commit is active", false)
	if s.CommitApproved("none", "new") {
		t.Error("a commit of no source")
	}
	ps.Status.ActiveCommit.Hash = "new"
	check("the leader has made it active", true)
	leads = true
	check("the leader itself", false)
	met = remediate.Approved{Met: true, Until: time.Now().Add(time.Hour)}
	check("approved", true)
	met.Until = time.Now()
	check("expired", false)
}

func TestBoundedCondition_SaysWhoApproves(t *testing.T) {
	given := []v1alpha1.GivenApproval{{Name: "a", By: "ann"}}
	s := &PolicySources{opts: PolicySourcesOptions{Approved: func(string, string) remediate.Approved { return remediate.Approved{Given: given, Required: 2} }}, approved: map[string]approvedCommit{}}
	ps := &v1alpha1.PolicySource{ObjectMeta: metav1.ObjectMeta{Name: "git"}}
	st := policysource.Status{Source: "git", Phase: policysource.Diff, Reason: policysource.ReasonTooWide, Newest: &policysource.Commit{Hash: "new"}}
	next := &v1alpha1.PolicySourceStatus{Approvals: s.commitApprovals(ps, &st, &ps.Status)}
	if got := s.boundedCondition(ps, &st, next, metav1.Condition{Message: "too wide"}).Message; len(next.Approvals) != 1 ||
		got != "too wide; it has Approvals of 1 people, and needs 2: federator actions approve --source git --commit new --reason TEXT" {
		t.Errorf("%s, %+v", got, next.Approvals)
	}
	st.Phase, st.Reason = policysource.Active, "Active"
	s.approved["git"] = approvedCommit{"new", given}
	next.Approvals = s.commitApprovals(ps, &st, &ps.Status)
	if got := s.boundedCondition(ps, &st, next, metav1.Condition{Status: metav1.ConditionTrue}); got.Reason != "Approved" {
		t.Errorf("%+v", got)
	}
	// After a restart it is what the status has; another commit has none.
	delete(s.approved, "git")
	old := &v1alpha1.PolicySourceStatus{ObservedCommit: &v1alpha1.Commit{Hash: "new"}, Approvals: given}
	if got := s.commitApprovals(ps, &st, old); len(got) != 1 {
		t.Errorf("after a restart: %+v", got)
	}
	st.Newest.Hash = "newer"
	if got := s.commitApprovals(ps, &st, old); got != nil {
		t.Errorf("of another commit: %+v", got)
	}
}

// recordedApprovals is what a Dispatcher is told.
type recordedApprovals struct {
	noPlans

	told []map[types.UID]remediate.Approved
}

func (r *recordedApprovals) SetApprovals(_ string, approved map[types.UID]remediate.Approved) {
	r.told = append(r.told, approved)
}

// TestApprovals_TellWhatIsKnownAgain: a Dispatcher shows what was known before while it is not
// known what is approved. That it is known again is told, although it is the same.
func TestApprovals_TellWhatIsKnownAgain(t *testing.T) {
	r := &recordedApprovals{}
	a, err := NewApprovals(ApprovalsOptions{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "federator", Dispatcher: r, IsLeader: func() bool { return true },
		Required: func() (map[string][]v1alpha1.ApprovalRequirement, bool) { return nil, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	plan := remediate.PlanInfo{Name: "hosts-1", UID: "p", Hash: "abc", Purpose: v1alpha1.PlanGeneration, State: v1alpha1.PlanApproved}
	st := &remediate.Status{Restored: true, Plans: []remediate.PlanInfo{plan}}
	unknown := func() bool {
		a.countPlans("hosts", st, nil, map[string]bool{}, time.Now())
		if len(r.told) == 0 {
			t.Fatal("nothing was told")
		}
		last := r.told[len(r.told)-1]["p"]
		if !last.Unknown {
			st.Plans[0].Approved = last
		}
		return last.Unknown
	}
	if unknown() {
		t.Error("without Approvals: unknown")
	}
	given := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}, Spec: v1alpha1.ApprovalSpec{FleetPolicy: "hosts", Plan: "abc", By: "ann"}}
	if err := a.informer.GetIndexer().Add(given); err != nil {
		t.Fatal(err)
	}
	a.changed(nil, given)
	if !unknown() {
		t.Error("an Approval before the hub answers: known")
	}
	if err := a.informer.GetIndexer().Delete(given); err != nil {
		t.Fatal(err)
	}
	a.changed(given, nil)
	if unknown() {
		t.Error("the Approval is withdrawn: still unknown")
	}
	if n := len(r.told); unknown() || len(r.told) != n {
		t.Error("told again without a change")
	}
}
