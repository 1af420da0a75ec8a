package enforcement

import (
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// noMembers are none.
type noMembers struct{}

func (noMembers) Client(string, policy.Kind, string) (*remediate.Client, error) {
	return nil, errors.New("no member")
}

func (noMembers) CheckWritable(string) error { return nil }
func (noMembers) RequireKinds([]policy.Kind) {}

// TestNew_GivesItsClockToAll: what limits and windows go by is the clock by which exemptions
// expire.
func TestNew_GivesItsClockToAll(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	var read int
	e, err := New(Options{
		Hub: &rest.Config{Host: "https://127.0.0.1:1"}, Index: index, Members: noMembers{}, Namespace: "federator",
		Clock: func() time.Time { read++; return time.Unix(0, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	before := read
	if err := e.dispatcher.SetIntents("p", remediate.RolloutSpec{}, remediate.Totals{}, nil, false); err != nil {
		t.Fatal(err)
	}
	if read == before {
		t.Error("limits go by another clock")
	}
}
