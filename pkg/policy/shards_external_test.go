package policy_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/pkg/policy"
)

// read has a process read the documents from outside the fleet, which all read alike, and one that starts again has not.
func (s *sharded) read(ctx context.Context, i int) error {
	p := s.processes[i]
	if s.documents == nil || p.engine.State() == nil {
		return nil
	}
	s.note("  %d reads documents", i)
	p.documents = s.documents
	return p.pass(i, s.processes, func() (*policy.Changes, error) { return p.engine.SetExternal(ctx, s.documents) })
}

// TestShards_EqualOneProcessOfExternalDocuments: a process that has not read them yet knows nothing of what reads them, and once all
// have they say together what one process says.
func TestShards_EqualOneProcessOfExternalDocuments(t *testing.T) {
	t.Parallel()
	var seen shardTally
	for seed := range uint64(12) {
		g := &generator{r: rand.New(rand.NewPCG(seed, 1)), asks: true}
		set, err := g.set()
		if err != nil {
			t.Fatal(err)
		}
		if err := playShards(t.Context(), seed, []policySet{set}, randomDocuments(g.r).external(), &seen); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d times quiet: %d Known and clean, %d with violations, %d Unknown", seen.quiet.Load(), seen.known.Load(), seen.found.Load(), seen.unknown.Load())
	if seen.known.Load() == 0 || seen.found.Load() == 0 || seen.unknown.Load() == 0 {
		t.Error("the histories do not show everything")
	}
}
