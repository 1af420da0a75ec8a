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

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate"
)

// Reasons of Events.
const (
	eventVerdicts     = "VerdictsChanged"
	eventNotInEffect  = "NotInEffect"
	eventHalted       = "Halted"
	eventAcknowledged = "Acknowledged"
	eventWave         = "WaveBegins"
	eventWaves        = "WavesDone"
	eventStopped      = "Stopped"
	eventResumed      = "Resumed"
	eventActive       = "CommitActive"
	eventRefused      = "CommitRefused"
)

// teller tells in Events what has changed from one status to the next. What it compares
// with is on the hub, so that nothing is told twice when another process comes to lead.
type teller struct {
	events *Events
	// settled are the last statuses of FleetPolicies that told of all verdicts, as long
	// as those on the hub do not: while a process that has just come to lead lists the
	// fleet, for example.
	settled map[types.UID]*v1alpha1.FleetPolicyStatus
}

// keep forgets the FleetPolicies that are gone.
func (t *teller) keep(policies []*v1alpha1.FleetPolicy) {
	if len(t.settled) <= len(policies) {
		return
	}
	here := map[types.UID]bool{}
	for _, fp := range policies {
		here[fp.UID] = true
	}
	maps.DeleteFunc(t.settled, func(uid types.UID, _ *v1alpha1.FleetPolicyStatus) bool { return !here[uid] })
}

func regarding(kind string, o *metav1.ObjectMeta) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: kind, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}
}

// fleetPolicy tells of a FleetPolicy whose status becomes next.
func (t *teller) fleetPolicy(fp *v1alpha1.FleetPolicy, next *v1alpha1.FleetPolicyStatus) {
	if t.events == nil {
		return
	}
	about := regarding("FleetPolicy", &fp.ObjectMeta)
	once := func(warning bool, reason, of, action, text string) {
		t.events.add(&note{noteKey: noteKey{reason: reason, of: of}, regarding: about, warning: warning, once: true, action: action, text: text})
	}
	was := &fp.Status
	if h := next.Halted; h != nil && (was.Halted == nil || was.Halted.ID != h.ID) {
		once(true, eventHalted, h.ID, "Enforce", haltText(fp.Name, h))
	}
	if a := next.Acknowledged; a != nil && (was.Acknowledged == nil || was.Acknowledged.ID != a.ID) {
		once(false, eventAcknowledged, a.ID, "Enforce", fmt.Sprintf("halt %s is acknowledged by %s", a.ID, cmp.Or(a.By, "somebody")))
	}
	t.unfit(about, was, next)
	t.unevaluated(about, was, next)
	base := t.base(fp)
	if !tellsAll(next) {
		t.settled[fp.UID] = base
		return
	}
	delete(t.settled, fp.UID)
	switch w := next.Wave; {
	case begins(base.Wave, w):
		once(false, eventWave, fmt.Sprint(w.Number), "Enforce", fmt.Sprintf("wave %d of %d begins: %s", w.Number, w.Of, w.Name))
	case done(w) && base.Wave != nil && !done(base.Wave):
		once(false, eventWaves, "", "Enforce", fmt.Sprintf("all %d waves are done", w.Of))
	}
	switch before, now := stopOf(base), stopOf(next); {
	case before == "" && now != "":
		once(true, eventStopped, now, "Enforce", now)
	case before != "" && now == "" && !observes(next): // which tells nothing of a stop
		once(false, eventResumed, before, "Enforce", "all actions may go on")
	}
	for of, c := range changedVerdicts(base, next) {
		t.events.add(&note{noteKey: noteKey{reason: eventVerdicts, of: of}, regarding: about, action: "Evaluate", from: &c.from, to: &c.to})
	}
}

// base is the status that the next one is compared with, empty for a policy that has
// had none.
func (t *teller) base(fp *v1alpha1.FleetPolicy) *v1alpha1.FleetPolicyStatus {
	if tellsAll(&fp.Status) {
		return fp.Status.DeepCopy()
	}
	if s := t.settled[fp.UID]; s != nil {
		return s
	}
	return &v1alpha1.FleetPolicyStatus{}
}

// tellsAll reports whether a status tells of all verdicts, and of what is known of a stop.
func tellsAll(s *v1alpha1.FleetPolicyStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Ready) && !strings.HasSuffix(stopOf(s), stopUnread)
}

// stopOf says who has stopped all actions, "" when nobody has.
func stopOf(s *v1alpha1.FleetPolicyStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Enforcing); c != nil && c.Reason == "Stopped" {
		return c.Message
	}
	return ""
}

func observes(s *v1alpha1.FleetPolicyStatus) bool {
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.Enforcing)
	return c != nil && c.Reason == "Observing"
}

func done(w *v1alpha1.WaveStatus) bool {
	return w != nil && w.Phase == v1alpha1.WaveDone
}

func begins(was, now *v1alpha1.WaveStatus) bool {
	return now != nil && !done(now) && (was == nil || was.Number != now.Number || done(was))
}

// unfit tells of a FleetPolicy that is not in effect. That may pass by itself: packages
// come one after another when a process begins.
func (t *teller) unfit(about corev1.ObjectReference, was, next *v1alpha1.FleetPolicyStatus) {
	before, now := meta.FindStatusCondition(was.Conditions, v1alpha1.Ready), meta.FindStatusCondition(next.Conditions, v1alpha1.Ready)
	n := &note{
		noteKey: noteKey{about: about.UID, reason: eventNotInEffect}, regarding: about, warning: true, once: true, passing: true, action: "Bind",
	}
	switch now.Reason {
	case "NoPackage", "OtherSource", "Invalid":
	default:
		t.events.withdraw(n.noteKey)
		return
	}
	if before == nil || before.Reason != now.Reason || before.Message != now.Message {
		n.text = now.Reason + ": " + now.Message
		t.events.add(n)
	}
}

// unevaluated tells of evaluations that give no answer, once for each reason: which
// members and objects they are of may change often.
func (t *teller) unevaluated(about corev1.ObjectReference, was, next *v1alpha1.FleetPolicyStatus) {
	before, now := meta.FindStatusCondition(was.Conditions, v1alpha1.Evaluated), meta.FindStatusCondition(next.Conditions, v1alpha1.Evaluated)
	if now == nil || now.Status != metav1.ConditionFalse || before != nil && before.Reason == now.Reason {
		return
	}
	text := "see condition " + v1alpha1.Evaluated // which may name objects of members
	if now.Reason == reasonQuarantined {
		text = now.Message
	}
	t.events.add(&note{
		noteKey: noteKey{about: about.UID, reason: now.Reason}, regarding: about, warning: true, once: true, action: "Evaluate",
		text: now.Reason + ": " + text,
	})
}

// haltText says why a policy is halted. Which objects of members were corrected is told
// on the FleetPolicy.
func haltText(name string, h *v1alpha1.Halt) string {
	why := string(h.Reason) + ": see status.halted"
	if h.Reason == v1alpha1.OverLimit {
		why = string(h.Reason) + ": " + h.Message
	}
	return fmt.Sprintf("%s; halt %s holds until somebody acknowledges it: federator actions ack %s %s", clip(why, maxText/2), h.ID, name, h.ID)
}

// changed are verdicts before and after.
type changed struct{ from, to v1alpha1.Verdicts }

// changedVerdicts are those whose violations or errors differ, by member: what has become
// Unknown is a member's matter, not a policy's. Where a status has not all members, the
// sum is told for those that it leaves out.
func changedVerdicts(was, now *v1alpha1.FleetPolicyStatus) map[string]changed {
	whole := was.MembersOmitted == 0 && now.MembersOmitted == 0
	all := map[string]changed{}
	for _, m := range was.Members {
		all[m.Name] = changed{from: m.Verdicts}
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
		maps.DeleteFunc(all, func(name string, _ changed) bool { return !here[name] }) // it may be among those left out
	}
	left := changed{totalOf(was), totalOf(now)}
	for _, c := range all {
		left.from.Violations -= c.from.Violations
		left.to.Violations -= c.to.Violations
		left.from.Errors -= c.from.Errors
		left.to.Errors -= c.to.Errors
	}
	left.from.Unknown, left.to.Unknown, left.from.Exempt, left.to.Exempt = 0, 0, 0, 0
	if whole {
		all["the fleet"] = left // keys of views are of no member
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

func totalOf(s *v1alpha1.FleetPolicyStatus) v1alpha1.Verdicts {
	if s.Totals == nil {
		return v1alpha1.Verdicts{}
	}
	return *s.Totals
}

// corrected tells what came of a correction.
func (e *Events) corrected(fp *v1alpha1.FleetPolicy, a *remediate.Action) {
	n := &note{
		noteKey: noteKey{reason: "Corrected", of: a.Remedy.Target.Member}, regarding: regarding("FleetPolicy", &fp.ObjectMeta), action: "Correct",
		count: 1, text: "Action " + a.Name,
	}
	switch {
	case a.Phase == v1alpha1.PhaseSucceeded && a.RollbackOf != "":
		n.reason, n.text = "RolledBack", fmt.Sprintf("Action %s takes %s back", a.Name, a.RollbackOf)
	case a.Phase == v1alpha1.PhaseSucceeded:
	case a.Phase == v1alpha1.PhaseFailed:
		n.reason, n.warning = "CorrectionFailed", true
	case a.Phase == v1alpha1.PhaseContended:
		n.reason, n.warning = "Contended", true
		n.text += ", with " + cmp.Or(a.Manager, "another field manager")
	default:
		return
	}
	e.add(n)
}

// source tells of a PolicySource whose status becomes next.
func (e *Events) source(ps *v1alpha1.PolicySource, next *v1alpha1.PolicySourceStatus) {
	if e == nil {
		return
	}
	about, was := regarding("PolicySource", &ps.ObjectMeta), &ps.Status
	if c := next.ActiveCommit; c != nil && (was.ActiveCommit == nil || was.ActiveCommit.Hash != c.Hash) {
		e.add(&note{
			noteKey: noteKey{reason: eventActive, of: string(c.Hash)}, regarding: about, once: true, action: "Activate",
			text: fmt.Sprintf("the policies of commit %s are in effect", c.Hash),
		})
	}
	fresh := hashOf(was.ObservedCommit) != hashOf(next.ObservedCommit)
	for _, kind := range []string{v1alpha1.Fetched, v1alpha1.Verified, v1alpha1.Compiled, v1alpha1.Tested, v1alpha1.Bounded, v1alpha1.Applied} {
		before, now := meta.FindStatusCondition(was.Conditions, kind), meta.FindStatusCondition(next.Conditions, kind)
		if now == nil || now.Status != metav1.ConditionFalse || before != nil && before.Status == now.Status && before.Reason == now.Reason && !fresh {
			continue
		}
		n := &note{
			noteKey: noteKey{reason: eventRefused, of: hashOf(next.ObservedCommit) + " " + now.Reason}, regarding: about, warning: true, once: true, action: "Judge",
			text: fmt.Sprintf("commit %s: %s: %s", hashOf(next.ObservedCommit), now.Reason, now.Message),
		}
		switch kind {
		case v1alpha1.Fetched: // of no commit
			n.reason, n.action, n.text = "NotFetched", "Fetch", now.Reason+": "+now.Message
		case v1alpha1.Applied:
			n.reason, n.action = "NotApplied", "Apply"
		}
		e.add(n)
	}
}

func hashOf(c *v1alpha1.Commit) string {
	if c == nil {
		return ""
	}
	return string(c.Hash)
}
