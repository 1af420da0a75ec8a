package exchange

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
)

// askedForMore returns an importer with members of peers that are being asked for one key more than those that they have told of.
func askedForMore(tb testing.TB, keys, members int, peers ...string) *Importer {
	tb.Helper()
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		tb.Fatal(err)
	}
	im, err := NewImporter(ImporterOptions{Index: index, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	var b interest.Builder
	space := interest.View("view")
	for n := range keys {
		b.Add(space, interest.Bucket(fmt.Sprint(n)))
	}
	has := b.Take()
	b.Add(space, interest.Bucket("another"))
	asks := has.With(b.Take())
	im.interest, im.held = asked{2, asks}, has
	for _, id := range peers {
		im.links[id] = &link{im: im, peer: Peer{ID: id}, ask: trigger.New(), has: asked{1, has}, asks: asked{2, asks}, metrics: im.metrics.of(id)}
		for n := range members {
			name := fmt.Sprintf("fleet/%s%d", id, n)
			im.members[name] = &member{name: name, source: id, judge: id, has: has, present: true, scopes: map[aggregate.Kind]*scope{}}
		}
	}
	return im
}

// TestImporter_MembersWhosePeerIsGoneShareWhatTheyHave: each with a set of its own would take as much as all that is asked for, and
// be compared with it on its own.
func TestImporter_MembersWhosePeerIsGoneShareWhatTheyHave(t *testing.T) {
	im := askedForMore(t, 100, 10, "a")
	im.mu.Lock()
	defer im.mu.Unlock()
	was := im.links["a"].has.set
	im.removeLocked(im.links["a"])
	sets := map[*interest.Set]bool{}
	for _, m := range im.members {
		sets[m.has] = true
		if !m.has.Equal(was) {
			t.Errorf("%s has %d keys", m.name, m.has.Size())
		}
	}
	if len(sets) != 1 {
		t.Errorf("%d members have %d sets", len(im.members), len(sets))
	}
}

// BenchmarkJudge looks at 1,000 members of a peer that is being asked for more than the 100,000 keys that it has told of, at as many
// of one that is away, and of one that is gone.
func BenchmarkJudge(b *testing.B) {
	im := askedForMore(b, 100_000, 1000, "a", "b", "c")
	im.links["b"].lost = time.Now().Add(-time.Hour)
	im.mu.Lock()
	im.removeLocked(im.links["c"])
	im.mu.Unlock()
	im.judge(time.Now())
	for b.Loop() {
		im.judge(time.Now())
	}
}
