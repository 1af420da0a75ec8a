package clusterinformers

import (
	"cmp"
	"container/list"
	"fmt"
	"slices"
	"strconv"
	"time"

	"federator.dev/federator/pkg/clusterinformers/internal/quota"
)

// retention is what is kept of a kind whose objects come without end, such as Events:
// the newest, for a while, and no more than a share of the member's budget. What is
// older leaves the scope, whatever the member still has. The informer's mu guards it.
type retention struct {
	ttl   time.Duration // 0: no bound
	limit size
	total size

	left    uint64                      // the newest resourceVersion of what is older and not kept
	entries map[objectKey]*list.Element // of remembered
	order   *list.List                  // longest unchanged first

	next  time.Time // of the next look at what is too old; the task's, as is timer
	timer *time.Timer
}

type objectKey struct{ namespace, name string }

type retained struct {
	objectKey
	rv        string
	changedAt time.Time // when it last changed, as far as is known
	size      int64
}

// retainedBytes is what remembering an object costs in addition to the object, in bytes.
const retainedBytes = 256

// newRetention returns nil for a rule that keeps all.
func newRetention(r KindRule, budget quota.Limits) *retention {
	if r.TTL == 0 && r.Share == 0 {
		return nil
	}
	k := &retention{ttl: r.TTL, limit: size{budget.Objects, budget.Bytes}}
	if r.Share > 0 {
		share := int64(r.Share)
		k.limit = size{max(1, k.limit.objects*share/100), k.limit.bytes / 100 * share}
	}
	k.reset()
	return k
}

func (k *retention) reset() {
	if k != nil {
		k.entries, k.order, k.total, k.left = map[objectKey]*list.Element{}, list.New(), size{}, 0
	}
}

// add takes note of an object that has changed, and returns what must leave.
func (k *retention) add(o *object, now time.Time) []objectKey {
	if k == nil {
		return nil
	}
	key := objectKey{o.namespace, o.name}
	k.remove(key)
	k.entries[key] = k.order.PushBack(&retained{key, o.rv, now, o.size() + retainedBytes})
	k.total = size{k.total.objects + 1, k.total.bytes + o.size() + retainedBytes}
	return k.expire(now)
}

// remove takes note of an object that is gone.
func (k *retention) remove(key objectKey) {
	if k == nil {
		return
	}
	if e := k.entries[key]; e != nil {
		delete(k.entries, key)
		k.order.Remove(e)
		k.total = size{k.total.objects - 1, k.total.bytes - e.Value.(*retained).size}
	}
}

// expire forgets what is too old, or too much, and returns it.
func (k *retention) expire(now time.Time) (gone []objectKey) {
	if k == nil {
		return nil
	}
	for e := k.order.Front(); e != nil; e = k.order.Front() {
		r := e.Value.(*retained)
		old := k.ttl > 0 && now.Sub(r.changedAt) >= k.ttl
		if !old && k.total.objects <= k.limit.objects && k.total.bytes <= k.limit.bytes {
			break
		}
		k.remove(r.objectKey)
		k.left = max(k.left, parseResourceVersion(r.rv))
		gone = append(gone, r.objectKey)
	}
	return gone
}

// newestLeft is the newest resourceVersion of what is not kept: what is newer is.
func (k *retention) newestLeft() uint64 {
	if k == nil {
		return 0
	}
	return k.left
}

// replace takes note of a list, and returns what of it is to be kept. What has not
// changed is as old as it was; of the rest the member's resourceVersion says which
// is newer.
func (k *retention) replace(listed []*object, now time.Time) []*object {
	if k == nil {
		return listed
	}
	before := k.entries
	k.reset()
	sorted := slices.Clone(listed)
	at := make(map[*object]time.Time, len(listed))
	for _, o := range sorted {
		at[o] = now
		if e := before[objectKey{o.namespace, o.name}]; e != nil && e.Value.(*retained).rv == o.rv {
			at[o] = e.Value.(*retained).changedAt
		}
	}
	slices.SortStableFunc(sorted, func(a, b *object) int {
		return cmp.Or(at[a].Compare(at[b]), cmp.Compare(parseResourceVersion(a.rv), parseResourceVersion(b.rv)))
	})
	for _, o := range sorted {
		k.add(o, at[o])
	}
	k.expire(now)
	return slices.DeleteFunc(listed, func(o *object) bool { return k.entries[objectKey{o.namespace, o.name}] == nil })
}

// parseResourceVersion is a resourceVersion as a number, 0 for one that is none.
func parseResourceVersion(rv string) uint64 {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// evictExpired has what has become too old leave, and sees to it that it is called again.
func (p *listWatch) evictExpired(now time.Time) {
	k, i := p.retention, p.informer
	if k == nil || k.ttl == 0 || now.Before(k.next) {
		return
	}
	every := max(k.ttl/16, time.Second)
	k.next = now.Add(every)
	if k.timer == nil {
		k.timer = time.AfterFunc(every, p.task.Wake)
	} else {
		k.timer.Reset(every)
	}
	i.mu.Lock()
	gone := k.expire(now)
	p.evictLocked(gone)
	var err error
	if len(gone) > 0 {
		err = i.commitLocked()
	}
	i.mu.Unlock()
	p.checkCommit(now, err)
}

// stop ends calls by the timer.
func (k *retention) stop() {
	if k != nil && k.timer != nil {
		k.timer.Stop()
	}
}

// evictLocked takes objects out of the scope. The informer's mu must be held.
func (p *listWatch) evictLocked(gone []objectKey) {
	for _, key := range gone {
		p.informer.scope.Delete(key.namespace, key.name)
	}
}

// retentionNote says in words what a rule keeps of a kind without end, "" when all.
func (r KindRule) retentionNote() string {
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
