package intents

import (
	"strings"
	"testing"

	"federator.dev/federator/pkg/remediate"
)

// TestRefusePolicy_OfVersionsThatRollOut: nothing is written while a process has another version in effect anywhere than the
// leader has: another one that takes the place of another, or in fewer waves.
func TestRefusePolicy_OfVersionsThatRollOut(t *testing.T) {
	spec := func(generation, former string, promoted int) *remediate.RolloutSpec {
		s := &remediate.RolloutSpec{Generation: generation, Waves: []remediate.Wave{{Name: "early"}, {Name: "late"}}}
		if former != "" {
			s.Replaces = &remediate.Replaced{Generation: former, Promoted: promoted}
		}
		return s
	}
	says := func(id string, s *remediate.RolloutSpec) *teller {
		version, err := versionOf(s)
		if err != nil {
			t.Fatal(err)
		}
		out := newTeller(id)
		out.policies["p"] = &teaching{spec: s, version: version, ready: true}
		return out
	}
	leads := says("a", spec("two", "one", 1))
	for what, c := range map[string]struct {
		theirs *remediate.RolloutSpec
		refuse bool
	}{
		"the same":              {spec("two", "one", 1), false},
		"the former one in all": {spec("one", "", 0), true},
		"a wave more":           {spec("two", "one", 2), true},
		"another former one":    {spec("two", "zero", 1), true},
		"the next one in all":   {spec("two", "", 0), true},
		"another one rolls out": {spec("three", "one", 1), true},
	} {
		why := refusePolicy("p", []*teller{leads, says("b", c.theirs)}, leads.policies["p"])
		if (why != "") != c.refuse || c.refuse && !strings.Contains(why, "process b has another version") {
			t.Errorf("%s: %q", what, why)
		}
	}
}
