package election

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is a lock that knows until when this process holds it at least: nobody else takes
// it before. It is safe for concurrent use.
type Lock struct {
	resourcelock.Interface

	renewDeadline time.Duration
	every         time.Duration // between two renewals at least

	mu    sync.Mutex
	held  time.Time // when the request was begun by which the lock was obtained or renewed last; zero: not held
	fresh bool      // and nothing was read or written since that says otherwise, or may
	seen  holder    // as it was read or written last
}

// holder is who holds a lock.
type holder struct {
	identity string
	at       time.Time // when the request was begun that said so
}

// Track returns a Lock. A lock that is not renewed within renewDeadline counts as lost,
// which is earlier than others may take it.
func Track(lock resourcelock.Interface, renewDeadline time.Duration) *Lock {
	return &Lock{Interface: lock, renewDeadline: renewDeadline}
}

// Get implements resourcelock.Interface. A lock that another process holds is lost,
// whatever was given before.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	began := time.Now()
	record, raw, err := l.Interface.Get(ctx)
	l.mu.Lock()
	l.fresh = false
	if err == nil {
		l.seen = holder{record.HolderIdentity, began}
	}
	l.mu.Unlock()
	if err == nil && record.HolderIdentity != l.Identity() {
		l.mu.Lock()
		l.held = time.Time{}
		l.mu.Unlock()
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.early(record.HolderIdentity) {
		return nil
	}
	return l.put(ctx, record, l.Interface.Update)
}

// early reports whether the lock was renewed so lately that it need not be renewed yet. That changes nothing of
// until when it is held.
func (l *Lock) early(by string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fresh && by == l.Identity() && time.Since(l.held) < l.every
}

// put writes the lock. A failed write may have been done: what an earlier one has given
// stays, since the record names this process either way.
func (l *Lock) put(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	holds := record.HolderIdentity == l.Identity()
	if !holds { // it is released: nothing may be begun from now on
		l.mu.Lock()
		l.held = time.Time{}
		others := l.seen.identity != "" && l.seen.identity != l.Identity()
		l.mu.Unlock()
		if others { // client-go releases it by what it saw before it gave up, in the version that it has read since
			return errNotLeader
		}
	}
	began := time.Now()
	err := write(ctx, record)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = err == nil && holds
	if err != nil {
		return err
	}
	l.seen = holder{record.HolderIdentity, began}
	if holds {
		l.held = began
	}
	return nil
}

// Holder returns which process holds the lock, "" if that was not read or written for so long that another one may.
func (l *Lock) Holder(within time.Duration) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if elapsed := max(now.Sub(l.seen.at), now.Round(0).Sub(l.seen.at.Round(0))); elapsed >= within {
		return ""
	}
	return l.seen.identity
}

// Lease returns until when this process holds the lock, or an error if it does not. The
// time counts from before the request that renewed it, so that no delay lengthens it.
func (l *Lock) Lease() (until time.Time, err error) {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held.IsZero() {
		return time.Time{}, errNotLeader
	}
	// The monotonic clock stands still while a machine is suspended, and the other may be
	// set: the lease has ended when one of them says so.
	now := time.Now()
	elapsed := max(now.Sub(held), now.Round(0).Sub(held.Round(0)))
	if elapsed >= l.renewDeadline {
		return time.Time{}, errNotLeader
	}
	return now.Add(l.renewDeadline - elapsed), nil
}
