package hub

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// whatIsKnown is what the hub proves, and where policies come from.
type whatIsKnown struct {
	since, asked time.Time
	requests     int
	unproven     string
	origin       Origin
	signer       string
	commits      lineage.Line
	exactly      bool
	rollout      *v1alpha1.VersionRollout
	takenBack    string
	versionAt    time.Time             // when a version was approved
	approved     string                // the commit whose shadow people have ended
	parameters   *runtime.RawExtension // that the candidate's commit gives, if fromCommit
	fromCommit   bool
}

func (w *whatIsKnown) Unproven() string                         { return w.unproven }
func (w *whatIsKnown) AuthorsSince() (since, asked time.Time)   { return w.since, w.asked }
func (w *whatIsKnown) Request()                                 { w.requests++ }
func (w *whatIsKnown) Policies() (*policy.Set, <-chan struct{}) { return nil, nil }
func (w *whatIsKnown) Origin(string) Origin                     { return w.origin }
func (w *whatIsKnown) AppliedAs(*v1alpha1.FleetPolicy) (lineage.Line, string, bool) {
	return w.commits, w.signer, w.exactly
}
func (w *whatIsKnown) SourceRollout(string) *v1alpha1.VersionRollout { return w.rollout }
func (w *whatIsKnown) TakenBack(string) string                       { return w.takenBack }
func (w *whatIsKnown) MayNotify(*v1alpha1.FleetPolicy) ([]string, string) {
	return nil, ""
}

func (w *whatIsKnown) CandidateParameters(*v1alpha1.FleetPolicy) (*runtime.RawExtension, bool) {
	return w.parameters, w.fromCommit
}

func (w *whatIsKnown) ShadowApproved(_, commit string) bool {
	return w.approved != "" && commit == w.approved
}

func (w *whatIsKnown) VersionApproved(_ string, _ v1alpha1.Digest, since time.Time) (time.Time, bool) {
	return w.versionAt, !w.versionAt.IsZero() && !w.versionAt.Before(since)
}

const (
	annsKey = "SHA256:annsannsannsannsannsannsannsannsannsannsann"
	bobsKey = "PGP:0123456789ABCDEF0123456789ABCDEF01234567"
)

func policiesKnowing(w *whatIsKnown) *FleetPolicies {
	return &FleetPolicies{
		opts: FleetPoliciesOptions{
			Proofs: w, Library: w, IsLeader: func() bool { return true }, Signers: map[string]string{annsKey: "ann", bobsKey: "bob"},
		},
		authors: map[types.UID]*authorProof{},
	}
}

// changedBy returns a FleetPolicy that requires approval, whose spec was changed at a time.
func changedBy(user string, at time.Time) *v1alpha1.FleetPolicy {
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: "hosts", UID: "u", Generation: 1, Annotations: map[string]string{api.ChangedByKey: user},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "old", Time: &metav1.Time{Time: at.Add(-24 * time.Hour)}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:mode":{}}}`)},
			{Manager: "kubectl", Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:package":{}}}`)},
			{Manager: "notes", Time: &metav1.Time{Time: at.Add(24 * time.Hour)}, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)},
			{Manager: "federator", Subresource: "status", Time: &metav1.Time{Time: at.Add(24 * time.Hour)}, FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
		},
	}}
	fp.Spec.Approval = &v1alpha1.ApprovalRequirement{Required: 2}
	return fp
}

// appliedSince returns the FleetPolicy as a source has applied it after the user's change, of
// which a field is left: the annotation stays that of the user.
func appliedSince(fp *v1alpha1.FleetPolicy, after time.Duration) *v1alpha1.FleetPolicy {
	at := specChanged(fp).Add(after)
	fp.ManagedFields = append(fp.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: fieldManager("platform"), Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:limits":{}}}`),
	})
	return fp
}

func TestApprovalTerms_AuthorsAreProven(t *testing.T) {
	now := time.Now()
	since := now.Add(-time.Hour)
	later, earlier := since.Add(time.Minute), since.Add(-time.Minute)
	git := func(signer string) Origin { return Origin{Source: "platform", Commit: "c0ffee", Signer: signer} }
	for name, c := range map[string]struct {
		knows   whatIsKnown
		fp      *v1alpha1.FleetPolicy
		authors string
		proven  bool
	}{
		"a user":                     {whatIsKnown{since: since}, changedBy("joe", later), "[joe]", true},
		"in the second of the proof": {whatIsKnown{since: since}, changedBy("joe", since), "[joe]", false},
		"before the proof":           {whatIsKnown{since: since}, changedBy("joe", earlier), "[joe]", false},
		"without a proof":            {whatIsKnown{}, changedBy("joe", later), "[joe]", false},
		"nobody":                     {whatIsKnown{since: since}, changedBy("", later), "[]", false},
		"the package of a commit":    {whatIsKnown{since: since, origin: git("ann@example.com " + annsKey)}, changedBy("joe", later), "[ann joe]", true},
		"the policy as well":         {whatIsKnown{origin: git("Bob <b@example.com> " + bobsKey), signer: "Bob <b@example.com> " + bobsKey, exactly: true}, changedBy("joe", later), "[bob]", true},
		"unsigned":                   {whatIsKnown{since: since, origin: git("")}, changedBy("joe", later), "[joe]", false},
		"signed by a stranger":       {whatIsKnown{since: since, origin: git("eve@example.com SHA256:eve")}, changedBy("joe", later), "[joe]", false},
		"an unsigned policy":         {whatIsKnown{since: since, origin: git(annsKey), exactly: true}, changedBy("joe", later), "[ann]", false},
		"applied by a source since":  {whatIsKnown{since: since}, appliedSince(changedBy("joe", later), time.Second), "[joe]", false},
		"in the same second":         {whatIsKnown{since: since}, appliedSince(changedBy("joe", later), 0), "[joe]", false},
		"after a source":             {whatIsKnown{since: since}, appliedSince(changedBy("joe", later), -time.Second), "[joe]", true},
		"the ceiling requires it": {whatIsKnown{since: since, origin: Origin{Approval: &v1alpha1.ApprovalRequirement{Required: 1}}}, func() *v1alpha1.FleetPolicy {
			fp := changedBy("joe", later)
			fp.Spec.Approval = nil
			return fp
		}(), "[joe]", true},
	} {
		t.Run(name, func(t *testing.T) {
			c.knows.asked = now.Add(time.Hour)
			f := policiesKnowing(&c.knows)
			got := f.approvalTerms([]*v1alpha1.FleetPolicy{c.fp}, map[string]Origin{"": c.knows.origin}, nil)["hosts"]
			if authors := fmt.Sprint(got.Authors); authors != c.authors && !(authors == "[]" && c.authors == "[]") || got.AuthorsProven != c.proven || got.Unsettled {
				t.Errorf("%s, proven %t, pending %t; want %s, %t", authors, got.AuthorsProven, got.Unsettled, c.authors, c.proven)
			}
			if got.UID != "u" || got.Version != 1 || len(got.Required) != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestApprovalTerms_AuthorsOfAllCommits: the signers of each commit are named as users of the hub.
func TestApprovalTerms_AuthorsOfAllCommits(t *testing.T) {
	line := lineage.Line{}.Extend("a", nil, "Eve "+bobsKey).Extend("b", []string{"a"}, "").Extend("c", []string{"b"}, annsKey)
	knows := &whatIsKnown{origin: Origin{Source: "platform", Commit: "c", Signer: annsKey, Commits: line}, signer: annsKey, exactly: true, commits: line[2:]}
	f, fp := policiesKnowing(knows), changedBy("joe", time.Now())
	fp.Spec.Package = "acme.tier"
	got := f.approvalTerms([]*v1alpha1.FleetPolicy{fp}, map[string]Origin{"acme.tier": knows.origin}, nil)["hosts"]
	want := []remediate.Made{
		{Of: "package acme.tier", Commits: lineage.Line{{Hash: "a", Root: true, Signer: "bob"}, {Hash: "b"}, {Hash: "c", Signer: "ann"}}},
		{Of: "FleetPolicy", Commits: lineage.Line{{Hash: "c", Signer: "ann"}}},
	}
	if !reflect.DeepEqual(got.Made, want) || fmt.Sprint(got.Authors) != "[ann]" {
		t.Errorf("%+v", got)
	}
}

// TestApprovals_AuthorsOfWideCommits: of all since the active one.
func TestApprovals_AuthorsOfWideCommits(t *testing.T) {
	a := &Approvals{opts: ApprovalsOptions{Signers: map[string]string{annsKey: "ann", bobsKey: "bob"}}}
	line := lineage.Line{}.Extend("a", nil, annsKey).Extend("b", []string{"a"}, bobsKey).Extend("c", []string{"b"}, annsKey)
	for want, c := range map[string]WideCommit{
		"{[ann bob] true}":  {Hash: "c", Signer: annsKey, Commits: line, Active: "a"},
		"{[ann] true}":      {Hash: "c", Signer: annsKey, Commits: line, Active: "b"},
		"{[ann] false}":     {Hash: "c", Signer: annsKey, Commits: line[2:], Active: "a"},
		"{[bob] false}":     {Hash: "c", Signer: bobsKey, Active: "a"},
		"{[bob ann] false}": {Hash: "c", Signer: bobsKey, Commits: lineage.Line{}.Extend("a", nil, annsKey).Extend("c", []string{"a"}, ""), Active: ""},
	} {
		if got := fmt.Sprint(a.authorsOf(&c)); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
}

// TestApprovalTerms_WaitForTheHubsAnswer: of each version, once; and of one that a source
// applies until that is known.
func TestApprovalTerms_WaitForTheHubsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		knows := &whatIsKnown{since: time.Now().Add(-time.Hour), asked: time.Now()}
		f := policiesKnowing(knows)
		fp := changedBy("joe", time.Now().Add(-time.Minute))
		check := func(what string, pending, proven bool) {
			t.Helper()
			got := f.approvalTerms([]*v1alpha1.FleetPolicy{fp}, map[string]Origin{}, nil)["hosts"]
			if got.Unsettled != pending || !pending && got.AuthorsProven != proven {
				t.Errorf("%s: pending %t, proven %t; want %t, %t", what, got.Unsettled, got.AuthorsProven, pending, proven)
			}
		}
		check("an answer of before", true, false)
		if knows.requests != 1 {
			t.Errorf("asked %d times", knows.requests)
		}
		time.Sleep(time.Second)
		knows.asked = time.Now()
		check("an answer since", false, true)
		knows.since, knows.asked = time.Time{}, time.Time{}
		check("what is known stays so", false, true)

		fp = fp.DeepCopy()
		fp.Generation++
		check("another version", true, false)
		time.Sleep(time.Second)
		knows.asked = time.Now()
		check("which is not proven", false, false)

		fp = fp.DeepCopy()
		fp.Generation++
		fp.Labels = map[string]string{api.SourceKey: "platform"}
		check("one that a source may have applied", true, false)
		knows.exactly, knows.signer = true, annsKey
		check("one that it has", false, true)
		knows.exactly, knows.asked = false, time.Now().Add(time.Hour)
		time.Sleep(appliedGrace)
		check("one that it has not", false, false)

		f.opts.IsLeader = func() bool { return false }
		check("a process that does not lead", true, false)
	})
}

func TestShowApproval(t *testing.T) {
	at := time.Unix(1000, 5).UTC()
	given := v1alpha1.GivenApproval{Name: "a-1", By: "ann", At: metav1.Unix(1001, 0), Expires: metav1.Unix(2000, 0)}
	waiting := remediate.PlanInfo{
		Name: "hosts-1", Hash: "abc", Purpose: v1alpha1.PlanGeneration, State: v1alpha1.PlanWaiting, Targets: 12, Since: at,
		Approved: remediate.Approved{Required: 2, Given: []v1alpha1.GivenApproval{given}},
	}
	rollback, approved := waiting, waiting
	rollback.Purpose = v1alpha1.PlanRollback
	approved.State, approved.Approved.Met, approved.Approved.Until = v1alpha1.PlanApproved, true, at
	kept := &v1alpha1.KeptApproval{Requirements: []v1alpha1.ApprovalRequirement{{Required: 1}, {Required: 2}}, Authors: []v1alpha1.UserName{"joe"}}
	for name, c := range map[string]struct {
		actions  remediate.Status
		unproven string
		status   metav1.ConditionStatus
		reason   string
		says     []string
	}{
		"a Plan":          {remediate.Status{Plans: []remediate.PlanInfo{waiting}}, "", "False", "Waiting", []string{"hosts-1 of 12 targets", "of 2 people, and has 1", "federator actions plan hosts", "federator actions approve hosts --plan abc"}},
		"a rollback":      {remediate.Status{Plans: []remediate.PlanInfo{approved, rollback}}, "", "False", "Waiting", []string{"--rollback abc"}},
		"unproven":        {remediate.Status{Plans: []remediate.PlanInfo{waiting}}, "no policy", "False", "Unproven", []string{"do not count now: no policy; Plan"}},
		"a halt":          {remediate.Status{Halts: []*remediate.Halt{{ID: "h1"}}}, "", "False", "Halted", []string{"federator actions approve hosts --halt h1"}},
		"an approved one": {remediate.Status{Plans: []remediate.PlanInfo{approved}}, "", "True", "Approved", []string{"until 1970"}},
		"nothing":         {remediate.Status{}, "no policy", "True", "NothingWaits", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, fp, s := policiesKnowing(&whatIsKnown{unproven: c.unproven}), changedBy("joe", at), &v1alpha1.FleetPolicyStatus{}
			c.actions.Approval, c.actions.Restored = kept, true
			f.showApproval(s, fp, &c.actions, false)
			got := meta.FindStatusCondition(s.Conditions, v1alpha1.Approved)
			if got == nil || got.Status != c.status || got.Reason != c.reason || slices.ContainsFunc(c.says, func(text string) bool { return !strings.Contains(got.Message, text) }) {
				t.Fatalf("%+v", got)
			}
			if s.Approval.Required != 2 || s.Approval.Unproven != c.unproven || len(s.Approval.Authors) != 1 || len(s.Approval.Plans) != len(c.actions.Plans) {
				t.Errorf("%+v", s.Approval)
			}
			// What the hub has is not written again: it stores seconds.
			stored := s.DeepCopy()
			for i := range stored.Approval.Plans {
				stored.Approval.Plans[i].Since = metav1.Unix(at.Unix(), 0)
			}
			if !sameStatus(stored, s) {
				t.Error("the same status differs")
			}
			fp.Status.Approval = s.Approval
			c.actions.Restored = false
			if f.showApproval(s, fp, &c.actions, false); len(s.Approval.Plans) != len(c.actions.Plans) {
				t.Error("what is shown goes while it is not known")
			}
			fp.Spec.Approval, c.actions.Restored, c.actions.Approval, s.Approval = nil, true, nil, nil
			if f.showApproval(s, fp, &c.actions, false); s.Approval != nil || meta.FindStatusCondition(s.Conditions, v1alpha1.Approved) != nil {
				t.Errorf("shown without approval: %+v", s)
			}
		})
	}
}
