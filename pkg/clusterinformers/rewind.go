package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// A server's resourceVersions only grow. Where one is below what the server has
// told before, it has been taken back to an earlier state, as by an older copy of
// its etcd: what is held may never have been, and what a watch sends from there on
// leaves out what was lost. All scopes of the member then list anew.

// rewoundError ends a watch whose server has gone back.
type rewoundError struct{ was, is string }

func (e *rewoundError) Error() string {
	return fmt.Sprintf("the server's resourceVersions went back from %s to %s", e.was, e.is)
}

// below reports whether one resourceVersion is older than another. Those that are no
// numbers cannot be compared, and are not.
func below(rv, other string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && c < 0
}

// told checks what a watch sends against what it was opened from: a server sends
// only what is newer, though not every one in order. A bookmark says that all up to
// it has been sent. A stream whose first events are under way has no such bound.
func (s *stream) told(rv string, bookmark bool) error {
	if s.initial {
		return nil
	}
	if below(rv, s.floor) {
		return &rewoundError{was: s.floor, is: rv}
	}
	if bookmark && below(s.floor, rv) {
		s.floor = rv
	}
	return nil
}

// reach takes note of how far the part has come. A list that reaches less is proof
// that the server has gone back: lists are answered from what is newest, or from no
// older than what was asked for. The informer's mu must be held.
func (p *part) reach(rv string) {
	if p.reached == "" || below(p.reached, rv) {
		p.reached = rv
	}
}

// listed compares a list with how far the part had come before.
func (p *part) listed(rv string) {
	i := p.informer
	i.mu.Lock()
	was := p.reached
	p.reached = rv
	i.mu.Unlock()
	if below(rv, was) {
		i.rewound(&rewoundError{was: was, is: rv})
	}
}

// rewound has all scopes of the member start anew.
func (i *informer) rewound(err *rewoundError) {
	if i.member.startAnew(i.seen) {
		i.log.Warn("the server's resourceVersions went back: all scopes of the member list anew", "was", err.was, "is", err.is)
		i.member.conn.noteOf(i.kind, err)
	}
}

// A server that goes back again and again is listed less and less.
const (
	anewFirst  = time.Second
	anewMax    = 10 * time.Minute
	anewForget = time.Hour // after which the first time is again the first
)

// startAnew has all scopes of the member start anew, as if another cluster answered,
// unless that has happened since an informer was started, with so many resets seen.
// Informers are stopped at once: what they would still apply is of the past.
func (mb *member) startAnew(seen int) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.resets != seen {
		return false
	}
	now := time.Now()
	switch {
	case mb.resetAt.IsZero() || now.Sub(mb.resetAt) > anewForget:
		mb.resetDelay = 0
	default:
		mb.resetDelay = min(anewMax, max(anewFirst, 2*mb.resetDelay))
	}
	mb.resetAt = now
	mb.resets++
	for _, r := range mb.informers {
		r.stop()
	}
	mb.nudge()
	return true
}

// whoAnswers asks for the UID of the cluster, and whether its server is where it was:
// watches that go on from a resourceVersion that the server has not reached say
// nothing at all until it has. So it is asked for no older an answer than what is
// held of Namespaces.
func (mb *member) whoAnswers(ctx context.Context, a *memberclient.Client) (string, error) {
	mb.mu.Lock()
	r := mb.informers["Namespace"]
	mb.mu.Unlock()
	was := ""
	if r != nil {
		was = r.reached()
	}
	uid, err := a.ClusterUID(ctx, was)
	if was == "" || err == nil || !tooLarge(err) && classify(err) != unable {
		return uid, err
	}
	// A replica may only lag; a list of what is newest tells. What the server refuses
	// as none of its own is above all that it has.
	newest, err := a.NewestResourceVersion(ctx)
	if err != nil {
		return "", err
	}
	if below(newest, was) {
		r.rewound(&rewoundError{was: was, is: newest})
	}
	return a.ClusterUID(ctx, "")
}

// reached is how far the informer has come, "" where that is not one
// resourceVersion.
func (i *informer) reached() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.parts) != 1 {
		return ""
	}
	return i.parts[0].reached
}

// isRewound returns the error that ends a watch whose server has gone back, or nil.
func isRewound(err error) *rewoundError {
	var r *rewoundError
	if errors.As(err, &r) {
		return r
	}
	return nil
}
