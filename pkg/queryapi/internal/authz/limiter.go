package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/authentication/user"
)

// limiter bounds the reviews in flight, of all callers together and of each: one that
// needs many reviews does not keep those of others waiting.
type limiter struct {
	slots     *semaphore.Weighted
	perCaller int // of one caller

	mu      sync.Mutex
	callers map[string]*callerSlots // by the caller's name
}

type callerSlots struct {
	slots *semaphore.Weighted
	users int // waiting or in flight
}

// callerShare is the fraction, 1/callerShare, of the reviews in flight that one caller may have.
const callerShare = 4

func newLimiter(limit int) *limiter {
	return &limiter{slots: semaphore.NewWeighted(int64(limit)), perCaller: max(1, limit/callerShare), callers: map[string]*callerSlots{}}
}

// acquire waits for a slot of the caller's, which release gives back.
func (l *limiter) acquire(ctx context.Context, u user.Info) (release func(), err error) {
	own := l.join(u.GetName())
	if err := own.slots.Acquire(ctx, 1); err != nil {
		l.leave(u.GetName(), own)
		return nil, err
	}
	if err := l.slots.Acquire(ctx, 1); err != nil {
		own.slots.Release(1)
		l.leave(u.GetName(), own)
		return nil, err
	}
	return func() {
		l.slots.Release(1)
		own.slots.Release(1)
		l.leave(u.GetName(), own)
	}, nil
}

func (l *limiter) join(name string) *callerSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.callers[name]
	if own == nil {
		own = &callerSlots{slots: semaphore.NewWeighted(int64(l.perCaller))}
		l.callers[name] = own
	}
	own.users++
	return own
}

func (l *limiter) leave(name string, own *callerSlots) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(l.callers, name)
	}
}

// ErrTooManyReviews is returned when a call needs more reviews than its context allows.
var ErrTooManyReviews = errors.New("authz: too many reviews")

type reviewLimitKey struct{}

// WithReviewLimit returns a context that allows n reviews; cached decisions do not count.
// Calls that need more fail with ErrTooManyReviews.
func WithReviewLimit(ctx context.Context, n int64) context.Context {
	left := new(atomic.Int64)
	left.Store(n)
	return context.WithValue(ctx, reviewLimitKey{}, left)
}

// countReview counts one review towards the limit of the context.
func countReview(ctx context.Context) error {
	left, bounded := ctx.Value(reviewLimitKey{}).(*atomic.Int64)
	if bounded && left.Add(-1) < 0 {
		return ErrTooManyReviews
	}
	return nil
}
