package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
)

// limiter bound the questions in flight: of all callers, and of each. A caller
// waits in their own lane, so that however much one asks, the others' questions
// wait for few of theirs.
type limiter struct {
	slots     chan struct{}
	perCaller int // of one caller

	mu      sync.Mutex
	callers map[string]*callerSlots // by the caller's name
}

type callerSlots struct {
	slots chan struct{}
	users int // waiting or asking
}

// callerShare is which part of the questions in flight may be one caller's.
const callerShare = 4

func newLimiter(most int) *limiter {
	return &limiter{slots: make(chan struct{}, most), perCaller: max(1, most/callerShare), callers: map[string]*callerSlots{}}
}

// acquire waits until the caller may ask. Who entered calls leave.
func (l *limiter) acquire(ctx context.Context, u user.Info) (leave func(), err error) {
	own := l.join(u.GetName())
	if err := acquireSlot(ctx, own.slots); err != nil {
		l.leave(u.GetName(), own)
		return nil, err
	}
	if err := acquireSlot(ctx, l.slots); err != nil {
		<-own.slots
		l.leave(u.GetName(), own)
		return nil, err
	}
	return func() {
		<-l.slots
		<-own.slots
		l.leave(u.GetName(), own)
	}, nil
}

func acquireSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *limiter) join(name string) *callerSlots {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.callers[name]
	if own == nil {
		own = &callerSlots{slots: make(chan struct{}, l.perCaller)}
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

// ErrTooManyReviews says that a call would need more questions than its
// context allows.
var ErrTooManyReviews = errors.New("access: too many questions")

type reviewLimitKey struct{}

// WithReviewLimit returns a context within which at most n questions are asked;
// those that are answered from memory are not counted. The calls that need one
// more fail with ErrTooManyQuestions.
func WithReviewLimit(ctx context.Context, n int64) context.Context {
	left := new(atomic.Int64)
	left.Store(n)
	return context.WithValue(ctx, reviewLimitKey{}, left)
}

// countReview takes one question of the context's.
func countReview(ctx context.Context) error {
	left, bounded := ctx.Value(reviewLimitKey{}).(*atomic.Int64)
	if bounded && left.Add(-1) < 0 {
		return ErrTooManyReviews
	}
	return nil
}
