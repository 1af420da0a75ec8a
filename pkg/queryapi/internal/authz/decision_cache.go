package authz

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// decisionCache keeps what was said until it expires. It has two generations, for the cache
// below holds what has expired until as many others have come: each is dropped whole
// once all of it has. Its methods are safe for concurrent use.
type decisionCache struct {
	maxPerGeneration int           // of one generation
	maxTTL           time.Duration // the longest that any answer does
	now              func() time.Time
	current          atomic.Pointer[generations]
}

// generations are immutable but for what the caches hold: question -> answer.
type generations struct {
	young, old *cache.LRUExpireCache
	rotateAt   time.Time // when what is young becomes old
}

// clock makes a function the cache's clock.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// newDecisionCache keeps most answers, of which none lasts longer.
func newDecisionCache(most int, longest time.Duration, now func() time.Time) *decisionCache {
	a := &decisionCache{maxPerGeneration: max(1, most/2), maxTTL: longest, now: now}
	a.current.Store(&generations{young: a.newGeneration(), old: a.newGeneration(), rotateAt: now().Add(longest)})
	return a
}

func (a *decisionCache) newGeneration() *cache.LRUExpireCache {
	return cache.NewLRUExpireCacheWithClock(a.maxPerGeneration, clock(a.now))
}

// get returns an answer that is still good.
func (a *decisionCache) get(q attributes) (decision, bool) {
	g := a.current.Load()
	value, ok := g.young.Get(q)
	if !ok {
		value, ok = g.old.Get(q)
	}
	if !ok {
		return decision{}, false
	}
	ans := value.(decision)
	return ans, a.now().Before(ans.expires())
}

// add keeps an answer.
func (a *decisionCache) add(q attributes, ans decision) {
	now := a.now()
	g := a.current.Load()
	if !now.Before(g.rotateAt) {
		next := &generations{young: a.newGeneration(), old: g.young, rotateAt: now.Add(a.maxTTL)}
		if !now.Before(g.rotateAt.Add(a.maxTTL)) {
			next.old = a.newGeneration()
		}
		a.current.CompareAndSwap(g, next) // else somebody else did
		g = a.current.Load()
	}
	g.young.Add(q, ans, ans.expires().Sub(now))
}

// remove drops an answer.
func (a *decisionCache) remove(q attributes) {
	g := a.current.Load()
	g.young.Remove(q)
	g.old.Remove(q)
}
