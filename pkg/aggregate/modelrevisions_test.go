package aggregate_test

import (
	"errors"
	"math"
	"slices"
	"sort"

	"federator.dev/federator/pkg/aggregate"
)

// extend sees to it that what the next operation changes fits into the last range.
func (h *history) extend() {
	last := h.ranges[len(h.ranges)-1]
	need := 20 + h.objects(func(scopeKey) bool { return true })
	for _, w := range h.writers {
		need += len(w.changes) + len(w.pending.objects)
	}
	if h.state.rev < last.First && int(last.End-last.First) > need {
		return
	}
	first := last.End + aggregate.Revision(h.rng.IntN(2)*h.rng.IntN(1000))
	next := aggregate.Range{First: first, End: first + aggregate.Revision(need+h.rng.IntN(20))}
	if err := h.index.Extend(next); err != nil {
		h.t.Fatal(err)
	}
	h.ranges = append(h.ranges, next)
}

// take returns the revision below the n that the operation took.
func (h *history) take(n int) aggregate.Revision {
	for _, r := range h.ranges {
		if at := max(h.state.rev+1, r.First); at+aggregate.Revision(n) <= r.End {
			return at - 1
		}
	}
	h.t.Fatalf("%d revisions do not fit", n)
	return 0
}

// objects counts those of some scopes.
func (h *history) objects(of func(scopeKey) bool) (n int) {
	for k, s := range h.state.scopes {
		if of(k) {
			n += len(s.objects)
		}
	}
	return n
}

func (h *history) owns(rev aggregate.Revision) bool {
	return slices.ContainsFunc(h.ranges, func(r aggregate.Range) bool { return r.First <= rev && rev < r.End })
}

// replay compares the change log after some revisions with the model's: a random one,
// those around the ends of ranges, and the oldest one that the log answers.
func (h *history) replay() {
	newest := h.ranges[len(h.ranges)-1].End
	for _, other := range []aggregate.Revision{0, 5, firstRevision - 1, 6<<26 | 5, newest, newest + 1, 1 << 53, 1<<64 - 1} {
		if _, err := h.index.Changes(other); !errors.Is(err, aggregate.ErrExpired) || h.index.Owns(other) {
			h.t.Fatalf("changes of another process's %d: %v", other, err)
		}
	}
	h.replayFrom(h.state.rev+1, 0)
	h.replayFrom(firstRevision+aggregate.Revision(h.rng.Uint64N(uint64(h.state.rev-firstRevision)+1)), math.MaxInt)
	for _, r := range h.ranges[max(0, len(h.ranges)-4):] {
		for _, rev := range []aggregate.Revision{r.First - 1, r.First, r.End - 1, r.End} {
			h.replayFrom(rev, 5)
		}
	}
	window := int(h.state.rev - firstRevision)
	back := sort.Search(window, func(back int) bool { // as far as it answers, but for what is nobody's
		rev := h.state.rev - aggregate.Revision(back) - 1
		_, err := h.index.Changes(rev)
		return err != nil && h.owns(rev)
	})
	h.replayFrom(h.state.rev-aggregate.Revision(back), 5)
}

// replayFrom compares the first changes after a revision, so many at most.
func (h *history) replayFrom(since aggregate.Revision, most int) {
	if got, want := h.index.Owns(since), h.owns(since); got != want {
		h.t.Fatalf("owns %d: %t", since, got)
	}
	changes, err := h.index.Changes(since)
	switch {
	case !h.owns(since):
		if !errors.Is(err, aggregate.ErrExpired) {
			h.t.Fatalf("changes after %d, of no range: %v", since, err)
		}
		return
	case since > h.state.rev:
		if !errors.Is(err, aggregate.ErrFuture) {
			h.t.Fatalf("changes after %d, at %d: %v", since, h.state.rev, err)
		}
		return
	case errors.Is(err, aggregate.ErrExpired) && !h.exact && since != h.state.rev:
		return
	case err != nil:
		h.t.Fatalf("changes after %d, at %d: %v", since, h.state.rev, err)
	}
	first, _ := slices.BinarySearchFunc(h.log, since+1, func(c modelChange, r aggregate.Revision) int { return int(int64(c.rev) - int64(r)) })
	want := h.log[first:]
	i := 0
	for c := range changes {
		if i >= len(want) || c.Revision != want[i].rev {
			h.t.Fatalf("change %d of %d after %d has revision %d", i, len(want), since, c.Revision)
		}
		if err := errors.Join(sameObject(c.Before, want[i].before), sameObject(c.After, want[i].after)); err != nil {
			h.t.Fatalf("change %d: %v", c.Revision, err)
		}
		if i++; i >= most {
			return
		}
	}
	if i != len(want) {
		h.t.Fatalf("%d changes after %d, want %d", i, since, len(want))
	}
}
