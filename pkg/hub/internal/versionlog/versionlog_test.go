package versionlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/offline"
	"federator.dev/federator/pkg/policy"
)

// versionRig configures a real engine as FleetPolicies does, and observes what changes.
type versionRig struct {
	t      *testing.T
	engine *policy.Engine
	v      *Log
}

const tierPolicy = `# METADATA
# title: Tiers
# custom: {severity: low, kinds: [ConfigMap], parameters: {type: object, properties: {tier: {type: string, default: gold}}}}
package acme.tier

violation contains {"msg": sprintf("not %s", [input.parameters.tier])} if input.object.metadata.labels.tier != input.parameters.tier
`

func (r *versionRig) load(rego, tier string) (*policy.Set, []policy.Binding, v1alpha1.PlanDigests) {
	r.t.Helper()
	set, err := policy.Load([]policy.Source{{Files: []policy.File{{Path: "tier.rego", Data: []byte(rego)}}}}, policy.LoadOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	digest := v1alpha1.Digest(set.Digest("acme.tier"))
	digests := v1alpha1.PlanDigests{Package: digest, Parameters: v1alpha1.Digest(strings.Repeat("0", 60) + tier)}
	return set, []policy.Binding{{Name: "tier", Package: "acme.tier", Parameters: map[string]any{"tier": tier}}}, digests
}

func bind(uid types.UID, digests v1alpha1.PlanDigests) map[string]Policy {
	return map[string]Policy{"tier": {UID: uid, Digests: digests}}
}

// known is an author who is proven.
func known(name string) func() (string, bool) { return func() (string, bool) { return name, true } }

// configure makes a version take effect, and returns what the status shows then.
func (r *versionRig) configure(rego, tier string, fp *v1alpha1.FleetPolicy, at time.Time) []v1alpha1.PolicyVersion {
	r.t.Helper()
	set, bindings, digests := r.load(rego, tier)
	r.v.Configure(bind(fp.UID, digests))
	changes, err := r.engine.Configure(r.t.Context(), set, bindings)
	if err != nil {
		r.t.Fatal(err)
	}
	r.v.Observe(changes, nil)
	r.v.Configured(true)
	return r.v.Of(fp, Version{Digests: digests, Origin: &v1alpha1.Origin{Source: "git"}, Signer: "eve", Author: known("bob")}, at)
}

func newVersionRig(t *testing.T, snapshot *aggregate.Snapshot) *versionRig {
	t.Helper()
	r := &versionRig{t: t, v: New()}
	set, _, _ := r.load(tierPolicy, "gold")
	var err error
	if r.engine, err = policy.NewEngine(policy.EngineOptions{Set: set}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.engine.Reset(t.Context(), snapshot, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLog_SayWhatTheyChanged(t *testing.T) {
	manifests, err := offline.New(offline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for member, tiers := range map[string]string{"fleet/eu-1": "gold silver silver", "fleet/us-1": "gold"} {
		for i, tier := range strings.Fields(tiers) {
			object := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: shop, labels: {tier: %s}}\n", i, tier)
			if err := manifests.Add("objects", strings.NewReader(object), member); err != nil {
				t.Fatal(err)
			}
		}
	}
	x, err := manifests.Index(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newVersionRig(t, x.Snapshot())
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	fp := &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u", Generation: 1}}

	first := r.configure(tierPolicy, "gold", fp, at)
	if len(first) != 1 || first[0].Changes != nil || first[0].By != "eve" || first[0].Origin.Source != "git" {
		t.Fatalf("the first version is %+v", first)
	}
	_, _, digests := r.load(tierPolicy, "gold")
	if again := r.v.Of(fp, Version{Digests: digests}, at.Add(time.Hour)); !again[0].Since.Time.Equal(at) {
		t.Errorf("while it is not stored, it began at %s, not at %s", again[0].Since, at)
	}
	fp.Status.Versions = first

	// Other parameters: two violations of silver vanish, and two of gold appear.
	second := r.configure(tierPolicy, "silver", fp, at.Add(time.Minute))
	if len(second) != 2 || second[1].By != "bob" || second[1].Package != first[0].Package || second[1].Changes == nil {
		t.Fatalf("the second version is %+v", second)
	}
	if c := *second[1].Changes; c != (v1alpha1.VersionChanges{Appeared: 2, Vanished: 2, Members: 2}) {
		t.Errorf("other parameters changed %+v", c)
	}
	fp.Status.Versions = second

	// What a configuration changes without another version is not the version's: not what a leader shows that has
	// only observed both.
	set, bindings, silver := r.load(tierPolicy, "silver")
	r.v.Configure(bind("u", silver))
	bindings[0].Members = policy.MemberSelector{Names: []string{"fleet/eu-1"}}
	changes, err := r.engine.Configure(t.Context(), set, bindings)
	if err != nil {
		t.Fatal(err)
	}
	r.v.Observe(changes, nil)
	r.v.Configured(true)
	r.v.Prune(nil) // as a process that was no leader
	stale := fp.DeepCopy()
	stale.Status.Versions = first
	later := r.v.Of(stale, Version{Digests: silver}, at.Add(time.Minute))
	if c := *later[1].Changes; c != (v1alpha1.VersionChanges{Appeared: 2, Vanished: 2, Members: 2}) {
		t.Errorf("with what another selection has changed, the version is said to have changed %+v", c)
	}
	bindings[0].Members = policy.MemberSelector{}
	if _, err := r.engine.Configure(t.Context(), set, bindings); err != nil {
		t.Fatal(err)
	}

	// Other rules come from a commit, by who signed it.
	third := r.configure(strings.Replace(tierPolicy, "if input.object", "if not input.object", 1), "silver", fp, at.Add(2*time.Minute))
	if len(third) != 3 || third[2].By != "eve" || third[2].Changes == nil || *third[2].Changes != (v1alpha1.VersionChanges{Appeared: 2, Vanished: 2, Members: 2}) {
		t.Fatalf("the third version is %+v", third)
	}

	// The list is bounded.
	fp.Status.Versions = nil
	for i := range v1alpha1.MaxVersions + 5 {
		fp.Status.Versions = r.configure(tierPolicy, []string{"gold", "silver"}[i%2], fp, at.Add(time.Duration(i)*time.Hour))
	}
	if n := len(fp.Status.Versions); n != v1alpha1.MaxVersions {
		t.Errorf("%d versions are kept, want %d", n, v1alpha1.MaxVersions)
	}
	if r.v.Prune(nil); len(r.v.began) != 0 {
		t.Errorf("of policies that are no more %d versions are remembered", len(r.v.began))
	}
}

// inGold returns a policy that wants gold, in a fleet with one object, which has that.
func inGold(t *testing.T) (*versionRig, *v1alpha1.FleetPolicy) {
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
	r, fp := newVersionRig(t, index.Snapshot()), &v1alpha1.FleetPolicy{ObjectMeta: metav1.ObjectMeta{Name: "tier", UID: "u"}}
	fp.Status.Versions = r.configure(tierPolicy, "gold", fp, time.Now())
	return r, fp
}

// TestLog_TimePassesMeanwhile has time alone change verdicts after a version took effect, and before that is noted.
func TestLog_TimePassesMeanwhile(t *testing.T) {
	t.Parallel()
	r, fp := inGold(t)
	set, bindings, digests := r.load(tierPolicy, "silver")
	r.v.Configure(bind("u", digests))
	for range 2 { // the second time nothing differs, as where the loop lets time pass
		changes, err := r.engine.Configure(t.Context(), set, bindings)
		if err != nil {
			t.Fatal(err)
		}
		r.v.Observe(changes, nil)
	}
	r.v.Configured(true)
	got := r.v.Of(fp, Version{Digests: digests, Origin: &v1alpha1.Origin{Source: "git"}}, time.Now())
	if last := got[len(got)-1]; last.Changes == nil || last.Changes.Appeared != 1 {
		t.Errorf("the version changed %+v", last.Changes)
	}
}

// TestLog_AfterWaves: what changes in the last members is not all that a version has changed.
func TestLog_AfterWaves(t *testing.T) {
	t.Parallel()
	r, fp := inGold(t)
	_, _, gold := r.load(tierPolicy, "gold")
	r.v.Configure(map[string]Policy{"tier": {UID: "u", Digests: gold, Partly: true}})
	r.v.Configured(true)
	if got := r.v.Of(fp, Version{Digests: gold}, time.Now()); len(got) != 1 {
		t.Errorf("a version in waves has taken effect: %+v", got)
	}
	got := r.configure(tierPolicy, "silver", fp, time.Now())
	if len(got) != 2 || got[1].Changes != nil {
		t.Errorf("%+v", got)
	}
}
