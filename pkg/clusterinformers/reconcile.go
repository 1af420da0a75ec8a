package clusterinformers

import (
	"context"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// reconciled is what the informers follow from. While it stays the same, and no definition
// changes, there is nothing to reconcile.
type reconciled struct {
	catalog    <-chan struct{} // open until held versions, kinds or rules change
	connection connectionState
	resets     int
	findings   int // of the member
	hadTime    bool

	waits        bool      // it is not known of a kind whether the member serves it
	discoveredAt time.Time // where one waits: for a discovery, be it one that finds nothing new
}

// reconcile makes the informers those that configuration, discovery and the
// held versions require. What it is given is as old as what it reads, or older.
func (mb *member) reconcile(ctx context.Context, catalogChanged <-chan struct{}, known connectionState) {
	mb.mu.Lock()
	o, resets := mb.resources, mb.resets
	mb.mu.Unlock()
	if o == nil || mb.findings == 0 {
		return // not discovered yet: resources may be those of before a restart
	}
	if resets != mb.discoveredResets {
		mb.expireDiscovery() // it was of another cluster
	}
	now := reconciled{catalog: catalogChanged, connection: known, resets: resets, findings: mb.findings, hadTime: mb.hadTime(), waits: mb.reconciled.waits}
	if now.waits {
		now.discoveredAt = mb.discoveredAt
	}
	if now == mb.reconciled && !mb.relistChanged() {
		return
	}
	mb.reconciled, mb.reconcileFailed = reconciled{}, false // until all is done
	wanted := map[aggregate.Kind]catalog.APIResource{}
	notes := map[aggregate.Kind]string{}
	for kind, versions := range o {
		if _, ok := mb.manager.rule(kind); ok {
			wanted[kind], notes[kind] = mb.manager.catalog.Select(kind, versions)
		}
	}
	mb.stopStale(wanted, resets)
	mb.relistChanged()
	mb.removeExcluded()
	for _, kind := range slices.Sorted(maps.Keys(wanted)) {
		mb.startInformer(ctx, kind, wanted[kind], notes[kind], resets)
	}
	mb.publishAbsent(wanted)
	mb.checkSynced()
	if mb.reconcileFailed {
		return
	}
	now.waits, now.discoveredAt = mb.waitsForDiscovery(), time.Time{}
	if now.waits {
		now.discoveredAt = mb.discoveredAt
	}
	mb.reconciled = now
}

// waitsForDiscovery reports whether it is not known of a kind whether the member serves it.
func (mb *member) waitsForDiscovery() bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	for _, status := range mb.absent {
		if status.State != aggregate.NotServed {
			return true
		}
	}
	return false
}

// stopStale ends the informers of kinds that are gone, or that are to be
// held at another version.
func (mb *member) stopStale(wanted map[aggregate.Kind]catalog.APIResource, resets int) {
	mb.mu.Lock()
	var ended []*runningInformer
	for kind, r := range mb.informers {
		if res, ok := wanted[kind]; !ok || !res.Same(r.res()) || r.resets != resets {
			mb.endLocked(kind, r)
			ended = append(ended, r)
		}
	}
	mb.mu.Unlock()
	for _, r := range ended {
		<-r.done
	}
}

// endLocked ends an informer of which there may be another soon: writes wait for what it has not proved. mb.mu must
// be held.
func (mb *member) endLocked(kind aggregate.Kind, r *runningInformer) {
	r.end()
	delete(mb.informers, kind)
	if l := mb.loaded.Load(); l != nil {
		if _, is := l.unproved[kind]; is {
			l.unproved[kind] = time.Now()
		}
	}
}

func (mb *member) startInformer(ctx context.Context, kind aggregate.Kind, res catalog.APIResource, note string, resets int) {
	mb.mu.Lock()
	before, exists := mb.informers[kind]
	mb.mu.Unlock()
	if exists {
		before.setNote(note)
		return
	}
	rule, _ := mb.manager.rule(kind)
	cluster := ""
	if uid := mb.clusterUID.Load(); uid != nil {
		cluster = *uid
	}
	served, as := mb.currentServing(kind), ""
	if mb.mayContinue(kind, resets) {
		as = served.text(cluster)
	}
	i, err := newInformer(ctx, mb, kind, res, rule, note, as)
	if err != nil {
		mb.reconcileFailed = true
		mb.log.Error("opening the scope failed", "kind", kind, "error", err)
		return
	}
	if mb.relisting[kind] {
		delete(mb.relisting, kind)
		for _, p := range i.listWatches {
			p.cause = "served otherwise"
		}
	}
	i.resets, i.cluster = resets, cluster
	r := &runningInformer{informer: i}
	mb.mu.Lock()
	delay := time.Until(mb.resetAt.Add(mb.resetDelay))
	if !i.continues {
		served = mb.currentServing(kind) // under the lock, so that learnDefinitions sees it, or is seen
	}
	r.setServed(served)
	mb.informers[kind] = r
	mb.openers.setScopes(len(mb.informers))
	delete(mb.absent, kind)
	mb.mu.Unlock()
	i.start(delay)
}

// wakeScopes has all scopes look at what there is to do.
func (mb *member) wakeScopes() {
	mb.auditor.woken.Fire()
	mb.mu.Lock()
	defer mb.mu.Unlock()
	for _, r := range mb.informers {
		for _, p := range r.listWatches {
			p.task.Wake()
		}
	}
}

// sweepScopes has the scopes look that are not watched, or whose watch is over and does not know.
// To wake 100,000 scopes takes a tenth of a second.
func (mb *member) sweepScopes(now time.Time) {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	for _, r := range mb.informers {
		for _, p := range r.listWatches {
			if w := p.open.Load(); w == nil || now.After(w.deadline) || w.client.Ended() {
				p.task.Wake()
			}
		}
	}
}

// stopAll ends all informers and waits for them.
func (mb *member) stopAll() {
	mb.mu.Lock()
	ended := maps.Clone(mb.informers)
	mb.mu.Unlock()
	proved := map[aggregate.Kind]time.Time{}
	for kind, r := range ended {
		if at := r.provedAt(); at != nil {
			proved[kind] = *at
		}
	}
	mb.mu.Lock()
	mb.proved = proved
	clear(mb.informers)
	mb.mu.Unlock()
	for _, r := range ended {
		r.end()
	}
	for _, r := range ended {
		<-r.done
	}
}

// removeExcluded takes the scopes of kinds out of the index that are not kept any
// more. Their informers have ended.
func (mb *member) removeExcluded() {
	x := mb.manager.opts.Index
	snapshot := x.Newest()
	for _, kind := range snapshot.KindsOf(mb.name) {
		if _, kept := mb.manager.rule(kind); kept || mb.awaitsPolicies(kind) {
			continue
		}
		if info, ok := snapshot.Scope(mb.name, kind); ok {
			mb.removeScope(info)
		}
	}
}

// removeScope removes a scope without a writer from the index.
func (mb *member) removeScope(info aggregate.ScopeInfo) {
	scope, err := mb.manager.opts.Index.OpenScopeAs(mb.name, info.Kind, info.Version, info.Resource)
	if err != nil {
		mb.reconcileFailed = true
		mb.log.Error("opening the scope failed", "kind", info.Kind, "error", err)
		return
	}
	scope.Remove()
	mb.manager.metrics.forget(mb.name, info.Kind)
	mb.mu.Lock()
	delete(mb.absent, info.Kind)
	mb.mu.Unlock()
}

// publishAbsent shows the kinds that are named, and that this member does not serve,
// as NotServed, which means known to be empty, as long as discovery is fresh. Kinds
// that only discovery has found have scopes in the members that serve them, and in
// no others: there the index knows from what the member serves that it has none.
func (mb *member) publishAbsent(wanted map[aggregate.Kind]catalog.APIResource) {
	kinds := map[aggregate.Kind]bool{} // whether they are named
	for kind := range mb.rejected {
		kinds[kind] = mb.manager.catalog.Serves(kind)
	}
	var rest []aggregate.ScopeInfo
	snapshot := mb.manager.opts.Index.Newest()
	for _, kind := range snapshot.KindsOf(mb.name) {
		if _, known := kinds[kind]; !known {
			kinds[kind] = false
		}
		if _, served := wanted[kind]; !served && !mb.awaitsPolicies(kind) {
			scope, _ := snapshot.Scope(mb.name, kind)
			rest = append(rest, scope)
		}
	}
	for _, kind := range mb.manager.namedKinds() {
		kinds[kind] = true
	}
	for _, scope := range rest {
		if !kinds[scope.Kind] && mb.absentStatus(scope.Kind).State == aggregate.NotServed {
			mb.removeScope(scope)
			delete(kinds, scope.Kind)
		}
	}
	contact, reason, _, _ := mb.conn.state()
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if _, served := wanted[kind]; served {
			continue
		}
		if _, known := mb.manager.opts.Index.Newest().Scope(mb.name, kind); !known && !kinds[kind] {
			continue
		}
		if _, kept := mb.manager.rule(kind); !kept {
			continue
		}
		if contact != connection.Connected {
			mb.setAbsent(kind, aggregate.Status{State: aggregate.Unknown, Reason: "not served at the last discovery; member is " + string(contact) + " (" + string(reason) + ")"})
			continue
		}
		mb.setAbsent(kind, mb.absentStatus(kind))
	}
}

// absentStatus is the status of a kind that a connected member did not serve when it
// was last discovered.
func (mb *member) absentStatus(kind aggregate.Kind) aggregate.Status {
	_, group := kind.Split()
	since, _ := mb.manager.required.sinceWhen(kind)
	switch {
	case mb.rejected[kind] != "":
		return aggregate.Status{State: aggregate.Unknown, Reason: message.Clip(mb.rejected[kind])}
	case mb.discoveredAt.IsZero() || mb.discoveredAt.Before(since):
		return aggregate.Status{State: aggregate.Unknown, Reason: "the member's API resources have not been discovered yet"}
	case mb.unavailable[group]:
		return aggregate.Status{State: aggregate.Unknown, Reason: "the member's discovery of the API group fails"}
	case mb.truncated:
		return aggregate.Status{State: aggregate.Unknown, Reason: "the member serves more kinds than federator reads"}
	case mb.federated.Load() && !mb.facts.Load().Lacks(kind):
		return aggregate.Status{State: aggregate.Unknown, Reason: "its federator does not hold it"}
	}
	return aggregate.Status{State: aggregate.NotServed}
}

func (mb *member) setAbsent(kind aggregate.Kind, status aggregate.Status) {
	mb.mu.Lock()
	was, known := mb.absent[kind]
	mb.mu.Unlock()
	if known && was == status {
		return
	}
	x := mb.manager.opts.Index
	info, _ := x.Newest().Scope(mb.name, kind) // none: neither is known
	scope, err := x.OpenScopeAs(mb.name, kind, info.Version, info.Resource)
	if err != nil {
		mb.reconcileFailed = true
		mb.log.Error("opening the scope failed", "kind", kind, "error", err)
		return
	}
	defer scope.Close()
	if _, err := scope.Replace(nil, status); err != nil {
		mb.reconcileFailed = true
		mb.log.Error("emptying the scope failed", "kind", kind, "error", err)
		return
	}
	mb.manager.metrics.forget(mb.name, kind)
	mb.mu.Lock()
	mb.absent[kind] = status
	mb.mu.Unlock()
}

// checkSynced notes when every scope has synced or failed once.
func (mb *member) checkSynced() {
	if mb.synced.Load() {
		return
	}
	mb.mu.Lock()
	defer mb.mu.Unlock()
	if mb.resources == nil {
		return
	}
	for kind := range mb.resources {
		r, started := mb.informers[kind]
		if _, kept := mb.manager.rule(kind); kept && (!started || !r.synced.Load()) {
			return
		}
	}
	mb.synced.Store(true)
	mb.endStart()
	if mb.spec.Role == aggregate.Standby {
		mb.triggerSpec() // from now on it is one
	}
}

func (mb *member) addScopes(st *MemberStatus, details bool) {
	mb.mu.Lock()
	rs := slices.Collect(maps.Values(mb.informers))
	absent := maps.Clone(mb.absent)
	mb.mu.Unlock()
	st.addScopes(rs, absent, mb.lastContact(), details)
	if mb.loaded.Load() != nil && len(rs) == 0 {
		st.addLoaded(mb.manager.opts.Index.Newest(), absent, details)
	}
	st.addAudit(mb.auditor, rs)
}

// connStatus returns what is known of the member apart from its scopes.
func (mb *member) connStatus() MemberStatus {
	contact, reason, message, since := mb.conn.state()
	mb.checkSynced()
	spec := mb.currentSpec()
	st := MemberStatus{
		Name: mb.name, UID: spec.UID, State: contact, Reason: reason, Message: message, Since: since,
		ReadOnly: spec.ReadOnly, Paused: spec.Hold.Paused, Synced: mb.synced.Load(), Scopes: map[aggregate.State]int{},
	}
	for _, l := range spec.Labels {
		if st.Labels == nil {
			st.Labels = make(map[string]string, len(spec.Labels))
		}
		st.Labels[l.Key] = l.Value
	}
	st.WritesWith = spec.writesWith()
	st.Budget = BudgetStatus{MaxObjects: mb.quota.Limits.Objects, MaxBytes: mb.quota.Limits.Bytes}
	st.Budget.Objects, st.Budget.Bytes = mb.quota.Used()
	if hold := mb.hold(); hold != nil {
		st.Held, st.FrozenUntil = hold.Message, spec.Hold.FrozenUntil(mb.manager.opts.Clock())
		if contact == connection.Connected {
			st.Reason, st.Message = hold.Reason, hold.Message
		}
	}
	if v := mb.version.Load(); v != nil {
		st.Version = *v
	}
	if why := mb.stock.Load(); why != nil {
		st.Transport = *why
	}
	if t := mb.conn.newestError(); t.text != "" {
		st.Error, st.ErrorAt = t.text, &t.at
	}
	mb.conn.mu.Lock()
	if st.LastError = mb.conn.lastErr; st.LastError != "" {
		at := mb.conn.lastErrAt
		st.LastErrorAt = &at
	}
	mb.conn.mu.Unlock()
	return st
}

// lastContact returns when a member that is connected last said anything; the zero time
// of one that is not.
func (mb *member) lastContact() time.Time {
	if contact, _, _, _ := mb.conn.state(); contact != connection.Connected {
		return time.Time{}
	}
	return time.Unix(0, mb.conn.lastRead.Load())
}

// runningInformers returns the informers of the member by kind.
func (mb *member) runningInformers() []*runningInformer {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	all := make([]*runningInformer, 0, len(mb.informers))
	for _, kind := range slices.Sorted(maps.Keys(mb.informers)) {
		all = append(all, mb.informers[kind])
	}
	return all
}

// isCurrent reports whether an informer is of the cluster that answers now.
func (mb *member) isCurrent(i *informer) bool {
	mb.mu.Lock()
	defer mb.mu.Unlock()
	r := mb.informers[i.kind]
	return r != nil && r.informer == i && i.resets == mb.resets
}
