package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/interest"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/mask"
	"federator.dev/federator/pkg/policy/internal/matview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/projection"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/subscribed"
)

// identityOf names a view in what processes tell each other. Indexes of the subject's own member are not told.
func (e *Engine) identityOf(set *module.Set, pkg *module.Package, name string, ofFleet, index bool) string {
	if index && !ofFleet {
		return ""
	}
	return projection.ViewName(set.Fingerprints()[pkg.Name], name, pinnedVersions(pkg), ofFleet)
}

// planProjections finds what policies read of objects in members that other processes judge. Templates read their
// subject's member, unless the constraint says otherwise.
func (e *Engine) planProjections() {
	var fleet []map[module.KindRef]*mask.Mask
	for _, b := range e.bindings {
		if !b.pkg.IsTemplate() || b.FleetInventory() {
			fleet = append(fleet, b.pkg.Reads.Fleet)
		}
	}
	var views []projection.View
	for _, v := range e.views {
		if v.identity != "" {
			views = append(views, projection.View{Name: v.identity, ID: v.ID, Pkg: v.Pkg})
		}
	}
	e.projections = projection.NewPlan(fleet, views)
}

// knowledge says what is known of what peers have told.
func (e *Engine) knowledge() fleetview.Projections {
	if e.beside != nil {
		return projection.Beside{Plan: e.projections, Of: e.beside}
	}
	return e.projections
}

// parts are those of a state that are not its verdicts.
func (e *Engine) parts() state.Parts {
	p := state.Parts{
		Set: e.set, Gaps: e.gaps, Fingerprints: e.fingerprints, Clock: e.clock.Now, Fleet: e.fleet, Owner: e.owner, Projections: e.projections, External: e.external,
		Wanted: interest.Everything(), Held: interest.Everything(),
	}
	if e.subs != nil {
		p.Wanted, p.Held = e.subs.Wanted(), e.subs.Held()
	}
	return p
}

// contributeAway returns what an object of another process contributes to a view: what that process says.
func (w *worker) contributeAway(v *view, o aggregate.Object) matview.Contribution {
	if v.identity == "" {
		return matview.Contribution{}
	}
	var err error
	if w.otherBody, err = o.AppendBody(w.otherBody[:0]); err != nil {
		return matview.FailedContribution(o.Ref(), err.Error())
	}
	return projection.Contribution(&w.inputs, w.otherBody, v.identity, o.Ref(), w.e.opts.Limits.Contribution)
}

// effectOfAway returns what a delta of an object of another process means.
func (w *worker) effectOfAway(d aggregate.Delta, p *kindPlan, n deltaEffect) deltaEffect {
	for i, v := range p.views {
		n.evaluated[i], n.contributions[i] = true, w.contributeAway(v, d.After)
	}
	if d.Before.IsZero() || d.Before.APIVersion() != d.After.APIVersion() {
		return n
	}
	var err error
	if w.body, err = d.Before.AppendBody(w.body[:0]); err != nil {
		return n
	}
	if w.otherBody, err = d.After.AppendBody(w.otherBody[:0]); err != nil {
		return n
	}
	same := func(path ...string) bool {
		return string(canonjson.Get(w.body, path...)) == string(canonjson.Get(w.otherBody, path...))
	}
	n.fleetUnchanged = same("o") && same("f")
	return n
}

// objectIn returns an object's JSON from its body, which has no more of one of another process than policies read. One
// of a scope of which that is not known has nothing, as verdicts that read it are Unknown; where the binding tolerates
// that, it cannot be read.
func (ev *evaluation) objectIn(o aggregate.Object, body []byte) ([]byte, error) {
	fleet := ev.w.e.fleet
	if !fleet.Away(o.Member()) {
		return body, nil
	}
	switch info, _ := fleet.Scope(o.Member(), o.Ref().Kind); {
	case fleet.Known(info):
		return projection.ObjectOf(body)
	case ev.binding.tolerated.Has(o.Member()):
		return nil, errors.New(completeness.Untold(&info))
	}
	return []byte("{}"), nil
}

// invalidateRelearned marks the subjects that read an object of another process of which is known now, by other policies, what
// policies read, or is not any more.
func (r *pass) invalidateRelearned(was *fleetview.View) {
	for _, member := range r.after.AwayMembers() {
		r.invalidateScopes(member, func(info aggregate.ScopeInfo) bool { return was.Known(info) != r.after.Known(info) })
	}
}

// invalidateUntold marks the subjects that read an object of a member of another process as nothing, or could not, as less is told of
// it than policies read: which of the two follows from whether a binding tolerates that.
func (r *pass) invalidateUntold(member string) {
	if r.after.Away(member) {
		r.invalidateScopes(member, func(info aggregate.ScopeInfo) bool { return !r.after.Known(info) })
	}
}

// invalidateScopes marks the subjects that read objects of some scopes of a member.
func (r *pass) invalidateScopes(member string, of func(aggregate.ScopeInfo) bool) {
	for info := range r.after.Scopes(member) {
		if !of(info) {
			continue
		}
		for o := range r.after.Objects(info.Kind, member) {
			r.invalidateObject(aggregate.Delta{Ref: o.Ref(), Before: o, After: o})
		}
	}
}

// SetKeyOwner says which keys of views are subjects from now on, and evaluates those that become subjects.
func (e *Engine) SetKeyOwner(ctx context.Context, owner fleetview.KeyOwner) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.fleet == nil {
		e.owner = owner
		return &Changes{}, nil
	}
	if e.needsReset {
		e.owner = owner
		return nil, ErrReset
	}
	r := e.startPass(ctx, e.fleet)
	former := e.owner
	e.owner = owner
	r.takeKeys(&former)
	r.markPassed()
	r.markRetries()
	return r.finish(func() error {
		return firstError(r.endQuarantines, r.retryContributions, r.restoreViews, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// ask is a read of what others judge: the key of the read, and of what it is.
type ask struct {
	key   uint64
	place subscribed.Place
}

// holds notes what a read is of, unless that is known, and reports whether this process has all of it.
func (ev *evaluation) holds(key uint64, p subscribed.Place) bool {
	if !ev.w.e.subs.Knows(key) {
		ev.asks = append(ev.asks, ask{key, p})
	}
	return ev.w.e.subs.Holds(p)
}

// askView notes a read of a view, or of one of its keys.
func (ev *evaluation) askView(read uint64, v *view, key ...string) {
	if ev.w.e.subs == nil {
		return
	}
	p := subscribed.Place{Space: v.space, Whole: len(key) == 0}
	if !p.Whole {
		p.Bucket = interest.Bucket(key[0])
	}
	if !ev.holds(read, p) {
		ev.reads.AddUnheldView(v.ID)
	}
}

// needsUnindexed notes that an index was read that finds some objects under each key. These are always asked for.
func (ev *evaluation) needsUnindexed(v *view) {
	if subs := ev.w.e.subs; subs != nil && !subs.Holds(unindexedOf(v)) {
		ev.reads.AddUnheldView(v.ID)
	}
}

func unindexedOf(v *view) subscribed.Place {
	return subscribed.Place{Space: v.space, Bucket: interest.Bucket(unindexed)}
}

// askNamed notes a read of the objects of a kind in all members, by namespace and name, or by less.
func (ev *evaluation) askNamed(read uint64, kind aggregate.Kind, name []string) {
	if ev.w.e.subs != nil && !ev.holds(read, ev.w.placeOf(kind, name)) {
		ev.reads.AddUnheldAll(kind)
	}
}

// askScope notes a read of the objects of a kind in one member, by namespace and name, or by less. What is of the subject's own
// member is read here as long as the subject is judged here. A member that is not away may be soon.
func (ev *evaluation) askScope(read uint64, kind aggregate.Kind, member string, name ...string) {
	if ev.w.e.subs != nil && member != ev.member && !ev.holds(read, ev.w.placeOf(kind, name)) {
		ev.reads.AddUnheldScope(member, kind)
	}
}

// placeOf returns the place of objects of a kind.
func (w *worker) placeOf(kind aggregate.Kind, name []string) subscribed.Place {
	space, ok := w.names[kind]
	if !ok {
		if space = interest.Names(kind); w.names == nil || len(w.names) > 1000 {
			w.names = map[aggregate.Kind]interest.Space{}
		}
		w.names[kind] = space
	}
	if len(name) < 2 {
		return subscribed.Place{Space: space, Whole: true}
	}
	return subscribed.Place{Space: space, Bucket: interest.Bucket(interest.NameKey(name[0], name[1]))}
}

// watchReads returns who is told of the keys that one of two tables of reads has.
func (e *Engine) watchReads(table uint8) func(key uint64, read bool) {
	timed := e.instants.Watch(int64(table))
	if e.subs == nil {
		return timed
	}
	asked := e.subs.Watch(table)
	return func(key uint64, read bool) {
		timed(key, read)
		asked(key, read)
	}
}

// planKeys finds what is asked for whatever verdicts read: keys that are subjects, and what indexes find under each key.
func (e *Engine) planKeys() {
	if e.subs == nil {
		return
	}
	var standing interest.Builder
	for _, v := range e.views {
		if v.index != nil && v.ofFleet {
			standing.Add(v.space, interest.Bucket(unindexed))
		}
	}
	for _, b := range e.bindings {
		if b.pkg.Subject == module.ViewSubject {
			standing.AddAll(b.view.space)
		}
	}
	e.subs.Stand(standing.Take())
}

// subscribeAs has an engine beside that of a state know of others what that one knows.
func (o *Options) subscribeAs(s *state.State) {
	if held := s.Held(); !held.IsEverything() {
		o.Subscribe, o.Held = true, held
	}
}

// SetHeld says of which keys all that peers have is in their index, at the engine's snapshot or before it, and will be. What
// waits for them is evaluated again, and what has read others that are no longer held.
func (e *Engine) SetHeld(ctx context.Context, held *interest.Set) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	switch {
	case e.subs == nil:
		return nil, errors.New("policy engine: SetHeld without Options.Subscribe")
	case e.fleet == nil || e.needsReset:
		e.subs.SetHeld(held, func(uint64) {})
		if e.needsReset {
			return nil, ErrReset
		}
		return &Changes{}, nil
	}
	r := e.startPass(ctx, e.fleet)
	former := e.subs.Held()
	e.subs.SetHeld(held, r.invalidate)
	for _, v := range e.views {
		if at := unindexedOf(v); v.index != nil && v.ofFleet && at.In(former) != at.In(held) {
			r.markReadersOf(v)
		}
	}
	for _, b := range e.bindings {
		if b.pkg.Subject == module.ViewSubject && former.HasAll(b.view.space) != held.HasAll(b.view.space) {
			r.markSubjects(b)
		}
	}
	r.markPassed()
	r.markRetries()
	return r.finish(func() error {
		return firstError(r.endQuarantines, r.retryContributions, r.restoreViews, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// ExportedChanges are what differs between the Export of a state and that of the one before. What is named may be
// the same, and what is gone is among it.
type ExportedChanges struct {
	All     bool                 // anything may differ: start over
	Members []string             // that came, went or differ; of one that came, all is new
	Scopes  []completeness.Scope // that came, went or differ; of one with another Version, all objects are new
	Objects []aggregate.Ref      // of other members and scopes that differ, or of which something is read that differs
}

// Empty reports whether nothing differs.
func (c *ExportedChanges) Empty() bool {
	return !c.All && len(c.Members)+len(c.Scopes)+len(c.Objects) == 0
}

// Exported returns what a call has changed of what is exported; nothing where the engine's options do not ask for
// exports. An object that differs in nothing but what no policy reads is not among it.
func (c *Changes) Exported() ExportedChanges { return c.exported }

// exportNotes are what a pass has changed of what is exported. nil notes nothing.
type exportNotes struct {
	e       *Engine
	out     ExportedChanges
	renewed map[string]bool         // members of which all is new, or gone
	kinds   map[aggregate.Kind]bool // with another projection
	objects map[aggregate.Ref]bool  // in out
}

func (e *Engine) newExportNotes() *exportNotes {
	if !e.opts.Exports {
		return nil
	}
	return &exportNotes{e: e, renewed: map[string]bool{}, kinds: map[aggregate.Kind]bool{}, objects: map[aggregate.Ref]bool{}}
}

func (n *exportNotes) all() {
	if n != nil {
		n.out.All = true
	}
}

func isJudge(m *aggregate.Member) bool { return m != nil && m.Role == aggregate.Judge }

// changed notes members and scopes.
func (n *exportNotes) changed(change *fleetview.Change) {
	if n == nil || change.Own() == nil {
		return
	}
	for d := range change.Own().Members() {
		was, is := isJudge(d.Before), isJudge(d.After)
		if !was && !is {
			continue
		}
		var name string
		if d.After != nil {
			name = d.After.Name
		} else {
			name = d.Before.Name
		}
		n.out.Members = append(n.out.Members, name)
		if was != is {
			n.renewed[name] = true
		}
	}
	for d := range change.Own().Scopes() {
		if n.has(d.After.Member) {
			n.out.Scopes = append(n.out.Scopes, completeness.Scope{Member: d.After.Member, Kind: d.After.Kind})
		}
	}
}

// has reports whether changes of a member are to be noted one by one.
func (n *exportNotes) has(member string) bool {
	if n.out.All || n.renewed[member] {
		return false
	}
	m, ok := n.e.fleet.Own().Member(member)
	return ok && isJudge(&m)
}

// reprojected notes the scopes whose projections are others.
func (n *exportNotes) reprojected(former *projection.Plan) {
	if n == nil {
		return
	}
	for kind := range n.e.fleet.Own().Kinds() {
		if former.Of(kind).Digest == n.e.projections.Of(kind).Digest {
			continue
		}
		n.kinds[kind] = true
		for s := range n.e.fleet.Own().ScopesOf(kind) {
			if n.has(s.Member) {
				n.out.Scopes = append(n.out.Scopes, completeness.Scope{Member: s.Member, Kind: kind})
			}
		}
	}
}

// delta notes an object.
func (n *exportNotes) delta(d aggregate.Delta, unchanged bool) {
	if n == nil || !n.e.projections.Reads(d.Ref.Kind) {
		return
	}
	if !unchanged && n.e.projections.Of(d.Ref.Kind).Mask != nil || d.Before.IsZero() || d.After.IsZero() || labelsChanged(d) {
		n.object(d.Ref)
	}
}

// contribution notes that an object contributes something else to a view.
func (n *exportNotes) contribution(v *view, ref aggregate.Ref) {
	if n != nil && v.identity != "" {
		n.object(ref)
	}
}

func (n *exportNotes) object(ref aggregate.Ref) {
	if !n.kinds[ref.Kind] && !n.objects[ref] && n.has(ref.Member) {
		n.objects[ref] = true
		n.out.Objects = append(n.out.Objects, ref)
	}
}

// list returns what was noted, members and scopes in order.
func (n *exportNotes) list() ExportedChanges {
	if n == nil {
		return ExportedChanges{}
	}
	if n.out.All {
		return ExportedChanges{All: true}
	}
	slices.Sort(n.out.Members)
	n.out.Members = slices.Compact(n.out.Members)
	slices.SortFunc(n.out.Scopes, func(a, b completeness.Scope) int {
		return cmp.Or(strings.Compare(a.Member, b.Member), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	n.out.Scopes = slices.Compact(n.out.Scopes)
	return n.out
}
