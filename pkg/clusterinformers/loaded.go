package clusterinformers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/catalog"
)

// loaded is what the index was loaded with of a member, by an earlier process: what is held goes
// on from there where the member still serves it as it did.
type loaded struct {
	member aggregate.Member
	at     time.Time
	scopes map[aggregate.Kind]bool // that no informer has continued yet; loop's goroutine only
	// unproved are the kinds of which nobody has found out since whether what is held is what the member
	// has, and when their informers were last ended. The member's mu guards it.
	unproved map[aggregate.Kind]time.Time
	proved   map[aggregate.Kind]time.Time // that another process has; immutable

	namespaces   string      // how far the Namespaces were read
	furthest     reachedKind // the kind that was read furthest
	furthestKind aggregate.Kind
	served       catalog.APIResources // by the last discovery; nil where that is not known
}

// Adopt takes over what the index was loaded with, by an earlier process. It is called before Run.
// From then on the members' kinds are known as they were.
func (m *Manager) Adopt() {
	all := takeLoaded(m.opts.Index)
	for name, l := range all {
		if l.member.Discovery == "" {
			continue
		}
		served, err := catalog.Decode(l.member.Discovery)
		if err != nil {
			m.opts.Logger.Warn("what the member served before the restart is not known", "member", name, "error", err)
			continue
		}
		l.served = m.catalog.Set(name, served)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = all
}

// takeLoaded returns what the index was loaded with, by member.
func takeLoaded(x *aggregate.Index) map[string]*loaded {
	snap, out := x.Newest(), map[string]*loaded{}
	for m := range snap.Members() {
		out[m.Name] = loadedOf(snap, m)
	}
	return out
}

// loadedOf returns what the index was loaded with of one member.
func loadedOf(snap *aggregate.Snapshot, m aggregate.Member) *loaded {
	l := &loaded{member: m, at: time.Now(), scopes: map[aggregate.Kind]bool{}, unproved: map[aggregate.Kind]time.Time{}}
	for _, kind := range snap.KindsOf(m.Name) {
		l.scopes[kind], l.unproved[kind] = true, time.Time{}
		info, _ := snap.Scope(m.Name, kind)
		l.noteFurthest(kind, &info, snap.Reached(m.Name, kind))
	}
	if parts := snap.Reached(m.Name, "Namespace"); len(parts) == 1 {
		l.namespaces = parts[0].ResourceVersion
	}
	return l
}

// goesOn reports whether somebody may go on with what is held: a process after this one, or another one.
func (m *Manager) goesOn() bool { return m.opts.Index.Holds() || m.opts.TakeOver != nil }

// TakeOver is a member that another process may hold.
type TakeOver struct {
	Member, UID string
	// Wanted reports whether a kind is held here, or may be.
	Wanted func(aggregate.Kind) bool
	// MaxObjects and MaxBytes bound what the member may cost.
	MaxObjects, MaxBytes int64
}

// takeOver takes what another process holds of the member, unless an earlier one of this has left something: its scopes are gone on
// with as what was loaded is. What is not taken is listed. It is the panic boundary of that.
func (mb *member) takeOver(ctx context.Context) {
	m, spec := mb.manager, mb.currentSpec()
	if m.opts.TakeOver == nil || mb.loaded.Load() != nil || !spec.inFleet() {
		return
	}
	mb.publish(spec)
	var proved map[aggregate.Kind]time.Time
	err := recoverPanic(func() error {
		proved = m.opts.TakeOver(ctx, TakeOver{
			Member: mb.name, UID: spec.UID, Wanted: m.mayHold, MaxObjects: mb.quota.Limits.Objects, MaxBytes: mb.quota.Limits.Bytes,
		})
		return nil
	})
	if err != nil {
		m.metrics.member(mb.name).panics.Inc()
		mb.log.Error("taking over the member failed", "error", err)
	}
	known, is := m.opts.Index.Newest().Member(mb.name)
	if !is || len(proved) == 0 {
		return
	}
	l := loadedOf(m.opts.Index.Newest(), known)
	for kind, at := range proved {
		if !at.IsZero() {
			delete(l.unproved, kind)
		}
	}
	l.proved = proved
	mb.loaded.Store(l)
}

// mayHold reports whether a kind is kept, or may be once all policies were read.
func (m *Manager) mayHold(kind aggregate.Kind) bool {
	_, ruled := m.opts.matchRule(kind)
	_, kept := m.rule(kind)
	return kept || !ruled
}

// provedAt returns when what another process has held of a kind was last known to be what the member has.
func (l *loaded) provedAt(kind aggregate.Kind) time.Time {
	if l == nil {
		return time.Time{}
	}
	return l.proved[kind]
}

// noteFurthest takes note of a kind, if it was read further than the others.
func (l *loaded) noteFurthest(kind aggregate.Kind, info *aggregate.ScopeInfo, parts []aggregate.Part) {
	gv, err := schema.ParseGroupVersion(info.Version)
	if err != nil {
		return // it is not continued, either
	}
	for _, p := range parts {
		if rv := p.ResourceVersion; rv != "" && (l.furthest.reached == "" || olderThan(l.furthest.reached, rv)) {
			l.furthestKind, l.furthest = kind, reachedKind{resource: gv.WithResource(info.Resource), reached: rv}
		}
	}
}

// adoptLocked has a new member go on with what was loaded of it. What was loaded of another member of
// that name leaves. m.mu must be held.
func (m *Manager) adoptLocked(mb *member) {
	l := m.loaded[mb.name]
	if l == nil {
		return
	}
	delete(m.loaded, mb.name)
	if !mb.spec.sameMember(Spec{UID: l.member.UID}) {
		m.forgetLoaded(mb.name)
		return
	}
	if mb.spec.UID == "" {
		mb.spec.UID = l.member.UID
	}
	mb.loaded.Store(l)
	mb.indexedUID = &l.member.UID
	if v := l.member.Version; v != "" {
		mb.version.Store(&v)
	}
	if l.served != nil {
		mb.discovery, mb.resources = l.member.Discovery, l.served
	}
}

// forgetLoaded removes what was loaded of a member.
func (m *Manager) forgetLoaded(name string) {
	m.catalog.Set(name, nil)
	m.opts.Index.RemoveMember(name)
}

// dropLoadedLocked removes what was loaded of members that are none any more: those that no source names, once there are no
// others (complete), and those that have left. m.mu must be held.
func (m *Manager) dropLoadedLocked(specs map[string]describedMember, complete bool) {
	if len(m.loaded) == 0 {
		return
	}
	drop := func(name string) {
		if _, is := specs[name]; !is && m.loaded[name] != nil {
			m.forgetLoaded(name)
			m.opts.Logger.Info("member removed: it has left while federator did not run", "member", name)
			delete(m.loaded, name)
		}
	}
	for _, view := range m.views {
		if view != nil {
			for _, name := range view.Left {
				drop(name)
			}
		}
	}
	if complete {
		for name := range m.loaded {
			drop(name)
		}
		clear(m.loaded)
	}
}

// reachedNamespaces is how far the Namespaces were read that the index was loaded with.
func (l *loaded) reachedNamespaces() string {
	if l == nil {
		return ""
	}
	return l.namespaces
}

// mayContinue reports whether the first informer of a kind may go on with what the process before has
// read: the same cluster answers, in the same state or a later one. It is asked once for a kind.
func (mb *member) mayContinue(kind aggregate.Kind, resets int) bool {
	l := mb.loaded.Load()
	if l == nil || !l.scopes[kind] {
		return false
	}
	delete(l.scopes, kind)
	return resets == 0
}

// awaitsPolicies reports whether a loaded scope stays although nothing selects its kind: policies that
// require it may not have been read yet.
func (mb *member) awaitsPolicies(kind aggregate.Kind) bool {
	if l := mb.loaded.Load(); l == nil || !l.scopes[kind] || mb.hadTime() {
		return false
	}
	_, ruled := mb.manager.opts.matchRule(kind)
	return !ruled
}

// hadTime reports whether a loaded member has had the time in which its policies are read.
func (mb *member) hadTime() bool {
	l := mb.loaded.Load()
	return l == nil || time.Since(l.at) >= mb.manager.opts.GiveUpAfter
}

// continued returns how far a scope was read, where the member serves its kind as it did; nil where that
// cannot be continued.
func continued(scope *aggregate.Scope, served string) []aggregate.Part {
	parts := scope.Reach()
	if served == "" || slices.ContainsFunc(parts, func(p aggregate.Part) bool { return p.Served != served }) {
		return nil
	}
	return parts
}

// held is how far a namespace was read, "" where that is not known.
func held(parts []aggregate.Part, namespace string) string {
	for _, p := range parts {
		if p.Namespace == namespace {
			return p.ResourceVersion
		}
	}
	return ""
}

// reachedLocked has the next commit record how far each listWatch has come, where that is all that
// another process needs to go on: what is left out, or was let go, is known by a list only.
// i.mu must be held.
func (i *informer) reachedLocked() {
	if !i.member.manager.goesOn() {
		return
	}
	served := i.servedText.Load()
	for _, p := range i.listWatches {
		part := aggregate.Part{Namespace: p.namespace}
		if served != nil && *served != "" && p.retention == nil && p.leftOut.none() {
			part.ResourceVersion, part.Served = p.applied, *served
		}
		i.scope.Reached(part)
	}
}

// recordLocked records how far the scope has come where nothing of it has changed. i.mu must be held.
func (i *informer) recordLocked() {
	if !i.member.manager.goesOn() {
		return
	}
	if err := i.commitLocked(); err != nil {
		i.log().Debug("recording how far the scope has come failed", "error", err)
	}
}

// Form says what of a kind is held, and read by what: objects that were held in another form must be
// read again.
func (m *Manager) Form(kind aggregate.Kind) string {
	rule, matched := m.opts.matchRule(kind)
	if !matched {
		rule = KindRule{}
	}
	rule.Kind, rule.Exclude = "", false
	text, err := json.Marshal(struct {
		Rule             KindRule
		KeepSecretValues bool
		Library          int
		Decoding         int
	}{rule, m.opts.KeepSecretValues, libraryMinor, decodingVersion})
	if err != nil {
		panic(err) // it has texts and numbers only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// decodingVersion changes with what is made of an object that is read.
const decodingVersion = 1

// provedLocked notes that what is held is what the member had at a time. The informer's mu must be
// held.
func (p *listWatch) provedLocked(at time.Time) {
	p.proved, p.changes, p.resumed = at, 0, false
	if r := p.repairs.Load(); r != nil && p.repairs.CompareAndSwap(r, nil) {
		close(r.done)
	}
}

func (p *listWatch) isResumed() bool {
	p.informer.mu.Lock()
	defer p.informer.mu.Unlock()
	return p.resumed
}

// provedAt returns when what is held was last known to be what the member has, nil where it never
// was.
func (i *informer) provedAt() *time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.provedLocked()
}

// provedLocked is provedAt. i.mu must be held.
func (i *informer) provedLocked() *time.Time {
	var oldest time.Time
	for n, p := range i.listWatches {
		if n == 0 || p.proved.Before(oldest) {
			oldest = p.proved
		}
	}
	if oldest.IsZero() {
		return nil
	}
	return &oldest
}

// checkAudited returns why what is held of the member may not be what it has: an earlier process has
// held it, and it has not been audited since.
func (mb *member) checkAudited() error {
	kinds := mb.unaudited()
	if len(kinds) == 0 {
		return nil
	}
	return fmt.Errorf("member %q: %d scopes that were loaded have not been audited yet, as %s: %w", mb.name, len(kinds), kinds[0], ErrUnaudited)
}

// unaudited returns the kinds that nothing is written to the member for: of what an earlier process has
// held of them it is not known whether the member has it, whichever informer goes on with it. What has not
// been watched for GiveUpAfter is not waited for: that it is Stale says enough.
func (mb *member) unaudited() (kinds []aggregate.Kind) {
	opts, l := &mb.manager.opts, mb.loaded.Load()
	if opts.Audit.Off || l == nil {
		return nil
	}
	mb.mu.Lock()
	unproved, informers := maps.Clone(l.unproved), maps.Clone(mb.informers)
	mb.mu.Unlock()
	if len(unproved) == 0 {
		return nil
	}
	contact, _, _, since := mb.conn.state()
	waits := func(ended time.Time) bool { // another informer may follow
		return contact != connection.Connected || time.Since(since) < opts.GiveUpAfter || time.Since(ended) < opts.GiveUpAfter
	}
	snap, settled := opts.Index.Newest(), []aggregate.Kind(nil)
	for _, kind := range slices.Sorted(maps.Keys(unproved)) {
		_, holds := snap.Scope(mb.name, kind)
		switch r := informers[kind]; {
		case !holds, r != nil && r.provedAt() != nil:
			settled = append(settled, kind)
		case r == nil && waits(unproved[kind]), r != nil && r.awaitsAudit(opts.GiveUpAfter):
			kinds = append(kinds, kind)
		}
	}
	mb.mu.Lock()
	defer mb.mu.Unlock()
	for _, kind := range settled {
		delete(l.unproved, kind)
	}
	return kinds
}

// awaitsAudit reports whether something of the scope is to be audited that will be.
func (i *informer) awaitsAudit(patience time.Duration) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.ContainsFunc(i.listWatches, func(p *listWatch) bool {
		return p.proved.IsZero() && (p.state == aggregate.Synced || (p.state == aggregate.Stale || p.state == aggregate.Unknown) && time.Since(p.since) < patience)
	})
}
