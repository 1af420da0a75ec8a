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

// Store keeps the number of the last block that was reserved.
type Store interface {
	// Reserve replaces the stored number by a higher one of at least floor and returns it:
	// it then belongs to the caller. If the stored number does not parse, the error is
	// ErrMalformed.
	Reserve(ctx context.Context, floor uint64) (block uint64, err error)
	// String names it in messages.
	String() string
}

// Installed is a Store that only one installation of federator has.
type Installed interface {
	// Installation returns the ID of the installation, once something was reserved.
	Installation() string
}

var (
	// ErrMalformed is the error for a stored number that no reservation can have written.
	ErrMalformed = errors.New("not the number of a block of revisions")
	// ErrPermanent marks errors that a retry does not resolve.
	ErrPermanent = errors.New("cannot be reserved")
)

// slot is the time per block. Blocks are numbered by the clock from epoch on; the numbers
// last until 2068.
const slot = 10 * time.Second

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// minBlock returns the lowest number that a block reserved now may have, after the last one.
func minBlock(now time.Time, last uint64) (uint64, error) {
	slots := now.Sub(epoch) / slot
	if slots < 1 {
		return 0, fmt.Errorf("%w: the clock says %s, which is before the first block", ErrPermanent, now.UTC().Format(time.RFC3339))
	}
	return max(uint64(slots), last+1), nil
}

// rangeAt returns the revisions of a block for a process that starts now. A process that
// starts later in the same slot and finds the stored number lost gets the same block. It
// starts above all revisions that were used before, because the first one advances with
// the clock faster than an index commits changes (3 million a second). At least half of the
// block remains.
func rangeAt(block uint64, now time.Time) aggregate.Range {
	r := aggregate.Block(block)
	into := min(max(now.Sub(epoch.Add(time.Duration(block)*slot)), 0), slot)
	r.First += aggregate.Revision(int64(into) * (aggregate.BlockSize / 2) / int64(slot))
	return r
}

// nextBlock returns the number after the stored one, which is "" if there is none.
func nextBlock(stored string, floor uint64) (uint64, error) {
	if stored = strings.TrimSpace(stored); stored == "" {
		return inRange(floor)
	}
	n, err := strconv.ParseUint(stored, 10, 64)
	if err != nil || n > aggregate.MaxBlock {
		return 0, fmt.Errorf("%w: %w: %.40q; delete it to number blocks by the clock again", ErrPermanent, ErrMalformed, stored)
	}
	return inRange(max(n+1, floor))
}

func inRange(n uint64) (uint64, error) {
	if n > aggregate.MaxBlock {
		return 0, fmt.Errorf("%w: block %d exceeds the last one, %d", ErrPermanent, n, uint64(aggregate.MaxBlock))
	}
	return n, nil
}
