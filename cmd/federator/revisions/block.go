package revisions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// Store is where the number of the last block is kept.
type Store interface {
	// Reserve keeps a number above the kept one, of at least floor, and returns it: it
	// is the caller's then. A number that cannot be read is ErrMalformed.
	Reserve(ctx context.Context, floor uint64) (block uint64, err error)
	// String names it in messages.
	String() string
}

var (
	// ErrMalformed is a number that nobody can have written who reserves blocks.
	ErrMalformed = errors.New("not the number of a block of revisions")
	// ErrForGood is what asking again does not help against.
	ErrForGood = errors.New("cannot be reserved")
)

// Blocks are numbered by the clock, one each ten seconds since 2026 began: there are
// enough until 2068.
const slot = 10 * time.Second

var since = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// floor is the least number of a block that is reserved now, after another one.
func floor(now time.Time, last uint64) (uint64, error) {
	slots := now.Sub(since) / slot
	if slots < 1 {
		return 0, fmt.Errorf("%w: the clock says %s, which is before blocks began", ErrForGood, now.UTC().Format(time.RFC3339))
	}
	return max(uint64(slots), last+1), nil
}

// from returns the revisions of a block that a process begins with now. A process that comes
// later in the same ten seconds, and finds that the kept number is lost, gets the same
// block: it begins above all that was used before, because it begins further on the
// later it is, faster than an index can take changes (3 million a second). At least half
// of the block is left.
func from(block uint64, now time.Time) aggregate.Range {
	r := aggregate.Block(block)
	into := min(max(now.Sub(since.Add(time.Duration(block)*slot)), 0), slot)
	r.First += aggregate.Revision(int64(into) * (aggregate.BlockSize / 2) / int64(slot))
	return r
}

// following returns the number after the one that is kept as a text; "" is none.
func following(kept string, floor uint64) (uint64, error) {
	if kept = strings.TrimSpace(kept); kept == "" {
		return inRange(floor)
	}
	n, err := strconv.ParseUint(kept, 10, 64)
	if err != nil || n > aggregate.MaxBlock {
		return 0, fmt.Errorf("%w: %w: %.40q; delete it, and numbers follow the clock again", ErrForGood, ErrMalformed, kept)
	}
	return inRange(max(n+1, floor))
}

func inRange(n uint64) (uint64, error) {
	if n > aggregate.MaxBlock {
		return 0, fmt.Errorf("%w: block %d is beyond the last one, %d", ErrForGood, n, uint64(aggregate.MaxBlock))
	}
	return n, nil
}
