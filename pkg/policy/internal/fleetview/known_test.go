package fleetview_test

import (
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/fleetview"
)

// projected are projections of which every kind's is "p".
type projected struct{}

func (projected) Reads(aggregate.Kind) bool { return true }

func (projected) Knows(_ aggregate.Kind, version string) bool {
	return fleetview.Projection(version) == "p"
}

// TestView_KnowsWhatOthersDoNotServe: a kind that a member of another process does not serve has no scope there, of no projection,
// and nothing about it is unknown.
func TestView_KnowsWhatOthersDoNotServe(t *testing.T) {
	own, peers := newFleet(t), newFleet(t)
	for name, serves := range map[string][]aggregate.Kind{"f/a": {"Pod"}, "f/b": nil} {
		if err := peers.PutMember(aggregate.Member{Name: name, UID: name, Serves: serves}); err != nil {
			t.Fatal(err)
		}
	}
	v := fleetview.Of(own.Snapshot(), peers.Snapshot(), projected{})
	for _, c := range []struct {
		member string
		kind   aggregate.Kind
		known  bool
	}{{"f/a", "ConfigMap", true}, {"f/a", "Pod", false}, {"f/b", "ConfigMap", false}} {
		if info, _ := v.Scope(c.member, c.kind); v.Known(info) != c.known {
			t.Errorf("%s of %s, which is %s: known is %t", c.kind, c.member, info.Status.State, !c.known)
		}
	}
}
