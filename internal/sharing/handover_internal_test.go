package sharing

import (
	"testing"

	"federator.dev/federator/pkg/shards"
)

// TestHolders_KnowTheJudgeBefore, also where the process of it is in no map any more.
func TestHolders_KnowTheJudgeBefore(t *testing.T) {
	of := func(judges map[string]string) *shards.Map {
		m := &shards.Map{}
		for _, name := range []string{"fleet/a", "fleet/b"} {
			m.Members = append(m.Members, shards.Member{Name: name, Judge: judges[name]})
		}
		return m
	}
	var h holders
	check := func(what, member, want string) {
		t.Helper()
		p, is := h.before(member)
		if p.ID != want || is != (want != "") {
			t.Errorf("%s: %s was judged by %q (%t), want %q", what, member, p.ID, is, want)
		}
	}
	h.follow(of(map[string]string{"fleet/a": "x", "fleet/b": "y"}), []shards.Peer{{ID: "x", URL: "https://x"}, {ID: "y"}})
	check("at first", "fleet/a", "")
	ended := of(map[string]string{"fleet/a": "", "fleet/b": "y"})
	h.follow(ended, []shards.Peer{{ID: "y"}})
	check("nobody judges it", "fleet/a", "x")
	h.follow(ended, []shards.Peer{{ID: "y"}})
	check("the same map", "fleet/a", "x")
	h.follow(of(map[string]string{"fleet/a": "y", "fleet/b": "y"}), []shards.Peer{{ID: "y"}})
	check("another judges it", "fleet/a", "x")
	check("nothing happened", "fleet/b", "")
	h.follow(of(map[string]string{"fleet/a": "x", "fleet/b": "y"}), []shards.Peer{{ID: "x"}, {ID: "y"}})
	check("it is back", "fleet/a", "y")
	h.follow(of(map[string]string{"fleet/b": "x"}), []shards.Peer{{ID: "x"}, {ID: "y"}})
	check("the other moves", "fleet/b", "y")
}
