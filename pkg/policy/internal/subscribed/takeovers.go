package subscribed

import (
	"maps"
	"slices"

	"federator.dev/federator/pkg/interest"
)

// Takeovers are the members that another process has judged until a moment ago, while their verdicts read of others what this process
// has not been told: they do not find yet what the other one had found. So are those whose verdicts read that of a member which was
// read here until then, and "" where that is so of keys of views. What verdicts read later, as objects change, is not waited for,
// or a member whose objects change all the time would be for good.
type Takeovers struct {
	of    map[string]*takeover
	asked *interest.Set // what was wanted when the last of what had been wanted before was held: one at a time, for all
}

type takeover struct {
	asks   bool // waits for asked
	rounds int
}

// maxRounds bounds how often it is waited for what verdicts read then, by what was told.
const maxRounds = 5

// Add says that a member is judged here from now on.
func (t *Takeovers) Add(member string) {
	if t.of == nil {
		t.of = map[string]*takeover{}
	}
	if t.of[member] == nil {
		t.of[member] = &takeover{}
	}
}

// Remove says that it is not any more.
func (t *Takeovers) Remove(member string) { delete(t.of, member) }

// Settle forgets those that have been told what they read, at the end of a pass. read reports whether all was read of a member here,
// and waits whether a verdict on what it has does for keys that are not held.
func (t *Takeovers) Settle(of *Table, read, waits func(member string) bool) {
	wanted := of.Wanted()
	told, asks := t.told(of, wanted), false
	maps.DeleteFunc(t.of, func(member string, m *takeover) bool {
		if !read(member) { // there are no verdicts yet
			return false
		}
		if !waits(member) {
			return true
		}
		if told {
			if m.asks {
				m.rounds++
			}
			m.asks = true
		}
		asks = asks || m.asks
		return m.rounds == maxRounds
	})
	switch {
	case !asks:
		t.asked = nil
	case told:
		t.asked = wanted
	}
}

// told reports whether all is held that was asked for, as far as it still is wanted.
func (t *Takeovers) told(of *Table, wanted *interest.Set) bool {
	if t.asked == wanted { // which is not counted again
		return of.held.Covers(wanted)
	}
	return of.held.Covers(t.asked.Both(wanted))
}

// Members are those that are not settled, in order.
func (t *Takeovers) Members() []string { return slices.Sorted(maps.Keys(t.of)) }
