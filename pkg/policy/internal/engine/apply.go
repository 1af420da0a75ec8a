package engine

import (
	"context"
	"fmt"
	"slices"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
)

// Apply takes the engine to the snapshot after a batch, which must start at the
// engine's snapshot, and to the present time. It updates views, then the verdicts that
// depend on what changed or passed, and no others. It publishes one State and returns how the verdicts changed.
func (e *Engine) Apply(ctx context.Context, batch *aggregate.Batch) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.needsReset || e.snapshot == nil {
		return nil, ErrReset
	}
	if batch.Before.Revision() != e.snapshot.Revision() {
		return nil, fmt.Errorf("%w: the batch begins at revision %d, the engine is at %d", ErrReset, batch.Before.Revision(), e.snapshot.Revision())
	}
	r := e.startPass(ctx, batch.After)
	r.deltas = slices.Collect(batch.Deltas())
	r.applyMembers(batch)
	r.applyScopes(batch)
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
		return firstError(r.retryContributions, r.restoreViews, func() error { return r.evaluateChangedObjects(notes) },
			r.evaluateObjectsOfChangedMembers, r.evaluateMembersAndKeys, r.evaluateReaders)
	})
}

// applyMembers accounts for members that joined, left or changed.
func (r *pass) applyMembers(batch *aggregate.Batch) {
	for d := range batch.Members() {
		var name string
		switch {
		case d.Before == nil:
			name = d.After.Name
			r.joined[name] = true
			r.changes.membersChanged = true
			// A member that left and rejoined within one batch is reported twice: its
			// objects may be unchanged.
			if was, ok := r.before.Snapshot.Member(name); ok {
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
		r.invalidateMember(d)
		r.changedMembers = append(r.changedMembers, name)
		if d.After == nil {
			delete(r.e.memberTerms, name)
		} else {
			r.e.memberTerms[name] = fleetdoc.MemberTerm(d.After, r.e.memberParts)
		}
	}
	if len(r.changedMembers) == 0 {
		return
	}
	r.changes.compareAll = r.changes.compareAll || r.relabelled // visibility and tolerance may differ
	for _, b := range r.e.bindings {
		was := &memberSets{b.selected, b.visible}
		r.previous[b] = was
		b.updateMembers(r.after)
		for m, parts := range r.changed {
			if parts&fleetdoc.Labels != 0 && was.visible.Has(m) != b.visible.Has(m) {
				r.markReaders(b)
				break
			}
		}
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
	m, _ := e.snapshot.Member(name)
	return m
}

// applyScopes accounts for scopes whose state changed, or that appeared or disappeared.
func (r *pass) applyScopes(batch *aggregate.Batch) {
	for d := range batch.Scopes() {
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
