package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/completeness"
	"federator.dev/federator/pkg/policy/internal/fleetdoc"
)

// Apply takes the engine to the snapshot after a batch, which begins where the engine
// is: views, then the verdicts that depend on what changed, and no others. It
// publishes one State and returns what became of the verdicts.
func (e *Engine) Apply(ctx context.Context, batch *aggregate.Batch) (*Changes, error) {
	if !e.calls.TryLock() {
		return nil, ErrBusy
	}
	defer e.calls.Unlock()
	if e.broken || e.snapshot == nil {
		return nil, ErrReset
	}
	if batch.Before.Revision() != e.snapshot.Revision() {
		return nil, fmt.Errorf("%w: the batch begins at revision %d, the engine is at %d", ErrReset, batch.Before.Revision(), e.snapshot.Revision())
	}
	r := e.begin(ctx, batch.After)
	r.deltas = slices.Collect(batch.Deltas())
	r.members(batch)
	r.scopes(batch)
	r.again()
	if r.gapsChanged {
		r.look()
	}
	return r.finish(func() error {
		notes, err := r.feed()
		if err == nil {
			err = r.release()
		}
		if err != nil {
			return err
		}
		for _, step := range []func() error{r.feedAgain, r.recover, func() error { return r.objects(notes) }, r.stay, r.others, r.rest} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

// members takes in members that joined, left or changed.
func (r *round) members(batch *aggregate.Batch) {
	some := false
	for d := range batch.Members() {
		some = true
		var name string
		switch {
		case d.Before == nil:
			name = d.After.Name
			r.joined[name] = true
			r.changes.members = true
			// One that left and is there again, all in one batch, is told of twice: its
			// objects may be what they were.
			if was, ok := r.before.Snapshot.Member(name); ok && !slices.Equal(was.Labels, d.After.Labels) {
				r.changed[name] = true
			}
			r.fire(key(readNames))
		case d.After == nil:
			name = d.Before.Name
			r.left[name] = true
			for _, v := range r.e.views {
				v.score.Forget(name)
			}
			for _, b := range r.e.bounds {
				b.score.Forget(name)
			}
			r.changes.members = true
			r.fire(key(readNames))
		default:
			name = d.After.Name
			if !slices.Equal(d.Before.Labels, d.After.Labels) {
				r.changed[name] = true
			}
		}
		r.fire(key(readMembers))
		r.fire(key(readMember, name))
		if d.Before == nil || d.After == nil || !slices.Equal(d.Before.Labels, d.After.Labels) {
			r.fire(key(readPartLabels, name))
		}
		if d.Before == nil || d.After == nil || d.Before.Version != d.After.Version {
			r.fire(key(readPartVersion, name))
		}
		if d.Before == nil || d.After == nil || !slices.Equal(d.Before.APIs, d.After.APIs) {
			r.fire(key(readPartAPIs, name))
		}
		if d.After == nil {
			delete(r.e.memberTerms, name)
		} else {
			r.e.memberTerms[name] = memberTerm(*d.After)
		}
	}
	if !some {
		return
	}
	r.gapsChanged = true
	r.changes.flipped = r.changes.flipped || len(r.changed) > 0 // who sees and tolerates whom
	for _, b := range r.e.bounds {
		was := &sight{b.selected, b.visible}
		r.was[b] = was
		b.look(r.after)
		for m := range r.changed {
			if was.visible.Has(m) != b.visible.Has(m) {
				r.seeAnew(b)
				break
			}
		}
	}
}

func memberTerm(m aggregate.Member) *ast.Term {
	return ast.ObjectTerm(ast.Item(inputKeys.labels, fleetdoc.LabelsTerm(m)), ast.Item(inputKeys.name, ast.StringTerm(m.Name)))
}

// member returns a member of the snapshot; without a name when it is not there.
func (e *Engine) member(name string) aggregate.Member {
	m, _ := e.snapshot.Member(name)
	return m
}

// scopes takes in scopes whose state changed, or that came or went.
func (r *round) scopes(batch *aggregate.Batch) {
	for d := range batch.Scopes() {
		member, kind := d.After.Member, d.After.Kind
		if kind == "" {
			member, kind = d.Before.Member, d.Before.Kind
		}
		r.gapsChanged = true
		r.fire(key(readScope, member, string(kind)))
		r.fire(key(readScopes, member))
		r.fire(key(readAllScopes))
	}
}

// look finds the gaps of the snapshot.
func (r *round) look() {
	e := r.e
	found := completeness.FindGaps(e.gaps, r.after, e.kinds)
	if e.gaps == nil || !e.gaps.Same(found) {
		r.changes.flipped = true
	}
	e.gaps = found
}
