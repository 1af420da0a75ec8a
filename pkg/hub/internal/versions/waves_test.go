package versions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

func TestWaves_OfWhom(t *testing.T) {
	t.Parallel()
	named := func(name string) []v1alpha1.Wave { return []v1alpha1.Wave{{Name: name}} }
	source := &v1alpha1.VersionRollout{Waves: named("source")}
	for name, c := range map[string]struct {
		spec   v1alpha1.FleetPolicySpec
		source *v1alpha1.VersionRollout
		want   string
	}{
		"its rollout's":                {v1alpha1.FleetPolicySpec{Rollout: &v1alpha1.VersionRollout{Waves: named("own")}, Waves: named("policy")}, source, "own"},
		"its own":                      {v1alpha1.FleetPolicySpec{Waves: named("policy")}, source, "policy"},
		"its own, with a rollout":      {v1alpha1.FleetPolicySpec{Rollout: &v1alpha1.VersionRollout{}, Waves: named("policy")}, source, "policy"},
		"its source's":                 {v1alpha1.FleetPolicySpec{}, source, "source"},
		"its source's, with a rollout": {v1alpha1.FleetPolicySpec{Rollout: &v1alpha1.VersionRollout{}}, source, "source"},
		"none":                         {v1alpha1.FleetPolicySpec{}, nil, ""},
	} {
		got := ""
		for _, w := range Waves(&c.spec, c.source) {
			got += w.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	own := &v1alpha1.VersionRollout{}
	if Rollout(&v1alpha1.FleetPolicySpec{Rollout: own}, source) != own || Rollout(&v1alpha1.FleetPolicySpec{}, source) != source {
		t.Error("a rollout of its own does not take precedence")
	}
}

// has reports whether any selector selects a member.
func has(t *testing.T, list []policy.MemberSelector, m aggregate.Member) bool {
	t.Helper()
	return slices.ContainsFunc(list, func(s policy.MemberSelector) bool {
		selects, err := s.Compile()
		if err != nil {
			t.Fatal(err)
		}
		return selects(m)
	})
}

// TestMembers_AreThoseOfTheFirstWaves, with those of a ceiling around them, on random selectors
// and members: as the corrections count waves, and of members that are in all of them.
func TestMembers_AreThoseOfTheFirstWaves(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	var fleet []aggregate.Member
	for _, region := range []string{"eu", "us"} {
		for n := range 3 {
			for _, env := range []string{"test", "prod"} {
				fleet = append(fleet, aggregate.Member{Name: fmt.Sprintf("fleet/%s-%s-%d", region, env, n), Labels: []aggregate.Label{{Key: "env", Value: env}, {Key: "region", Value: region}}})
			}
		}
	}
	random := func(names bool) (s policy.MemberSelector) {
		if names && r.IntN(2) == 0 {
			for range 1 + r.IntN(4) {
				s.Names = append(s.Names, fleet[r.IntN(len(fleet))].Name)
			}
		}
		if !names && r.IntN(2) == 0 {
			s.Names = []string{"fleet/" + []string{"eu", "us"}[r.IntN(2)] + "-*"}
		}
		if r.IntN(2) == 0 {
			s.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"env": []string{"test", "prod"}[r.IntN(2)]}}
		}
		return s
	}
	for run := range 500 {
		var ceiling, own []policy.MemberSelector
		for range r.IntN(3) {
			ceiling = append(ceiling, random(false))
		}
		for range r.IntN(4) {
			own = append(own, random(true))
		}
		if len(own) > 0 {
			own = append(own, policy.MemberSelector{}) // each member is in a wave
		}
		for n := range Count(len(ceiling), len(own)) + 1 {
			got := Members(ceiling, own, n)
			for _, m := range fleet {
				first := func(list []policy.MemberSelector) int {
					return slices.IndexFunc(list, func(s policy.MemberSelector) bool { return has(t, []policy.MemberSelector{s}, m) })
				}
				outer, inner := first(ceiling), first(own)
				is := inner
				if len(ceiling) > 0 {
					is = outer*max(1, len(own)) + max(inner, 0)
				}
				want := is >= 0 && is < n && (len(ceiling) == 0 || outer >= 0)
				if has(t, got, m) != want {
					t.Fatalf("seed %d, run %d: member %s in the first %d waves: %t, want %t\nceiling %+v\nown %+v\n%+v", seed, run, m.Name, n, !want, want, ceiling, own, got)
				}
			}
		}
	}
}

// TestMembers_OfPatternsThatCannotBeCombined are more, never fewer.
func TestMembers_OfPatternsThatCannotBeCombined(t *testing.T) {
	t.Parallel()
	ceiling, own := []policy.MemberSelector{{Names: []string{"fleet/eu-*"}}}, []policy.MemberSelector{{Names: []string{"*/*-1"}}, {}}
	if got := Members(ceiling, own, 1); len(got) != 1 || strings.Join(got[0].Names, " ") != "fleet/eu-*" {
		t.Errorf("%+v", got)
	}
	ceiling[0].Names = []string{"fleet/eu-1"}
	if got := Members(ceiling, own, 1); len(got) != 1 || strings.Join(got[0].Names, " ") != "fleet/eu-1" {
		t.Errorf("%+v", got)
	}
	ceiling[0].Names = []string{"fleet/eu-2"}
	if got := Members(ceiling, own, 1); has(t, got, aggregate.Member{Name: "fleet/eu-2"}) || has(t, got, aggregate.Member{Name: "fleet/eu-1"}) {
		t.Errorf("%+v", got)
	}
}
