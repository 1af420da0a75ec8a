package segments

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of an entry.
const (
	MaxPayload = 1 << 20  // bytes of a payload
	MaxFacet   = 4 << 10  // bytes of a facet
	MaxBatch   = 64 << 20 // bytes of payloads and facets in one Append, and 16 for each entry
)

var (
	// ErrFull is returned by Append where the disk, a quota or a limit of the process takes no more.
	ErrFull = errors.New("the disk is full")
	// ErrTooLarge is returned by Append for an entry or a batch beyond the bounds; nothing of the
	// batch is appended.
	ErrTooLarge = errors.New("entry too large")
	// ErrClosed is returned by methods of a log that is closed.
	ErrClosed = errors.New("the log is closed")
	// ErrLost is why positions are missing that were given out, or may have been, before the power
	// was lost, a file was damaged, or it was removed by something else.
	ErrLost = errors.New("lost")
	// ErrExpired is why positions are missing that a reader asked to go on from.
	ErrExpired = errors.New("expired")
)

// Entry is one document.
type Entry struct {
	Position uint64    // set by Append: from 1 on, each above the one before
	Time     time.Time // set by Append, to the millisecond, UTC; it goes back if the clock does
	Revision int64

	// Facets, by which entries are found; "" where an entry is not about one.
	Member, Kind, Namespace, Name, UID, Policy string

	Payload []byte // opaque; those that are read are the reader's own
}

// Query says what Read reads. All that is set must hold.
type Query struct {
	Member, Kind, Namespace, Name, UID, Policy string // equal, where not ""

	Since, Until  time.Time // Since <= Time < Until, where not zero
	After, Before uint64    // After < Position < Before, where not 0
	Backward      bool      // the last first
}

// GapError is yielded by Read in the place of entries that are not there. Reading goes on after it.
type GapError struct {
	From, To     uint64    // positions, both inclusive; entries between them may be there nevertheless
	Since, Until time.Time // when the missing were appended, as far as known, else zero
	Entries      int       // how many are missing, at most
	Err          error     // ErrLost, ErrExpired, or of reading the file
}

func (e *GapError) Error() string {
	return fmt.Sprintf("positions %d to %d are missing: %v", e.From, e.To, e.Err)
}

func (e *GapError) Unwrap() error { return e.Err }

// Mark is a position, and when it was appended; zero where there is none.
type Mark struct {
	Position uint64
	Time     time.Time
}

// Status is what a log holds.
type Status struct {
	Oldest, Last Mark
	Bytes        int64 // on disk
	Segments     int   // with the active one
	Unsealed     int   // full segments that wait for being sealed
	Gaps         int
	Problem      error // why full segments are not sealed, nil if they are
}
