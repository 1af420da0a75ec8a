package hub_test

import (
	"errors"
	"testing"
)

// TestPolicySources_PushReachesEveryProcess: a webhook calls a process that is not the
// leader, and the leader checks the repository, too.
func TestPolicySources_PushReachesEveryProcess(t *testing.T) {
	leader := newRig(t, true, nil)
	follower := newRig(t, false, nil)
	repo := newRepo(t, t.TempDir(), "r")
	first := commit(t, repo, tree("team", "a"))
	create(t, "team", map[string]any{"url": "file://" + repo.Dir, "ref": map[string]any{"branch": "main"}})
	awaitActive(t, "team", first)
	for _, label := range []string{"b", "c"} {
		next := commit(t, repo, tree("team", label))
		follower.sources.RecordPush([]string{"team", "of nobody"})
		ps := awaitActive(t, "team", next)
		if ps.Status.LastPush == nil || ps.Status.LastSync != "" {
			t.Errorf("%+v", ps.Status)
		}
		for name, r := range map[string]*rig{"leader": leader, "follower": follower} {
			if err := until(func() error {
				if r.manager.State().Policies["team"].Commit.Hash != next {
					return errors.New("it has not looked")
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
