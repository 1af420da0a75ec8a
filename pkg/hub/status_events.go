package hub

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/hub/internal/versions"
	"federator.dev/federator/pkg/remediate"
)

// Reasons of Events.
const (
	eventVerdicts      = "VerdictsChanged"
	eventNotInEffect   = "NotInEffect"
	eventHalted        = "Halted"
	eventAcknowledged  = "Acknowledged"
	eventIgnored       = "AcknowledgementIgnored"
	eventWaveBegins    = "WaveBegins"
	eventWavesDone     = "WavesDone"
	eventStopped       = "Stopped"
	eventResumed       = "Resumed"
	eventCommitActive  = "CommitActive"
	eventCommitRefused = "CommitRefused"

	eventVersionShadow    = "VersionInShadow"
	eventVersionWaves     = "VersionInWaves"
	eventVersionPromoted  = "VersionPromoted"
	eventVersionTakenBack = "VersionTakenBack"
)

// statusRecorder records Events about what changes from one status to the next. It
// compares with the status on the hub, so that a new leader does not repeat Events.
type statusRecorder struct {
	events *Events
	// lastComplete are the last statuses of FleetPolicies that covered all verdicts, while
	// those on the hub do not: while a new leader lists the fleet, for example.
	lastComplete map[types.UID]*v1alpha1.FleetPolicyStatus
}

// prune forgets FleetPolicies that no longer exist.
func (t *statusRecorder) prune(here map[types.UID]bool) {
	maps.DeleteFunc(t.lastComplete, func(uid types.UID, _ *v1alpha1.FleetPolicyStatus) bool { return !here[uid] })
}

func objectReference(kind string, o *metav1.ObjectMeta) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: kind, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}

// record records Events about a FleetPolicy whose status becomes next.
func (t *statusRecorder) record(fp *v1alpha1.FleetPolicy, next *v1alpha1.FleetPolicyStatus) {
	if t.events == nil {
		return
	}
	about := objectReference("FleetPolicy", &fp.ObjectMeta)
	once := func(warning bool, reason, of, action, text string) {
		t.events.add(&pendingEvent{eventKey: eventKey{reason: reason, subject: of}, regarding: about, warning: warning, immediate: true, action: action, text: text})
	}
	was := &fp.Status
	if h := next.Halted; h != nil && (was.Halted == nil || was.Halted.ID != h.ID) {
		once(true, eventHalted, h.ID, "Enforce", haltMessage(fp.Name, h, next.Approval != nil))
	}
	if a := next.Acknowledged; a != nil && (was.Acknowledged == nil || was.Acknowledged.ID != a.ID) {
		once(false, eventAcknowledged, a.ID, "Enforce", fmt.Sprintf("halt %s was acknowledged by %s", a.ID, cmp.Or(a.By, "an unknown user")))
	}
	if e := versionEvent(was.Rollout, next.Rollout); e != nil {
		e.regarding = about
		t.events.add(e)
	}
	t.recordNotInEffect(about, was, next)
	t.recordEvaluation(about, was, next)
	base := t.previous(fp)
	if !isComplete(next) {
		t.lastComplete[fp.UID] = base
		return
	}
	delete(t.lastComplete, fp.UID)
	switch w := next.Wave; {
	case waveStarted(base.Wave, w):
		once(false, eventWaveBegins, fmt.Sprint(w.Number), "Enforce", fmt.Sprintf("wave %d of %d started: %s", w.Number, w.Of, w.Name))
	case isDone(w) && base.Wave != nil && !isDone(base.Wave):
		once(false, eventWavesDone, "", "Enforce", fmt.Sprintf("all %d waves are completed", w.Of))
	}
	switch before, now := stopMessage(base), stopMessage(next); {
	case before == "" && now != "":
		once(true, eventStopped, now, "Enforce", now)
	case before != "" && now == "" && !isObserving(next): // whose status does not show a stop
		once(false, eventResumed, before, "Enforce", "actions are resumed")
	}
	if c := meta.FindStatusCondition(next.Conditions, v1alpha1.Enforcing); hasNoRoom(next) && !hasNoRoom(base) {
		once(true, reasonNoRoom, "", "Enforce", c.Message)
	}
	for of, c := range verdictChanges(base, next) {
		t.events.add(&pendingEvent{eventKey: eventKey{reason: eventVerdicts, subject: of}, regarding: about, action: "Evaluate", from: &c.from, to: &c.to})
	}
}

// versionEvent returns an Event about the version that is to take effect, nil if nothing has
// become of it.
func versionEvent(was, next *v1alpha1.PolicyRolloutStatus) *pendingEvent {
	if next == nil || next.Candidate == nil {
		return nil
	}
	c := next.Candidate
	if was != nil && was.Candidate != nil && was.Candidate.Digest == c.Digest && was.Candidate.Phase == c.Phase {
		return nil
	}
	version := versions.Short(c.Digest)
	e := &pendingEvent{eventKey: eventKey{subject: version}, immediate: true, action: "RollOut"}
	switch c.Phase {
	case v1alpha1.RolloutTakenBack:
		e.reason, e.warning, e.text = eventVersionTakenBack, true, fmt.Sprintf("version %s was taken back: %s", version, c.Message)
	case v1alpha1.RolloutPromoted:
		e.reason, e.text = eventVersionPromoted, fmt.Sprintf("version %s is in effect in all members", version)
	case v1alpha1.RolloutWaves:
		e.reason, e.text = eventVersionWaves, fmt.Sprintf("version %s takes effect, one wave of members after another", version)
	default:
		e.reason, e.text = eventVersionShadow, fmt.Sprintf("version %s is judged beside the one in effect", version)
	}
	return e
}

// ignored records that an annotation does not acknowledge a halt.
func (t *statusRecorder) ignored(fp *v1alpha1.FleetPolicy, halt string) {
	t.events.add(&pendingEvent{
		eventKey: eventKey{reason: eventIgnored, subject: halt}, regarding: objectReference("FleetPolicy", &fp.ObjectMeta), warning: true, immediate: true, action: "Enforce",
		text: fmt.Sprintf("annotation %s does nothing, since approval is required: %s", api.AcknowledgeKey, approveCommand(fp.Name, "halt", halt)),
	})
}

// previous returns the status that the next one is compared with; it is empty for a policy
// that has had none.
func (t *statusRecorder) previous(fp *v1alpha1.FleetPolicy) *v1alpha1.FleetPolicyStatus {
	if isComplete(&fp.Status) {
		return fp.Status.DeepCopy()
	}
	if s := t.lastComplete[fp.UID]; s != nil {
		return s
	}
	return &v1alpha1.FleetPolicyStatus{}
}

// isComplete reports whether a status covers all verdicts, and whether there is a stop.
func isComplete(s *v1alpha1.FleetPolicyStatus) bool {
	stop := stopMessage(s)
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Ready) && !strings.HasSuffix(stop, stopUnknown) && !strings.HasSuffix(stop, stopUnknownBefore)
}

// stopMessage returns what is stopped, and by whom, "" if nothing is.
func stopMessage(s *v1alpha1.FleetPolicyStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Enforcing); c != nil && c.Reason == "Stopped" {
		return c.Message
	}
	return ""
}

// hasNoRoom reports whether corrections wait for room for their Actions.
func hasNoRoom(s *v1alpha1.FleetPolicyStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.Enforcing)
	return c != nil && c.Reason == reasonNoRoom
}

func isObserving(s *v1alpha1.FleetPolicyStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.Enforcing)
	return c != nil && c.Reason == "Observing"
}

func isDone(w *v1alpha1.WaveStatus) bool {
	return w != nil && w.Phase == v1alpha1.WaveDone
}

func waveStarted(was, now *v1alpha1.WaveStatus) bool {
	return now != nil && !isDone(now) && (was == nil || was.Number != now.Number || isDone(was))
}

// recordNotInEffect records that a FleetPolicy is not in effect. That may resolve itself:
// packages become active one after another when a process starts.
func (t *statusRecorder) recordNotInEffect(about corev1.ObjectReference, was, next *v1alpha1.FleetPolicyStatus) {
	before, now := meta.FindStatusCondition(was.Conditions, v1alpha1.Ready), meta.FindStatusCondition(next.Conditions, v1alpha1.Ready)
	n := &pendingEvent{
		eventKey: eventKey{uid: about.UID, reason: eventNotInEffect}, regarding: about, warning: true, immediate: true, transient: true, action: "Bind",
	}
	switch now.Reason {
	case "NoPackage", "OtherSource", "Invalid":
	default:
		t.events.cancel(n.eventKey)
		return
	}
	if before == nil || before.Reason != now.Reason || before.Message != now.Message {
		n.text = now.Reason + ": " + now.Message
		t.events.add(n)
	}
}

// recordEvaluation records that evaluations fail, once for each reason: the members and
// objects may change often.
func (t *statusRecorder) recordEvaluation(about corev1.ObjectReference, was, next *v1alpha1.FleetPolicyStatus) {
	before, now := meta.FindStatusCondition(was.Conditions, v1alpha1.Evaluated), meta.FindStatusCondition(next.Conditions, v1alpha1.Evaluated)
	if now == nil || now.Status != metav1.ConditionFalse || before != nil && before.Reason == now.Reason {
		return
	}
	text := "see condition " + v1alpha1.Evaluated // which may name objects of members
	if now.Reason == reasonQuarantined {
		text = now.Message
	}
	t.events.add(&pendingEvent{
		eventKey: eventKey{uid: about.UID, reason: now.Reason}, regarding: about, warning: true, immediate: true, action: "Evaluate",
		text: now.Reason + ": " + text,
	})
}

// haltMessage says why a policy is halted. Objects of members are named in the status of
// the FleetPolicy only.
func haltMessage(name string, h *v1alpha1.Halt, approval bool) string {
	why := string(h.Reason) + ": see status.halted"
	if h.Reason == v1alpha1.OverLimit {
		why = string(h.Reason) + ": " + h.Message
	}
	if approval {
		return fmt.Sprintf("%s; halted until halt %s is approved: %s", clip.Text(why, maxText/2), h.ID, approveCommand(name, "halt", h.ID))
	}
	return fmt.Sprintf("%s; halted until halt %s is acknowledged: federator actions ack %s %s", clip.Text(why, maxText/2), h.ID, name, h.ID)
}

// verdictChange is the verdict counts before and after.
type verdictChange struct{ from, to v1alpha1.Verdicts }

// verdictChanges returns the counts whose violations or errors differ, by member; verdicts
// that become Unknown are not reported, as the cause is the member. If a status does not
// list all members, the others are reported as a sum.
func verdictChanges(was, now *v1alpha1.FleetPolicyStatus) map[string]verdictChange {
	whole := was.MembersOmitted == 0 && now.MembersOmitted == 0
	all := map[string]verdictChange{}
	for _, m := range was.Members {
		all[m.Name] = verdictChange{from: m.Verdicts}
	}
	for _, m := range now.Members {
		c, both := all[m.Name]
		if c.to = m.Verdicts; both || whole {
			all[m.Name] = c
		}
	}
	if !whole {
		here := map[string]bool{}
		for _, m := range now.Members {
			here[m.Name] = true
		}
		maps.DeleteFunc(all, func(name string, _ verdictChange) bool { return !here[name] }) // it may be one of the omitted ones
	}
	left := verdictChange{totals(was), totals(now)}
	for _, c := range all {
		left.from.Violations -= c.from.Violations
		left.to.Violations -= c.to.Violations
		left.from.Errors -= c.from.Errors
		left.to.Errors -= c.to.Errors
	}
	left.from.Unknown, left.to.Unknown, left.from.Exempt, left.to.Exempt = 0, 0, 0, 0
	if whole {
		all["the fleet"] = left // keys of views belong to no member
	} else {
		all["other members"] = left
	}
	for of, c := range all {
		if c.from.Violations == c.to.Violations && c.from.Errors == c.to.Errors {
			delete(all, of)
		}
	}
	return all
}

func totals(s *v1alpha1.FleetPolicyStatus) v1alpha1.Verdicts {
	if s.Totals == nil {
		return v1alpha1.Verdicts{}
	}
	return *s.Totals
}

// recordAction records the outcome of a correction.
func (e *Events) recordAction(fp *v1alpha1.FleetPolicy, a *remediate.Action) {
	n := &pendingEvent{
		eventKey: eventKey{reason: "Corrected", subject: a.Remedy.Target.Member}, regarding: objectReference("FleetPolicy", &fp.ObjectMeta), action: "Correct",
		count: 1, text: "Action " + a.Name,
	}
	switch {
	case a.Phase == v1alpha1.PhaseSucceeded && a.RollbackOf != "":
		n.reason, n.text = "RolledBack", fmt.Sprintf("Action %s rolled back %s", a.Name, a.RollbackOf)
	case a.Phase == v1alpha1.PhaseSucceeded:
	case a.Phase == v1alpha1.PhaseFailed:
		n.reason, n.warning = "CorrectionFailed", true
	case a.Phase == v1alpha1.PhaseContended:
		n.reason, n.warning = "Contended", true
		n.text += ", conflicting with " + cmp.Or(a.Manager, "another field manager")
	default:
		return
	}
	e.add(n)
}

// recordSource records Events about a PolicySource whose status becomes next.
func (e *Events) recordSource(ps *v1alpha1.PolicySource, next *v1alpha1.PolicySourceStatus) {
	if e == nil {
		return
	}
	about, was := objectReference("PolicySource", &ps.ObjectMeta), &ps.Status
	if c := next.ActiveCommit; c != nil && (was.ActiveCommit == nil || was.ActiveCommit.Hash != c.Hash) {
		e.add(&pendingEvent{
			eventKey: eventKey{reason: eventCommitActive, subject: string(c.Hash)}, regarding: about, immediate: true, action: "Activate",
			text: fmt.Sprintf("the policies of commit %s are in effect", c.Hash),
		})
	}
	fresh := hashOf(was.ObservedCommit) != hashOf(next.ObservedCommit)
	for _, kind := range []string{v1alpha1.Fetched, v1alpha1.Verified, v1alpha1.Compiled, v1alpha1.Tested, v1alpha1.Bounded, v1alpha1.Applied} {
		before, now := meta.FindStatusCondition(was.Conditions, kind), meta.FindStatusCondition(next.Conditions, kind)
		if now == nil || now.Status != metav1.ConditionFalse || before != nil && before.Status == now.Status && before.Reason == now.Reason && !fresh {
			continue
		}
		n := &pendingEvent{
			eventKey: eventKey{reason: eventCommitRefused, subject: hashOf(next.ObservedCommit) + " " + now.Reason}, regarding: about, warning: true, immediate: true, action: "Judge",
			text: fmt.Sprintf("commit %s: %s: %s", hashOf(next.ObservedCommit), now.Reason, now.Message),
		}
		switch kind {
		case v1alpha1.Fetched: // about no commit
			n.reason, n.action, n.text = "NotFetched", "Fetch", now.Reason+": "+now.Message
		case v1alpha1.Applied:
			n.reason, n.action = "NotApplied", "Apply"
		}
		e.add(n)
	}
}

// recordSourceRollout records Events about the rollout of a commit of a PolicySource.
func (e *Events) recordSourceRollout(ps *v1alpha1.PolicySource, next *v1alpha1.SourceRolloutStatus) {
	was := ps.Status.Rollout
	same := was != nil && next != nil && was.Commit == next.Commit
	if e == nil || next == nil || same && was.Phase == next.Phase {
		return
	}
	n := &pendingEvent{
		eventKey: eventKey{subject: string(next.Commit)}, regarding: objectReference("PolicySource", &ps.ObjectMeta), immediate: true, action: "RollOut",
	}
	switch {
	case !same:
		n.reason, n.text = "RolloutBegan", fmt.Sprintf("commit %s rolls out: it changes %d policies", next.Commit, next.Policies)
	case next.Phase == v1alpha1.RolloutPromoted:
		n.reason, n.text = "RolloutPromoted", fmt.Sprintf("commit %s: %s", next.Commit, next.Message)
	case next.Phase == v1alpha1.RolloutTakenBack:
		n.reason, n.warning, n.text = "RolloutTakenBack", true, fmt.Sprintf("commit %s was taken back: %s", next.Commit, next.Message)
	default:
		return
	}
	e.add(n)
}

func hashOf(c *v1alpha1.Commit) string {
	if c == nil {
		return ""
	}
	return string(c.Hash)
}

// RecordLoss records on what describes a member on the hub that an audit has found so many objects
// of a kind that differed from the member's. Which ones they are is for those to read who may read
// the log.
func (e *Events) RecordLoss(describes *corev1.ObjectReference, kind string, objects int) {
	if describes.UID == "" {
		return
	}
	e.add(&pendingEvent{
		eventKey:  eventKey{reason: "EventsLost", subject: kind},
		regarding: *describes,
		warning:   true, action: "Audit",
		text: fmt.Sprintf("events of the member were lost: an audit found that %d objects of kind %s were not held as the member has them, and they are listed again", objects, kind),
	})
}

// RecordKept records on the Pod of this process that nothing of the index is kept on disk, and why; or,
// where why is "", that it is kept again.
func (e *Events) RecordKept(namespace, pod, uid, why string) {
	if e == nil || namespace == "" || pod == "" {
		return
	}
	n := &pendingEvent{
		eventKey:  eventKey{reason: "IndexKept", own: true},
		regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod, UID: types.UID(uid)},
		action:    "Persist", text: "the index is kept on disk again",
	}
	if why != "" {
		n.reason, n.warning, n.text = "IndexNotKept", true, "nothing of the index is kept over a restart, which would list all members: "+why
	}
	for _, reason := range []string{"IndexKept", "IndexNotKept"} { // what was before, and not written, is over
		e.cancel(eventKey{uid: types.UID(uid), reason: reason, own: true})
	}
	e.add(n)
}
