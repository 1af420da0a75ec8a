package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/external"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/instants"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// Apply takes the engine to the snapshots after a batch of its own index and one of its peers', which must start at the
// engine's snapshots, and to the present time. Either may be nil: nothing has changed there. It updates views, then the verdicts that
// depend on what changed or passed, and no others. It publishes one State and returns how the verdicts changed.
func (e *Engine) Apply(ctx context.Context, own, peers *aggregate.Batch) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.needsReset || e.fleet == nil {
		return nil, ErrReset
	}
	if own == nil && peers == nil {
		return nil, errors.New("policy engine: Apply without a batch")
	}
	if own != nil && own.Before.Revision() != e.fleet.Revision() {
		return nil, fmt.Errorf("%w: the batch begins at revision %d, the engine is at %d", ErrReset, own.Before.Revision(), e.fleet.Revision())
	}
	if peers != nil && (e.fleet.Peers() == nil || peers.Before.Revision() != e.fleet.Peers().Revision()) {
		return nil, fmt.Errorf("%w: the peers' batch begins at revision %d, where the engine is not", ErrReset, peers.Before.Revision())
	}
	change := fleetview.Between(e.fleet, own, peers)
	r := e.startPass(ctx, change.After)
	r.deltas = slices.Collect(change.Deltas())
	r.applyMembers(change)
	r.applyScopes(change)
	r.exported.changed(change)
	r.markPassed()
	r.markRetries()
	r.updateGaps()
	return r.finish(func() error {
		notes, err := r.applyDeltas()
		if err == nil {
			err = r.endQuarantines()
		}
		if err != nil {
			return err
		}
		r.reached(&r.changes.Viewed)
		defer r.reached(&r.changes.Evaluated)
		return firstError(r.retryContributions, r.restoreViews, func() error { return r.evaluateChangedObjects(notes) },
			r.evaluateObjectsOfChangedMembers, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// reached notes the present time, if anybody wants to know.
func (r *pass) reached(at *time.Time) {
	if r.e.opts.Causes {
		*at = r.e.opts.Clock()
	}
}

// applyMembers accounts for members that joined, left or changed.
func (r *pass) applyMembers(change *fleetview.Change) {
	letGo := false // of a member that was read here
	for d := range change.Members() {
		var name string
		switch {
		case d.Before == nil:
			name = d.After.Name
			r.joined[name] = true
			r.changes.membersChanged = true
			// A member that left and rejoined within one batch is reported twice: its
			// objects may be unchanged.
			if was, ok := r.was.Member(name); ok {
				r.note(name, fleetdoc.Changed(&was, d.After))
			}
			r.invalidate(readKey(readNames))
		case d.After == nil:
			name = d.Before.Name
			r.left[name] = true
			for _, v := range r.e.views {
				v.scores.Remove(name)
			}
			for _, b := range r.e.bindings {
				b.scores.Remove(name)
			}
			r.changes.membersChanged = true
			r.invalidate(readKey(readNames))
		default:
			name = d.After.Name
			r.note(name, fleetdoc.Changed(d.Before, d.After))
		}
		_, was := r.was.Member(name)
		_, is := r.after.Member(name)
		if was && is && r.was.Judges(name) != r.after.Judges(name) {
			r.rejudged[name] = true
		}
		if is {
			r.takeOver(name, was)
		}
		letGo = letGo || was && is && !r.was.Away(name) && r.after.Away(name)
		r.invalidateMember(d)
		r.changedMembers = append(r.changedMembers, name)
		if d.After == nil {
			delete(r.e.memberInputs, name)
		} else {
			r.e.memberInputs[name] = fleetdoc.MemberInput(d.After, r.e.memberParts)
		}
	}
	if len(r.changedMembers) == 0 {
		return
	}
	if letGo {
		r.awaitWaiting()
	}
	// Visibility and tolerance may differ, and which members are away.
	r.changes.compareAll = r.changes.compareAll || r.relabelled || r.e.subs != nil && r.e.subs.Waits()
	retolerated := map[string]bool{}
	for _, b := range r.e.bindings {
		was, tolerated := &memberSets{b.selected, b.visible}, b.tolerated
		r.previous[b] = was
		b.updateMembers(r.after)
		for _, m := range r.changedMembers {
			if tolerated.Has(m) != b.tolerated.Has(m) {
				retolerated[m] = true
			}
		}
		for m, parts := range r.changed {
			if parts&fleetdoc.Labels != 0 && was.visible.Has(m) != b.visible.Has(m) {
				r.markReaders(b)
				break
			}
		}
	}
	for m := range retolerated {
		r.invalidateUntold(m)
	}
}

// note takes note of what differs of a member.
func (r *pass) note(name string, parts fleetdoc.Parts) {
	if parts != 0 {
		r.changed[name] |= parts
		r.relabelled = r.relabelled || parts&fleetdoc.Labels != 0
	}
}

// member returns a member of the snapshot, or the zero Member when it has none of that
// name.
func (e *Engine) member(name string) aggregate.Member {
	m, _ := e.fleet.Member(name)
	return m
}

// applyScopes accounts for scopes whose state changed, or that appeared or disappeared.
func (r *pass) applyScopes(change *fleetview.Change) {
	for d := range change.Scopes() {
		member, kind := d.After.Member, d.After.Kind
		if kind == "" {
			member, kind = d.Before.Member, d.Before.Kind
		}
		r.changedScopes = append(r.changedScopes, completeness.Scope{Member: member, Kind: kind})
		r.invalidate(readKey(readScope, member, string(kind)))
		r.invalidate(readKey(readScopes, member))
		r.invalidate(readKey(readAllScopes))
	}
}

// updateGaps finds what the batch has changed of the incomplete scopes.
func (r *pass) updateGaps() {
	e := r.e
	if len(r.changedScopes)+len(r.changedMembers) == 0 {
		return
	}
	found, differ := e.gaps.Update(r.after, e.kinds, r.changedScopes, r.changedMembers)
	r.changes.compareAll = r.changes.compareAll || differ
	e.gaps = found
}

// markPassed marks the subjects that read an instant which has passed since. After a step back these are all
// that may have read one which had passed: such reads are not recorded.
func (r *pass) markPassed() {
	for at := range r.e.instants.Until(r.e.clock.Now) {
		r.invalidate(instants.Key(at))
	}
	if !r.steppedBack {
		return
	}
	for _, b := range r.e.bindings {
		if b.pkg.Reads.Time {
			r.markSubjects(b)
		}
	}
}

// markSubjects marks all subjects of a binding.
func (r *pass) markSubjects(b *boundBinding) {
	switch b.pkg.Subject {
	case module.ObjectSubject:
		for kind := range state.KindsOf(b.pkg, r.after) {
			for o := range r.after.Judged(kind, "") {
				if b.isSubject(&b.selected, o) {
					r.markObject(b, o.Ref())
				}
			}
		}
	case module.MemberSubject:
		for m := range r.after.Members() {
			if !r.after.Judges(m.Name) {
				continue
			}
			var s verdict.Subject
			s.Ref.Member = m.Name
			r.markSubject(b, s)
		}
	case module.ViewSubject:
		for k := range b.view.Keys() {
			r.markSubject(b, verdict.Subject{Key: k})
		}
	}
}

// Advance takes the engine to the present time at its snapshot: it evaluates what read an instant that has
// passed since, and what quarantines withheld that have ended, and no others. Apply does so as well. It returns
// nil, and publishes nothing, when nothing is due.
func (e *Engine) Advance(ctx context.Context) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.needsReset || e.fleet == nil {
		return nil, ErrReset
	}
	if !e.due(e.wall()) {
		return nil, nil
	}
	r := e.startPass(ctx, e.fleet)
	r.markPassed()
	r.markRetries()
	return r.finish(func() error {
		return firstError(r.endQuarantines, r.retryContributions, r.restoreViews, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// SetExternal takes the engine to other documents from outside the fleet, at its snapshot and the present time: it evaluates what
// read a part of one that differs, and no others. It returns nil, and publishes nothing, when nothing is different.
func (e *Engine) SetExternal(ctx context.Context, documents *external.Documents) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	before := e.external
	e.external = documents
	switch {
	case e.fleet == nil:
		return nil, nil
	case e.needsReset:
		return nil, ErrReset
	}
	differ, knowledge := external.Diff(before, documents)
	if len(differ) == 0 && !knowledge {
		e.external = before
		return nil, nil
	}
	r := e.startPass(ctx, e.fleet)
	r.changes.compareAll = knowledge
	for i, d := range differ {
		r.markExternal(&d, i == 0 || differ[i-1].Source != d.Source)
	}
	r.markPassed()
	r.markRetries()
	return r.finish(func() error {
		return firstError(r.endQuarantines, r.retryContributions, r.restoreViews, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// markExternal marks the subjects that read what differs of a document. first says that it is the first one of its source.
func (r *pass) markExternal(d *external.Difference, first bool) {
	if first {
		r.invalidate(readKey(readSource, d.Source))
	}
	switch {
	case d.Whole:
		return
	case d.Shape:
		r.invalidate(readKey(readShape, d.Source, d.Key))
		return
	}
	r.invalidate(readKey(readDocument, d.Source, d.Key))
	for _, field := range d.Fields {
		r.invalidate(readKey(readField, d.Source, d.Key, field))
	}
}

// due reports whether time alone has changed something.
func (e *Engine) due(now time.Time) bool {
	s := e.State()
	if !s.Retry.IsZero() && !now.Before(s.Retry) || !s.Wake.IsZero() && !now.Before(s.Wake) {
		return true
	}
	if !e.clock.IsBack(clockOf(now)) {
		return false
	}
	for _, b := range e.bindings {
		if b.pkg.Reads.Time {
			return true
		}
	}
	return false
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
