package clusterinformers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/audit"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
	"federator.dev/federator/pkg/tracing"
)

// put puts an object into the scope. It is committed with the others that have come.
func (p *listWatch) put(o *object, now time.Time) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case o.unfit.why != "":
		i.scope.Delete(o.namespace, o.name) // what was held is not what there is
		p.retention.remove(objectKey{o.namespace, o.name})
		p.leaveOutLocked(o)
		i.publishLeftOutLocked()
	default:
		p.stampLocked(i.scope.Upsert(o.item), o.namespace, o.name, o.rv, false)
		p.evictLocked(p.retention.add(o, now))
		p.restoreLocked(o.namespace, o.name)
	}
	p.appliedLocked(o.rv, now)
	p.noteLocked(o.witness())
}

// remove takes an object out of the scope. It is committed with the others that have come.
func (p *listWatch) remove(namespace, name, rv string, now time.Time) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	p.stampLocked(i.scope.Delete(namespace, name), namespace, name, rv, true)
	p.retention.remove(objectKey{namespace, name})
	p.restoreLocked(namespace, name)
	p.appliedLocked(rv, now)
	if i.rule.Labels == "" && i.rule.Fields == "" { // otherwise it may only be selected no more
		p.noteLocked(witness{namespace: namespace, name: name, at: rv, gone: true})
	}
}

// restoreLocked takes an object that was left out back in, or lets it go. The informer's
// mu must be held.
func (p *listWatch) restoreLocked(namespace, name string) {
	if len(p.leftOut.versions) > 0 && p.leftOut.remove(audit.KeyOf(namespace, name)) {
		p.informer.member.quota.Charge(&p.informer.usage, 0, -leftOutBytes)
		p.informer.publishLeftOutLocked()
	}
}

// appliedLocked notes how far the index has come with the next commit. The informer's mu must be
// held.
func (p *listWatch) appliedLocked(rv string, now time.Time) {
	i := p.informer
	i.applied, p.applied = rv, rv
	p.advanceLocked(rv)
	p.changes++
	p.pending = append(p.pending, now)
	if isDefinition(i.kind) {
		i.member.triggerDiscovery()
	}
}

// bookmarked notes how far the member has been read.
func (p *listWatch) bookmarked(rv string) {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	i.applied, p.applied = rv, rv
	p.advanceLocked(rv)
	if len(p.pending) > 0 {
		return // the commit of these records it
	}
	i.committed = rv
	i.recordLocked()
}

// commit publishes what was applied: a burst costs one commit, and a single event waits for
// nothing.
func (p *listWatch) commit() error {
	if len(p.pending) == 0 {
		return nil
	}
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	err := i.commitLocked()
	if err == nil {
		now := time.Now()
		for _, t := range p.pending {
			i.observeLocked(now.Sub(t), t)
		}
	}
	p.pending = p.pending[:0]
	if cap(p.pending) > maxBatch {
		p.pending = nil
	}
	return err
}

// stampLocked notes when a change was read and decoded, if changes are traced. The informer's mu must be held.
func (p *listWatch) stampLocked(position int, namespace, name, version string, deleted bool) {
	i := p.informer
	if i.member.manager.opts.Tracer == nil {
		return
	}
	began, now := p.decoded, tracing.At(time.Now())
	p.decoded = now
	i.stamps = append(i.stamps, tracing.Stamp{
		Namespace: namespace, Name: name, Version: version, Deleted: deleted, Position: position, Read: p.turn, Began: began, Decoded: now,
	})
}

// traceLocked tells the tracer of changes that have been committed, unless that failed. i.mu must be held.
func (i *informer) traceLocked(revision aggregate.Revision, changes int, err error) {
	const most = 8 // of a scope whose commits have several: there are many scopes
	i.traced = tracing.Exemplar{}
	if err == nil && changes > 0 {
		i.traced = i.member.manager.opts.Tracer.Committed(&tracing.Commit{
			Member: i.member.name, Kind: string(i.kind), Revision: uint64(revision), Changes: changes, At: tracing.At(time.Now()),
		}, i.stamps)
	}
	clear(i.stamps)
	if i.stamps = i.stamps[:0]; cap(i.stamps) > most {
		i.stamps = nil
	}
}

// observeLocked counts how long an event took that was read at a time: one of those that are traced as an exemplar. i.mu must be held.
func (i *informer) observeLocked(took time.Duration, read time.Time) {
	if i.traced.Labels != nil && i.traced.Read == tracing.At(read) {
		if o, can := i.metrics.latency.(prometheus.ExemplarObserver); can {
			o.ObserveWithExemplar(took.Seconds(), i.traced.Labels)
			i.traced = tracing.Exemplar{}
			return
		}
	}
	i.metrics.latency.Observe(took.Seconds())
}

// chargeListed sets what the items of a list under way, which the index does not hold
// yet, cost the member, and reports whether it has the budget. A list that
// replaces what the scope holds needs no second budget.
func (p *listWatch) chargeListed(listed size) bool {
	i := p.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	ahead := size{max(0, listed.objects-i.objects), max(0, listed.bytes-i.bytes)}
	if ahead == p.aheadOfScope {
		return true
	}
	if !i.member.quota.Charge(&i.usage, ahead.objects-p.aheadOfScope.objects, ahead.bytes-p.aheadOfScope.bytes) {
		return false
	}
	p.aheadOfScope = ahead
	return true
}

// replaceStaged makes the scope hold exactly what was listed.
func (p *listWatch) replaceStaged(now time.Time, rv string) {
	staged := p.staged
	if p.restaged {
		staged = newestOf(staged)
	}
	p.discard() // the commit charges all of it
	p.panics, p.pending = 0, nil
	p.checkList(rv)
	p.floor = rv
	err := p.replace(staged, rv, now)
	if mb := p.informer.member; p.informer.kind == definitionKind {
		mb.learnDefinitions() // here, before an event changes them
		mb.triggerSpec()      // some may differ from those of before
	}
	p.checkCommit(now, err)
}

// newestOf returns what is there at the end of initial events among which objects have changed.
func newestOf(staged []*object) []*object {
	newest := make(map[objectKey]*object, len(staged))
	for _, o := range staged {
		newest[objectKey{o.namespace, o.name}] = o
	}
	return slices.DeleteFunc(staged, func(o *object) bool { return o.deleted || newest[objectKey{o.namespace, o.name}] != o })
}

func (p *listWatch) replace(objs []*object, rv string, now time.Time) error {
	i := p.informer
	fit := make([]*object, 0, len(objs))
	var left []*object
	for _, o := range objs {
		if o.unfit.why != "" {
			left = append(left, o)
		} else {
			fit = append(fit, o)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	fit = p.retention.replace(fit, now)
	items := make([]aggregate.Item, len(fit))
	for n, o := range fit {
		items[n] = o.item
	}
	p.state, p.reason, p.loaded, p.since = aggregate.Synced, "", false, now
	p.setLeftOutLocked(left)
	i.countLeftOutLocked()
	i.relistedLocked(p.cause)
	p.cause = "other"
	i.applied, p.applied = rv, rv
	i.reachedLocked()
	p.keepWitnessLocked()
	p.noteListedLocked(objs)
	var err error
	if p.namespace == "" {
		_, err = i.scope.Replace(items, i.statusLocked())
	} else {
		_, err = i.scope.ReplaceNamespace(p.namespace, items, i.statusLocked())
	}
	if err == nil {
		err = i.commitLocked() // charges for the size
	}
	if err == nil {
		p.provedLocked(now)
	}
	return err
}

// checkCommit gives the scope up when its commit has exceeded the budget.
func (p *listWatch) checkCommit(now time.Time, err error) {
	if errors.Is(err, errOverBudget) {
		objects, bytes := p.informer.member.quota.Used()
		p.overBudget(now, fmt.Sprintf("the scope would exceed the budget: the member already holds %d objects, %d bytes", objects, bytes))
	}
}

// emptyOverBudget empties a listWatch that is over budget.
func (i *informer) emptyOverBudget(p *listWatch, why string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	again := p.state == aggregate.OverBudget
	p.state, p.reason, p.loaded, p.resumed = aggregate.OverBudget, message.Clip(why), false, false
	p.setLeftOutLocked(nil)
	i.countLeftOutLocked()
	p.cause, p.applied = "budget", ""
	p.retention.reset()
	_, err := i.scope.ReplaceNamespace(p.namespace, nil, i.statusLocked())
	if err == nil {
		err = i.commitLocked()
	}
	if again && err == nil {
		return // it was logged when it happened
	}
	i.log().Warn("over budget, removing the scope's objects", "reason", "OverBudget", "detail", why, "error", err)
}
