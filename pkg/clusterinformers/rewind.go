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
// leaves out what was lost. All scopes of the member then relist.

// rewoundError ends a watch whose server has gone back.
type rewoundError struct{ was, is string }

func (e *rewoundError) Error() string {
	return fmt.Sprintf("the server's resourceVersions went back from %s to %s", e.was, e.is)
}

// olderThan reports whether one resourceVersion is older than another. Those that are no
// numbers cannot be compared, and are not.
func olderThan(rv, other string) bool {
	c, err := resourceversion.CompareResourceVersion(rv, other)
	return err == nil && c < 0
}

// checkOrder checks what a watch sends against what it was opened from: a server sends
// only what is newer, though not every one in order. A bookmark says that all up to
// it has been sent. A stream whose first events are under way has no such bound.
func (s *stream) checkOrder(rv string, bookmark bool) error {
	if s.initial {
		return nil
	}
	if olderThan(rv, s.floor) {
		return &rewoundError{was: s.floor, is: rv}
	}
	if bookmark && olderThan(s.floor, rv) {
		s.floor = rv
	}
	return nil
}

// advanceLocked records how far the listWatch has come. A list that reaches less is proof
// that the server has gone back: lists are answered from what is newest, or from no
// older than what was asked for. The informer's mu must be held.
func (p *listWatch) advanceLocked(rv string) {
	if p.reached == "" || olderThan(p.reached, rv) {
		p.reached = rv
	}
}

// checkList compares a list with how far the listWatch had come before.
func (p *listWatch) checkList(rv string) {
	i := p.informer
	i.mu.Lock()
	was := p.reached
	p.reached = rv
	i.mu.Unlock()
	if olderThan(rv, was) {
		i.rewound(&rewoundError{was: was, is: rv})
	}
}

// rewound restarts all scopes of the member.
func (i *informer) rewound(err *rewoundError) {
	if i.member.restartScopes(i.resets) {
		i.log.Warn("the server's resourceVersions went back, relisting all scopes of the member", "was", err.was, "is", err.is)
		i.member.conn.recordKindError(i.kind, err)
	}
}

// A server that goes back again and again is listed less and less.
const (
	minRestartDelay   = time.Second
	maxRestartDelay   = 10 * time.Minute
	restartDelayReset = time.Hour // after which the first time is again the first
)

// restartScopes restarts all scopes of the member, as if another cluster answered,
// unless that has happened since an informer was started, with so many resets seen.
// Informers are stopped at once: what they would still apply is of the past.
func (mb *member) restartScopes(seen int) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.resets != seen {
		return false
	}
	now := time.Now()
	switch {
	case mb.resetAt.IsZero() || now.Sub(mb.resetAt) > restartDelayReset:
		mb.resetDelay = 0
	default:
		mb.resetDelay = min(maxRestartDelay, max(minRestartDelay, 2*mb.resetDelay))
	}
	mb.resetAt = now
	mb.resets++
	for _, r := range mb.informers {
		r.stop()
	}
	mb.triggerDiscovery()
	return true
}

// verifyCluster gets the UID of the cluster, and checks that its server has not gone back:
// watches that go on from a resourceVersion that the server has not reached say
// nothing at all until it has. So it is asked for no older an answer than what is
// held of Namespaces.
func (mb *member) verifyCluster(ctx context.Context, a *memberclient.Client) (string, error) {
	mb.mu.Lock()
	r := mb.informers["Namespace"]
	mb.mu.Unlock()
	was := ""
	if r != nil {
		was = r.reached()
	}
	uid, err := a.ClusterUID(ctx, was)
	if was == "" || err == nil || !versionTooLarge(err) && classify(err) != unsupported {
		return uid, err
	}
	// A replica may only lag; a list of what is newest tells. What the server refuses
	// as none of its own is above all that it has.
	newest, err := a.NewestResourceVersion(ctx)
	if err != nil {
		return "", err
	}
	if olderThan(newest, was) {
		r.rewound(&rewoundError{was: was, is: newest})
	}
	return a.ClusterUID(ctx, "")
}

// reached is how far the informer has come, "" where that is not one
// resourceVersion.
func (i *informer) reached() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.listWatches) != 1 {
		return ""
	}
	return i.listWatches[0].reached
}

// isRewound returns the error that ends a watch whose server has gone back, or nil.
func isRewound(err error) *rewoundError {
	var r *rewoundError
	if errors.As(err, &r) {
		return r
	}
	return nil
}
