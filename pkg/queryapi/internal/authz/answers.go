package authz

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// answers keeps what was said until it expires. It has two generations, for the cache
// below holds what has expired until as many others have come: each is dropped whole
// once all of it has. Its methods are safe for concurrent use.
type answers struct {
	most  int           // of one generation
	lasts time.Duration // the longest that any answer does
	now   func() time.Time
	at    atomic.Pointer[generations]
}

// generations are immutable but for what the caches hold: question -> answer.
type generations struct {
	young, old *cache.LRUExpireCache
	until      time.Time // when what is young becomes old
}

// clock makes a function the cache's clock.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// newAnswers keeps most answers, of which none lasts longer.
func newAnswers(most int, longest time.Duration, now func() time.Time) *answers {
	a := &answers{most: max(1, most/2), lasts: longest, now: now}
	a.at.Store(&generations{young: a.none(), old: a.none(), until: now().Add(longest)})
	return a
}

func (a *answers) none() *cache.LRUExpireCache {
	return cache.NewLRUExpireCacheWithClock(a.most, clock(a.now))
}

// get returns an answer that is still good.
func (a *answers) get(q question) (answer, bool) {
	g := a.at.Load()
	value, ok := g.young.Get(q)
	if !ok {
		value, ok = g.old.Get(q)
	}
	if !ok {
		return answer{}, false
	}
	ans := value.(answer)
	return ans, a.now().Before(ans.expires())
}

// add keeps an answer.
func (a *answers) add(q question, ans answer) {
	now := a.now()
	g := a.at.Load()
	if !now.Before(g.until) {
		next := &generations{young: a.none(), old: g.young, until: now.Add(a.lasts)}
		if !now.Before(g.until.Add(a.lasts)) {
			next.old = a.none()
		}
		a.at.CompareAndSwap(g, next) // else somebody else did
		g = a.at.Load()
	}
	g.young.Add(q, ans, ans.expires().Sub(now))
}

// remove drops an answer.
func (a *answers) remove(q question) {
	g := a.at.Load()
	g.young.Remove(q)
	g.old.Remove(q)
}
