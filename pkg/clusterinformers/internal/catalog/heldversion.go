package catalog

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

// Another held version has a kind relisted in all members, and evaluated by what it
// says at that version. One member that serves now this and now that must not have all
// others read again and again: after each change the next one waits longer, until what
// members serve has been the same for as long.
const (
	heldDelay      = time.Second // after the first change, which is at once
	maxHeldDelay   = time.Hour
	heldDelayReset = 6 * time.Hour // after which the first change is again the first
)

// tally counts, for one kind, the members that serve it, and at which versions.
type tally struct {
	members  int
	versions map[string]int
	held     string // "": no version is served by all

	pending    bool // for held to become next
	next       string
	since      time.Time     // when next became what all serve
	delay      time.Duration // from then on
	lastChange time.Time     // when held changed, or was to or not any more
}

// common returns the most preferred version that all members serve, "" where there is
// none.
func (t *tally) common() (common string) {
	for v, n := range t.versions {
		if n == t.members && (common == "" || version.CompareKubeAwareVersionStrings(v, common) > 0) {
			common = v
		}
	}
	return common
}

// propose says which version all serve now. What nobody holds yet is held at it.
func (t *tally) propose(common string, fresh bool, now time.Time) {
	switch {
	case fresh:
		t.held = common
		return
	case t.pending && t.next == common, !t.pending && t.held == common:
		return
	}
	if now.Sub(t.lastChange) > heldDelayReset {
		t.delay = 0
	}
	t.pending, t.next, t.since, t.lastChange = common != t.held, common, now, now
}

func (t *tally) due() time.Time { return t.since.Add(t.delay) }

// apply has the version held that all serve, if it is time, and reports whether it is
// another.
func (t *tally) apply(now time.Time) bool {
	if !t.pending || now.Before(t.due()) {
		return false
	}
	t.delay = min(maxHeldDelay, max(heldDelay, 2*t.delay))
	t.held, t.pending, t.lastChange = t.next, false, now
	return true
}

// Run changes held versions when it is time, until ctx is done.
func (c *Catalog) Run(ctx context.Context) {
	timer := time.NewTimer(maxHeldDelay)
	defer timer.Stop()
	for {
		timer.Reset(c.applyDue(time.Now()))
		select {
		case <-c.pending:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// applyDue changes the held versions for which it is time, and returns how long it is
// until there may be more.
func (c *Catalog) applyDue(now time.Time) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news, wait := false, maxHeldDelay
	for _, t := range c.tallies {
		switch {
		case t.apply(now):
			news = true
		case t.pending:
			wait = min(wait, t.due().Sub(now))
		}
	}
	if news {
		c.notifyLocked()
	}
	return wait
}
