package clusterinformers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

// Another held version has a kind listed again in all members, and judged by what it
// says at that version. One member that serves now this and now that must not have all
// others read again and again: after each change the next one waits longer, until what
// members serve has been the same for as long.
const (
	heldFirst  = time.Second // after the first change, which is at once
	heldMax    = time.Hour
	heldForget = 6 * time.Hour // after which the first change is again the first
)

// tally counts, for one kind, the members that serve it, and at which versions.
type tally struct {
	members  int
	versions map[string]int
	held     string // "": no version is served by all

	waits bool // for held to become next
	next  string
	since time.Time     // when next became what all serve
	delay time.Duration // from then on
	last  time.Time     // when held changed, or was to or not any more
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

// wish says which version all serve now. What nobody holds yet is held at it.
func (t *tally) wish(common string, fresh bool, now time.Time) {
	switch {
	case fresh:
		t.held = common
		return
	case t.waits && t.next == common, !t.waits && t.held == common:
		return
	}
	if now.Sub(t.last) > heldForget {
		t.delay = 0
	}
	t.waits, t.next, t.since, t.last = common != t.held, common, now, now
}

func (t *tally) due() time.Time { return t.since.Add(t.delay) }

// fulfil has the version held that all serve, if it is time, and reports whether it is
// another.
func (t *tally) fulfil(now time.Time) bool {
	if !t.waits || now.Before(t.due()) {
		return false
	}
	t.delay = min(heldMax, max(heldFirst, 2*t.delay))
	t.held, t.waits, t.last = t.next, false, now
	return true
}

// run changes held versions when it is time, until ctx is done.
func (c *catalog) run(ctx context.Context) {
	timer := time.NewTimer(heldMax)
	defer timer.Stop()
	for {
		timer.Reset(c.fulfil(time.Now()))
		select {
		case <-c.waits:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// fulfil changes the held versions for which it is time, and returns how long it is
// until there may be more.
func (c *catalog) fulfil(now time.Time) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news, wait := false, heldMax
	for _, t := range c.tally {
		switch {
		case t.fulfil(now):
			news = true
		case t.waits:
			wait = min(wait, t.due().Sub(now))
		}
	}
	if news {
		c.tell()
	}
	return wait
}
