package sharing

import (
	"testing"

	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/shards"
)

// TestMaps_OfOneVersionAreTwo: where the map is deleted the next one may have the version of one that this process knows, and counts.
func TestMaps_OfOneVersionAreTwo(t *testing.T) {
	var view assignments
	fleet := intentsFleet{self: "p-0"}
	for _, judge := range []string{"p-1", "p-2"} {
		m := &shards.Map{Version: 7, Members: []shards.Member{{Name: "fleet/a", Judge: judge}}}
		before := view.newest()
		view.set("p-0", m, []queryapi.Peer{{ID: "p-1"}})
		if got := view.newest().Judges["fleet/a"]; got != judge {
			t.Errorf("the query API asks %s, not %s", got, judge)
		}
		select {
		case <-before.Changed:
		default:
			t.Error("nobody is told of another map")
		}
		if !fleet.set(m, []exchange.Peer{{ID: "p-1"}}) || fleet.now.Members["fleet/a"].Judge != judge {
			t.Errorf("corrections are asked of %v, not of %s", fleet.now.Members, judge)
		}
		if now := view.newest(); fleet.set(m, []exchange.Peer{{ID: "p-1"}}) {
			t.Error("the same map is another one")
		} else if view.set("p-0", m, []queryapi.Peer{{ID: "p-1"}}); view.newest() != now {
			t.Error("the same map is another assignment")
		}
	}
}

// TestAllTell_IsOfEveryOtherProcess: others let go of keys only when the one that is to have them has heard what they are of.
func TestAllTell_IsOfEveryOtherProcess(t *testing.T) {
	m := &shards.Map{Processes: []shards.Process{{ID: "p-0"}, {ID: "p-1"}, {ID: "p-2"}}}
	tells := func(id string) exchange.PeerStatus { return exchange.PeerStatus{ID: id, Connected: true} }
	for name, c := range map[string]struct {
		peers []exchange.PeerStatus
		want  bool
	}{
		"nobody": {nil, false}, "one": {[]exchange.PeerStatus{tells("p-1")}, false}, "one is lost": {[]exchange.PeerStatus{tells("p-1"), {ID: "p-2"}}, false},
		"all": {[]exchange.PeerStatus{tells("p-1"), tells("p-2")}, true},
	} {
		if got := allTell(m, "p-0", c.peers); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
