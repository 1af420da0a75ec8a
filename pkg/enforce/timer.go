package enforce

import (
	"context"
	"time"

	"federator.dev/federator/pkg/policy"
)

// maxSleep bounds how long the loop does not look at the clock while policies or exemptions depend on it: a timer does not
// notice that the clock is set, or that the machine was asleep.
const maxSleep = time.Minute

// current returns the bindings without exemptions that have expired by now.
func (l *Loop) current(now time.Time) []policy.Binding {
	out := make([]policy.Binding, len(l.bindings))
	for i := range l.bindings {
		out[i] = bindingAt(&l.bindings[i], now)
	}
	return out
}

// bindingAt returns a binding, and the version that is to take its place, without the exemptions that
// have expired.
func bindingAt(b *policy.Binding, now time.Time) policy.Binding {
	out := b.At(now)
	if b.Next != nil {
		next := *b.Next
		next.Binding = next.Binding.At(now)
		out.Next = &next
	}
	return out
}

// versions returns the bindings, and the versions that are to take their places.
func (l *Loop) versions() (all []*policy.Binding) {
	for i := range l.bindings {
		all = append(all, &l.bindings[i])
		if next := l.bindings[i].Next; next != nil {
			all = append(all, &next.Binding)
		}
	}
	return all
}

// tick re-evaluates what time alone has changed: without exemptions that have expired, what read an instant
// that has passed, and members whose quarantine has ended. It reports whether the engine can continue.
func (l *Loop) tick(ctx context.Context) bool {
	start := l.opts.Clock()
	if !l.expires.IsZero() && !start.Before(l.expires) {
		done := make(chan error, 1)
		ok := l.configure(ctx, request{set: l.set, bindings: l.bindings, done: done})
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				l.opts.Logger.Error("exemptions that have expired are still in force", "error", err)
			}
		default: // it is in place, and everything is evaluated next
		}
		return ok
	}
	l.turn.begin()
	defer l.turn.end()
	changes, err := l.engine.Advance(ctx)
	if err != nil {
		l.failed(ctx, err)
		return false
	}
	if changes != nil {
		l.publish(changes, nil, start)
	}
	l.resetTimer()
	return true
}

// resetTimer sets the timer to when the next exemption expires, quarantine ends or instant passes: at once for an exemption that has
// expired since the engine was configured.
func (l *Loop) resetTimer() {
	now := l.opts.Clock()
	next := now.Add(24 * time.Hour)
	l.expires = time.Time{}
	for _, b := range l.versions() {
		for _, e := range b.Exemptions {
			if !e.Expires.IsZero() && e.Expires.After(l.asOf) && (l.expires.IsZero() || e.Expires.Before(l.expires)) {
				l.expires = e.Expires
			}
		}
		if p := l.set.Package(b.Package); p != nil && p.Reads.Time {
			next = now.Add(maxSleep)
		}
	}
	if !l.expires.IsZero() {
		next = now.Add(maxSleep)
	}
	for _, at := range []time.Time{l.expires, l.retry, l.wake} {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	l.timer.Reset(next.Sub(now))
}
