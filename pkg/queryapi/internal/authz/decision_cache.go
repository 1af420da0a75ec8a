package authz

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// decisionCache keeps decisions until they expire. It has two generations, as an
// LRUExpireCache holds what has expired until it is evicted: a generation is dropped once
// all of it has expired. Its methods are safe for concurrent use.
type decisionCache struct {
	maxPerGeneration int           // entries
	maxTTL           time.Duration // of any decision
	now              func() time.Time
	current          atomic.Pointer[generations]
}

// generations are immutable, except for the caches: attributes -> decision.
type generations struct {
	young, old *cache.LRUExpireCache
	rotateAt   time.Time // when young becomes old
}

// clock makes a function the cache's clock.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// newDecisionCache returns a cache of at most size decisions, which expire within maxTTL.
func newDecisionCache(size int, maxTTL time.Duration, now func() time.Time) *decisionCache {
	a := &decisionCache{maxPerGeneration: max(1, size/2), maxTTL: maxTTL, now: now}
	a.current.Store(&generations{young: a.newGeneration(), old: a.newGeneration(), rotateAt: now().Add(maxTTL)})
	return a
}

func (a *decisionCache) newGeneration() *cache.LRUExpireCache {
	return cache.NewLRUExpireCacheWithClock(a.maxPerGeneration, clock(a.now))
}

// get returns a decision that has not expired.
func (a *decisionCache) get(attrs attributes) (decision, bool) {
	g := a.current.Load()
	value, ok := g.young.Get(attrs)
	if !ok {
		value, ok = g.old.Get(attrs)
	}
	if !ok {
		return decision{}, false
	}
	d := value.(decision)
	return d, a.now().Before(d.expires())
}

// add caches a decision.
func (a *decisionCache) add(attrs attributes, d decision) {
	now := a.now()
	g := a.current.Load()
	if !now.Before(g.rotateAt) {
		next := &generations{young: a.newGeneration(), old: g.young, rotateAt: now.Add(a.maxTTL)}
		if !now.Before(g.rotateAt.Add(a.maxTTL)) {
			next.old = a.newGeneration()
		}
		a.current.CompareAndSwap(g, next) // or another goroutine has
		g = a.current.Load()
	}
	g.young.Add(attrs, d, d.expires().Sub(now))
}

// remove drops a decision.
func (a *decisionCache) remove(attrs attributes) {
	g := a.current.Load()
	g.young.Remove(attrs)
	g.old.Remove(attrs)
}
