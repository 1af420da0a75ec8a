package exchange

import (
	"fmt"
	"io"

	"federator.dev/federator/pkg/exchange/internal/wire"
	"federator.dev/federator/pkg/interest"
)

// SetInterest says which keys are read here: peers tell what has any of them, and the records of which something is not
// known. It is everything at first. What is held shrinks to it at once, and grows to it once all have told. Of what is not
// held, everything may be missing.
func (im *Importer) SetInterest(set *interest.Set) {
	set = asksFor(set)
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.interest.set.Equal(set) {
		return
	}
	im.interest = asked{im.interest.number + 1, set}
	im.holdLocked(im.held.Both(set))
	im.growLocked()
	for _, l := range im.links {
		l.askLocked()
	}
	im.wake.Fire() // members that are Stale may lack what is asked for
}

// Held returns keys of which the index has all, of each member that is neither Unknown nor, where it is Stale, Unread, as of when its
// process told last; and a channel that is closed when these are others. They are a part of what is asked for.
func (im *Importer) Held() (*interest.Set, <-chan struct{}) {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.held, im.heldChanged
}

func (im *Importer) holdLocked(set *interest.Set) {
	if im.held.Equal(set) {
		return
	}
	if im.interest.set.Equal(set) {
		set = im.interest.set // what is one is compared fast
	}
	im.held = set
	close(im.heldChanged)
	im.heldChanged = make(chan struct{})
}

// growLocked holds what all have told who count: the sources of members, what has become of members without a source, unless these are
// shown as Stale and Unread, and those who are telling something that may become a member's. Importer.mu must be held.
func (im *Importer) growLocked() {
	if im.held.Covers(im.interest.set) {
		return
	}
	seen := map[sure]bool{}
	all := im.interest.set
	for _, m := range im.members {
		if !m.counts() {
			continue
		}
		if s := im.sureLocked(m); !seen[s] {
			seen[s] = true
			all = both(all, s.keys())
		}
	}
	for _, l := range im.links {
		if l.under != nil {
			all = both(all, l.under)
		}
	}
	im.holdLocked(all)
}

// counts reports whether a member is shown as one that has what is held.
func (m *member) counts() bool { return m.present && !(m.away && m.lacks) }

// sure says of which keys a member has all, whatever its source is telling: those that are in both. Of most members they are the
// same two sets, which is seen without comparing what is in them.
type sure struct{ has, asks *interest.Set }

func (s sure) keys() *interest.Set { return both(s.has, s.asks) }

// sureLocked returns that of a member: one that has no source loses nothing of what it has. Importer.mu must be held.
func (im *Importer) sureLocked(m *member) sure {
	if l := im.links[m.source]; l != nil {
		return sure{m.has, l.asks.set}
	}
	return sure{m.has, m.has}
}

// haves says what a member has all of.
type haves struct{ held, asked bool }

// havesLocked returns what says of members, as long as Importer.mu is held, whether they have all that is held and all that is asked
// for. It compares these once for all members that are sure of the same.
func (im *Importer) havesLocked() func(*member) haves {
	known := map[sure]haves{}
	return func(m *member) haves {
		s := im.sureLocked(m)
		h, ok := known[s]
		if !ok {
			keys := s.keys()
			h = haves{held: keys.Covers(im.held), asked: keys.Covers(im.interest.set)}
			known[s] = h
		}
		return h
	}
}

// bothLocked is both, and the same set where it is asked for the same again: that is done for one member after the other.
// Importer.mu must be held.
func (im *Importer) bothLocked(a, b *interest.Set) *interest.Set {
	if im.common.a != a || im.common.b != b {
		im.common.a, im.common.b, im.common.both = a, b, both(a, b)
	}
	return im.common.both
}

func both(a, b *interest.Set) *interest.Set {
	if a == b {
		return a
	}
	return a.Both(b)
}

// askLocked asks for what is read by now, unless something is asked for already. Importer.mu must be held.
func (l *link) askLocked() {
	if !l.asking || l.asks.number != l.has.number || l.asks.number == l.im.interest.number {
		return
	}
	l.asks = l.im.interest
	l.ask.Fire()
}

// openLocked says with what a stream begins: what there is of the position from which it resumes, and what is asked for.
// What was asked for, and may have been told in part, is asked for again. Importer.mu must be held.
func (l *link) openLocked() (has, asks asked) {
	if l.position > 0 && l.asks.number != l.has.number {
		return l.has, l.asks
	}
	if l.asks.number != l.has.number { // and was told in part
		for _, m := range l.im.members {
			if m.source == l.peer.ID {
				m.has = l.im.bothLocked(m.has, l.asks.set)
			}
		}
	}
	l.asks = l.im.interest
	if l.position == 0 {
		l.has = asked{}
	}
	return l.has, l.asks
}

// sendAsks writes what is asked for to a peer until the stream ends.
func (l *link) sendAsks(to *io.PipeWriter, has, asks asked, ended <-chan struct{}) {
	frames := wire.NewWriter(to)
	for _, i := range []wire.Interest{{Number: has.number, Set: has.set}, {Number: asks.number, Set: asks.set}} {
		if err := sendAsk(frames, i); err != nil {
			_ = to.CloseWithError(err) //nolint:errcheck // it is always nil
			return
		}
	}
	for {
		select {
		case <-ended:
			return
		case <-l.ask:
		}
		l.im.mu.Lock()
		before, now := asks, l.asks
		l.im.mu.Unlock()
		if before.number == now.number {
			continue
		}
		asks = now
		i := wire.Interest{Number: now.number, Set: now.set}
		if now.set.Covers(before.set) && !now.set.IsEverything() {
			i.More, i.Set = true, now.set.Without(before.set)
		}
		if err := sendAsk(frames, i); err != nil {
			_ = to.CloseWithError(err) //nolint:errcheck // it is always nil
			return
		}
	}
}

func sendAsk(frames *wire.Writer, i wire.Interest) error {
	p, err := i.Append(nil)
	if err != nil {
		return fmt.Errorf("what is asked for: %w", err)
	}
	return frames.Frame(wire.TypeInterest, p)
}

// asksFor returns what is asked for, so that a set can be told to peers: everything where it would be too large for them.
func asksFor(set *interest.Set) *interest.Set {
	if set.Bytes() > maxInterest/2 {
		return interest.Everything()
	}
	return set
}

// beginLocked notes that a batch is under way which is of what was asked for by a number. It reports whether that is known.
func (l *link) beginLocked(number uint64) bool {
	of, ok := l.askedLocked(number)
	if ok && of.set.Covers(l.im.held) {
		l.under = of.set
		if l.under == nil {
			l.under = new(interest.Set)
		}
	}
	return ok
}

// askedLocked returns what was asked for by a number.
func (l *link) askedLocked(number uint64) (asked, bool) {
	switch number {
	case l.asks.number:
		return l.asks, true
	case l.has.number:
		return l.has, true
	}
	return asked{}, false
}

// reachedLocked notes that all was told that was asked for by a number, and asks for more.
func (l *link) reachedLocked(number uint64) {
	if l.under = nil; l.has.number != number {
		l.has, _ = l.askedLocked(number)
		for _, m := range l.im.members {
			if m.source == l.peer.ID {
				m.has = l.has.set
			}
		}
		l.im.wake.Fire() // they may have all that is held
	}
	l.askLocked()
	l.im.growLocked()
}
