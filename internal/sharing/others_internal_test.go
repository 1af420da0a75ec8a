package sharing

import (
	"log/slog"
	"slices"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange"
	"federator.dev/federator/pkg/shards"
)

// TestOthers_HaveWhatTheOwnIndexHasNot: a member that this process is to judge is in one of the two indexes at any time.
func TestOthers_HaveWhatTheOwnIndexHasNot(t *testing.T) {
	s := &Sharing{o: Options{Name: "self", Logger: slog.New(slog.DiscardHandler)}, followed: make(chan struct{})}
	var err error
	for block, x := range []**aggregate.Index{&s.own, &s.peers} {
		if *x, err = aggregate.New(aggregate.Options{Revisions: aggregate.Block(uint64(block + 1))}); err != nil {
			t.Fatal(err)
		}
	}
	if s.importer, err = exchange.NewImporter(exchange.ImporterOptions{Index: s.peers, Logger: s.o.Logger}); err != nil {
		t.Fatal(err)
	}
	has := func(what string, want ...string) {
		t.Helper()
		var got []string
		for m := range s.peers.Snapshot().Members() {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the peers' index has %v, want %v", what, got, want)
		}
	}
	put := func(role aggregate.Role) {
		t.Helper()
		if err := s.own.PutMember(aggregate.Member{Name: "fleet/a", UID: "a", Role: role}); err != nil {
			t.Fatal(err)
		}
		s.settleOthers()
	}
	fleet := func(judge string) {
		s.setFleet(shards.Fleet{Version: 1, Members: []shards.FleetMember{{Name: "fleet/a", UID: "a", Judge: judge}, {Name: "fleet/b", UID: "b", Judge: "other"}}})
	}
	fleet("other")
	has("another judges it", "fleet/a", "fleet/b")
	fleet("self")
	has("it is to be judged here", "fleet/a", "fleet/b")
	put(aggregate.Joining)
	has("it joins", "fleet/a", "fleet/b")
	put(aggregate.Judge)
	has("it is judged here", "fleet/b")
	fleet("other")
	has("it moves on", "fleet/a", "fleet/b")
	select {
	case <-s.followed:
	default:
		t.Error("the map is not known")
	}
}
