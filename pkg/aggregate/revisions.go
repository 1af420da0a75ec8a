package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Revision numbers the states of the index, below 2^53. Every change of an object has its
// own; a snapshot's is that of its last change. Revisions of two processes are distinct if
// their ranges are disjoint (see Range).
type Revision uint64

// MarshalText implements encoding.TextMarshaler: in JSON a revision is a string, like a
// resourceVersion.
func (r Revision) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(r), 10), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Revision) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("revision: %w", err)
	}
	*r = Revision(n)
	return nil
}

// BlockSize is the number of revisions of a block, and MaxBlock the number of the last
// block: many clients read revisions as JavaScript numbers, which are exact below 2^53.
const (
	BlockSize = 1 << 26
	MaxBlock  = 1<<53/BlockSize - 1
)

// ErrExhausted is returned for any commit once there are too few revisions left: see
// Index.Exhausted.
var ErrExhausted = errors.New("no revisions are left")

// Range is the revisions that an index may use: from First, below End. No other index with
// the same readers may ever use any of them.
type Range struct{ First, End Revision }

// Block returns the revisions of a block, numbered from 1 to MaxBlock.
func Block(number uint64) Range {
	return Range{Revision(number * BlockSize), Revision((number + 1) * BlockSize)}
}

func (r Range) holds(rev Revision) bool { return r.First <= rev && rev < r.End }

func (r Range) check() error {
	if r.First == 0 || r.End <= r.First || r.End > 1<<53 {
		return fmt.Errorf("aggregate: %d to %d is not a range of revisions, which are above 0 and below 2^53", r.First, r.End)
	}
	return nil
}

// Extend adds a range for when the present ones are used up. It must be above them.
func (x *Index) Extend(r Range) error {
	if err := r.check(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	have := *x.ranges.Load()
	if last := have[len(have)-1]; r.First < last.End {
		return fmt.Errorf("aggregate: revisions from %d on are not above those of the index, which end at %d", r.First, last.End-1)
	}
	next := append(have[:len(have):len(have)], r)
	x.ranges.Store(&next)
	return nil
}

// First returns the first revision of the index, which is unique: it identifies the process.
func (x *Index) First() Revision { return (*x.ranges.Load())[0].First }

// Owns reports whether a revision is in the ranges of this index, past or future, or was loaded
// with it.
func (x *Index) Owns(rev Revision) bool {
	return holds(*x.ranges.Load(), rev) || holds(*x.loaded.Load(), rev)
}

// holds reports whether a revision is in one of some ranges, which are ascending.
func holds(ranges []Range, rev Revision) bool {
	i, found := slices.BinarySearchFunc(ranges, rev, func(r Range, rev Revision) int { return cmp.Compare(r.First, rev) })
	return found || i > 0 && rev < ranges[i-1].End
}

// Unused returns how many revisions are left. It costs an atomic load or two.
func (x *Index) Unused() uint64 {
	at, n := x.Newest().revision, uint64(0)
	for _, r := range *x.ranges.Load() {
		n += r.after(at)
	}
	return n
}

// after returns the number of the range's revisions that are above a revision.
func (r Range) after(at Revision) uint64 {
	switch {
	case r.End-1 <= at:
		return 0
	case r.holds(at):
		return uint64(r.End - 1 - at)
	}
	return uint64(r.End - r.First)
}

// Exhausted returns a channel that is closed once a commit needed more revisions than were
// left. The index then accepts no more changes and becomes outdated: the process should end.
func (x *Index) Exhausted() <-chan struct{} { return x.exhausted }

// take reserves n revisions for the next commit and returns the one below them: the rest of
// a range that is too small for all of them stays unused. x.mu must be held.
func (x *Index) take(n uint64) (Revision, error) {
	at := x.Newest().revision
	for _, r := range *x.ranges.Load() {
		switch {
		case x.spent || r.after(at) < n:
		case r.holds(at):
			return at, nil
		default:
			return r.First - 1, nil
		}
	}
	if !x.spent {
		x.spent = true
		close(x.exhausted)
	}
	return 0, ErrExhausted
}
