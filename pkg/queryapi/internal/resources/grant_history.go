package resources

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
)

// grantHistories remember by what grants callers were told what there is, as the log of
// changes does not have them: a watch is resumed only from where these have been the
// same since. A watch that tells what a change of grants brings and takes may be cut
// off anywhere; whoever resumes from before its end is told to list, or everything of
// that change again.
//
// Beyond a bound the oldest go first of the user who has most. From before that this user
// does not resume without a history; others are not told to list because of him.
type grantHistories struct {
	newest        func() *aggregate.Snapshot
	maxIdleWeight int // weight of those that no watch uses

	mu     sync.Mutex
	byKey  map[historyKey]*grantHistory
	idle   map[string]*idleHistories // by user, none of them empty
	weight int
	floors map[string]aggregate.Revision // by user, up to which something is forgotten
	floor  aggregate.Revision            // of all users
}

// idleHistories are the histories of a user that no watch uses.
type idleHistories struct {
	order  *list.List // of *history, the one that was looked at last at the end
	weight int
}

// historyKey is what the grants are of: who asked, with which verb, what, and where.
type historyKey struct {
	name, uid         string
	verb              string
	kind              aggregate.Kind
	member, namespace string
}

// grantHistory is by what grants a caller was told.
type grantHistory struct {
	key historyKey

	// Of histories, under their lock.
	watches     int           // that use it
	idleElement *list.Element // among the idle ones of its user; nil: it is none
	weight      int           // there

	// version changes with the grants: a watch looks at it between taking news and
	// telling them, and asks what is granted.
	version atomic.Int64

	mu           sync.Mutex
	grants       *authz.Grants // which have been the same since
	since        aggregate.Revision
	first        time.Time       // when answers of these grants were there, at the latest
	last         time.Time       // when all of them were asked for again, and were the same
	prior        []*authz.Grants // others by which something was told at this very revision
	priorDropped bool            // there were too many of them
}

// Bounds of what is remembered: some 100 bytes for each unit of weight, which is a
// history, or a member or a namespace in its grants.
const (
	maxHistories   = 1 << 17
	maxPriorGrants = 8
)

func newGrantHistories(newest func() *aggregate.Snapshot, most int) *grantHistories {
	return &grantHistories{newest: newest, maxIdleWeight: most, byKey: map[historyKey]*grantHistory{}, idle: map[string]*idleHistories{}, floors: map[string]aggregate.Revision{}}
}

// historyKey is the key of what a request is granted.
func (q *request) historyKey(verb string) historyKey {
	u := q.caller.User()
	return historyKey{u.GetName(), u.GetUID(), verb, q.resource.Kind, q.location.Member, q.location.Namespace}
}

// record takes note of what is granted now, and returns the history and its version.
func (h *grantHistories) record(key historyKey, grants *authz.Grants) (*grantHistory, int64) {
	t := h.findOrCreate(key, grants)
	return t, t.record(grants, h.newest)
}

func (h *grantHistories) findOrCreate(key historyKey, grants *authz.Grants) *grantHistory {
	weight := 1 + grants.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.byKey[key]
	if t == nil {
		t = &grantHistory{key: key, grants: grants, since: h.floorLocked(key.name)}
		t.last, t.first = grants.ReviewTimes()
		h.byKey[key] = t
	}
	if t.watches == 0 {
		h.addIdleLocked(t, weight)
	}
	return t
}

// get returns the history of a key, nil if there is none.
func (h *grantHistories) get(key historyKey) *grantHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byKey[key]
}

// getSince is have, and reports whether a history that there was of the key at a revision
// is there still.
func (h *grantHistories) getSince(key historyKey, told aggregate.Revision) (*grantHistory, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.byKey[key]
	return t, t != nil || told > h.floorLocked(key.name)
}

// retain keeps a history for a watch, which holds its grants anyway. It reports false
// where the history was forgotten meanwhile, and there is another.
func (h *grantHistories) retain(t *grantHistory) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.watches++
	h.removeIdleLocked(t)
	if h.byKey[t.key] == nil {
		h.byKey[t.key] = t
		t.raiseFloor(h.floorLocked(t.key.name))
	}
	return h.byKey[t.key] == t
}

// release ends what hold began.
func (h *grantHistories) release(t *grantHistory, grants *authz.Grants) {
	weight := 1 + grants.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.watches--; t.watches == 0 && h.byKey[t.key] == t {
		h.addIdleLocked(t, weight)
	}
}

// addIdleLocked has a history among the idle ones, as that which was looked at last. h.mu must be
// held.
func (h *grantHistories) addIdleLocked(t *grantHistory, weight int) {
	h.removeIdleLocked(t)
	of := h.idle[t.key.name]
	if of == nil {
		of = &idleHistories{order: list.New()}
		h.idle[t.key.name] = of
	}
	t.idleElement, t.weight = of.order.PushBack(t), weight
	of.weight += weight
	h.weight += weight
	for h.weight > h.maxIdleWeight {
		h.evictLocked()
	}
}

// removeIdleLocked takes a history from the idle ones, if it is there. h.mu must be held.
func (h *grantHistories) removeIdleLocked(t *grantHistory) {
	if t.idleElement == nil {
		return
	}
	of := h.idle[t.key.name]
	of.order.Remove(t.idleElement)
	of.weight -= t.weight
	h.weight -= t.weight
	t.idleElement, t.weight = nil, 0
	if of.order.Len() == 0 {
		delete(h.idle, t.key.name)
	}
}

// evictLocked drops the oldest idle history of the user whose weigh most. h.mu must be held,
// and there must be one.
func (h *grantHistories) evictLocked() {
	var most *idleHistories
	for _, of := range h.idle {
		if most == nil || of.weight > most.weight {
			most = of
		}
	}
	t := most.order.Front().Value.(*grantHistory)
	h.removeIdleLocked(t)
	delete(h.byKey, t.key)
	now := h.newest().Revision()
	if _, ok := h.floors[t.key.name]; !ok && len(h.floors) >= h.maxIdleWeight {
		clear(h.floors)
		h.floor = now
	}
	h.floors[t.key.name] = now
}

// floorLocked is up to which revision something is forgotten of a user. h.mu must be held.
func (h *grantHistories) floorLocked(user string) aggregate.Revision {
	return max(h.floor, h.floors[user])
}

// record notes grants. The newest revision is read once the version is another: watches
// have told no more than that by the grants before.
func (t *grantHistory) record(grants *authz.Grants, newest func() *aggregate.Snapshot) (version int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked, answered := grants.ReviewTimes()
	if t.grants.Equal(grants) {
		t.grants = grants // held once, with a watch
		if asked.After(t.last) {
			t.last = asked
		}
		return t.version.Load()
	}
	t.first, t.last = answered, asked
	version = t.version.Add(1)
	now := newest().Revision()
	if now > t.since {
		t.prior, t.priorDropped = nil, false
	}
	if len(t.prior) == maxPriorGrants {
		t.prior, t.priorDropped = t.prior[1:], true
	}
	t.prior = append(slices.Clip(t.prior), t.grants)
	t.grants, t.since = grants, now
	return version
}

// raiseFloor has nothing be known of what was told up to a revision.
func (t *grantHistory) raiseFloor(floor aggregate.Revision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if floor > t.since {
		t.since, t.prior, t.priorDropped = floor, nil, false
	}
}

// reviewTimes is the time over which nothing else was granted than last.
func (t *grantHistory) reviewTimes() (first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first, t.last
}

// equal reports whether what was granted last is the same.
func (t *grantHistory) equal(grants *authz.Grants) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grants.Equal(grants)
}

// resume returns the other grants by which a client may have been told what there was at
// a revision, and false where it may lack what nobody can tell any more. What was
// granted before can be made up for at the newest revision alone.
func (t *grantHistory) resume(told, newest aggregate.Revision) (was []*authz.Grants, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case told > t.since:
		return nil, true
	case told < t.since, len(t.prior) > 0 && told != newest, t.priorDropped:
		return nil, false
	}
	return t.prior, true
}
