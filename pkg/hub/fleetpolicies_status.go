package hub

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/notified"
	"federator.dev/federator/pkg/hub/internal/promotion"
	"federator.dev/federator/pkg/hub/internal/versionlog"
	"federator.dev/federator/pkg/hub/internal/versions"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Limits of a status, as in the CRD.
const (
	maxMembers = 100
	maxBudgets = 20
	maxText    = 1024
)

// sameStatus reports whether two statuses are equal except for times of conditions.
func sameStatus(a, b *v1alpha1.FleetPolicyStatus) bool {
	return reflect.DeepEqual(withoutTimes(a), withoutTimes(b))
}

// countersInterval is how often a status is written of which only counters have changed.
const countersInterval = 10 * time.Second

// statusDue reports whether a status is to be written: at once if more than counters has
// changed, such as a condition, a halt or a wave.
func statusDue(old, next *v1alpha1.FleetPolicyStatus, written, now time.Time) bool {
	if sameStatus(old, next) {
		return false
	}
	return now.Sub(written) >= countersInterval || !sameStatus(withoutCounters(old), withoutCounters(next))
}

// droppedInterval is how often a status is written that the hub does not store as it is.
const droppedInterval = time.Minute

// due reports whether a status of a FleetPolicy is to be written after what was written last.
func (w *writtenPolicy) due(fp *v1alpha1.FleetPolicy, next *v1alpha1.FleetPolicyStatus, now time.Time) bool {
	is := &fp.Status
	if w.sent != nil && now.Sub(w.at) < droppedInterval && sameStatus(w.stored, is) {
		is = w.sent // as if it had been stored
	}
	return w.over != fp.ResourceVersion && statusDue(is, next, w.at, now)
}

func withoutCounters(s *v1alpha1.FleetPolicyStatus) *v1alpha1.FleetPolicyStatus {
	out := s.DeepCopy()
	out.Totals, out.Members, out.MembersOmitted, out.Actions, out.Budget = nil, nil, 0, nil, nil
	if out.Wave != nil {
		out.Wave.Unhealthy = 0
	}
	if out.DryRun != nil {
		out.DryRun.Changed, out.DryRun.Remaining = 0, 0
	}
	if r := out.Rollout; r != nil && r.Candidate != nil {
		r.Candidate.Evidence = nil
	}
	return out
}

func withoutTimes(s *v1alpha1.FleetPolicyStatus) *v1alpha1.FleetPolicyStatus {
	out := s.DeepCopy()
	for i := range out.Conditions {
		out.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	seconds := func(t *metav1.Time) {
		if t != nil {
			*t = metav1.Unix(t.Unix(), 0) // the hub stores seconds
		}
	}
	if out.Halted != nil {
		seconds(&out.Halted.Since)
	}
	if out.Acknowledged != nil {
		out.Acknowledged.At = metav1.Time{}
	}
	if out.Wave != nil {
		seconds(out.Wave.Since)
	}
	if out.DryRun != nil {
		seconds(out.DryRun.At)
	}
	for i := range out.Versions {
		seconds(&out.Versions[i].Since)
	}
	if r := out.Rollout; r != nil && r.Candidate != nil {
		seconds(&r.Candidate.Began)
		seconds(&r.Candidate.Since)
	}
	if out.Approval != nil {
		for i := range out.Approval.Plans {
			p := &out.Approval.Plans[i]
			seconds(&p.Since)
			for j := range p.Approvals {
				seconds(&p.Approvals[j].At)
				seconds(&p.Approvals[j].Expires)
			}
		}
	}
	return out
}

// statusOf returns the current status of a FleetPolicy. Unchanged conditions keep their
// transition times.
func (f *FleetPolicies) statusOf(fp *v1alpha1.FleetPolicy, state *policy.State) *v1alpha1.FleetPolicyStatus {
	s := &v1alpha1.FleetPolicyStatus{ObservedGeneration: fp.Generation, Conditions: fp.DeepCopy().Status.Conditions, Acknowledged: fp.Status.Acknowledged, Versions: fp.Status.Versions, Rollout: fp.Status.Rollout.DeepCopy()}
	enforcement := f.opts.Corrector.Status(fp.Name)
	actions, acting := f.opts.Dispatcher.Status(fp.Name)
	why, bad := f.problems[fp.Name]
	health, bound := state.Health(fp.Name)
	verdicts, unknown := f.verdictsOf(fp.Name, state, &enforcement)
	ready := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "Bound", Message: "the policy is in effect"}
	switch {
	case bad:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, why.reason, why.message
	case !bound:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Pending", "the policy is not in effect yet"
	case unknown != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Syncing", "not all verdicts are known: "+unknown.Error()
	case !verdicts.Synced:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Syncing", "the objects that the policy reads are still being listed"
	}
	r := f.rollings[fp.Name]
	if bound && !bad && r != nil {
		s.Rollout = f.rolloutOf(fp, r, &actions)
		ready.Message += rolloutText(s.Rollout)
	}
	setCondition(s, fp, ready)
	f.setNotifying(s, fp)
	if bound && !bad {
		setCondition(s, fp, evaluatedCondition(&health, verdicts.Problem))
	} else {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.Evaluated)
	}
	mirrorHalts(s, fp, &actions)
	f.showApproval(s, fp, &actions, bad)
	from := f.originOf(fp)
	enforcing := enforcingCondition(fp, enforcement, actions, acting, ready.Status == metav1.ConditionTrue, f.opts.Dispatcher.StoppedFor(fp.Name, from.Source, ""))
	if enforcing.Reason == "Held" && isTakenBack(s.Rollout) {
		enforcing.Reason = "TakenBack"
	}
	setCondition(s, fp, enforcing)
	if !bound || bad {
		return s
	}
	if from.Source != "" {
		s.Origin = toOrigin(&from)
	}
	if r != nil && r.Everywhere() != nil {
		author := func() (string, bool) { return f.provenAuthor(fp, time.Now()) }
		s.Versions = f.versions.Of(fp, versionlog.Version{Digests: r.Everywhere().Digests, Origin: s.Origin, Signer: from.Signer, Author: author}, f.opts.Clock())
	}
	if unknown == nil {
		s.Totals, s.Members, s.MembersOmitted = countVerdicts(&verdicts)
	} else { // those of a part of the fleet would be wrong, and these are old
		s.Totals, s.Members, s.MembersOmitted = fp.Status.Totals.DeepCopy(), fp.DeepCopy().Status.Members, fp.Status.MembersOmitted
	}
	if acting {
		if fp.Spec.Mode != v1alpha1.Observe { // whatever the Dispatcher still knows
			s.DryRun = toDryRun(actions.DryRun)
		}
		s.Actions = toActionCounts(actions)
		s.Wave = toWaveStatus(actions.Wave)
		s.Budget = toBudgets(actions.Budget)
	}
	return s
}

// originOf returns where the package of a FleetPolicy was read from: of the version that is in
// effect everywhere, if there is one.
func (f *FleetPolicies) originOf(fp *v1alpha1.FleetPolicy) Origin {
	r := f.rollings[fp.Name]
	if r == nil {
		return f.opts.Library.Origin(fp.Spec.Package)
	}
	if v := r.Everywhere(); v != nil && v.Package != fp.Spec.Package {
		return r.origin(fp, v, f.origins)
	}
	if r.First() {
		return r.origin(fp, r.Next, f.origins)
	}
	return f.opts.Library.Origin(fp.Spec.Package)
}

// rolloutOf returns the versions of a FleetPolicy, and how far the next one has come now.
func (f *FleetPolicies) rolloutOf(fp *v1alpha1.FleetPolicy, r *rolling, actions *remediate.Status) *v1alpha1.PolicyRolloutStatus {
	out := r.Status()
	if out == nil || r.Next == nil {
		return out
	}
	facts := promotion.Facts{Refused: r.refused, Approved: f.shadowEnds(fp, r)}
	terms, err := promotion.TermsOf(r.rollout, f.countWaves(fp, r))
	if err != nil {
		facts.Refused = cmp.Or(facts.Refused, err.Error())
	}
	if r.Phase == v1alpha1.RolloutWaves {
		facts.Waves = versions.WavesOf(actions, f.specs[fp.Name].Generation)
	}
	var origin *v1alpha1.Origin
	if from := r.origin(fp, r.Next, f.origins); from.Source != "" {
		origin = toOrigin(&from)
	}
	recorded, now := fp.Status.Rollout, f.opts.Clock()
	if from, again := f.beginsAgain(fp, r, now); again {
		recorded, now = nil, from
	}
	var found *v1alpha1.RolloutEvidence
	found, facts.Missing = f.evidenceOn(fp)
	out.Candidate = r.Step(recorded, &terms, &facts, found, origin, now)
	if out.Candidate.Phase == v1alpha1.RolloutPromoted { // whatever is wanted when this is read
		out.Effective = r.Promoted()
	}
	return out
}

// evidenceOn returns what all processes find of the versions of a FleetPolicy that rolls out, nil while there is none, and why
// that is, "" where this process has none yet.
func (f *FleetPolicies) evidenceOn(fp *v1alpha1.FleetPolicy) (found *v1alpha1.RolloutEvidence, missing string) {
	own := f.evidence.Of(fp.UID)
	if own == nil {
		return nil, ""
	}
	sum := own.Part
	if f.opts.Evidence != nil {
		var err error
		if sum, err = f.opts.Evidence(fp.Name, own.Of); err != nil {
			return nil, err.Error()
		}
	}
	is := sum.Status()
	return &is, ""
}

// countWaves returns the number of waves in which a version takes effect: none where nothing is
// corrected, or nothing was before.
func (f *FleetPolicies) countWaves(fp *v1alpha1.FleetPolicy, r *rolling) int {
	spec, ok := f.specs[fp.Name]
	if !ok || r.First() || spec.Mode != policy.Enforce {
		return 0
	}
	if spec.Hold == "" && f.opts.Corrector.Status(fp.Name).Mode != policy.Enforce { // the ceiling allows less
		return 0
	}
	outer := 0
	if spec.Ceiling != nil {
		outer = len(spec.Ceiling.Waves)
	}
	return versions.Count(outer, len(spec.Waves))
}

// isTakenBack reports whether the version that was to take effect was taken back.
func isTakenBack(r *v1alpha1.PolicyRolloutStatus) bool {
	return r != nil && r.Candidate != nil && r.Candidate.Phase == v1alpha1.RolloutTakenBack
}

// rolloutText says what becomes of the version that is to take effect, "" if there is none.
func rolloutText(r *v1alpha1.PolicyRolloutStatus) string {
	if r == nil || r.Candidate == nil {
		return ""
	}
	c := r.Candidate
	switch c.Phase {
	case v1alpha1.RolloutTakenBack:
		return fmt.Sprintf("; version %s was taken back: %s", versions.Short(c.Digest), c.Message)
	case v1alpha1.RolloutPromoted:
		return fmt.Sprintf("; version %s is promoted", versions.Short(c.Digest))
	}
	return fmt.Sprintf("; version %s rolls out: %s", versions.Short(c.Digest), c.Message)
}

// mirrorHalts shows the halts that the PolicyState has, also of a policy that is not in effect
// now. Before they have been read, those stay that are shown.
func mirrorHalts(s *v1alpha1.FleetPolicyStatus, fp *v1alpha1.FleetPolicy, actions *remediate.Status) {
	if !actions.Restored {
		s.Halted = fp.Status.Halted.DeepCopy()
		return
	}
	s.Halted = toHalt(actions.Halted)
	// An older acknowledgement is of another FleetPolicy of this name.
	if a := actions.Acknowledged; a != nil && !a.At.Before(fp.CreationTimestamp.Time) && (s.Acknowledged == nil || s.Acknowledged.ID != a.Halt) {
		s.Acknowledged = &v1alpha1.Acknowledgement{ID: a.Halt, By: clip.Text(a.By, 253), At: metav1.NewTime(a.At)}
	}
}

// Limits of an approval's status, as in the CRD.
const (
	maxPlans    = 10
	maxApprover = 20
)

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func setCondition(s *v1alpha1.FleetPolicyStatus, fp *v1alpha1.FleetPolicy, c metav1.Condition) {
	c.ObservedGeneration, c.Message = fp.Generation, clip.Text(c.Message, maxText)
	meta.SetStatusCondition(&s.Conditions, c)
}

// setNotifying says whether the Notifications that a FleetPolicy names are sent its transitions. Whether it enforces does not
// depend on that.
func (f *FleetPolicies) setNotifying(s *v1alpha1.FleetPolicyStatus, fp *v1alpha1.FleetPolicy) {
	if len(fp.Spec.Notifications) == 0 {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.Notifying)
		return
	}
	allowed, why := f.opts.Library.MayNotify(fp)
	setCondition(s, fp, notified.Condition(fp.Spec.Notifications, allowed, why))
}

// Reasons of the condition Evaluated.
const (
	reasonQuarantined  = "Quarantined"
	reasonViewTooLarge = "ViewTooLarge"
	reasonContribution = "ContributionFailed"
	reasonElsewhere    = "FailedElsewhere" // at another process
)

// evaluatedCondition returns the condition Evaluated; its message says what ends a failure. elsewhere is that of another
// process, "" for none.
func evaluatedCondition(h *policy.Health, elsewhere string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Evaluated, Status: metav1.ConditionFalse, Message: h.Problem()}
	switch {
	case len(h.Quarantines) > 0:
		c.Reason = reasonQuarantined
	case h.Views != "":
		c.Reason = reasonViewTooLarge
	case len(h.Failures) > 0:
		c.Reason = reasonContribution
	case elsewhere != "":
		c.Reason, c.Message = reasonElsewhere, elsewhere
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Evaluated", "all evaluations completed"
	}
	return c
}

// reasonNoRoom is the reason of the condition Enforcing, and of the Event, while the hub has as many
// Actions as it may have.
const reasonNoRoom = "TooManyActions"

// enforcingCondition returns the condition Enforcing.
func enforcingCondition(fp *v1alpha1.FleetPolicy, enforcement enforce.EnforcementStatus, actions remediate.Status, acting, ready bool, stopped string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Enforcing, Status: metav1.ConditionFalse}
	no := func(reason, message string) metav1.Condition {
		c.Reason, c.Message = reason, message
		return c
	}
	switch {
	case !ready:
		return no("NotReady", "see condition Ready")
	case fp.Spec.Mode != v1alpha1.Enforce && fp.Spec.Mode != v1alpha1.DryRun:
		return no("Observing", "violations are reported, not corrected")
	case stopped != "":
		return no("Stopped", stopped)
	case enforcement.Mode == policy.Observe:
		return no("Held", cmp.Or(enforcement.ModeReason, "violations may not be corrected"))
	case actions.Halted != nil:
		if actions.Approval != nil {
			return no("Halted", fmt.Sprintf("%s; approve halt %s to continue: %s", actions.Halted.Message, actions.Halted.ID, approveCommand(fp.Name, "halt", actions.Halted.ID)))
		}
		return no("Halted", fmt.Sprintf("%s; acknowledge halt %s to continue", actions.Halted.Message, actions.Halted.ID))
	case fp.Spec.Suspend:
		return no("Suspended", "spec.suspend is true")
	case !enforcement.Complete:
		return no("Counting", "verdicts are still being counted")
	case acting && (actions.Waiting == remediate.WaitingForWindow || actions.Waiting == remediate.WaitingForCeilingWindow):
		return no("WindowClosed", actions.Waiting)
	case acting && actions.Waiting == remediate.WaitingForRoom:
		return no(reasonNoRoom, actions.Waiting)
	case acting && actions.Waiting != "":
		return no("Waiting", actions.Waiting)
	case enforcement.Mode == policy.DryRun:
		return no("DryRunning", dryRunMessage(fp.Name, enforcement.ModeReason, actions.DryRun))
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Enforcing", "violations are corrected"
	if enforcement.OverCeiling > 0 {
		c.Message = fmt.Sprintf("%d remedies exceed the ceiling: %s", enforcement.OverCeiling, enforcement.OverCeilingReason)
		c.Reason = "BeyondCeiling"
	}
	if enforcement.Contradicting > 0 {
		c.Message = fmt.Sprintf("%d objects are not written: %s", enforcement.Contradicting, enforcement.Contradiction)
		c.Reason = "Contradicting"
	}
	return c
}

// FleetVerdicts are the verdicts of a policy on the whole fleet.
type FleetVerdicts struct {
	Counts    map[string]policy.Counts // by member; those of keys of views are of ""
	Protected map[string]int           // corrections of protected targets, by member
	Synced    bool                     // all that the policies read has been listed once
	Problem   string                   // of its evaluation at another process, "" for none
	// What follows is as in enforce.EnforcementStatus, of the whole fleet. Counting is the opposite of its Complete.
	Counting                         bool
	OverCeiling, Contradicting       int
	OverCeilingReason, Contradiction string
}

// verdictsOf returns the verdicts of a policy on the whole fleet, or why they are not known, and has enforcement count all of
// these.
func (f *FleetPolicies) verdictsOf(name string, state *policy.State, enforcement *enforce.EnforcementStatus) (FleetVerdicts, error) {
	if f.opts.Verdicts != nil {
		v, err := f.opts.Verdicts(name)
		if err == nil {
			enforcement.Complete = enforcement.Complete && !v.Counting
			enforcement.OverCeiling, enforcement.OverCeilingReason = v.OverCeiling, v.OverCeilingReason
			enforcement.Contradicting, enforcement.Contradiction = v.Contradicting, v.Contradiction
		}
		return v, err
	}
	return FleetVerdicts{Counts: maps.Collect(state.Counts(name)), Protected: enforcement.Protected, Synced: state.Synced}, nil
}

// countVerdicts returns the counts over all members, and by member, most violations first.
func countVerdicts(of *FleetVerdicts) (*v1alpha1.Verdicts, []v1alpha1.MemberVerdicts, int32) {
	total := &v1alpha1.Verdicts{}
	var list []v1alpha1.MemberVerdicts
	for member, n := range of.Counts {
		v := v1alpha1.Verdicts{
			Subjects: int64(n.Known + n.Unknown + n.Errors), Violations: int64(n.Violations), Unknown: int64(n.Unknown),
			Exempt: int64(n.Exempt), Errors: int64(n.Errors), Protected: int64(of.Protected[member]),
		}
		total.Subjects += v.Subjects
		total.Violations += v.Violations
		total.Unknown += v.Unknown
		total.Exempt += v.Exempt
		total.Errors += v.Errors
		total.Protected += v.Protected
		if member != "" && v.Violations+v.Unknown+v.Exempt+v.Errors+v.Protected > 0 {
			list = append(list, v1alpha1.MemberVerdicts{Name: member, Verdicts: v})
		}
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.MemberVerdicts) int {
		return cmp.Or(-cmp.Compare(a.Violations, b.Violations), -cmp.Compare(a.Errors+a.Unknown, b.Errors+b.Unknown), cmp.Compare(a.Name, b.Name))
	})
	omitted := max(0, len(list)-maxMembers)
	return total, list[:len(list)-omitted], int32(omitted) // There are no 2³¹ members.
}

func toActionCounts(s remediate.Status) *v1alpha1.ActionCounts {
	n := func(p v1alpha1.ActionPhase) int64 { return int64(s.Phases[p]) }
	return &v1alpha1.ActionCounts{
		Pending: int64(s.Pending), Succeeded: n(v1alpha1.PhaseSucceeded), NoOp: n(v1alpha1.PhaseNoOp), Failed: n(v1alpha1.PhaseFailed),
		Superseded: n(v1alpha1.PhaseSuperseded), Contended: n(v1alpha1.PhaseContended), Protected: n(v1alpha1.PhaseProtected), Managed: n(v1alpha1.PhaseManaged), RolledBack: n(v1alpha1.PhaseRolledBack),
	}
}

// dryRunMessage says what is known of what a policy in mode DryRun would write, and why it is in
// that mode, "" where it is the one of its spec.
func dryRunMessage(name, reason string, r *remediate.DryRunStatus) string {
	text := "members have not been asked yet what they would answer"
	switch {
	case r == nil:
	case r.Plan != "":
		text = fmt.Sprintf("Plan %s has what members answered: %d of %d targets would be changed; see federator actions plan %s", r.Plan, r.Answers.Passed, r.Targets, name)
	case r.Running:
		text = "members are being asked what they would answer"
	}
	if reason != "" {
		text = reason + "; " + text
	}
	return text
}

func toDryRun(r *remediate.DryRunStatus) *v1alpha1.DryRunProgress {
	if r == nil {
		return nil
	}
	p := &v1alpha1.DryRunProgress{
		Plan: r.Plan, Targets: int32(r.Targets), Answers: r.Answers, Changed: int32(r.Changed), Remaining: int32(r.Remaining), // at most v1alpha1.MaxPlanTargets
	}
	if r.Plan != "" {
		at := metav1.NewTime(r.At)
		p.At = &at
	}
	return p
}
