package versions

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"federator.dev/federator/api/v1alpha1"
)

func raw(text string) *runtime.RawExtension {
	if text == "" {
		return nil
	}
	return &runtime.RawExtension{Raw: []byte(text)}
}

// version returns what Decide makes of a package, named as its digest, with parameters.
func version(t *testing.T, pkg, parameters string) *Version {
	t.Helper()
	v, err := newVersion(Package{pkg, v1alpha1.Digest(pkg)}, raw(parameters))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func effective(t *testing.T, pkg, parameters string) *v1alpha1.EffectiveVersion {
	t.Helper()
	return &v1alpha1.EffectiveVersion{Digest: version(t, pkg, parameters).Digest, Package: v1alpha1.Digest(pkg), Parameters: raw(parameters)}
}

func candidate(t *testing.T, pkg, parameters string, phase v1alpha1.RolloutPhase) *v1alpha1.CandidateVersion {
	t.Helper()
	return &v1alpha1.CandidateVersion{Digest: version(t, pkg, parameters).Digest, Package: v1alpha1.Digest(pkg), Phase: phase, Waves: 1, Message: "why"}
}

// text shows a version, "-" for none.
func text(v *Version) string {
	if v == nil {
		return "-"
	}
	out := v.Package
	if v.Parameters != nil {
		out += string(v.Parameters.Raw)
	}
	return out
}

// TestDecide: former, next and phase, what is corrected, what is in effect everywhere, and what is
// recorded. The active package is A, and its candidate C.
func TestDecide(t *testing.T) {
	t.Parallel()
	const one, two = `{"n":1}`, `{"n":2}`
	active, next := Package{"A", "A"}, Package{"C", "C"}
	shadow, waves, promoted, takenBack := v1alpha1.RolloutShadow, v1alpha1.RolloutWaves, v1alpha1.RolloutPromoted, v1alpha1.RolloutTakenBack
	status := func(e *v1alpha1.EffectiveVersion, c *v1alpha1.CandidateVersion) *v1alpha1.PolicyRolloutStatus {
		return &v1alpha1.PolicyRolloutStatus{Effective: e, Candidate: c}
	}
	rolls := &v1alpha1.VersionRollout{}
	for _, c := range []struct {
		name   string
		policy Policy
		want   string
	}{
		{
			"no rollout",
			Policy{Active: active, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "A", two, shadow))},
			`A{"n":2} > - , corrected A{"n":2}, everywhere A{"n":2}, recorded nothing`,
		},
		{
			"no rollout, where the source has one because of others",
			Policy{Active: active, Candidate: next, Parameters: raw(one)},
			`A{"n":1} > C{"n":1} Promoted, corrected C{"n":1}, everywhere C{"n":1}, recorded nothing`,
		},
		{
			"nothing is recorded yet",
			Policy{Rollout: rolls, Active: active, Parameters: raw(one)},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"as recorded",
			Policy{Rollout: rolls, Active: active, Parameters: raw(` {"n": 1}`), Status: status(effective(t, "A", one), nil)},
			`A {"n": 1} > - , corrected A {"n": 1}, everywhere A {"n": 1}, recorded A{"n":1}`,
		},
		{
			"other parameters",
			Policy{Rollout: rolls, Active: active, Parameters: raw(two), Status: status(effective(t, "A", one), nil)},
			`A{"n":1} > A{"n":2} Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"no parameters any more",
			Policy{Rollout: rolls, Active: active, Status: status(effective(t, "A", one), nil)},
			`A{"n":1} > A Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"in waves",
			Policy{Rollout: rolls, Active: active, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "A", two, waves))},
			`A{"n":1} > A{"n":2} Waves, corrected A{"n":2}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"others again",
			Policy{Rollout: rolls, Active: active, Parameters: raw(`{"n":3}`), Status: status(effective(t, "A", one), candidate(t, "A", two, waves))},
			`A{"n":1} > A{"n":3} Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"the former ones again",
			Policy{Rollout: rolls, Active: active, Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "A", two, takenBack))},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"taken back",
			Policy{Rollout: rolls, Active: active, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "A", two, takenBack))},
			`A{"n":1} > A{"n":2} TakenBack, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"promoted",
			Policy{Rollout: rolls, Active: active, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "A", two, promoted))},
			`A{"n":2} > - , corrected A{"n":2}, everywhere A{"n":2}, recorded A{"n":2}`,
		},
		{
			"another package, which does not roll out",
			Policy{Rollout: rolls, Active: active, Parameters: raw(two), Status: status(effective(t, "B", one), nil)},
			`A{"n":2} > - , corrected A{"n":2}, everywhere A{"n":2}, recorded A{"n":2}`,
		},
		{
			"a candidate",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one), Status: status(effective(t, "A", one), nil)},
			`A{"n":1} > C{"n":1} Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a candidate before anything is recorded",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one)},
			`A{"n":1} > C{"n":1} Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a candidate, and other parameters",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "C", one, waves))},
			`A{"n":1} > C{"n":2} Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a candidate of a package that is recorded no more",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(two), Status: status(effective(t, "B", one), nil)},
			`A{"n":2} > C{"n":2} Shadow, corrected A{"n":2}, everywhere A{"n":2}, recorded A{"n":2}`,
		},
		{
			"a candidate, promoted, until its commit is active",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, promoted))},
			`C{"n":1} > - , corrected C{"n":1}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"promoted and recorded, until its commit is active",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one), Status: status(effective(t, "C", one), nil)},
			`C{"n":1} > - , corrected C{"n":1}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"other parameters until its commit is active",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(two), Status: status(effective(t, "C", one), nil)},
			`C{"n":1} > C{"n":2} Shadow, corrected C{"n":1}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"other parameters before it is recorded what was promoted",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "C", one, promoted))},
			`C{"n":1} > C{"n":2} Shadow, corrected C{"n":1}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"other parameters, and its commit is active",
			Policy{Rollout: rolls, Active: next, Parameters: raw(two), Status: status(effective(t, "C", one), candidate(t, "C", two, waves))},
			`C{"n":1} > C{"n":2} Waves, corrected C{"n":2}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"promoted, after a start, before its package is read",
			Policy{Rollout: rolls, Active: active, Unsettled: true, Parameters: raw(two), Status: status(effective(t, "C", one), candidate(t, "C", two, waves))},
			`A{"n":2} > - , corrected A{"n":2}, everywhere -, recorded C{"n":1} and Waves`,
		},
		{
			"promoted, and another commit takes its place",
			Policy{Rollout: rolls, Active: active, Candidate: Package{"D", "D"}, Parameters: raw(one), Status: status(effective(t, "C", one), nil)},
			`A{"n":1} > D{"n":1} Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"promoted, and its source was taken back",
			Policy{Rollout: rolls, Active: active, Candidate: next, Unsettled: true, TakenBack: "why", Parameters: raw(one), Status: status(effective(t, "C", one), nil)},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a commit with parameters",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one), Manifest: &Manifest{raw(two)}, Status: status(effective(t, "A", one), candidate(t, "C", two, waves))},
			`A{"n":1} > C{"n":2} Waves, corrected C{"n":2}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a commit with parameters, promoted",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one), Manifest: &Manifest{raw(two)}, Status: status(effective(t, "A", one), candidate(t, "C", two, promoted))},
			`C{"n":2} > - , corrected C{"n":2}, everywhere C{"n":2}, recorded C{"n":2}`,
		},
		{
			"a commit without parameters",
			Policy{Rollout: rolls, Active: active, Candidate: next, Parameters: raw(one), Manifest: &Manifest{}, Status: status(effective(t, "A", one), nil)},
			`A{"n":1} > C Shadow, corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a commit with parameters is active, and its manifests are not applied yet",
			Policy{Rollout: rolls, Active: next, Unsettled: true, Parameters: raw(one), Status: status(effective(t, "C", two), nil)},
			`C{"n":2} > - , corrected C{"n":2}, everywhere C{"n":2}, recorded C{"n":2}`,
		},
		{
			"its manifests are applied",
			Policy{Rollout: rolls, Active: next, Parameters: raw(two), Status: status(effective(t, "C", two), nil)},
			`C{"n":2} > - , corrected C{"n":2}, everywhere C{"n":2}, recorded C{"n":2}`,
		},
		{
			"in shadow, and active without its rollout",
			Policy{Rollout: rolls, Active: next, Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, shadow))},
			`- > C{"n":1} Shadow, corrected C{"n":1}, everywhere -, recorded -`,
		},
		{
			"taken back, and active without its rollout",
			Policy{Rollout: rolls, Active: next, Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, takenBack))},
			`- > C{"n":1} TakenBack, corrected C{"n":1}, everywhere -, recorded -`,
		},
		{
			"taken back, and active with other parameters",
			Policy{Rollout: rolls, Active: next, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "C", one, takenBack))},
			`- > C{"n":2} Shadow, corrected C{"n":2}, everywhere -, recorded -`,
		},
		{
			"its commit is active",
			Policy{Rollout: rolls, Active: next, Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, promoted))},
			`C{"n":1} > - , corrected C{"n":1}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"its source was taken back",
			Policy{Rollout: rolls, Active: active, Candidate: next, TakenBack: "why", Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, waves))},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"its source was taken back, and its package is gone",
			Policy{Rollout: rolls, Active: active, Unsettled: true, TakenBack: "why", Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, waves))},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"after a start, before its package is read",
			Policy{Rollout: rolls, Active: active, Unsettled: true, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "C", two, waves))},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1} and Waves`,
		},
		{
			"the commit was reverted",
			Policy{Rollout: rolls, Active: active, Parameters: raw(one), Status: status(effective(t, "A", one), candidate(t, "C", one, waves))},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"other parameters while the source is unsettled",
			Policy{Rollout: rolls, Active: active, Unsettled: true, Parameters: raw(two), Status: status(effective(t, "A", one), candidate(t, "A", two, waves))},
			`A{"n":1} > A{"n":2} Waves, corrected A{"n":2}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a candidate of the same digest",
			Policy{Rollout: rolls, Active: active, Candidate: Package{"C", "A"}, Parameters: raw(one), Status: status(effective(t, "A", one), nil)},
			`A{"n":1} > - , corrected A{"n":1}, everywhere A{"n":1}, recorded A{"n":1}`,
		},
		{
			"a new package",
			Policy{Rollout: rolls, Candidate: next, Parameters: raw(one)},
			`- > C{"n":1} Shadow, corrected C{"n":1}, everywhere -, recorded -`,
		},
		{
			"a new package, promoted",
			Policy{Rollout: rolls, Candidate: next, Parameters: raw(one), Status: status(nil, candidate(t, "C", one, promoted))},
			`C{"n":1} > - , corrected C{"n":1}, everywhere C{"n":1}, recorded C{"n":1}`,
		},
		{
			"a new package, taken back with its source",
			Policy{Rollout: rolls, Candidate: next, TakenBack: "why"},
			`- > - , corrected -, everywhere -, recorded -`,
		},
	} {
		p, err := Decide(&c.policy)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		recorded := "nothing"
		if st := p.Status(); st != nil {
			recorded = "-"
			if e := st.Effective; e != nil {
				recorded = text(&Version{Package: string(e.Package), Parameters: e.Parameters})
			}
			if st.Candidate != nil {
				recorded += " and " + string(st.Candidate.Phase)
			}
		}
		got := fmt.Sprintf("%s > %s %s, corrected %s, everywhere %s, recorded %s", text(p.Former), text(p.Next), p.Phase, text(p.InEffect()), text(p.Everywhere()), recorded)
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
	if _, err := Decide(&Policy{Rollout: rolls, Active: active, Parameters: raw("{")}); err == nil {
		t.Error("parameters that are no JSON")
	}
}

// TestPlan_ByCommit: an Approval of a commit is one of what the commit changes.
func TestPlan_ByCommit(t *testing.T) {
	t.Parallel()
	one, two := version(t, "C", `{"n":1}`), version(t, "C", `{"n":2}`)
	for name, c := range map[string]struct {
		plan Plan
		want bool
	}{
		"another package":                        {Plan{Former: version(t, "A", `{"n":1}`), Next: one}, true},
		"other parameters":                       {Plan{Former: one, Next: two}, false},
		"another package and other parameters":   {Plan{Former: version(t, "A", `{"n":1}`), Next: two}, false},
		"those of its manifest":                  {Plan{Former: version(t, "A", `{"n":1}`), Next: two, manifest: true}, true},
		"a new package":                          {Plan{Next: version(t, "C", "")}, true},
		"a new package, with parameters":         {Plan{Next: one}, false},
		"a new package, and those of its commit": {Plan{Next: one, manifest: true}, true},
		"none":                                   {Plan{Former: one}, false},
	} {
		if got := c.plan.ByCommit(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestParameters_HoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	digest := func(text string) v1alpha1.Digest {
		_, d, err := Parameters(raw(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if digest(`{"a":1,"b":[2]}`) != digest(`{ "b": [2], "a": 1 }`) {
		t.Error("another order is another version")
	}
	if digest(`{"a":12345678901234567890}`) == digest(`{"a":12345678901234567891}`) {
		t.Error("large numbers are not told apart")
	}
}
