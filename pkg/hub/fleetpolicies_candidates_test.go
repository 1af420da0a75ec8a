package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/promotion"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// tierSet is a set with package acme.tier, whose parameters have a schema.
func tierSet(t *testing.T, schema string) *policy.Set {
	t.Helper()
	set, err := policy.Load([]policy.Source{{Name: "team", Files: []policy.File{{Path: "t.rego", Data: []byte(
		"# METADATA\n# title: Tiers\n# custom: {severity: low, kinds: [ConfigMap], parameters: {type: object, additionalProperties: false, " + schema + "}}\npackage acme.tier\n\n" +
			"violation contains {\"msg\": \"m\"} if input.object.metadata.labels.tier != input.parameters.tier\n",
	)}}}}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// committed is a commit that rolls out, with another version of package acme.tier, and a FleetPolicy in effect.
type committed struct {
	t       *testing.T
	active  *policy.Set // before and once the commit is active
	next    *policy.Set
	set     *policy.Set // both
	origins map[string]Origin
	fp      *v1alpha1.FleetPolicy
	knows   *whatIsKnown
}

func commitOf(t *testing.T, schema string) *committed {
	t.Helper()
	c := &committed{t: t, active: tierSet(t, "properties: {tier: {type: string, default: gold}}"), next: tierSet(t, schema), fp: tierPolicy("gold"), knows: &whatIsKnown{}}
	c.set = policy.Beside(c.active, []policy.Candidate{{Source: "team", Set: c.next}})
	allowed := &enforce.Ceiling{Mode: policy.Enforce}
	c.origins = map[string]Origin{
		"acme.tier": {Source: "team", Commit: "old", Ceiling: allowed}, c.set.Candidate("acme.tier"): {Source: "team", Commit: "new", Ceiling: allowed},
	}
	r, why := rollingOf(c.active, c.fp, c.origins, c.knows)
	if r == nil {
		t.Fatal(why)
	}
	c.fp.Status.Rollout = r.Status()
	return c
}

func (c *committed) rolling(set *policy.Set) (*rolling, policy.Binding, enforce.EnforcementSpec) {
	c.t.Helper()
	r, why := rollingOf(set, c.fp, c.origins, c.knows)
	if r == nil {
		c.t.Fatal(why)
	}
	b, spec, why := bindingFor(set, c.fp, r, c.origins)
	if why.reason != "" {
		c.t.Fatal(why)
	}
	return r, b, spec
}

// step records what the leader decides now: with complete evidence or none.
func (c *committed) step(complete bool) *v1alpha1.PolicyRolloutStatus {
	c.t.Helper()
	r, _, spec := c.rolling(c.set)
	f := decider(c.t, r, spec)
	f.opts.Library, f.origins = c.knows, c.origins
	st := f.rolloutOf(c.fp, r, &remediate.Status{})
	if complete && r.Next != nil {
		terms, err := promotion.TermsOf(r.rollout, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		facts := promotion.Facts{Refused: r.refused, Approved: f.shadowEnds(c.fp, r)}
		st.Candidate = r.Step(c.fp.Status.Rollout, &terms, &facts, &v1alpha1.RolloutEvidence{Complete: true, Subjects: 5}, nil, time.Now())
	}
	c.fp.Status.Rollout = st
	return st
}

// commitIsActive has the commit active, and nothing beside it.
func (c *committed) commitIsActive(hold string) {
	c.set, c.origins = c.next, map[string]Origin{"acme.tier": {Source: "team", Commit: "new", Hold: hold, Ceiling: c.origins["acme.tier"].Ceiling}}
}

const withSize = "properties: {tier: {type: string, default: gold}, size: {type: string}}"

// TestRolling_PromotedUntilItsCommitIsActive: it is the version in effect, which it stays, and one of a person's
// parameters takes its place as of any other.
func TestRolling_PromotedUntilItsCommitIsActive(t *testing.T) {
	c := commitOf(t, withSize)
	name := c.set.Candidate("acme.tier")
	c.knows.approved = "new"
	if st := c.step(true); st.Candidate.Phase != v1alpha1.RolloutPromoted {
		t.Fatalf("%+v", st.Candidate)
	}
	promoted := c.fp.Status.Rollout.Candidate.Digest
	r, b, spec := c.rolling(c.set)
	if b.Package != name || b.Next != nil || b.Version != shortDigest(promoted) || spec.Commit != "new" || spec.Rollout != nil || spec.Hold != "" || r.Everywhere().Digest != promoted {
		t.Errorf("%+v, %+v", b, spec)
	}
	if own := defaultBindings(c.set, []policy.Binding{b}); len(own) != 0 {
		t.Errorf("its package is bound once more: %+v", own)
	}
	if st := c.step(true); st.Candidate != nil || st.Effective.Digest != promoted || st.Effective.Package != v1alpha1.Digest(c.set.Digest(name)) {
		t.Errorf("%+v", st)
	}
	// A person changes a parameter, which nobody has approved.
	c.fp.Spec.Parameters = tierPolicy("platinum").Spec.Parameters
	if st := c.step(true); st.Effective.Digest != promoted || st.Candidate.Phase != v1alpha1.RolloutShadow {
		t.Errorf("%+v", st)
	}
	if _, b, spec := c.rolling(c.set); b.Package != name || b.Parameters["tier"] != "gold" || b.Next == nil || b.Next.Binding.Package != name || b.Next.Binding.Parameters["tier"] != "platinum" || len(b.Next.Members) != 0 || spec.Version != shortDigest(promoted) {
		t.Errorf("%+v, %+v", b, spec)
	}
	c.fp.Spec.Parameters = tierPolicy("gold").Spec.Parameters
	c.step(true)
	c.commitIsActive("")
	if r, b, s := c.rolling(c.set); b.Package != "acme.tier" || b.Next != nil || b.Version != shortDigest(promoted) || s.Generation != spec.Generation || r.Next != nil {
		t.Errorf("once its commit is active: %+v, generation %s, was %s", b, s.Generation, spec.Generation)
	}
}

// TestRolloutOf_RecordsWhatIsPromoted at once: its parameters are not in the record of a candidate.
func TestRolloutOf_RecordsWhatIsPromoted(t *testing.T) {
	c := commitOf(t, withSize)
	r, _, spec := c.rolling(c.set)
	c.fp.Status.Rollout.Candidate = &v1alpha1.CandidateVersion{Digest: r.Next.Digest, Package: r.Next.Digests.Package, Phase: v1alpha1.RolloutPromoted}
	r.Phase = v1alpha1.RolloutWaves // as it was decided on
	f := decider(t, r, spec)
	f.opts.Library, f.origins = c.knows, c.origins
	if st := f.rolloutOf(c.fp, r, &remediate.Status{}); st.Candidate.Phase != v1alpha1.RolloutPromoted || st.Effective.Digest != r.Next.Digest || st.Effective.Package != r.Next.Digests.Package {
		t.Errorf("%+v, effective %+v", st.Candidate, st.Effective)
	}
}

// TestRolling_ApprovalOfACommit ends the shadow of what the commit changes, and of nothing that people add to that.
func TestRolling_ApprovalOfACommit(t *testing.T) {
	for name, parameters := range map[string]*runtime.RawExtension{"": nil, "another tier": {Raw: []byte(`{"tier":"platinum"}`)}} {
		c := commitOf(t, withSize)
		c.knows.approved = "new"
		if parameters != nil {
			c.fp.Spec.Parameters = parameters
		}
		want := v1alpha1.RolloutPromoted
		if parameters != nil {
			want = v1alpha1.RolloutShadow
		}
		if st := c.step(true); st.Candidate.Phase != want {
			t.Errorf("%s: %+v, want %s", name, st.Candidate, want)
		}
		if c.knows.parameters, c.knows.fromCommit = parameters, true; parameters == nil {
			continue
		}
		if st := c.step(true); st.Candidate.Phase != v1alpha1.RolloutPromoted {
			t.Errorf("%s of its own manifest: %+v", name, st.Candidate)
		}
	}
}

// TestRolling_CommitWithAPackageAndItsParameters is judged with those, from its shadow until its manifests are applied.
func TestRolling_CommitWithAPackageAndItsParameters(t *testing.T) {
	c := commitOf(t, "required: [size], "+withSize)
	c.knows.approved, c.knows.parameters, c.knows.fromCommit = "new", &runtime.RawExtension{Raw: []byte(`{"size":"big","tier":"gold"}`)}, true
	_, b, _ := c.rolling(c.set)
	if b.Parameters["size"] != nil || b.Next == nil || b.Next.Binding.Parameters["size"] != "big" {
		t.Fatalf("%+v", b)
	}
	if st := c.step(false); st.Candidate.Phase != v1alpha1.RolloutShadow {
		t.Fatalf("%+v", st.Candidate)
	}
	c.step(true)
	if st := c.step(true); st.Candidate != nil || !strings.Contains(string(st.Effective.Parameters.Raw), "big") {
		t.Fatalf("%+v", st)
	}
	promoted := c.fp.Status.Rollout.Effective.Digest
	// The spec still has the parameters of the former commit, with which the package could not be.
	c.commitIsActive("the FleetPolicies of source \"team\" are not applied yet")
	c.knows.parameters, c.knows.fromCommit = nil, false
	r, b, spec := c.rolling(c.set)
	if r.Next != nil || b.Package != "acme.tier" || b.Parameters["size"] != "big" || b.Next != nil || spec.Hold == "" {
		t.Errorf("%+v, %+v", b, spec)
	}
	if st := c.step(true); st.Candidate != nil || st.Effective.Digest != promoted {
		t.Errorf("%+v", st)
	}
	c.commitIsActive("")
	c.fp.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"tier":"gold", "size":"big"}`)}
	if r, b, spec := c.rolling(c.set); r.Next != nil || b.Version != shortDigest(promoted) || spec.Hold != "" {
		t.Errorf("%+v, %+v", b, spec)
	}
}

// TestRolling_ActiveWithoutItsRollout is observed as in shadow, and as taken back.
func TestRolling_ActiveWithoutItsRollout(t *testing.T) {
	for phase, want := range map[v1alpha1.RolloutPhase]string{v1alpha1.RolloutShadow: "is in shadow", v1alpha1.RolloutTakenBack: "was taken back: it finds too much"} {
		c := commitOf(t, withSize)
		c.step(false).Candidate.Phase, c.fp.Status.Rollout.Candidate.Message = phase, "it finds too much"
		c.commitIsActive("")
		if _, b, spec := c.rolling(c.set); !strings.HasSuffix(spec.Hold, want) || b.Package != "acme.tier" || b.Next != nil {
			t.Errorf("%s: hold %q, %+v", phase, spec.Hold, b)
		}
	}
}

// TestRolling_ParametersTooLarge: those in effect are in the status as well, and together they are no more than what the hub stores.
func TestRolling_ParametersTooLarge(t *testing.T) {
	fp, origins, set := tierPolicy(strings.Repeat("g", maxParameters)), map[string]Origin{"acme.tier": {}}, tiers(t)
	of := func(fp *v1alpha1.FleetPolicy) (policy.Binding, enforce.EnforcementSpec, policyProblem) {
		t.Helper()
		r, why := rollingOf(set, fp, origins, &whatIsKnown{})
		if r == nil {
			t.Fatal(why)
		}
		return bindingFor(set, fp, r, origins)
	}
	if _, _, why := of(fp); why.reason != "Invalid" || !strings.Contains(why.message, fmt.Sprint("at most ", maxParameters)) {
		t.Errorf("%+v", why)
	}
	// Where others are in effect, they stay so.
	was := recorded(t, set)
	was.Spec.Parameters = fp.Spec.Parameters
	if b, spec, why := of(was); why.reason != "" || b.Parameters["tier"] != "gold" || b.Next != nil || !strings.Contains(spec.Hold, fmt.Sprint("at most ", maxParameters)) {
		t.Errorf("%+v, hold %q", why, spec.Hold)
	}
	if fp.Spec.Rollout = nil; true {
		if _, _, why := of(fp); why.reason != "" {
			t.Errorf("they do not roll out: %+v", why)
		}
	}
}

// TestRolloutOf_ModeLoweredInWaves: by a person who does not like what the first wave shows. Nothing else is known, as after a
// failover, and the version takes its place nowhere else.
func TestRolloutOf_ModeLoweredInWaves(t *testing.T) {
	set, origins := tiers(t), map[string]Origin{"acme.tier": {}}
	for name, change := range map[string]func(*v1alpha1.FleetPolicySpec){
		"mode": func(s *v1alpha1.FleetPolicySpec) { s.Mode = v1alpha1.Observe }, "waves": func(s *v1alpha1.FleetPolicySpec) { s.Waves = nil },
	} {
		fp := recorded(t, set)
		wanted, _ := rollingOf(set, fp, origins, &whatIsKnown{})
		now := metav1.Now()
		fp.Status.Rollout.Candidate = &v1alpha1.CandidateVersion{Digest: wanted.Next.Digest, Package: wanted.Next.Digests.Package, Phase: v1alpha1.RolloutWaves, Waves: 1, Began: now, Since: now}
		change(&fp.Spec)
		r, _ := rollingOf(set, fp, origins, &whatIsKnown{})
		_, spec, why := bindingFor(set, fp, r, origins)
		if why.reason != "" {
			t.Fatal(why)
		}
		if (spec.Hold != "") != (name == "waves") {
			t.Errorf("%s: hold %q", name, spec.Hold)
		}
		if c := decider(t, r, spec).rolloutOf(fp, r, &remediate.Status{}).Candidate; c.Phase != v1alpha1.RolloutWaves || c.Waves != 1 {
			t.Errorf("%s: from wave 1 of 3 to %s, evidence %+v", name, c.Phase, c.Evidence)
		}
	}
}

// TestSourceStatusDue_EvidenceWaits as that of FleetPolicies does.
func TestSourceStatusDue_EvidenceWaits(t *testing.T) {
	status := func(phase v1alpha1.RolloutPhase, subjects int64) *v1alpha1.PolicySourceStatus {
		return &v1alpha1.PolicySourceStatus{Rollout: &v1alpha1.SourceRolloutStatus{Phase: phase, Evidence: &v1alpha1.RolloutEvidence{Complete: true, Subjects: subjects}}}
	}
	is, now := status(v1alpha1.RolloutShadow, 1), time.Now()
	first := status(v1alpha1.RolloutShadow, 1)
	first.Rollout.Evidence = nil
	for name, c := range map[string]struct {
		old, next *v1alpha1.PolicySourceStatus
		after     time.Duration
		want      bool
	}{
		"the same":        {is, status(v1alpha1.RolloutShadow, 1), time.Hour, false},
		"evidence":        {is, status(v1alpha1.RolloutShadow, 2), time.Second, false},
		"evidence, later": {is, status(v1alpha1.RolloutShadow, 2), countersInterval, true},
		"the first":       {first, is, time.Second, true},
		"another phase":   {is, status(v1alpha1.RolloutWaves, 2), time.Second, true},
	} {
		if got := sourceStatusDue(c.old, c.next, now, now.Add(c.after)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestDefaultBindings_HaveWhatACommitAdds: named as it will be, so that its verdicts go on once the commit is active.
func TestDefaultBindings_HaveWhatACommitAdds(t *testing.T) {
	load := func(packages ...string) *policy.Set {
		source := policy.Source{Name: "team"}
		for _, name := range packages {
			source.Files = append(source.Files, policy.File{Path: name + ".rego", Data: []byte(
				"# METADATA\n# title: T\n# custom: {severity: low, kinds: [ConfigMap]}\npackage acme." + name + "\n\nviolation contains {\"msg\": \"m\"} if input.object.data.x\n",
			)})
		}
		set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := policy.Beside(load("old"), []policy.Candidate{{Source: "team", Set: load("old", "added")}})
	got := defaultBindings(set, nil)
	if len(got) != 2 || got[1].Name != "acme.added" || got[1].Package != set.Candidate("acme.added") || got[1].Mode != policy.Observe || len(got[1].Version) != 12 {
		t.Errorf("%+v", got)
	}
	own := []policy.Binding{{Name: "mine", Package: set.Candidate("acme.added")}}
	if got := defaultBindings(set, own); len(got) != 1 {
		t.Errorf("it has a FleetPolicy: %+v", got)
	}
}

// TestRolling_PromotedUntilANewerCommitIs: a commit that replaces one for which others still waited does not bring the
// active package back meanwhile.
func TestRolling_PromotedUntilANewerCommitIs(t *testing.T) {
	const more = "properties: {tier: {type: string, default: gold}, more: {type: string}}"
	c := commitOf(t, more)
	c.step(true)
	c.fp.Status.Rollout.Candidate.Phase = v1alpha1.RolloutPromoted
	c.step(false)
	promoted := c.set.Candidate("acme.tier")

	newest := tierSet(t, "properties: {tier: {type: string, default: gold}, most: {type: string}}")
	set := policy.Beside(c.active, []policy.Candidate{{Source: "team", Set: newest, Former: []*policy.Set{c.next}}})
	c.origins[set.Candidate("acme.tier")] = Origin{Source: "team", Commit: "newest", Ceiling: c.origins["acme.tier"].Ceiling}
	c.set = set
	r, b, spec := c.rolling(set)
	if b.Package != promoted || b.Next == nil || b.Next.Binding.Package != set.Candidate("acme.tier") || r.Phase != v1alpha1.RolloutShadow || spec.Commit != "new" || spec.Hold != "" {
		t.Errorf("%s, %s of commit %s, hold %q", b.Package, r.Phase, spec.Commit, spec.Hold)
	}
	// The record of the newer one has taken the place of the other's.
	c.step(true)
	if _, b, _ = c.rolling(set); b.Package != promoted {
		t.Errorf("%s is in effect", b.Package)
	}
	c.fp.Status.Rollout.Candidate.Phase = v1alpha1.RolloutPromoted
	if r, _, spec = c.rolling(set); r.InEffect().Package != set.Candidate("acme.tier") || spec.Commit != "newest" {
		t.Errorf("%s of commit %s", r.InEffect().Package, spec.Commit)
	}
	// Where the newer one is taken back, the last good commit is observed.
	c.fp.Status.Rollout.Candidate.Phase = v1alpha1.RolloutShadow
	c.knows.takenBack = "it finds too much"
	if _, b, _ = c.rolling(set); b.Package != "acme.tier" {
		t.Errorf("%s is in effect", b.Package)
	}
}

// TestRolloutOf_TakenBackBeginsAgain where people approve it after it was taken back: in shadow, which that Approval does not end.
func TestRolloutOf_TakenBackBeginsAgain(t *testing.T) {
	set := tiers(t)
	fp := recorded(t, set)
	w := &whatIsKnown{}
	step := func() *v1alpha1.CandidateVersion {
		t.Helper()
		r, why := rollingOf(set, fp, map[string]Origin{"acme.tier": {}}, w)
		if r == nil {
			t.Fatal(why)
		}
		f := decider(t, r, enforce.EnforcementSpec{})
		f.opts.Proofs = w
		fp.Status.Rollout = f.rolloutOf(fp, r, &remediate.Status{})
		return fp.Status.Rollout.Candidate
	}
	if c := step(); c == nil || c.Phase != v1alpha1.RolloutShadow {
		t.Fatalf("%+v", c)
	}
	now := time.Now()
	c := fp.Status.Rollout.Candidate
	c.Phase, c.Began, c.Since, c.Message = v1alpha1.RolloutTakenBack, metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now.Add(-time.Minute)), "it finds too much"
	c.Evidence = &v1alpha1.RolloutEvidence{Complete: true, New: 9, Subjects: 9}
	w.versionAt = now.Add(-2 * time.Minute) // of its shadow
	if c = step(); c.Phase != v1alpha1.RolloutTakenBack {
		t.Errorf("an older Approval lets it begin again: %+v", c)
	}
	w.versionAt = now
	if c = step(); c.Phase != v1alpha1.RolloutShadow || c.Evidence != nil || !c.Began.After(now) || !c.Since.Equal(&c.Began) {
		t.Errorf("%+v", c)
	}
	r, _ := rollingOf(set, fp, map[string]Origin{"acme.tier": {}}, w)
	f := decider(t, r, enforce.EnforcementSpec{})
	if f.opts.Proofs = w; f.shadowEnds(fp, r) {
		t.Error("the same Approval ends the shadow")
	}
	if r.OfPackage() {
		t.Error("its package is another")
	}
	// The hub's clock may be ahead of the one here.
	fp.Status.Rollout.Candidate.Phase, fp.Status.Rollout.Candidate.Since = v1alpha1.RolloutTakenBack, metav1.NewTime(now.Add(-time.Minute))
	w.versionAt = time.Now().Add(time.Minute).Truncate(time.Second)
	if c = step(); c.Phase != v1alpha1.RolloutShadow || !c.Began.After(w.versionAt) {
		t.Errorf("it begins again before the Approval of that: %+v", c)
	}
	if r, _ = rollingOf(set, fp, map[string]Origin{"acme.tier": {}}, w); f.shadowEnds(fp, r) {
		t.Error("the same Approval ends the shadow, by another clock")
	}
	// Another package was taken back with its commit.
	other := commitOf(t, withSize)
	other.step(true)
	other.fp.Status.Rollout.Candidate.Phase = v1alpha1.RolloutTakenBack
	if r, _, _ := other.rolling(other.set); r.mayBeginAgain() {
		t.Error("a commit begins again for one policy")
	}
}

func setOf(t *testing.T, files map[string]string) *policy.Set {
	t.Helper()
	source := policy.Source{Name: "team"}
	for path, text := range files {
		source.Files = append(source.Files, policy.File{Path: path, Data: []byte(text)})
	}
	set, err := policy.Load([]policy.Source{source}, policy.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func addedRule(pkg, label string) string {
	return "# METADATA\n# title: T\n# custom: {severity: low, kinds: [ConfigMap]}\npackage acme." + pkg + "\n\nviolation contains {\"msg\": \"m\"} if input.object.data." + label + "\n"
}

// TestDefaultBindings_OfTheNewestCommitOnly: a commit that rolled out before may have had versions of what another one adds, too.
func TestDefaultBindings_OfTheNewestCommitOnly(t *testing.T) {
	active := setOf(t, map[string]string{"old.rego": addedRule("old", "x")})
	former := setOf(t, map[string]string{"old.rego": addedRule("old", "x"), "added.rego": addedRule("added", "x"), "gone.rego": addedRule("gone", "x")})
	newest := setOf(t, map[string]string{"old.rego": addedRule("old", "x"), "added.rego": addedRule("added", "y")})
	set := policy.Beside(active, []policy.Candidate{{Source: "team", Set: newest, Former: []*policy.Set{former}}})
	got := defaultBindings(set, nil)
	if len(got) != 2 || got[1].Name != "acme.added" || got[1].Package != set.Candidate("acme.added") {
		t.Errorf("%+v", got)
	}
	if _, err := policy.ValidateBindings(set, got); err != nil {
		t.Error(err)
	}
}

// TestDefaultBindings_OfAPackageThatHadViewsOnly, or needed parameters: nothing was bound that its version could be judged beside.
func TestDefaultBindings_OfAPackageThatHadViewsOnly(t *testing.T) {
	views := "# METADATA\n# title: T\n# custom: {severity: low, kinds: [ConfigMap]}\npackage acme.views\n\nview.names[input.ref.name] contains 1\n"
	active := setOf(t, map[string]string{"p.rego": views})
	next := setOf(t, map[string]string{"p.rego": views + "\nviolation contains {\"msg\": \"m\"} if input.object.data.x\n"})
	set := policy.Beside(active, []policy.Candidate{{Source: "team", Set: next}})
	got := defaultBindings(set, nil)
	if len(got) != 1 || got[0].Name != "acme.views" || got[0].Package != set.Candidate("acme.views") {
		t.Errorf("%+v", got)
	}
}
