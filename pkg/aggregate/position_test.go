package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/seed"
)

// TestScope_PositionsAreRevisions: the position that a change is said to have is its revision, counted from that of the commit.
func TestScope_PositionsAreRevisions(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0)) // a mix, not a secret
	x, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	scope := openScope(t, x, "fleet/a", "ConfigMap")
	version := 0
	for range 300 {
		positions := map[string]int{} // of the last change of each object that is there afterwards
		last := 0
		for range rng.IntN(6) {
			name := fmt.Sprintf("n%d", rng.IntN(4))
			var position int
			switch rng.IntN(3) {
			case 0:
				if position = scope.Delete("", name); position > 0 {
					delete(positions, name)
				}
			default:
				version++
				uid := fmt.Sprint(rng.IntN(2)) // another one is a delete and an add
				position = scope.Upsert(scope.Item(&aggregate.Record{
					Name: name, UID: uid, ResourceVersion: fmt.Sprint(version), Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"resourceVersion":"%d"}}`, name, version),
				}))
				if again := scope.Upsert(scope.Item(&aggregate.Record{Name: name, UID: uid, ResourceVersion: fmt.Sprint(version)})); again != 0 {
					t.Fatalf("the same version again has position %d", again)
				}
				positions[name] = position
			}
			if position > 0 {
				if position <= last {
					t.Fatalf("position %d follows %d", position, last)
				}
				last = position
			}
		}
		pending := scope.Pending()
		if pending != last {
			t.Fatalf("%d changes are pending, the last position is %d", pending, last)
		}
		revision, err := scope.Commit()
		if err != nil {
			t.Fatal(err)
		}
		if n := scope.Pending(); n != 0 {
			t.Fatalf("%d changes are pending after the commit", n)
		}
		for name, position := range positions {
			o, ok := x.Snapshot().Get(aggregate.Ref{Member: "fleet/a", Kind: "ConfigMap", Name: name})
			if want := revision - aggregate.Revision(pending-position); !ok || o.Revision() != want {
				t.Fatalf("%s is of revision %d, want %d", name, o.Revision(), want)
			}
		}
	}
}
