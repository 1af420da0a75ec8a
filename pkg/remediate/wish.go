package remediate

import "federator.dev/federator/pkg/policy"

// wish is an intent with its name.
type wish struct {
	*Intent

	id string
}

// clear wants nothing.
func (w *wanted) clear() {
	w.intents, w.members = map[policy.Ref]*wish{}, map[string]int{}
	w.due, w.failed = map[policy.Ref]bool{}, map[policy.Ref]bool{}
}

// wish wants an intent, instead of another one for its target.
func (w *wanted) wish(i *wish) {
	target := i.Remedy.Target
	if w.intents[target] == nil {
		w.members[target.Member]++
	}
	w.intents[target] = i
	w.judge(target)
}

// unwish wants nothing of a target any more.
func (w *wanted) unwish(target policy.Ref) {
	if w.intents[target] == nil {
		return
	}
	if w.members[target.Member]--; w.members[target.Member] == 0 {
		delete(w.members, target.Member)
	}
	delete(w.intents, target)
	w.judge(target)
}

// judge finds out whether a target is due: what is wanted is not done, or has failed.
func (w *wanted) judge(target policy.Ref) {
	delete(w.due, target)
	delete(w.failed, target)
	i := w.intents[target]
	if i == nil {
		return
	}
	if o := w.outcomes[target]; o != nil && o.name == i.id {
		if o.Phase != Failed {
			return
		}
		w.failed[target] = true
	}
	w.due[target] = true
}

// wants reports whether an intent is among what the binding wants.
func (w *wanted) wants(i *Intent) bool {
	now := w.intents[i.Remedy.Target]
	return now != nil && now.id == i.name()
}

// leave forgets what came of a target that is not wanted any more, once what was written
// to it counts no more.
func (w *wanted) leave(target policy.Ref) {
	o := w.outcomes[target]
	switch {
	case o == nil || w.intents[target] != nil:
		delete(w.left, target)
	case len(recent(o.writes, w.contract.Limits.Window)) > 0:
		w.left[target] = true
	default:
		delete(w.left, target)
		delete(w.outcomes, target)
	}
}
