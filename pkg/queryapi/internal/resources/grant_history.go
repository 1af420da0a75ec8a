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

// grantHistories record under which grants callers were sent objects, since the change log
// does not: a watch can be resumed only from where the grants have been the same since. A
// watch may be interrupted anywhere while it sends the effect of changed grants; a client
// that resumes from before the end of that has to list, or is sent all of it again.
//
// Beyond a limit the oldest histories are evicted, of the user who has most. That user then
// cannot resume from before; other users are not affected.
type grantHistories struct {
	newest        func() *aggregate.Snapshot
	first         aggregate.Revision // of this process
	memory        GrantMemory        // nil: nothing is known of processes before
	maxIdleWeight int                // of histories that no watch uses

	mu     sync.Mutex
	byKey  map[historyKey]*grantHistory
	idle   map[string]*idleHistories // by user, none of them empty
	weight int
	floors map[string]aggregate.Revision // by user, up to which histories were evicted
	floor  aggregate.Revision            // of all users
}

// idleHistories are the histories of a user that no watch uses.
type idleHistories struct {
	order  *list.List // of *grantHistory, the most recently used at the end
	weight int
}

// historyKey is what the grants are of: user, verb, kind and location.
type historyKey struct {
	name, uid         string
	verb              string
	kind              aggregate.Kind
	member, namespace string
}

// grantHistory is under which grants a caller was sent objects.
type grantHistory struct {
	key historyKey

	// Of histories, under their lock.
	watches     int           // that use it
	idleElement *list.Element // among the idle ones of its user; nil: not idle
	weight      int           // there

	// version changes with the grants: a watch checks it between receiving changes and
	// sending them, and renews its grants.
	version atomic.Int64

	mu           sync.Mutex
	begun        bool          // what is remembered of the key is part of it
	grants       *authz.Grants // the same since
	since        aggregate.Revision
	first        time.Time       // when these grants had been decided, at the latest
	last         time.Time       // when all of them were last requested again, and were the same
	prior        []*authz.Grants // others under which something was sent at this very revision
	priorDropped bool            // there were more than maxPriorGrants
}

// Bounds of histories: some 100 bytes for each unit of weight, which is a history, or a
// member or a namespace in its grants.
const (
	maxHistories   = 1 << 17
	maxPriorGrants = 8
)

func newGrantHistories(x *aggregate.Index, memory GrantMemory, limit int) *grantHistories {
	return &grantHistories{newest: x.Snapshot, first: x.First(), memory: memory, maxIdleWeight: limit, byKey: map[historyKey]*grantHistory{}, idle: map[string]*idleHistories{}, floors: map[string]aggregate.Revision{}}
}

// historyKey returns the key of the request's grants.
func (q *request) historyKey(verb string) historyKey {
	u := q.caller.User()
	return historyKey{u.GetName(), u.GetUID(), verb, q.resource.Kind, q.location.Member, q.location.Namespace}
}

// record records present grants, and returns the history and its version.
func (h *grantHistories) record(key historyKey, grants *authz.Grants) (*grantHistory, int64) {
	t := h.findOrCreate(key, grants)
	return t, h.update(t, grants)
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

// getSince is get, and reports whether a history of the key at a revision would still be
// there.
func (h *grantHistories) getSince(key historyKey, sent aggregate.Revision) (*grantHistory, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.byKey[key]
	return t, t != nil || sent > h.floorLocked(key.name)
}

// retain keeps a history for a watch, which holds its grants anyway. It returns false where
// the history was evicted in the meantime, and there is another.
func (h *grantHistories) retain(t *grantHistory) bool {
	kept, again := h.retainEvicted(t)
	if again {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.begun = false // something else may be remembered since
		h.begin(t)
	}
	return kept
}

// retainEvicted is retain, and reports whether the history had been evicted and is there again.
func (h *grantHistories) retainEvicted(t *grantHistory) (kept, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.watches++
	h.removeIdleLocked(t)
	if again = h.byKey[t.key] == nil; again {
		h.byKey[t.key] = t
		t.raiseFloor(h.floorLocked(t.key.name))
	}
	return h.byKey[t.key] == t, again
}

// release is the inverse of retain.
func (h *grantHistories) release(t *grantHistory, grants *authz.Grants) {
	weight := 1 + grants.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.watches--; t.watches == 0 && h.byKey[t.key] == t {
		h.addIdleLocked(t, weight)
	}
}

// addIdleLocked makes a history the most recently used idle one.
func (h *grantHistories) addIdleLocked(t *grantHistory, weight int) {
	h.removeIdleLocked(t)
	idle := h.idle[t.key.name]
	if idle == nil {
		idle = &idleHistories{order: list.New()}
		h.idle[t.key.name] = idle
	}
	t.idleElement, t.weight = idle.order.PushBack(t), weight
	idle.weight += weight
	h.weight += weight
	for h.weight > h.maxIdleWeight {
		h.evictLocked()
	}
}

// removeIdleLocked removes a history from the idle ones, if it is one.
func (h *grantHistories) removeIdleLocked(t *grantHistory) {
	if t.idleElement == nil {
		return
	}
	idle := h.idle[t.key.name]
	idle.order.Remove(t.idleElement)
	idle.weight -= t.weight
	h.weight -= t.weight
	t.idleElement, t.weight = nil, 0
	if idle.order.Len() == 0 {
		delete(h.idle, t.key.name)
	}
}

// evictLocked drops the oldest idle history of the user with the largest weight. There must
// be one.
func (h *grantHistories) evictLocked() {
	var largest *idleHistories
	for _, of := range h.idle {
		if largest == nil || of.weight > largest.weight {
			largest = of
		}
	}
	t := largest.order.Front().Value.(*grantHistory)
	h.removeIdleLocked(t)
	delete(h.byKey, t.key)
	now := h.newest().Revision()
	if _, ok := h.floors[t.key.name]; !ok && len(h.floors) >= h.maxIdleWeight {
		clear(h.floors)
		h.floor = now
	}
	h.floors[t.key.name] = now
}

// floorLocked returns the revision up to which histories of a user were evicted.
func (h *grantHistories) floorLocked(user string) aggregate.Revision {
	return max(h.floor, h.floors[user])
}

// update records grants. The newest revision is read after the version is incremented:
// watches have sent nothing newer under the previous grants.
func (h *grantHistories) update(t *grantHistory, grants *authz.Grants) (version int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.begin(t)
	first, last := grants.ReviewTimes()
	if t.grants.Equal(grants) {
		t.grants = grants // one copy, shared with watches
		if first.After(t.last) {
			t.last = first
		}
		return t.version.Load()
	}
	t.first, t.last = last, first
	version = t.version.Add(1)
	now := h.newest().Revision()
	if now > t.since {
		t.prior, t.priorDropped = nil, false
	}
	if len(t.prior) == maxPriorGrants {
		t.prior, t.priorDropped = t.prior[1:], true
	}
	t.prior = append(slices.Clip(t.prior), t.grants)
	t.grants, t.since = grants, now
	if h.memory != nil {
		h.memory.Remember(t.key.digest(), grants.Digest(), now+1)
	}
	return version
}

// raiseFloor discards what is known up to a revision.
func (t *grantHistory) raiseFloor(floor aggregate.Revision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if floor > t.since {
		t.since, t.prior, t.priorDropped = floor, nil, false
	}
}

// reviewTimes returns the time over which the grants have been the same.
func (t *grantHistory) reviewTimes() (first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first, t.last
}

// equal reports whether grants are the same as the last ones.
func (t *grantHistory) equal(grants *authz.Grants) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grants.Equal(grants)
}

// resume returns the other grants under which a client may have been sent objects at a
// revision, and false where it may lack some that are no longer known. Effects of prior
// grants can be sent again at the newest revision only.
func (h *grantHistories) resume(t *grantHistory, sent, newest aggregate.Revision) (was []*authz.Grants, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.begin(t)
	switch {
	case sent > t.since:
		return nil, true
	case sent < t.since, len(t.prior) > 0 && sent != newest, t.priorDropped:
		return nil, false
	}
	return t.prior, true
}
