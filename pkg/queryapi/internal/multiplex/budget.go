package multiplex

import (
	"sync"
	"sync/atomic"
)

// budget is what the questions of a caller share, in all of their streams.
type budget struct {
	questions atomic.Int64 // that are asked
	streams   int          // guarded by budgets.mu
}

// budgets are those of the callers who have streams. Questions have no use for its lock.
type budgets struct {
	mu sync.Mutex
	of map[string]*budget // by the caller's name
}

// open returns the budget of a caller who has one more stream, until close.
func (b *budgets) open(name string) *budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	own, ok := b.of[name]
	if !ok {
		own = &budget{}
		b.of[name] = own
	}
	own.streams++
	return own
}

func (b *budgets) close(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.of[name]; own.streams > 1 {
		own.streams--
	} else {
		delete(b.of, name)
	}
}
