package connection

import (
	"fmt"
	"time"

	"federator.dev/federator/api"
)

// Reasons of a member that is Connected and not written to.
const (
	// Paused is of a Cluster that is paused, which stops controllers and not readers.
	Paused Reason = "Paused"
	// Frozen is of a Cluster with an annotation that says until when nothing is written.
	Frozen Reason = "Frozen"
	// WritesRefused is of credentials for writes that are refused: others are not used instead.
	WritesRefused Reason = "WritesRefused"
)

// MaxFreeze is how far ahead a freeze ends at most. One that ends later is a mistake, or an
// attempt to keep a member out for good: it holds, and says so.
const MaxFreeze = 30 * 24 * time.Hour

// Hold is what a Cluster of the hub has against writes to its member, which is read all the
// same. Names are those of field managers: users who may write the Cluster choose them. The
// zero Hold holds nothing.
type Hold struct {
	Paused   bool
	PausedBy string

	Freeze   *string // value of the annotation, nil where there is none
	FrozenBy string
}

// At returns why nothing is written at a time, nil when it may be.
func (h Hold) At(now time.Time) *Refusal {
	if h.Paused {
		return Refuse(Paused, "the Cluster is paused%s: it is read, but not written to", by(h.PausedBy))
	}
	if h.Freeze == nil {
		return nil
	}
	until, ok := h.until()
	switch {
	case !ok:
		return Refuse(Frozen, "annotation %s%s is not a time of RFC 3339: %q: nothing is written until it is changed", api.FreezeKey, by(h.FrozenBy), *h.Freeze)
	case !now.Before(until):
		return nil
	case until.Sub(now) > MaxFreeze:
		return Refuse(Frozen, "frozen%s until %s, which is more than %d days ahead: nothing is written until it is changed", by(h.FrozenBy), until.Format(time.RFC3339), MaxFreeze/(24*time.Hour))
	}
	return Refuse(Frozen, "frozen%s until %s", by(h.FrozenBy), until.Format(time.RFC3339))
}

// FrozenUntil returns when a freeze ends by itself, nil where it does not or there is none.
func (h Hold) FrozenUntil(now time.Time) *time.Time {
	until, ok := h.until()
	if !ok || !now.Before(until) || until.Sub(now) > MaxFreeze {
		return nil
	}
	return &until
}

func (h Hold) until() (time.Time, bool) {
	if h.Freeze == nil {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, *h.Freeze)
	return t.UTC(), err == nil
}

// by names a field manager, which proves nothing.
func by(manager string) string {
	if manager == "" {
		return ""
	}
	return fmt.Sprintf(" by %q (unproven)", manager)
}
