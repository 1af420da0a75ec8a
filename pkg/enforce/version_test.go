package enforce_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// rolling is version bbbb in the place of aaaa.
func rolling(promoted int) enforce.EnforcementSpec {
	return enforce.EnforcementSpec{
		Mode: policy.Enforce, Source: "git", Commit: "c2", Path: "new.rego", Generation: "2", Version: "bbbb",
		Waves: []enforce.Wave{{Name: "canary", Members: policy.MemberSelector{Names: []string{"fleet/a"}}}, {Name: "rest"}},
		Rollout: &enforce.VersionRollout{Promoted: promoted, Former: enforce.FormerVersion{
			Version: "aaaa", Generation: "1", Source: "git", Commit: "c1", Path: "old.rego",
		}},
	}
}

// verdictOf is a verdict of a version on a Deployment, with remedies for another or the same.
func verdictOf(version, name string, remedies ...policy.Remedy) *policy.Verdict {
	v := &policy.Verdict{Binding: "b", Version: version, Subject: policy.Subject{Ref: deployment(name)}, State: policy.Known}
	for n := range remedies {
		v.Violations = append(v.Violations, policy.Violation{Msg: fmt.Sprintf("%s of %s", name, version), Remedy: &remedies[n]})
	}
	return v
}

func deployment(name string) aggregate.Ref {
	return aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: name}
}

func patchOf(target, text string) policy.Remedy {
	return policy.Remedy{Action: "patch", Target: deployment(target), Patch: json.RawMessage(text)}
}

// attributed says what intents are of.
func attributed(a *fakeActor) string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, i := range a.policies["b"].intents {
		refused := ""
		if i.Refused != "" {
			refused = " refused"
		}
		parts = append(parts, fmt.Sprintf("%s %s%s: %s %s %s %s former %t", i.Remedy.Target.Name, i.Remedy.Patch, refused, i.Version, i.Source, i.Commit, i.Path, i.Former))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func startVersions(t *testing.T, names ...string) (*fakeActor, *enforce.Corrector) {
	t.Helper()
	index := newIndex(t)
	scope := scopeOf(t, index)
	for _, name := range names {
		put(t, scope, name, 5)
	}
	a, c, _ := startCorrector(t, index, bindingB)
	return a, c
}

// TestCorrector_CorrectsByVersion: verdicts of the new version and of the former one are corrected as
// each says, and others not at all.
func TestCorrector_CorrectsByVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := startVersions(t, "one", "two", "three")
		setSpec(t, c, rolling(1))
		w := a.policies["b"]
		if r := w.spec.Replaces; r == nil || *r != (remediate.Replaced{Generation: "1", Promoted: 1}) || w.spec.Generation != "2" || w.spec.Commit != "c2" {
			t.Errorf("rolls out %+v, replaces %+v", w.spec, r)
		}
		for _, version := range []string{"bbbb", "aaaa", "cccc", "", "bbbb"} {
			c.Judge(verdictOf(version, "one", patchOf("one", "{}")))
			want := map[string]string{"bbbb": "one {}: bbbb git c2 new.rego former false", "aaaa": "one {}: aaaa git c1 old.rego former true"}[version]
			if got := attributed(a); got != want {
				t.Errorf("version %q: %q, want %q", version, got, want)
			}
		}
		c.Judge(verdictOf("aaaa", "two", patchOf("two", "{}")))
		if got, want := attributed(a), "one {}: bbbb git c2 new.rego former false, two {}: aaaa git c1 old.rego former true"; got != want {
			t.Errorf("both: %q, want %q", got, want)
		}
		if got := a.policies["b"].intents[0].Package; got != "replicas" {
			t.Errorf("package %q", got)
		}
		setSpec(t, c, enforce.EnforcementSpec{Mode: policy.Enforce})
		c.Judge(verdictOf("cccc", "three", patchOf("three", "{}")))
		if got, want := attributed(a), "three {}: cccc    former false"; got != want {
			t.Errorf("a spec without a version: %q, want %q", got, want)
		}
	})
}

// TestCorrector_CountsNoVersionBeforeIt: a state without verdicts of the version that is to be
// corrected is not counted as one without violations, while the policies are replaced.
func TestCorrector_CountsNoVersionBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := startVersions(t, "one")
		one := rolling(0)
		one.Generation, one.Version, one.Rollout = "1", "", nil
		setSpec(t, c, one)
		two := rolling(1)
		two.Pause = true
		setSpec(t, c, two)
		if w := a.policies["b"]; w.ready || w.spec.Generation != "2" || w.spec.Replaces == nil {
			t.Errorf("paused: ready %t, %+v", w.ready, w.spec)
		}
		if c.Status("b").Complete {
			t.Error("the state of before the change is counted")
		}
		two.Pause = false
		setSpec(t, c, two)
		c.Judge(verdictOf("aaaa", "one", patchOf("one", "{}")))
		if w := a.policies["b"]; !w.ready {
			t.Error("not ready")
		}
		// One wave more: what is counted stays so, but for the pause.
		three := rolling(2)
		three.Pause = true
		setSpec(t, c, three)
		if w := a.policies["b"]; w.ready || w.spec.Replaces.Promoted != 2 {
			t.Errorf("paused: ready %t, replaces %+v", w.ready, w.spec.Replaces)
		}
		if !c.Status("b").Complete {
			t.Error("one wave more, and nothing is counted any more")
		}
		three.Pause = false
		setSpec(t, c, three)
		if w := a.policies["b"]; !w.ready || w.spec.Replaces.Promoted != 2 {
			t.Errorf("ready %t, replaces %+v", w.ready, w.spec.Replaces)
		}
		// Promoted, it is the same generation.
		three.Rollout = nil
		setSpec(t, c, three)
		if w := a.policies["b"]; !w.ready || w.spec.Replaces != nil || w.spec.Generation != "2" {
			t.Errorf("promoted: ready %t, %+v", w.ready, w.spec)
		}
	})
}

// TestCorrector_CombinesVersionsOfOneTarget: each write is of one version; what both require is the new
// one's, and so is a contradiction between them.
func TestCorrector_CombinesVersionsOfOneTarget(t *testing.T) {
	const (
		isFormer = "aaaa git c1 old.rego former true"
		isNew    = "bbbb git c2 new.rego former false"
	)
	for what, test := range map[string]struct {
		verdicts []*policy.Verdict
		want     string
		deferred int
	}{
		"the same":          {[]*policy.Verdict{verdictOf("aaaa", "one", patchOf("web", `{"a":1}`)), verdictOf("bbbb", "two", patchOf("web", `{"a":1}`))}, `web {"a":1}: ` + isNew, 0},
		"other fields":      {[]*policy.Verdict{verdictOf("aaaa", "one", patchOf("web", `{"a":1}`)), verdictOf("bbbb", "two", patchOf("web", `{"b":1}`))}, `web {"b":1}: ` + isNew, 1},
		"a contradiction":   {[]*policy.Verdict{verdictOf("aaaa", "one", patchOf("web", `{"a":1}`)), verdictOf("bbbb", "two", patchOf("web", `{"a":2}`))}, `web {"a":2} refused: ` + isNew, 0},
		"two former ones":   {[]*policy.Verdict{verdictOf("aaaa", "one", patchOf("web", `{"a":1}`)), verdictOf("aaaa", "two", patchOf("web", `{"b":1}`))}, `web {"a":1,"b":1}: ` + isFormer, 0},
		"two new ones":      {[]*policy.Verdict{verdictOf("bbbb", "one", patchOf("web", `{"a":1}`)), verdictOf("bbbb", "two", patchOf("web", `{"b":1}`))}, `web {"a":1,"b":1}: ` + isNew, 0},
		"one that is older": {[]*policy.Verdict{verdictOf("cccc", "one", patchOf("web", `{"a":1}`)), verdictOf("aaaa", "two", patchOf("web", `{"b":1}`))}, `web {"b":1}: ` + isFormer, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, c := startVersions(t, "one", "two", "web")
				setSpec(t, c, rolling(1))
				for _, v := range test.verdicts {
					c.Judge(v)
				}
				if got := attributed(a); got != test.want {
					t.Errorf("%q, want %q", got, test.want)
				}
				if got := c.Status("b").Deferred; got != test.deferred {
					t.Errorf("%d are deferred, want %d", got, test.deferred)
				}
			})
		})
	}
}
