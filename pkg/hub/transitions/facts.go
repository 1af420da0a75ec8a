package transitions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub"
)

// maxText bounds the texts of a record, in bytes.
const maxText = 1024

// at returns a time of a record, nil for none.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// ofAction returns what an Action says has become of it. A phase that it may leave has the time at which it was entered in its key.
func ofAction(a *v1alpha1.Action) []history.Record {
	if a.UID == "" {
		return nil
	}
	t := &a.Spec.Target
	revision, _ := strconv.ParseUint(a.Spec.Revision, 10, 64) // the CRD lets numbers in only
	record := func(phase v1alpha1.ActionPhase, when time.Time, message string, key ...string) history.Record {
		return history.Record{
			Type: history.Action, Transition: string(phase), Key: history.Key(append([]string{string(a.UID), string(phase)}, key...)...), MemberTime: at(when),
			Action: a.Name, Policy: a.Spec.Binding, Version: a.Spec.Version, Source: a.Spec.Origin.Source, Revision: aggregate.Revision(revision), Trace: string(a.Spec.TraceID), Violation: clip.Text(a.Spec.Violation, maxText),
			Member: t.Member, MemberUID: t.MemberUID, Kind: aggregate.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name, UID: t.UID, ResourceVersion: t.ResourceVersion,
			Message: clip.Text(message, maxText),
		}
	}
	out := []history.Record{record(v1alpha1.PhasePending, a.CreationTimestamp.Time, pendingText(a))}
	var ended time.Time
	if a.Status.EndedAt != nil {
		ended = a.Status.EndedAt.Time
	}
	switch phase := a.Status.Phase; phase {
	case "", v1alpha1.PhasePending:
	case v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp, v1alpha1.PhaseSuperseded, v1alpha1.PhaseProtected:
		out = append(out, record(phase, ended, a.Status.Message))
	case v1alpha1.PhaseRolledBack: // which was written, maybe unseen
		out = append(out, record(v1alpha1.PhaseSucceeded, time.Time{}, ""), record(phase, ended, a.Status.Message))
	case v1alpha1.PhaseWriting:
		out = append(out, record(phase, time.Time{}, a.Status.Message, a.Status.Message))
	default:
		out = append(out, record(phase, ended, a.Status.Message, strconv.FormatInt(ended.UnixMicro(), 10)))
	}
	return out
}

// pendingText says what an Action is about to do, and why besides its violation.
func pendingText(a *v1alpha1.Action) string {
	text := string(a.Spec.Verb)
	if a.Spec.RollbackOf != "" {
		text += ", to roll back " + a.Spec.RollbackOf
	}
	if a.Spec.Reason != "" {
		text += ": " + a.Spec.Reason
	}
	return text
}

// ofState returns which halts began and ended, as far as a PolicyState remembers them.
func ofState(s *v1alpha1.PolicyState) (out []history.Record) {
	add := func(transition, id string, when time.Time, by, reason, message string) {
		out = append(out, history.Record{
			Type: history.Policy, Transition: transition, Key: history.Key(string(s.UID), transition, id), MemberTime: at(when),
			Kind: history.FleetPolicyKind, Name: s.Name, Policy: s.Name, By: by, Subject: "halt " + id, Message: clip.Text(joined(reason, message), maxText),
		})
	}
	seen := map[string]bool{}
	for i := range s.Status.History {
		switch t := &s.Status.History[i]; t.Type {
		case v1alpha1.HaltBegan:
			seen[t.ID] = true
			add(history.Halted, t.ID, t.At.Time, t.By, t.Reason, t.Message)
		case v1alpha1.HaltEnded:
			add(history.HaltEnded, t.ID, t.At.Time, t.By, t.Reason, t.Message)
		}
	}
	for i := range s.Status.Halts { // which the history may not have any more
		if h := &s.Status.Halts[i]; !seen[h.ID] {
			add(history.Halted, h.ID, h.Since.Time, "", string(h.Reason), h.Message)
		}
	}
	return out
}

// joined writes a reason before its message.
func joined(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

// endOfPlan are the transitions of Plans by the states that they end in.
var endOfPlan = map[v1alpha1.PlanState]string{
	v1alpha1.PlanDone: history.PlanDone, v1alpha1.PlanSuperseded: history.PlanSuperseded, v1alpha1.PlanExpired: history.PlanExpired,
}

// ofPlan returns how far a Plan has come, and who has approved it.
func ofPlan(p *v1alpha1.Plan) []history.Record {
	if p.UID == "" {
		return nil
	}
	record := func(transition string, when time.Time, by, message string) history.Record {
		return history.Record{
			Type: history.Policy, Transition: transition, Key: history.Key(string(p.UID), transition), MemberTime: at(when),
			Kind: history.PlanKind, Name: p.Name, UID: string(p.UID), Policy: string(p.Spec.Policy), By: by, Message: clip.Text(message, maxText),
		}
	}
	made := fmt.Sprintf("%s of %d targets", p.Spec.Purpose, p.Spec.Targets)
	if p.Spec.Halt != nil {
		made += ", of halt " + p.Spec.Halt.ID
	}
	out := []history.Record{record(history.PlanMade, p.CreationTimestamp.Time, "", made)}
	var by []string
	var approved, since time.Time
	for _, a := range p.Status.Approvals {
		by = append(by, string(a.By))
		if a.At.After(approved) {
			approved = a.At.Time
		}
	}
	if p.Status.Since != nil {
		since = p.Status.Since.Time
	}
	slices.Sort(by)
	switch state := p.Status.State; state {
	case v1alpha1.PlanApproved, v1alpha1.PlanDone, v1alpha1.PlanExpired:
		switch {
		case len(by) == 0: // it needed nobody
		case state == v1alpha1.PlanApproved && len(by) < int(p.Status.Required): // not all are listed yet
		default:
			out = append(out, record(history.PlanApproved, approved, strings.Join(slices.Compact(by), ", "), ""))
		}
	}
	if end, has := endOfPlan[p.Status.State]; has {
		out = append(out, record(end, since, "", p.Status.Message))
	}
	return out
}

// stateOfApproval are the transitions of Approvals by their states.
var stateOfApproval = map[v1alpha1.ApprovalState]string{
	v1alpha1.ApprovalCounts: history.ApprovalCounts, v1alpha1.ApprovalIgnored: history.ApprovalIgnored, v1alpha1.ApprovalExpired: history.ApprovalExpired,
}

// ofApproval returns that somebody has approved something, and whether that counts.
func ofApproval(a *v1alpha1.Approval) []history.Record {
	if a.UID == "" {
		return nil
	}
	out := []history.Record{approval(a, history.ApprovalGiven, a.CreationTimestamp.Time, joined(approves(a), a.Spec.Reason))}
	if transition, has := stateOfApproval[a.Status.State]; has {
		out = append(out, approval(a, transition, time.Time{}, joined(a.Status.Reason, a.Status.Message), a.Status.Reason))
	}
	return out
}

// withdrawn returns that an Approval was deleted.
func withdrawn(a *v1alpha1.Approval) []history.Record {
	if a.UID == "" || a.Status.State == v1alpha1.ApprovalExpired {
		return nil
	}
	return []history.Record{approval(a, history.ApprovalWithdrawn, time.Time{}, approves(a))}
}

func approval(a *v1alpha1.Approval, transition string, when time.Time, message string, key ...string) history.Record {
	return history.Record{
		Type: history.Policy, Transition: transition, Key: history.Key(append([]string{string(a.UID), transition}, key...)...), MemberTime: at(when),
		Kind: history.ApprovalKind, Name: a.Name, UID: string(a.UID), Policy: string(a.Spec.FleetPolicy), Source: a.Spec.PolicySource, By: string(a.Spec.By),
		Message: clip.Text(message, maxText),
	}
}

// approves says what an Approval approves.
func approves(a *v1alpha1.Approval) string {
	s := &a.Spec
	for _, of := range []struct{ what, value string }{
		{"halt ", s.Halt}, {"plan ", string(s.Plan)}, {"rollback ", string(s.Rollback)}, {"version ", string(s.Version)}, {"commit ", string(s.Commit)},
	} {
		if of.value != "" {
			return of.what + of.value
		}
	}
	return ""
}

// refusing are the conditions of a PolicySource that are about its observed commit, in order. Fetched is about none.
var refusing = []string{v1alpha1.Verified, v1alpha1.Compiled, v1alpha1.Tested, v1alpha1.Bounded}

// ofSource returns which commits of a PolicySource are in effect, were refused, or were taken back.
func ofSource(s *v1alpha1.PolicySource) (out []history.Record) {
	if s.UID == "" {
		return nil
	}
	add := func(transition string, c *v1alpha1.Commit, when *metav1.Time, message string, key ...string) {
		r := history.Record{
			Type: history.Policy, Transition: transition, Key: history.Key(append([]string{string(s.UID), string(c.Hash), transition}, key...)...),
			Kind: history.PolicySourceKind, Name: s.Name, UID: string(s.UID), Source: s.Name, By: c.Author, Subject: "commit " + string(c.Hash), Message: clip.Text(message, maxText),
		}
		if when != nil {
			r.MemberTime = at(when.Time)
		}
		out = append(out, r)
	}
	active, seen := s.Status.ActiveCommit, s.Status.ObservedCommit
	if active != nil {
		var since int64 // it may be in effect again
		if active.Since != nil {
			since = active.Since.Unix()
		}
		add(history.CommitTaken, active, active.Since, active.Ref, strconv.FormatInt(since, 10))
	}
	if r := s.Status.Rollout; r != nil && r.Phase == v1alpha1.RolloutTakenBack {
		c := &v1alpha1.Commit{Hash: r.Commit}
		if seen != nil && seen.Hash == r.Commit {
			c = seen
		}
		add(history.CommitTakenBack, c, &r.Since, r.Message)
	}
	if seen == nil || active != nil && active.Hash == seen.Hash || s.Status.ObservedGeneration != s.Generation {
		return out
	}
	for _, kind := range refusing {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
			add(history.CommitRefused, seen, seen.Since, joined(c.Reason, c.Message), c.Reason)
			break
		}
	}
	return out
}

// ofStop returns that a stop began, nil for a ConfigMap that is none.
func ofStop(m *corev1.ConfigMap) *history.Record {
	s, malformed, is := hub.ReadStop(m)
	if !is || m.UID == "" {
		return nil
	}
	r := &history.Record{
		Type: history.Policy, Transition: history.Stopped, Key: history.Key(s.UID, history.Stopped), MemberTime: at(s.Since),
		Kind: history.StopKind, Namespace: m.Namespace, Name: m.Name, UID: s.UID, By: s.By, Subject: "stop of " + s.String(),
		Message: clip.Text(joined(s.Actions()+" are stopped", s.Reason), maxText),
	}
	switch {
	case malformed:
		r.Subject, r.Message = history.MalformedStop, clip.Text(s.Text, maxText)
	case s.Scope == hub.StopPolicy:
		r.Policy = s.Name
	case s.Scope == hub.StopMember:
		r.Member = s.Name
	case s.Scope == hub.StopSource:
		r.Source = s.Name
	}
	return r
}

// resumed returns that a stop, or the suspension of a FleetPolicy, has ended.
func resumed(r history.Record, message string, key ...string) history.Record {
	r.Transition, r.Key = history.Resumed, history.Key(append([]string{r.UID, history.Resumed}, key...)...)
	r.By, r.Message, r.MemberTime, r.Time, r.Position = "", message, nil, time.Time{}, 0
	return r
}

// ofSuspension returns that a FleetPolicy is suspended, or is not any more, since a generation of its spec.
func ofSuspension(p *v1alpha1.FleetPolicy) history.Record {
	r := history.Record{
		Type: history.Policy, Transition: history.Suspended, Key: history.Key(string(p.UID), history.Suspended, strconv.FormatInt(p.Generation, 10)),
		Kind: history.FleetPolicyKind, Name: p.Name, UID: string(p.UID), Policy: p.Name, Message: "spec.suspend is set",
	}
	if !p.Spec.Suspend {
		return resumed(r, "spec.suspend is not set any more", strconv.FormatInt(p.Generation, 10))
	}
	return r
}
