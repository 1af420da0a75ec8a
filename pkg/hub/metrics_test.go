package hub_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/test/git"
)

// TestPolicySources_Metrics: one whose newest commit is active, one whose newest is not,
// and one that cannot be read.
func TestPolicySources_Metrics(t *testing.T) {
	r := newRig(t, true, nil)
	dir := t.TempDir()
	var repos []*git.Repo
	for _, name := range []string{"good", "bad"} {
		repo := newRepo(t, dir, name)
		commit(t, repo, tree(name, "x"))
		repos = append(repos, repo)
		create(t, name, map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}})
		await(t, name, "Ready=True/Active", "Applied=True/Applied")
	}
	create(t, "gone", map[string]any{"url": "file://" + dir + "/none"})
	commit(t, repos[1], map[string]string{"policies/bad.rego": "package bad\n\nnonsense"})
	ask(t, "bad", "now")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.sources.Metrics())
	want := map[string]float64{
		"active good": 1, "current good": 1, "failures good": 0, "active bad": 1, "current bad": 0, "failures bad": 0, "active gone": 0, "current gone": 0,
	}
	if err := until(func() error {
		families, err := registry.Gather()
		if err != nil {
			return err
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				got[f.GetName()[len("federator_policy_source_"):]+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
		for series, v := range want {
			if had, ok := got[series]; !ok || had != v {
				return fmt.Errorf("%s is %v (%v), want %v", series, had, ok, v)
			}
		}
		if got["last_sync_timestamp_seconds good"] < 1e9 || got["contact_age_seconds good"] < 0 || got["contact_age_seconds gone"] <= 0 || got["failures gone"] < 1 {
			return fmt.Errorf("%v", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
