package enforce_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// unread are the members that are not written to for what is not read of them.
func (a *fakeActor) unread(binding string) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(a.policies[binding].totals.Unread)), " ")
}

// TestCorrector_WaitsForNoMemberThatIsGivenUp: the fleet is counted without a member that has had its
// time, which is not written to before what the policy reads of it is read, also when it comes back.
func TestCorrector_WaitsForNoMemberThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		put(t, scopeOf(t, index), "web", 1)
		member := aggregate.Member{Name: "fleet/b", UID: "b"}
		set := func() {
			t.Helper()
			if err := index.PutMember(member); err != nil {
				t.Fatal(err)
			}
		}
		set()
		a, c, _ := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "1"})
		expect(t, a, "a member is not read yet", "patch web@1 (not counted)")
		member.GivenUp = true
		set()
		expect(t, a, "it has had its time", "patch web@1")
		if got := a.unread("b"); got != "fleet/b" {
			t.Errorf("given up, unread are %q", got)
		}
		member.GivenUp = false
		set()
		scope, err := index.OpenScope("fleet/b", "Deployment.apps", "apps/v1")
		if err != nil {
			t.Fatal(err)
		}
		show := func(s aggregate.Status) {
			t.Helper()
			scope.SetStatus(s)
			if _, err := scope.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		show(aggregate.Status{State: aggregate.Syncing})
		expect(t, a, "it is back, and listed", "patch web@1")
		if got := a.unread("b"); got != "fleet/b" {
			t.Errorf("while it is listed, unread are %q", got)
		}
		show(aggregate.Status{State: aggregate.Synced})
		if got := a.unread("b"); got != "" {
			t.Errorf("once it was listed, unread are %q", got)
		}
	})
}

// TestCorrector_WaitsForWhatWasLoaded: what an earlier process has read counts for nothing before
// this one has gone on with it; what was read once and is Stale later holds nothing back.
func TestCorrector_WaitsForWhatWasLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := newIndex(t)
		scope := scopeOf(t, index)
		put(t, scope, "web", 1)
		show := func(s aggregate.Status) {
			t.Helper()
			scope.SetStatus(s)
			if _, err := scope.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		show(aggregate.Status{State: aggregate.Stale, Unread: true})
		a, c, _ := startCorrector(t, index, bindingB)
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce, Generation: "1"})
		if got := a.describe("b"); !strings.HasSuffix(got, "(not counted)") {
			t.Errorf("loaded: %q", got)
		}
		if got := a.unread("b"); got != "fleet/a" {
			t.Errorf("loaded, unread are %q", got)
		}
		show(aggregate.Status{State: aggregate.Synced})
		expect(t, a, "it goes on", "patch web@1")
		show(aggregate.Status{State: aggregate.Stale})
		if got := a.unread("b"); got != "" || !c.Status("b").Complete {
			t.Errorf("Stale after it was read: unread are %q, complete: %t", got, c.Status("b").Complete)
		}
	})
}
