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
	held  *interest.Set // that the loop knows of
	told  *interest.Set // that the importer holds; the loop may not have evaluated what it is
	until uint64        // the change of the peers' index that has what is told
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
	if !wanted.Covers(f.held) {
		if err := f.setHeld(ctx, f.held.Both(wanted)); err != nil {
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
	if !held.Covers(f.held) {
		if err := f.setHeld(ctx, f.held.Both(held)); err != nil {
			return err
		}
	}
	if !held.Equal(f.told) {
		f.told, f.until = held, f.s.peers.Snapshot().Changes()
	}
	if held.Equal(f.held) || f.s.loop.Heard() < f.until {
		return nil
	}
	return f.setHeld(ctx, held)
}

func (f *subscription) setHeld(ctx context.Context, held *interest.Set) error {
	f.held = held
	return f.s.loop.SetHeld(ctx, held)
}
