package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
)

// lanes bound the questions in flight: of all callers, and of each. A caller
// waits in their own lane, so that however much one asks, the others' questions
// wait for few of theirs.
type lanes struct {
	all  chan struct{}
	each int // of one caller

	mu  sync.Mutex
	own map[string]*lane // by the caller's name
}

type lane struct {
	slots chan struct{}
	users int // waiting or asking
}

// share is which part of the questions in flight may be one caller's.
const share = 4

func newLanes(most int) *lanes {
	return &lanes{all: make(chan struct{}, most), each: max(1, most/share), own: map[string]*lane{}}
}

// enter waits until the caller may ask. Who entered calls leave.
func (l *lanes) enter(ctx context.Context, u user.Info) (leave func(), err error) {
	own := l.join(u.GetName())
	if err := take(ctx, own.slots); err != nil {
		l.part(u.GetName(), own)
		return nil, err
	}
	if err := take(ctx, l.all); err != nil {
		<-own.slots
		l.part(u.GetName(), own)
		return nil, err
	}
	return func() {
		<-l.all
		<-own.slots
		l.part(u.GetName(), own)
	}, nil
}

func take(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lanes) join(name string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.own[name]
	if own == nil {
		own = &lane{slots: make(chan struct{}, l.each)}
		l.own[name] = own
	}
	own.users++
	return own
}

func (l *lanes) part(name string, own *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(l.own, name)
	}
}

// ErrTooManyQuestions says that a call would need more questions than its
// context allows.
var ErrTooManyQuestions = errors.New("access: too many questions")

type allowanceKey struct{}

// WithQuestions returns a context within which at most n questions are asked;
// those that are answered from memory are not counted. The calls that need one
// more fail with ErrTooManyQuestions.
func WithQuestions(ctx context.Context, n int64) context.Context {
	left := new(atomic.Int64)
	left.Store(n)
	return context.WithValue(ctx, allowanceKey{}, left)
}

// spend takes one question of the context's.
func spend(ctx context.Context) error {
	left, bounded := ctx.Value(allowanceKey{}).(*atomic.Int64)
	if bounded && left.Add(-1) < 0 {
		return ErrTooManyQuestions
	}
	return nil
}
