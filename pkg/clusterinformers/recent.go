package clusterinformers

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/clusterinformers/internal/backoff"
	"federator.dev/federator/pkg/clusterinformers/internal/quota"
)

// recent is what is kept of a kind whose objects come without end, such as Events:
// the newest, for a while, and no more than a share of the member's budget. What is
// older leaves the scope, whatever the member still has. The informer's mu guards it.
type recent struct {
	ttl   time.Duration // 0: no bound
	most  size
	total size

	held  map[recentKey]*list.Element // of remembered
	order *list.List                  // longest unchanged first
}

type recentKey struct{ namespace, name string }

type remembered struct {
	recentKey
	rv   string
	at   time.Time // when it last changed, as far as we were told
	size int64
}

// recentSize is what remembering an object costs beside it, in bytes.
const recentSize = 256

// newRecent returns nil for a rule that keeps all.
func newRecent(r KindRule, budget quota.Limits) *recent {
	if r.TTL == 0 && r.Share == 0 {
		return nil
	}
	k := &recent{ttl: r.TTL, most: size{budget.Objects, budget.Bytes}}
	if r.Share > 0 {
		share := int64(r.Share)
		k.most = size{max(1, k.most.objects*share/100), k.most.bytes / 100 * share}
	}
	k.reset()
	return k
}

func (k *recent) reset() {
	if k != nil {
		k.held, k.order, k.total = map[recentKey]*list.Element{}, list.New(), size{}
	}
}

// keep takes note of an object that has changed, and returns what must leave.
func (k *recent) keep(o *object, now time.Time) []recentKey {
	if k == nil {
		return nil
	}
	key := recentKey{o.namespace, o.name}
	k.forget(key)
	k.held[key] = k.order.PushBack(&remembered{key, o.rv, now, o.size() + recentSize})
	k.total = size{k.total.objects + 1, k.total.bytes + o.size() + recentSize}
	return k.expire(now)
}

// forget takes note of an object that is gone.
func (k *recent) forget(key recentKey) {
	if k == nil {
		return
	}
	if e := k.held[key]; e != nil {
		delete(k.held, key)
		k.order.Remove(e)
		k.total = size{k.total.objects - 1, k.total.bytes - e.Value.(*remembered).size}
	}
}

// expire forgets what is too old, or too much, and returns it.
func (k *recent) expire(now time.Time) (gone []recentKey) {
	if k == nil {
		return nil
	}
	for e := k.order.Front(); e != nil; e = k.order.Front() {
		r := e.Value.(*remembered)
		old := k.ttl > 0 && now.Sub(r.at) >= k.ttl
		if !old && k.total.objects <= k.most.objects && k.total.bytes <= k.most.bytes {
			break
		}
		k.forget(r.recentKey)
		gone = append(gone, r.recentKey)
	}
	return gone
}

// replace takes note of a list, and returns what of it is to be kept. What has not
// changed is as old as it was; of the rest the member's resourceVersion says which
// is newer.
func (k *recent) replace(listed []*object, now time.Time) []*object {
	if k == nil {
		return listed
	}
	before := k.held
	k.reset()
	sorted := slices.Clone(listed)
	at := make(map[*object]time.Time, len(listed))
	for _, o := range sorted {
		at[o] = now
		if e := before[recentKey{o.namespace, o.name}]; e != nil && e.Value.(*remembered).rv == o.rv {
			at[o] = e.Value.(*remembered).at
		}
	}
	slices.SortStableFunc(sorted, func(a, b *object) int {
		return cmp.Or(at[a].Compare(at[b]), cmp.Compare(number(a.rv), number(b.rv)))
	})
	for _, o := range sorted {
		k.keep(o, at[o])
	}
	k.expire(now)
	return slices.DeleteFunc(listed, func(o *object) bool { return k.held[recentKey{o.namespace, o.name}] == nil })
}

// number is a resourceVersion as a number, 0 for one that is none.
func number(rv string) uint64 {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// sweep has what has become too old leave, until ctx is done.
func (p *part) sweep(ctx context.Context) {
	every := max(p.recent.ttl/16, time.Second)
	for backoff.Sleep(ctx, every) == nil {
		p.leaveOld(time.Now())
	}
}

func (p *part) leaveOld(now time.Time) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	gone := p.recent.expire(now)
	if len(gone) == 0 {
		return
	}
	p.leave(gone)
	_ = p.committed(i.commit()) //nolint:errcheck // committed has acted on it
}

// leave takes objects out of the scope. The informer's mu must be held.
func (p *part) leave(gone []recentKey) {
	for _, key := range gone {
		p.informer.scope.Delete(key.namespace, key.name)
	}
}

// recently says in words what a rule keeps of a kind without end, "" when all.
func (r KindRule) recently() string {
	switch {
	case r.TTL > 0 && r.Share > 0:
		return fmt.Sprintf("only what changed within %s, at most %d%% of the member's budget", r.TTL, r.Share)
	case r.TTL > 0:
		return fmt.Sprintf("only what changed within %s", r.TTL)
	case r.Share > 0:
		return fmt.Sprintf("only the newest, at most %d%% of the member's budget", r.Share)
	}
	return ""
}
