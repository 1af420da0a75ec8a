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

// histories remember by what grants callers were told what there is, as the log of
// changes does not have them: a watch is resumed only from where these have been the
// same since. A watch that tells what a change of grants brings and takes may be cut
// off anywhere; whoever resumes from before its end is told to list, or everything of
// that change again.
//
// Beyond a bound the oldest go first of the user who has most. From before that this user
// does not resume without a history; others are not told to list because of him.
type histories struct {
	newest func() *aggregate.Snapshot
	most   int // weight of those that no watch uses

	mu     sync.Mutex
	by     map[historyKey]*history
	idle   map[string]*idle // by user, none of them empty
	weight int
	floors map[string]aggregate.Revision // by user, up to which something is forgotten
	floor  aggregate.Revision            // of all users
}

// idle are the histories of a user that no watch uses.
type idle struct {
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

// history is by what grants a caller was told.
type history struct {
	key historyKey

	// Of histories, under their lock.
	watches int           // that use it
	at      *list.Element // among the idle ones of its user; nil: it is none
	weight  int           // there

	// version changes with the grants: a watch looks at it between taking news and
	// telling them, and asks what is granted.
	version atomic.Int64

	mu     sync.Mutex
	grants *authz.Grants // which have been the same since
	since  aggregate.Revision
	first  time.Time       // when answers of these grants were there, at the latest
	last   time.Time       // when all of them were asked for again, and were the same
	was    []*authz.Grants // others by which something was told at this very revision
	many   bool            // there were too many of them
}

// Bounds of what is remembered: some 100 bytes for each unit of weight, which is a
// history, or a member or a namespace in its grants.
const (
	maxHistories = 1 << 17
	maxWas       = 8
)

func newHistories(newest func() *aggregate.Snapshot, most int) *histories {
	return &histories{newest: newest, most: most, by: map[historyKey]*history{}, idle: map[string]*idle{}, floors: map[string]aggregate.Revision{}}
}

// historyKey is the key of what a request is granted.
func (q *request) historyKey(verb string) historyKey {
	u := q.caller.User()
	return historyKey{u.GetName(), u.GetUID(), verb, q.resource.Kind, q.place.Member, q.place.Namespace}
}

// look takes note of what is granted now, and returns the history and its version.
func (h *histories) look(key historyKey, grants *authz.Grants) (*history, int64) {
	t := h.find(key, grants)
	return t, t.take(grants, h.newest)
}

func (h *histories) find(key historyKey, grants *authz.Grants) *history {
	weight := 1 + grants.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.by[key]
	if t == nil {
		t = &history{key: key, grants: grants, since: h.forgotten(key.name)}
		t.last, t.first = grants.Asked()
		h.by[key] = t
	}
	if t.watches == 0 {
		h.rest(t, weight)
	}
	return t
}

// have returns the history of a key, nil if there is none.
func (h *histories) have(key historyKey) *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[key]
}

// recall is have, and reports whether a history that there was of the key at a revision
// is there still.
func (h *histories) recall(key historyKey, told aggregate.Revision) (*history, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.by[key]
	return t, t != nil || told > h.forgotten(key.name)
}

// hold keeps a history for a watch, which holds its grants anyway. It reports false
// where the history was forgotten meanwhile, and there is another.
func (h *histories) hold(t *history) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.watches++
	h.wake(t)
	if h.by[t.key] == nil {
		h.by[t.key] = t
		t.raise(h.forgotten(t.key.name))
	}
	return h.by[t.key] == t
}

// release ends what hold began.
func (h *histories) release(t *history, grants *authz.Grants) {
	weight := 1 + grants.Size()
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.watches--; t.watches == 0 && h.by[t.key] == t {
		h.rest(t, weight)
	}
}

// rest has a history among the idle ones, as that which was looked at last. h.mu must be
// held.
func (h *histories) rest(t *history, weight int) {
	h.wake(t)
	of := h.idle[t.key.name]
	if of == nil {
		of = &idle{order: list.New()}
		h.idle[t.key.name] = of
	}
	t.at, t.weight = of.order.PushBack(t), weight
	of.weight += weight
	h.weight += weight
	for h.weight > h.most {
		h.forget()
	}
}

// wake takes a history from the idle ones, if it is there. h.mu must be held.
func (h *histories) wake(t *history) {
	if t.at == nil {
		return
	}
	of := h.idle[t.key.name]
	of.order.Remove(t.at)
	of.weight -= t.weight
	h.weight -= t.weight
	t.at, t.weight = nil, 0
	if of.order.Len() == 0 {
		delete(h.idle, t.key.name)
	}
}

// forget drops the oldest idle history of the user whose weigh most. h.mu must be held,
// and there must be one.
func (h *histories) forget() {
	var most *idle
	for _, of := range h.idle {
		if most == nil || of.weight > most.weight {
			most = of
		}
	}
	t := most.order.Front().Value.(*history)
	h.wake(t)
	delete(h.by, t.key)
	now := h.newest().Revision()
	if _, ok := h.floors[t.key.name]; !ok && len(h.floors) >= h.most {
		clear(h.floors)
		h.floor = now
	}
	h.floors[t.key.name] = now
}

// forgotten is up to which revision something is forgotten of a user. h.mu must be held.
func (h *histories) forgotten(user string) aggregate.Revision { return max(h.floor, h.floors[user]) }

// take notes grants. The newest revision is read once the version is another: watches
// have told no more than that by the grants before.
func (t *history) take(grants *authz.Grants, newest func() *aggregate.Snapshot) (version int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked, answered := grants.Asked()
	if t.grants.Same(grants) {
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
		t.was, t.many = nil, false
	}
	if len(t.was) == maxWas {
		t.was, t.many = t.was[1:], true
	}
	t.was = append(slices.Clip(t.was), t.grants)
	t.grants, t.since = grants, now
	return version
}

// raise has nothing be known of what was told up to a revision.
func (t *history) raise(floor aggregate.Revision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if floor > t.since {
		t.since, t.was, t.many = floor, nil, false
	}
}

// span is the time over which nothing else was granted than last.
func (t *history) span() (first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first, t.last
}

// same reports whether what was granted last is the same.
func (t *history) same(grants *authz.Grants) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.grants.Same(grants)
}

// resume returns the other grants by which a client may have been told what there was at
// a revision, and false where it may lack what nobody can tell any more. What was
// granted before can be made up for at the newest revision alone.
func (t *history) resume(told, newest aggregate.Revision) (was []*authz.Grants, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case told > t.since:
		return nil, true
	case told < t.since, len(t.was) > 0 && told != newest, t.many:
		return nil, false
	}
	return t.was, true
}
