package engine

import (
	"slices"

	"federator.dev/federator/pkg/policy/internal/fleetview"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/state"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

// takeOver takes note of a member of the snapshot, if it is judged here unlike before. was is whether it was there.
func (r *pass) takeOver(member string, was bool) {
	if r.e.subs != nil && r.after.Judges(member) && !(was && r.judgedBefore(member)) {
		r.e.takeovers.Add(member)
	}
}

// takeKeys marks the keys that are judged here, or not, unlike before, and takes note of it if any is from now on.
func (r *pass) takeKeys(former *fleetview.KeyOwner) {
	for _, b := range r.e.bindings {
		if b.pkg.Subject != module.ViewSubject {
			continue
		}
		for k := range b.view.Keys() {
			was, is := former.Owns(b.Name, k), r.e.owner.Owns(b.Name, k)
			if was != is {
				r.markSubject(b, verdict.Subject{Key: k})
			}
			if is && !was && r.e.subs != nil {
				r.e.takeovers.Add("")
			}
		}
	}
	if r.e.subs != nil && !r.e.holdsKeys() {
		r.e.takeovers.Add("") // some may be
	}
}

// holdsKeys reports whether all keys that are subjects are known.
func (e *Engine) holdsKeys() bool {
	return len(e.fleet.AwayMembers()) == 0 || !slices.ContainsFunc(e.bindings, func(b *boundBinding) bool {
		return b.pkg.Subject == module.ViewSubject && !e.subs.Held().HasAll(b.view.space)
	})
}

// takeAll takes note, in a pass that evaluates everything, of the members that are judged here unlike before, and of keys: whose these
// were is not known. Where a member is let go of that was read here, all are awaited that wait for keys.
func (r *pass) takeAll() {
	if r.e.subs == nil {
		return
	}
	r.e.takeovers.Add("")
	letGo := r.was != nil && slices.ContainsFunc(r.after.AwayMembers(), func(member string) bool {
		_, was := r.was.Member(member)
		return was && !r.was.Away(member)
	})
	for m := range r.after.Members() {
		was := false
		if r.was != nil {
			_, was = r.was.Member(m.Name)
		}
		r.takeOver(m.Name, was && !letGo)
	}
}

// awaitWaiting awaits the members, and keys, with verdicts that wait for keys: what they have read of a member that is read here no
// longer may be missing from now on.
func (r *pass) awaitWaiting() {
	if r.e.subs == nil || !r.e.subs.Waits() {
		return
	}
	for _, b := range r.e.bindings {
		for member := range b.Waiting() {
			if member == "" || r.judged(member) {
				r.e.takeovers.Add(member)
			}
		}
	}
}

// judged reports whether a member is judged here.
func (r *pass) judged(member string) bool {
	_, is := r.after.Member(member)
	return is && r.after.Judges(member)
}

// settleTakeovers forgets the members that are judged here since a moment, and have been told what they read of others, or are not any
// more. It returns the others.
func (r *pass) settleTakeovers(parts *state.Parts) []string {
	e := r.e
	taken := e.takeovers.Members()
	if len(taken) == 0 {
		return nil
	}
	unread := map[string]bool{"": !e.holdsKeys()}
	isTaken := func(member string) bool {
		_, is := slices.BinarySearch(taken, member)
		return is
	}
	for m := range e.gaps.AwaitedOf(isTaken, parts.Unawaited()) {
		unread[m] = true
	}
	if r.changes.reset || len(r.changedMembers) > 0 {
		for _, m := range taken {
			if m != "" && !r.judged(m) {
				e.takeovers.Remove(m)
			}
		}
	}
	waiting := e.subs.Waits() && len(r.after.AwayMembers()) > 0
	at := 0 // the binding in which the last one waits: most do in the same
	e.takeovers.Settle(e.subs, func(member string) bool { return !unread[member] }, func(member string) bool {
		for i := 0; waiting && i < len(e.bindings); i++ {
			if n := (at + i) % len(e.bindings); e.bindings[n].WaitsIn(member) {
				at = n
				return true
			}
		}
		return false
	})
	return e.takeovers.Members()
}
