package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
)

func plan(hash v1alpha1.Digest) map[string]any { return map[string]any{"plan": string(hash)} }

// TestApprovals_OfPeopleWhoMay: two distinct people, neither of whom is an author; what else
// there is counts for nothing, and says why.
func TestApprovals_OfPeopleWhoMay(t *testing.T) {
	h := startApprovals(t)
	h.admit()
	h.nextSecond()
	two, short, other, alone, later := h.plan("hosts", 1, "mallory"), h.plan("hosts", 2), h.plan("hosts", 3), h.plan("hosts", 4), h.plan("hosts", 5)
	h.plans.mu.Lock()
	h.plans.policies["hosts"].Plans[4].Since = time.Now().Add(time.Hour)
	h.plans.mu.Unlock()

	ann := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(two)})
	again := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(two), expires: time.Minute})
	author := h.mustApprove(given{as: "mallory", groups: []string{"sre"}, spec: plan(two)})
	noGroups := h.mustApprove(given{as: "carl", groups: []string{"sre"}, names: []string{}, spec: plan(two)})
	otherGroup := h.mustApprove(given{as: "dora", groups: []string{"people"}, spec: plan(two)})
	otherBot := h.mustApprove(given{as: "system:serviceaccount:ci:other", spec: plan(two)})
	unknown := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(digest(99))})
	rollback := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: map[string]any{"rollback": string(two)}})
	// RBAC grants fritz the verb by a group that the Approval does not name.
	byOtherGroup := h.mustApprove(given{as: "fritz", groups: []string{"finance", "sre"}, names: []string{"finance"}, spec: plan(two)})
	early := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(later)})
	expired := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(short), expires: 8 * time.Second})
	h.mustApprove(given{as: bot, spec: plan(short)})
	withdrawn := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(other)})
	h.mustApprove(given{as: "bob", groups: []string{"sre"}, spec: plan(other)})
	h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(alone)})
	if _, err := h.approve(given{as: "eve", groups: []string{"people"}, spec: plan(two)}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may not approve this FleetPolicy") {
		t.Errorf("eve, who may not approve: %v", err)
	}
	if _, err := h.approve(given{as: "eve", by: "bob", spec: plan(two)}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.by must be the name") {
		t.Errorf("eve, as bob: %v", err)
	}

	h.expectMet("hosts", other, true, "ann", "bob")
	h.expectMet("hosts", two, false, "ann")
	bob := h.mustApprove(given{as: "bob", groups: []string{"sre"}, spec: plan(two)})
	h.expectMet("hosts", two, true, "ann", "bob")
	for what, want := range map[string]struct{ name, reason string }{
		"a second one": {again, "Repeated"}, "the author's": {author, "Author"}, "one of no group": {noGroups, "NotInGroup"}, "one of another group": {otherGroup, "NotInGroup"},
		"a service account's": {otherBot, "ServiceAccount"}, "of an unknown Plan": {unknown, "Unknown"}, "of before the Plan": {early, "Unknown"}, "of a rollback": {rollback, "Unknown"}, "by a group without the verb": {byOtherGroup, "NotAllowed"},
	} {
		h.expectState(what, want.name, v1alpha1.ApprovalIgnored, want.reason)
	}
	h.expectState("ann's", ann, v1alpha1.ApprovalCounts, "")
	h.expectState("bob's", bob, v1alpha1.ApprovalCounts, "")

	if err := h.as("ann").Delete(t.Context(), withdrawn, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.expectMet("hosts", other, false, "bob")
	h.expectState("what has expired", expired, v1alpha1.ApprovalExpired, "")
	h.expectMet("hosts", short, false, bot)
	h.expectMet("hosts", alone, false, "ann")
}

// TestApprovals_EndShadows: of one version, by as many people as a policy requires who have not made
// it, or by one who may approve it.
func TestApprovals_EndShadows(t *testing.T) {
	later := time.Now().Add(time.Hour)
	h := startApprovals(t,
		hub.ShadowVersion{Policy: "hosts", Digest: digest(1), Authors: []v1alpha1.UserName{"mallory"}, AuthorsProven: true},
		hub.ShadowVersion{Policy: "plain", Digest: digest(2)}, hub.ShadowVersion{Policy: "plain", Digest: digest(3), Since: later})
	h.admit()
	h.nextSecond()
	version := func(policy string, n int) map[string]any {
		return map[string]any{"fleetPolicy": policy, "version": string(digest(n))}
	}
	h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: version("hosts", 1)})
	author := h.mustApprove(given{as: "mallory", groups: []string{"sre"}, spec: version("hosts", 1)})
	h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: version("plain", 2)})
	early := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: version("plain", 3)})
	other := h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: version("plain", 4)})
	expect := func(policy string, n int, want bool) {
		t.Helper()
		if err := until(func() error {
			if last, ok := h.approvals.VersionApproved(policy, digest(n), map[int]time.Time{3: later}[n]); ok != want || ok && last.IsZero() {
				return fmt.Errorf("version %d of %s: approved is %t", n, policy, !want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	expect("plain", 2, true)
	if _, ok := h.approvals.VersionApproved("plain", digest(2), later); ok {
		t.Error("what was approved of a shadow counts for the next one")
	}
	h.expectState("the author's", author, v1alpha1.ApprovalIgnored, "Author")
	expect("hosts", 1, false)
	h.mustApprove(given{as: "bob", groups: []string{"sre"}, spec: version("hosts", 1)})
	expect("hosts", 1, true)
	h.expectState("of before the version", early, v1alpha1.ApprovalIgnored, "Unknown")
	h.expectState("of another version", other, v1alpha1.ApprovalIgnored, "Unknown")
	expect("plain", 3, false)
}

// TestApprovals_EndHalts: as many people as a policy requires, or one who may approve it.
func TestApprovals_EndHalts(t *testing.T) {
	h := startApprovals(t)
	h.admit()
	h.nextSecond()
	h.halt("hosts", "a1")
	h.halt("hosts", "b2")
	h.halt("plain", "c3")
	of := func(policy, halt string) map[string]any { return map[string]any{"fleetPolicy": policy, "halt": halt} }
	h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: of("hosts", "a1")})
	h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: of("hosts", "b2")})
	h.mustApprove(given{as: "bob", groups: []string{"sre"}, spec: of("hosts", "b2")})
	h.mustApprove(given{as: "dora", spec: of("plain", "c3")})
	if err := until(func() error {
		h.plans.mu.Lock()
		defer h.plans.mu.Unlock()
		got := h.plans.acknowledged
		if both := got["b2"]; len(got) != 2 || got["c3"] != "dora" || both != "ann, bob" && both != "bob, ann" {
			return fmt.Errorf("acknowledged %v", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestApprovals_UnderFalseNames: without the admission policy names prove nothing, nor do
// those that were given before it was there; while it is away nothing is approved.
func TestApprovals_UnderFalseNames(t *testing.T) {
	h := startApprovals(t)
	hash := h.plan("hosts", 1)
	h.halt("plain", "c3")
	if err := until(func() error {
		if why := h.approvals.Unproven(); !strings.Contains(why, "does not exist") {
			return fmt.Errorf("unproven: %q", why)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var early string
	if err := until(func() (err error) { // the policy of another test may still be in force
		early, err = h.approve(given{as: "eve", by: "ann", names: []string{"sre"}, spec: plan(hash)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ofHalt := h.mustApprove(given{as: "eve", by: "dora", spec: map[string]any{"fleetPolicy": "plain", "halt": "c3"}})
	h.expectState("a false name", early, v1alpha1.ApprovalIgnored, "Unproven")
	h.expectState("a false name", ofHalt, v1alpha1.ApprovalIgnored, "Unproven")

	h.admit()
	h.nextSecond()
	if _, err := h.approve(given{as: "eve", by: "ann", names: []string{"sre"}, spec: plan(hash)}); !apierrors.IsForbidden(err) {
		t.Errorf("a false name with the policy: %v", err)
	}
	h.mustApprove(given{as: "ann", groups: []string{"sre"}, spec: plan(hash)})
	h.mustApprove(given{as: "bob", groups: []string{"sre"}, spec: plan(hash)})
	h.expectMet("hosts", hash, true, "ann", "bob")
	h.expectState("a false name of before", early, v1alpha1.ApprovalIgnored, "Unproven")

	// The next Approval has the hub asked, which proves nothing any more.
	h.dismiss()
	if err := until(func() error {
		name, err := h.approve(given{as: "eve", by: "carl", names: []string{"sre"}, spec: plan(hash)})
		if err == nil {
			h.expectState("a false name without the policy", name, v1alpha1.ApprovalIgnored, "Unproven")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.expectMet("hosts", hash, false)
	if len(h.plans.acknowledged) > 0 {
		t.Errorf("acknowledged %v", h.plans.acknowledged)
	}
}

func TestNewApprovals_RequiresOptions(t *testing.T) {
	if _, err := hub.NewApprovals(hub.ApprovalsOptions{Config: &rest.Config{}}); err == nil {
		t.Error("Approvals without a Dispatcher")
	}
}
