package remediate

import (
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/ledger"
	"federator.dev/federator/pkg/remediate/internal/plans"
	"federator.dev/federator/pkg/remediate/internal/pqueue"
	"federator.dev/federator/pkg/remediate/internal/queue"
	"federator.dev/federator/pkg/remediate/internal/rollout"
)

// policyState is what the dispatcher knows of one policy. What is in record lasts; the rest
// is what this process has learned since it began to lead, or is told by the corrector.
type policyState struct {
	name    string
	ledger  *ledger.Ledger
	removed bool // there is no such policy now, but a record of it

	spec    RolloutSpec
	ready   bool // all verdicts have been counted
	totals  Totals
	intents map[policy.Ref]*desiredIntent
	members map[string]int // number of intents by member
	formers map[string]int // number of Former ones
	own     ownWaves       // of the last spec that replaced nothing: what the next one may replace

	queue    *queue.Queue
	outcomes outcomes
	obsolete *pqueue.Queue[policy.Ref, time.Time] // targets without an intent whose outcomes are shown, and how long
	repeated map[policy.Ref]bool                  // targets that are due and were written before: fights are among them
	failed   map[string]map[policy.Ref]bool       // targets that ended for good without being written, by member
	// superseded are targets of which a newer version, and with it an intent, is on its way.
	superseded map[policy.Ref]bool
	written    map[policy.Ref]*writtenTarget // by this generation
	// formerWritten is what the generation has written that record.replaced is of.
	formerWritten map[policy.Ref]*writtenTarget
	health        rollout.Health
	unclean       map[string]int // by member: written targets that are not healthy, or not known to be

	plans    []*plan                // that wait, or are approved: the oldest first
	approved map[types.UID]Approved // by UID of a Plan; nil: not said yet
	// tooManyTerms is that something is required that the record has no room for.
	tooManyTerms bool
	within       bool   // so little is written that it needs no approval
	passed       string // passing, when it was looked at what it lets pass
	awaiting     refs   // due, but for approval
	unresolved   refs   // due, but for what their targets are
	// due is, while acknowledgements raise limits, what is due and may be written, by the Plans
	// of theirs that have it.
	due         map[coverage]*refs
	freezing    bool      // a Plan is being made
	freezeAt    time.Time // when it is tried again
	freezeError string    // why it failed
	gatherFrom  time.Time // since when there is something for an amendment

	dryRun dryRunState

	record
	saving        bool      // the record is being written
	needsBaseline bool      // a wave has begun, and its baseline is not taken yet
	retryAt       time.Time // when it is written again after a failure

	usage      []BudgetUsage
	waiting    string
	held       string // why the wave does not go on
	notLeading string // why this process does not act; "" when it does
	pending    int
}

// desiredIntent is an intent with the name of its Action.
type desiredIntent struct {
	*Intent

	name    string
	managed bool // a GitOps controller manages the target, or that is not known

	planKey          plans.Key // see key
	remedy           v1alpha1.Digest
	keyed, unnamable bool // no request can name the target: it fails before it is sent
}

// outcome is the result of the last attempt to correct a target.
type outcome struct {
	Action  string // its name; an action with nothing to write may have no record
	Phase   v1alpha1.ActionPhase
	Message string
	At      time.Time
}

// targetOutcome is the result of a target's last correction.
type targetOutcome struct {
	outcome
	actionName string // of the intent
	retryAt    time.Time
	superseded int // how often in a row that intent was
}

// outcomes are those of targets, and how many there are of each phase, which does not change
// once an outcome is set.
type outcomes struct {
	of     map[policy.Ref]*targetOutcome
	phases map[v1alpha1.ActionPhase]int
}

func newOutcomes() outcomes {
	return outcomes{map[policy.Ref]*targetOutcome{}, map[v1alpha1.ActionPhase]int{}}
}

func (o *outcomes) set(target policy.Ref, is *targetOutcome) {
	o.remove(target)
	o.of[target] = is
	o.phases[is.Phase]++
}

func (o *outcomes) remove(target policy.Ref) {
	was := o.of[target]
	if was == nil {
		return
	}
	delete(o.of, target)
	if o.phases[was.Phase]--; o.phases[was.Phase] == 0 {
		delete(o.phases, was.Phase)
	}
}

// writtenTarget is a target that the rollout has written.
type writtenTarget struct {
	Written

	wave    int // from 0
	at      time.Time
	settled bool // it has been healthy since
	// soaked reports that an earlier leader has seen it healthy: if it is not, the soak was
	// interrupted.
	soaked bool
}

func newPolicyState(name string, l *ledger.Ledger) *policyState {
	s := &policyState{name: name}
	s.clear()
	s.reset(l)
	return s
}

// reset forgets what this process knows of corrections, and what the hub has of them.
func (s *policyState) reset(l *ledger.Ledger) {
	s.ledger = l
	s.queue, s.outcomes = queue.New(), newOutcomes()
	s.obsolete = pqueue.New[policy.Ref](time.Time.Compare)
	s.repeated, s.failed = map[policy.Ref]bool{}, map[string]map[policy.Ref]bool{}
	s.superseded = map[policy.Ref]bool{}
	s.tooManyTerms = false
	s.plans, s.approved, s.within, s.passed, s.awaiting, s.due = nil, nil, false, "", newRefs(), map[coverage]*refs{}
	s.unresolved = newRefs()
	s.dryRun.end()
	s.dryRun = dryRunState{changed: true}
	s.freezing, s.freezeAt, s.freezeError, s.gatherFrom = false, time.Time{}, "", time.Time{}
	s.written, s.unclean, s.health = map[policy.Ref]*writtenTarget{}, map[string]int{}, rollout.Health{Unknown: "what was written has not been looked at yet"}
	s.formerWritten = map[policy.Ref]*writtenTarget{}
	s.record, s.saving, s.retryAt = record{}, false, time.Time{}
	s.usage, s.waiting, s.held, s.pending = nil, "", "", 0
}

// clear removes all intents.
func (s *policyState) clear() {
	s.intents, s.members, s.formers = map[policy.Ref]*desiredIntent{}, map[string]int{}, map[string]int{}
}

// set sets the intent for its target.
func (s *policyState) set(i *desiredIntent, now time.Time) {
	target := i.Remedy.Target
	if s.intents[target] == nil {
		s.members[target.Member]++
	}
	s.countFormer(target, -1)
	s.intents[target] = i
	s.countFormer(target, 1)
	s.dryRun.changed = true
	s.obsolete.Remove(target)
	s.updateDue(target, now)
}

// unset removes the intent for a target. The same one may come again later: where the target
// did not exist, it is another correction then.
func (s *policyState) unset(target policy.Ref, now time.Time) {
	created := false
	if i := s.intents[target]; i != nil {
		created = i.UID == ""
		s.countFormer(target, -1)
		if s.members[target.Member]--; s.members[target.Member] == 0 {
			delete(s.members, target.Member)
		}
		delete(s.intents, target)
		s.dryRun.changed = true
	}
	if o := s.outcomes.of[target]; o != nil {
		if created {
			o.actionName, o.superseded = "", 0
		}
		s.obsolete.Set(target, s.shownUntil(o, now))
	}
	s.updateDue(target, now)
}

// countFormer counts n more for the intent of a target if it is Former.
func (s *policyState) countFormer(target policy.Ref, n int) {
	if !s.isFormer(target) {
		return
	}
	if s.formers[target.Member] += n; s.formers[target.Member] == 0 {
		delete(s.formers, target.Member)
	}
}

// unsetAll removes all intents.
func (s *policyState) unsetAll(now time.Time) {
	for target := range s.intents {
		s.unset(target, now)
	}
	s.ready = false
}

// shownUntil is how long the outcome of a target without an intent is shown: what was
// written, for a window.
func (s *policyState) shownUntil(o *targetOutcome, now time.Time) time.Time {
	if o.Phase != v1alpha1.PhaseSucceeded {
		return now
	}
	if s.removed { // or restored before its window is known
		return o.At.Add(max(s.spec.Limits.Window, s.longest))
	}
	return o.At.Add(s.spec.Limits.Window)
}

// showForWindow has the outcomes of targets without intents shown for the present window.
func (s *policyState) showForWindow(now time.Time) {
	for target, o := range s.outcomes.of {
		if s.intents[target] == nil {
			s.obsolete.Set(target, s.shownUntil(o, now))
		}
	}
}

// updateDue updates whether a target is due: its intent is not done, or is tried again.
func (s *policyState) updateDue(target policy.Ref, now time.Time) {
	s.setFailed(target, false)
	delete(s.repeated, target)
	delete(s.superseded, target)
	s.awaiting.remove(target)
	s.unresolved.remove(target)
	s.removeDue(target)
	i, o := s.intents[target], s.outcomes.of[target]
	switch {
	case i == nil:
		s.queue.Remove(target)
		s.ledger.ClearPending(s.name, target, now)
		return
	case o == nil || o.actionName != i.name:
		s.makeDue(i, now)
		return
	}
	s.ledger.ClearPending(s.name, target, now)
	switch o.Phase {
	case v1alpha1.PhaseFailed:
		s.setFailed(target, true)
		s.queue.AddAt(target, o.retryAt)
	case v1alpha1.PhaseContended:
		s.setFailed(target, true)
		s.queue.Remove(target)
	case v1alpha1.PhaseSuperseded: // a newer version is on its way
		if o.superseded > maxSuperseded {
			s.setFailed(target, true)
		} else {
			s.superseded[target] = true
		}
		s.queue.AddAt(target, o.retryAt)
	default:
		s.queue.Remove(target)
	}
}

// maxSuperseded is how often the same intent may find its target changed: after that, no
// newer version of it is expected.
const maxSuperseded = 2

// makeDue makes the intent for a target due.
func (s *policyState) makeDue(i *desiredIntent, now time.Time) {
	target := i.Remedy.Target
	delete(s.superseded, target)
	if s.spec.DryRun || s.isBeyond(i.Intent) {
		s.queue.Remove(target)
		s.ledger.ClearPending(s.name, target, now)
		return
	}
	if i.Unresolved != "" {
		s.queue.Remove(target)
		s.unresolved.add(target)
		if s.needsApproval() { // whether it has that is not known, either
			s.ledger.ClearPending(s.name, target, now)
		} else if !i.managed {
			s.ledger.SetPending(s.name, target, i.Subject, now)
		}
		return
	}
	if s.waitsForApproval(i) {
		s.queue.Remove(target)
		s.ledger.ClearPending(s.name, target, now)
		s.awaiting.add(target)
		return
	}
	s.queue.Add(target)
	if len(s.allowances) > 0 && s.isPlannable(i) {
		s.addDue(target, s.coverage(i, now))
	}
	if !i.managed {
		s.ledger.SetPending(s.name, target, i.Subject, now)
		s.repeated[target] = true
	}
}

func (s *policyState) addDue(target policy.Ref, of coverage) {
	list := s.due[of]
	if list == nil {
		added := newRefs()
		list = &added
		s.due[of] = list
	}
	list.add(target)
}

func (s *policyState) removeDue(target policy.Ref) {
	for of, list := range s.due {
		if list.remove(target); list.len() == 0 {
			delete(s.due, of)
		}
	}
}

// setFailed records whether a target has ended for good without being written.
func (s *policyState) setFailed(target policy.Ref, failed bool) {
	m := s.failed[target.Member]
	switch {
	case failed && m == nil:
		s.failed[target.Member] = map[policy.Ref]bool{target: true}
	case failed:
		m[target] = true
	case m != nil:
		if delete(m, target); len(m) == 0 {
			delete(s.failed, target.Member)
		}
	}
}

// isDesired reports whether an intent is the present one for its target.
func (s *policyState) isDesired(i *Intent) bool {
	now := s.intents[i.Remedy.Target]
	return now != nil && now.name == i.actionName()
}

// advance makes failed targets due whose time has come, and drops outcomes that are not shown
// any more. It returns when there are more.
func (s *policyState) advance(now time.Time) (next time.Time) {
	for target, until, ok := s.obsolete.Min(); ok; target, until, ok = s.obsolete.Min() {
		if until.After(now) {
			next = until
			break
		}
		s.obsolete.Remove(target)
		s.outcomes.remove(target)
	}
	due, retry := s.queue.Retries(now)
	for _, target := range due {
		if i := s.intents[target]; i != nil {
			s.makeDue(i, now)
		} else {
			s.queue.Remove(target)
		}
	}
	if !retry.IsZero() {
		next = earliest(next, retry)
	}
	return next
}

// repeat is how the name of a repeated Action ends.
var repeat = regexp.MustCompile(`^(.*-[0-9a-f]{20})-[0-9]+$`)

// restoreWrite restores the outcome of an Action that was written, as the hub has it.
func (s *policyState) restoreWrite(a *Action) {
	target := a.Remedy.Target
	if o := s.outcomes.of[target]; o == nil || a.Ended.After(o.At) {
		o = &targetOutcome{outcome: outcome{Action: a.Name, Phase: a.Phase, Message: a.Message, At: a.Ended}}
		if a.UID != "" && a.Phase == v1alpha1.PhaseSucceeded { // what was created may have been deleted since
			if o.actionName = a.Name; repeat.MatchString(a.Name) {
				o.actionName = repeat.FindStringSubmatch(a.Name)[1]
			}
		}
		s.outcomes.set(target, o)
	}
	if a.Phase != v1alpha1.PhaseSucceeded || a.RollbackOf != "" || a.Wave == 0 {
		return
	}
	if s.isReplaced(a.Generation) {
		if w := s.formerWritten[target]; w == nil || a.Ended.After(w.at) {
			s.formerWritten[target] = &writtenTarget{Written: a.written(), wave: int(a.Wave) - 1, at: a.Ended}
		}
	}
	if s.rollout == nil || a.Generation != s.rollout.Generation {
		return
	}
	if w := s.written[target]; w == nil || a.Ended.After(w.at) {
		soaked := s.rollout.Phase != v1alpha1.WaveWriting && !s.rollout.Healthy.IsZero() && !a.Ended.After(s.rollout.Healthy)
		s.written[target] = &writtenTarget{Written: a.written(), wave: int(a.Wave) - 1, at: a.Ended, soaked: soaked}
	}
}

// addWritten adds an action that has ended, and that a takeover has not read as one that has.
func (s *policyState) addWritten(a *Action, now time.Time) {
	target := a.Remedy.Target
	s.restoreWrite(a)
	if o := s.outcomes.of[target]; o != nil && s.intents[target] == nil {
		s.obsolete.Set(target, s.shownUntil(o, now))
	}
	s.updateDue(target, now)
}

// restored makes the intents due that are not done, once everything is restored.
func (s *policyState) restored(now time.Time) {
	for target := range s.intents {
		s.updateDue(target, now)
	}
	s.showForWindow(now)
}

// isReplaced reports whether the present generation takes the place of one.
func (s *policyState) isReplaced(generation string) bool {
	return s.replaced != nil && s.replaced.Generation == generation
}

// waveOf returns the wave of a member, from 0.
func (s *policyState) waveOf(member string) (n int, ok bool) {
	for n := range s.spec.Waves {
		if s.spec.Waves[n].Members[member] {
			return n, true
		}
	}
	return 0, false
}

// isIdle reports whether there is no such policy, nothing of it binds, and nothing has happened
// to it since a time.
func (s *policyState) isIdle(before time.Time) bool {
	if !s.removed || s.version == "" || s.created.IsZero() || !s.isRecorded() || s.saving || s.freezing || len(s.halts) > 0 || s.approval != nil {
		return false
	}
	waits := func(p *plan) bool { return p.Purpose != v1alpha1.PlanDryRun && !p.isOver() }
	return !slices.ContainsFunc(s.plans, waits) && s.lastChange().Before(before)
}

// lastChange is when something has happened to a policy last, or an acknowledgement ends.
func (r *record) lastChange() time.Time {
	last := r.created
	see := func(times ...time.Time) {
		for _, at := range times {
			if at.After(last) {
				last = at
			}
		}
	}
	for _, h := range r.history {
		see(h.At.Time)
	}
	for n := range r.allowances {
		see(r.allowances[n].At, r.allowances[n].expires)
	}
	if a := r.acknowledged; a != nil {
		see(a.At)
	}
	if s := r.rollout; s != nil {
		see(s.Since, s.Began, s.Done, s.Healthy)
	}
	return last
}
