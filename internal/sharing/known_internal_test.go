package sharing

import (
	"context"
	"log/slog"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/shards"
)

// TestKnown_NothingIsJudgedBeforeTheMembersOfOthersAreThere: until a map says who they are, and they are in the peers' index, where
// they are Unknown, a process that has its own members would say of the fleet that nothing is wrong.
func TestKnown_NothingIsJudgedBeforeTheMembersOfOthersAreThere(t *testing.T) {
	peers, err := aggregate.New(aggregate.Options{Revisions: aggregate.Range{First: 1, End: 1 << 52}})
	if err != nil {
		t.Fatal(err)
	}
	importer, err := exchange.NewImporter(exchange.ImporterOptions{Index: peers, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	own, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(2)})
	if err != nil {
		t.Fatal(err)
	}
	s := &Sharing{o: Options{Name: "a", Logger: slog.New(slog.DiscardHandler)}, own: own, importer: importer, followed: make(chan struct{})}
	known := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Known(ctx)
		select {
		case <-s.followed:
			return true
		default:
			return false
		}
	}
	s.setFleet(shards.Fleet{})
	s.setFleet(shards.Fleet{Members: []shards.FleetMember{{Name: "fleet/m", UID: "u"}}})
	if known() {
		t.Error("it is known before there is a map")
	}
	s.setFleet(shards.Fleet{Version: 3, Members: []shards.FleetMember{{Name: "fleet/m", UID: "u", Judge: "b"}, {Name: "fleet/n", UID: "v", Judge: "a"}}})
	if !known() {
		t.Error("it is not known although there is a map")
	}
	if _, is := peers.Snapshot().Member("fleet/m"); !is {
		t.Error("the peers' index does not have the member of another process")
	}
}
