package sharing

import (
	"context"
	"time"

	"federator.dev/federator/pkg/interest"
)

// interestEvery is how often others are asked for more, at most: what passes in short sequence read is asked for at once.
const interestEvery = 50 * time.Millisecond

// subscription is what the loop reads of others, and has.
type subscription struct {
	s     *Sharing
	asked *interest.Set // of the importer
	known known
}

// known is which of what others tell the loop knows of.
type known struct {
	held  *interest.Set // that the loop knows of
	told  *interest.Set // that the importer held a while ago; the loop may not have evaluated what it is
	until uint64        // the change of the peers' index that has what is told
}

// follow takes what the importer holds, and how far the loop and the peers' index are, and reports whether the loop is to know of
// something else. What is told while the loop has not come to what was told before waits until then: a loop that is slower than
// more is told would never know of any of it otherwise.
func (k *known) follow(held *interest.Set, heard, changes uint64) (again bool) {
	before := k.held
	k.limit(held)
	if k.told.Equal(k.held) {
		k.told, k.until = held, changes
	}
	if heard >= k.until {
		k.held = k.told
		if k.told = held; !held.Equal(k.held) {
			k.until = changes
		}
	}
	return !k.held.Equal(before)
}

// limit has the loop know of nothing that is not in a set.
func (k *known) limit(to *interest.Set) {
	if !to.Covers(k.held) {
		k.held = k.held.Both(to)
	}
	if !to.Covers(k.told) {
		k.told = k.told.Both(to)
	}
}

// followInterest asks others for what the loop reads of them, and has the loop know which of that is there.
func (s *Sharing) followInterest(ctx context.Context) error {
	if s.loop == nil { // nothing is read
		<-ctx.Done()
		return context.Cause(ctx)
	}
	f := subscription{s: s}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select { // before more is asked for
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := f.ask(ctx); err != nil {
			return err
		}
		held, changed := s.importer.Held()
		if err := f.hold(ctx, held); err != nil {
			return err
		}
		select {
		case <-s.passed:
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause.Reset(interestEvery)
	}
}

// ask asks for what the loop's newest state has read. The loop knows of what is asked for no more before others stop telling it.
func (f *subscription) ask(ctx context.Context) error {
	state := f.s.loop.State()
	if state == nil {
		return nil
	}
	wanted := state.Wanted()
	if wanted.Equal(f.asked) {
		return nil
	}
	if !wanted.Covers(f.known.held) {
		f.known.limit(wanted)
		if err := f.s.loop.SetHeld(ctx, f.known.held); err != nil {
			return err
		}
	}
	f.asked = wanted
	f.s.importer.SetInterest(wanted)
	return nil
}

// hold has the loop know what is held, once it has evaluated what the peers' index has of it. Of what is no longer held it knows
// at once.
func (f *subscription) hold(ctx context.Context, held *interest.Set) error {
	heard := f.s.loop.Heard() // before what has changed since
	if !f.known.follow(held, heard, f.s.peers.Snapshot().Changes()) {
		return nil
	}
	return f.s.loop.SetHeld(ctx, f.known.held)
}
