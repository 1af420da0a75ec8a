package versionlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/policy"
)

// tierRig has a policy in effect, of one object.
func tierRig(t *testing.T) (*versionRig, *v1alpha1.FleetPolicy, time.Time) {
	t.Helper()
	manifests, err := offline.New(offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := manifests.Add("objects", strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop, labels: {tier: gold}}\n"), "fleet/eu-1"); err != nil {
		t.Fatal(err)
	}
	index, err := manifests.Index(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, at := newVersionRig(t, index.Snapshot()), time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u", Generation: 1}}
	fp.Status.Versions = r.configure(tierPolicy, "gold", fp, at)
	return r, fp, at
}

func generations(list []v1alpha1.PolicyVersion) string {
	var out []int64
	for i := range list {
		out = append(out, list[i].Generation)
	}
	return fmt.Sprint(out)
}

// TestLog_KeepsWhatIsNotStored has versions take effect while the hub refuses writes: none is lost, and
// what the hub has at last is not repeated.
func TestLog_KeepsWhatIsNotStored(t *testing.T) {
	r, fp, at := tierRig(t)
	change := func(tier string) []v1alpha1.PolicyVersion {
		fp.Generation++
		return r.configure(tierPolicy, tier, fp, at.Add(time.Duration(fp.Generation)*time.Minute))
	}
	second := change("silver")
	third := change("gold")
	if got := generations(third); got != "[1 2 3]" {
		t.Fatalf("versions of generations %s", got)
	}
	for _, v := range third[1:] {
		if c := v.Changes; c == nil || c.Appeared+c.Vanished != 1 || v.By != "bob" {
			t.Errorf("%+v, %+v", v, c)
		}
	}
	fp.Status.Versions = second // a write that was late
	if got := generations(change("bronze")); got != "[1 2 3 4]" {
		t.Errorf("with one stored, versions of generations %s", got)
	}
	fp.Status.Versions = append(slices.Clone(second), v1alpha1.PolicyVersion{Digest: third[2].Digest, Package: third[2].Package, Since: metav1.NewTime(at), Generation: 7})
	if got := generations(change("silver")); got != "[1 2 7 4 5]" {
		t.Errorf("with one that another process has stored, versions of generations %s", got)
	}
	for range v1alpha1.MaxVersions {
		change("gold")
		change("silver")
	}
	if n := len(r.v.began[fp.UID]); n != v1alpha1.MaxVersions {
		t.Errorf("%d versions are remembered", n)
	}
}

// TestLog_AnotherPolicyOfTheName is another one: its first version changed nothing of it.
func TestLog_AnotherPolicyOfTheName(t *testing.T) {
	for _, tier := range []string{"silver", "gold"} { // the latter is what the first one has
		r, fp, at := tierRig(t)
		fp.Status.Versions = r.configure(tierPolicy, "silver", fp, at)
		again := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "v", Generation: 1}}
		if got := r.configure(tierPolicy, tier, again, at); len(got) != 1 || got[0].Changes != nil {
			t.Errorf("%s: %+v", tier, got)
		}
	}
}

// TestLog_CountsNothingOfAReset: it changes whatever was not evaluated before.
func TestLog_CountsNothingOfAReset(t *testing.T) {
	r, fp, at := tierRig(t)
	set, bindings, digests := r.load(tierPolicy, "silver")
	r.v.Configure(bind("u", digests))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.engine.Configure(ended, set, bindings); err == nil {
		t.Fatal("no error")
	}
	changes, err := r.engine.Reset(t.Context(), r.engine.State().Snapshot, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.v.Observe(changes, nil)
	r.v.Configured(true)
	got := r.v.Of(fp, Version{Digests: digests}, at.Add(time.Minute))
	if len(got) != 2 || got[1].Changes != nil {
		t.Errorf("%+v", got)
	}
}

// TestLog_NamesNobodyUnproven, and waits for what may be known later.
func TestLog_NamesNobodyUnproven(t *testing.T) {
	r, fp, at := tierRig(t)
	_, _, digests := r.load(tierPolicy, "silver")
	settled := false
	v := Version{Digests: digests, Signer: "eve", Author: func() (string, bool) { return "", settled }}
	if got := r.v.Of(fp, v, at); len(got) != 1 {
		t.Errorf("while the author is not known: %+v", got)
	}
	settled = true
	if got := r.v.Of(fp, v, at); len(got) != 2 || got[1].By != "" {
		t.Errorf("where nothing is proven: %+v", got)
	}
}

// TestWithout_CountsWhatOthersLack, in time that grows as the lists do.
func TestWithout_CountsWhatOthersLack(t *testing.T) {
	list := func(from, to int) (out []policy.Violation) {
		for i := from; i < to; i++ {
			out = append(out, policy.Violation{Msg: fmt.Sprint(i)})
		}
		return out
	}
	if n := without(list(0, 100_000), list(10, 100_010)); n != 10 {
		t.Errorf("%d", n)
	}
}
