package hub_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub"
)

// patchSpec changes an object of the hub by a merge patch.
func patchSpec(t *testing.T, resource, name, patch string) {
	t.Helper()
	_, err := shared.client.Resource(v1alpha1.Resource(resource)).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFleetPolicies_Notified: what a policy may not notify is a condition of its own, and changes nothing of its enforcement.
func TestFleetPolicies_Notified(t *testing.T) {
	index, become := pods(t, "bad", "good")
	j := newEvaluator(t, index, newShelf(t, "notifies"), hub.EventsOptions{})
	become(aggregate.Synced)
	bind(t, "notifies", "notifies", "Enforce")
	before := awaitPolicy(t, "notifies", func(fp *v1alpha1.FleetPolicy) bool {
		return meta.IsStatusConditionTrue(fp.Status.Conditions, v1alpha1.Ready)
	})
	if c := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.Notifying); c != nil {
		t.Errorf("it names no Notification: %+v", c)
	}
	for _, c := range []struct {
		names   string
		want    string // of the condition
		notify  []string
		without []string
	}{
		{`["pager"]`, "True Allowed the Notifications of spec.notifications are sent transitions of the policy", []string{"pager"}, []string{"chat"}},
		{`["pager","chat"]`, `False NotAllowed spec.notifications: "chat": not on the shelf`, []string{"pager"}, []string{"chat"}},
		{`["chat"]`, `False NotAllowed spec.notifications: "chat": not on the shelf`, nil, []string{"chat", "pager"}},
		{`[]`, "", nil, []string{"chat", "pager"}},
	} {
		patchSpec(t, v1alpha1.FleetPolicies, "notifies", `{"spec":{"notifications":`+c.names+`}}`)
		fp := awaitPolicy(t, "notifies", func(fp *v1alpha1.FleetPolicy) bool {
			return fp.Status.ObservedGeneration == fp.Generation && meta.IsStatusConditionTrue(fp.Status.Conditions, v1alpha1.Ready)
		})
		got := ""
		if is := meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Notifying); is != nil {
			got = fmt.Sprint(is.Status, " ", is.Reason, " ", is.Message)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.names, got, c.want)
		}
		was, is := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.Enforcing), meta.FindStatusCondition(fp.Status.Conditions, v1alpha1.Enforcing)
		if was.Status != is.Status || was.Reason != is.Reason {
			t.Errorf("%s: %s %s, want %s %s as before", c.names, is.Status, is.Reason, was.Status, was.Reason)
		}
		for _, name := range c.notify {
			if of := j.Notified(name); !maps.Equal(of, map[string]bool{"notifies": true}) {
				t.Errorf("%s: %v notify %s", c.names, of, name)
			}
		}
		for _, name := range c.without {
			if of := j.Notified(name); of == nil || len(of) != 0 {
				t.Errorf("%s: %v notify %s", c.names, of, name)
			}
		}
	}
}

// TestPolicySources_MayNotify what the ceiling on the hub allows, at once, and before the package is active after a restart.
func TestPolicySources_MayNotify(t *testing.T) {
	r := newRig(t, true, nil)
	repo := newRepo(t, t.TempDir(), "r")
	hash := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}})
	awaitActive(t, "team", hash)

	const (
		byTeam = `not allowed by spec.ceiling.notifications of PolicySource "team"`
		noOne  = `PolicySource "other" does not exist`
		nobody = `no active package is named "none"`
	)
	ask := func(r *rig, source, pkg string, allowed []string, why string) error {
		fp := &v1alpha1.FleetPolicy{Spec: v1alpha1.FleetPolicySpec{Source: source, Package: pkg, Notifications: []string{"pager"}}}
		if got, because := r.sources.MayNotify(fp); !slices.Equal(got, allowed) || because != why {
			return fmt.Errorf("package %q of source %q may notify %q, others not: %s; want %q, %s", pkg, source, got, because, allowed, why)
		}
		return nil
	}
	for _, c := range []struct {
		ceiling string
		allowed []string
	}{
		{`{}`, nil},
		{`{"notifications":["pager","chat"]}`, []string{"pager", "chat"}},
		{`{"notifications":["*"]}`, []string{"*"}},
		{`{"notifications":null}`, nil},
		{`{"notifications":["pager"]}`, []string{"pager"}},
	} {
		patchSpec(t, v1alpha1.PolicySources, "team", `{"spec":{"ceiling":`+c.ceiling+`}}`)
		for _, source := range []string{"", "team"} {
			if err := until(func() error { return ask(r, source, "team", c.allowed, byTeam) }); err != nil {
				t.Error(err)
			}
		}
		for _, err := range []error{ask(r, "", "shipped", []string{"*"}, ""), ask(r, "other", "team", nil, noOne), ask(r, "", "none", nil, nobody)} {
			if err != nil {
				t.Errorf("with ceiling %s: %v", c.ceiling, err)
			}
		}
	}

	if err := until(func() error {
		ps, err := read[v1alpha1.PolicySource](t, v1alpha1.PolicySources, "team")
		if err == nil && !slices.Contains(ps.Status.Packages, "team") {
			err = fmt.Errorf("the status has packages %q", ps.Status.Packages)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := os.RemoveAll(repo.Dir); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, true, nil)
	if err := until(func() error { return ask(again, "", "team", []string{"pager"}, byTeam) }); err != nil {
		t.Error(err)
	}
	if set, _ := again.sources.Policies(); set.Package("team") != nil {
		t.Error("the package is active without its repository")
	}
}
