package history

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

func TestWrite(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	hash := strings.Repeat("a", 64)
	versions := []v1alpha1.PolicyVersion{
		{Digest: v1alpha1.Digest(hash), Since: metav1.NewTime(now.Add(-48 * time.Hour))},
		{
			Digest: v1alpha1.Digest(strings.Repeat("b", 64)), Package: v1alpha1.Digest(hash), Since: metav1.NewTime(now.Add(-time.Hour)), Generation: 3, By: "eve\x1b[2J",
			Origin:  &v1alpha1.Origin{Source: "git", Commit: v1alpha1.CommitHash(strings.Repeat("c", 40)), Path: "tier.rego"},
			Changes: &v1alpha1.VersionChanges{Appeared: 7, Vanished: 2, Members: 3},
		},
	}
	for _, test := range []struct {
		output   string
		versions []v1alpha1.PolicyVersion
		want     string
	}{
		{"table", nil, "No version has taken effect yet.\n"},
		{"json", nil, "[]\n"},
		{"yaml", nil, "[]\n"},
		{"table", versions, "" +
			"VERSION        SINCE   SOURCE   COMMIT         BY        APPEARED   VANISHED   MEMBERS\n" +
			"bbbbbbbbbbbb   60m     git      cccccccccccc   eve [2J   7          2          3\n" +
			"aaaaaaaaaaaa   2d      -        -              -         unknown    unknown    unknown\n"},
	} {
		var out strings.Builder
		if err := write(&out, test.versions, test.output, now, false); err != nil || out.String() != test.want {
			t.Errorf("-o %s of %d versions: %v\n%s\nwant\n%s", test.output, len(test.versions), err, out.String(), test.want)
		}
	}
	var wide strings.Builder
	if err := write(&wide, versions, "wide", now, false); err != nil || !strings.Contains(wide.String(), "tier.rego") {
		t.Errorf("wide: %v\n%s", err, wide.String())
	}
}

func TestCandidate(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	cost := int64(120)
	c := v1alpha1.CandidateVersion{
		Digest: v1alpha1.Digest(strings.Repeat("b", 64)), Phase: v1alpha1.RolloutShadow, Began: metav1.NewTime(now.Add(-2 * time.Hour)), Since: metav1.NewTime(now.Add(-time.Hour)),
	}
	for want, change := range map[string]func(){
		"Version bbbbbbbbbbbb rolls out since 120m: Shadow, since 60m\n  it is not compared with the version in effect yet\n": func() {},
		"Version bbbbbbbbbbbb rolls out since 120m: Waves 2, since 60m\n  in effect in wave 2 of 3 [2J\n  of 9 subjects: 1 new violations, 2 gone, 3 new errors, 120% of the cost\n": func() {
			c.Phase, c.Waves, c.Message = v1alpha1.RolloutWaves, 2, "in effect in wave 2 of 3\x1b[2J"
			c.Evidence = &v1alpha1.RolloutEvidence{Complete: true, Subjects: 9, New: 1, Gone: 2, Errors: 3, Cost: &cost}
		},
	} {
		was := c
		change()
		if got := candidate(&c, now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c = was
	}
}
