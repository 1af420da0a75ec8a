package hub

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// Bounds of a PolicySource's status, as the CRD has them.
const (
	maxFindings  = 50
	maxName      = 256 // of an author, a signer, an annotation
	maxCode      = 63
	contactEvery = time.Minute // how often a status is written that says nothing else
	conflicts    = 3           // tries of one write
)

// writtenStatus is a PolicySource as it was written, and what it was written over.
type writtenStatus struct {
	over   string // resourceVersion
	result *v1alpha1.PolicySource
	at     time.Time
}

// report writes the statuses that differ from those on the hub, each at most once a
// second.
func (s *Sources) report(ctx context.Context, list []*v1alpha1.PolicySource, state *policysource.State) {
	here := map[string]bool{}
	for _, ps := range list {
		here[ps.Name] = true
		w := s.written[ps.Name]
		if time.Since(w.at) < statusEvery {
			continue
		}
		base := ps
		if w.result != nil && w.over == ps.ResourceVersion && w.result.UID == ps.UID {
			base = w.result // the informer has not seen it yet
		}
		if err := s.write(ctx, base, state); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("the status of a PolicySource is not written", "source", ps.Name, "err", err)
			s.written[ps.Name] = writtenStatus{at: time.Now()} // the next tick tries again
		}
	}
	for name := range s.written {
		if !here[name] {
			delete(s.written, name)
		}
	}
}

// write writes a status if it differs from what there is.
func (s *Sources) write(ctx context.Context, base *v1alpha1.PolicySource, state *policysource.State) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := base.UID
	for try := 1; ; try++ {
		next := s.statusOf(base, state)
		if next == nil || sameSourceStatus(&base.Status, next) {
			return nil
		}
		update := base.DeepCopy()
		update.ManagedFields, update.Status = nil, *next
		result := &v1alpha1.PolicySource{}
		err := s.client.rest.Put().Resource(v1alpha1.PolicySources).Name(base.Name).SubResource("status").
			VersionedParams(&metav1.UpdateOptions{FieldManager: "federator"}, s.client.codec).Body(update).Do(ctx).Into(result)
		switch {
		case err == nil:
			s.written[base.Name] = writtenStatus{over: base.ResourceVersion, result: result, at: time.Now()}
			s.opts.Events.source(base, next)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == conflicts:
			return err
		}
		base = &v1alpha1.PolicySource{}
		err = s.client.rest.Get().Resource(v1alpha1.PolicySources).Name(update.Name).Do(ctx).Into(base)
		if apierrors.IsNotFound(err) || err == nil && base.UID != uid {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sameSourceStatus reports whether two statuses say the same, but for when the remote
// was last heard of, if that is not long ago.
func sameSourceStatus(a, b *v1alpha1.PolicySourceStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	if x.LastContact != nil && y.LastContact != nil && y.LastContact.Sub(x.LastContact.Time) < contactEvery {
		x.LastContact, y.LastContact = nil, nil
	}
	for _, st := range []*v1alpha1.PolicySourceStatus{x, y} {
		for i := range st.Conditions {
			st.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		for _, c := range []*v1alpha1.Commit{st.ActiveCommit, st.ObservedCommit} {
			if c != nil {
				c.Time, c.Since = seconds(c.Time), seconds(c.Since)
			}
		}
		st.LastContact = seconds(st.LastContact)
	}
	return reflect.DeepEqual(x, y)
}

// seconds is a time as the hub keeps it.
func seconds(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	out := metav1.Unix(t.Unix(), 0)
	return &out
}

// statusOf is the status of a PolicySource now, nil when there is nothing to say yet.
func (s *Sources) statusOf(ps *v1alpha1.PolicySource, state *policysource.State) *v1alpha1.PolicySourceStatus {
	old := ps.Status.DeepCopy()
	st, known := state.Status[ps.Name]
	bad := s.faults[ps.Name]
	switch {
	case bad.reason != "":
	case !known, st.Generation != ps.Generation, st.Phase == policysource.Pending, st.Phase == policysource.Active && !st.Current:
		if old.ObservedGeneration != 0 {
			return s.synced(ps, old) // what it says holds until more is known
		}
		return nil
	}
	next := &v1alpha1.PolicySourceStatus{
		ObservedGeneration: ps.Generation, Conditions: old.Conditions, ActiveCommit: old.ActiveCommit, ObservedCommit: old.ObservedCommit,
		LastDiff: old.LastDiff, FleetPolicies: old.FleetPolicies, LastContact: old.LastContact, LastSync: old.LastSync, LastPush: old.LastPush,
	}
	if p, ok := state.Policies[ps.Name]; ok {
		next.ActiveCommit = commitOf(p.Commit, p.Since, old.ActiveCommit)
	}
	if st.Newest != nil {
		next.ObservedCommit = commitOf(*st.Newest, time.Now(), old.ObservedCommit)
	}
	if !st.Contact.IsZero() {
		next.LastContact = seconds(&metav1.Time{Time: st.Contact})
	}
	next.LastDiff = diffOf(ps, st, old)
	done := s.results[ps.Name]
	if done != nil && (next.ActiveCommit == nil || string(next.ActiveCommit.Hash) != done.commit) {
		done = nil
	}
	findings := st.Findings
	if done != nil {
		next.FleetPolicies = &v1alpha1.AppliedPolicies{
			Commit: v1alpha1.CommitHash(done.commit), Synced: int32(done.synced), Failed: int32(done.failed), Pruned: int32(done.pruned), Kept: int32(done.kept),
		}
		if st.Phase == policysource.Active {
			findings = append(slices.Clone(done.findings), findings...)
		}
	}
	next.Findings = findingsOf(findings)
	for _, c := range conditionsOf(ps, st, bad) {
		setSourceCondition(next, ps, c)
	}
	setSourceCondition(next, ps, s.ready(ps, st, bad, state))
	if c, ok := appliedCondition(done, next, st); ok {
		setSourceCondition(next, ps, c)
	}
	return s.synced(ps, next)
}

// synced notes the annotation that asked for a look at the repository.
func (s *Sources) synced(ps *v1alpha1.PolicySource, next *v1alpha1.PolicySourceStatus) *v1alpha1.PolicySourceStatus {
	if value, ok := s.asked[string(ps.UID)]; ok {
		next.LastSync = strings.ToValidUTF8(clip(value.sync, maxName), "")
	}
	return next
}

func setSourceCondition(s *v1alpha1.PolicySourceStatus, ps *v1alpha1.PolicySource, c metav1.Condition) {
	c.ObservedGeneration, c.Message = ps.Generation, strings.ToValidUTF8(clip(c.Message, maxText), "")
	meta.SetStatusCondition(&s.Conditions, c)
}

// commitOf is a commit. One that is not new keeps its time.
func commitOf(c policysource.Commit, since time.Time, old *v1alpha1.Commit) *v1alpha1.Commit {
	out := &v1alpha1.Commit{
		Hash: v1alpha1.CommitHash(c.Hash), Ref: clip(c.Ref, 255), Path: clip(c.Path, maxText), Since: seconds(&metav1.Time{Time: since}),
		Author: strings.ToValidUTF8(clip(c.Author, maxName), ""), Signer: strings.ToValidUTF8(clip(c.Signer, maxName), ""),
	}
	if y := c.Time.UTC().Year(); !c.Time.IsZero() && y > 0 && y < 10_000 { // git takes any number, JSON does not
		out.Time = seconds(&metav1.Time{Time: c.Time})
	}
	if old != nil && old.Hash == out.Hash && old.Since != nil {
		out.Since = old.Since
	}
	return out
}

// diffOf is what the newest commit changes. That of a commit which was active before a
// restart is what it was then.
func diffOf(ps *v1alpha1.PolicySource, st policysource.Status, old *v1alpha1.PolicySourceStatus) *v1alpha1.Diff {
	if st.Newest == nil {
		return old.LastDiff
	}
	hash := v1alpha1.CommitHash(st.Newest.Hash)
	told := old.LastDiff != nil && old.LastDiff.Commit == hash
	switch {
	case told && (st.Diff == nil || old.ActiveCommit != nil && old.ActiveCommit.Hash == hash):
		return old.LastDiff
	case st.Diff == nil:
		return nil
	}
	out := &v1alpha1.Diff{
		Commit: hash, Appeared: int64(st.Diff.Appeared), Cleared: int64(st.Diff.Cleared), Changed: int64(st.Diff.Changed), Unknown: int64(st.Diff.Unknown),
	}
	if ps.Spec.MaxDiff != nil {
		out.Allowed = int64(*ps.Spec.MaxDiff)
	}
	return out
}

// findingsOf are findings within the bounds of a status, errors first.
func findingsOf(list []policy.Finding) []v1alpha1.Finding {
	var errs, rest []v1alpha1.Finding
	for _, f := range list {
		out := v1alpha1.Finding{
			File: strings.ToValidUTF8(clip(f.File, maxText), ""), Line: int32(max(f.Line, 0)), Column: int32(max(f.Col, 0)), Severity: v1alpha1.SeverityWarning,
			Code: clip(f.Code, maxCode), Message: strings.ToValidUTF8(clip(f.Message, maxText), ""),
		}
		if f.Severity == policy.SeverityError {
			out.Severity = v1alpha1.SeverityError
			errs = append(errs, out)
			continue
		}
		rest = append(rest, out)
	}
	out := append(errs, rest...)
	return out[:min(len(out), maxFindings)]
}

// gates are the conditions that tell how far the newest commit has come, in their order,
// with the phases that each is about.
var gates = []struct {
	condition string
	phases    []policysource.Phase
	passed    metav1.Condition
}{
	{v1alpha1.Fetched, []policysource.Phase{policysource.Invalid, policysource.Fetch}, metav1.Condition{Reason: "Fetched", Message: "the newest commit was read"}},
	{v1alpha1.Verified, []policysource.Phase{policysource.Verify}, metav1.Condition{Reason: "Signed", Message: "a trusted key has signed it"}},
	{v1alpha1.Compiled, []policysource.Phase{policysource.Content, policysource.Compile, policysource.Lint}, metav1.Condition{Reason: "Compiled", Message: "its policies compile, and lint has no error"}},
	{v1alpha1.Tested, []policysource.Phase{policysource.Test}, metav1.Condition{Reason: "Passed", Message: "its tests pass, or it has none"}},
	{v1alpha1.Bounded, []policysource.Phase{policysource.Diff}, metav1.Condition{Reason: "WithinBound", Message: "it changes no more verdicts than spec.maxDiff"}},
}

// conditionsOf are the gates' conditions.
func conditionsOf(ps *v1alpha1.PolicySource, st policysource.Status, bad fault) []metav1.Condition {
	var out []metav1.Condition
	phase, reason, message := st.Phase, st.Reason, st.Message
	if bad.reason != "" {
		phase, reason, message = policysource.Invalid, bad.reason, bad.message
	}
	reached := true
	for _, g := range gates {
		c := g.passed
		c.Type, c.Status = g.condition, metav1.ConditionTrue
		switch {
		case slices.Contains(g.phases, phase):
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
			reached = false
		case !reached:
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotReached", "an earlier gate was not passed"
		case g.condition == v1alpha1.Verified && ps.Spec.Verification == nil:
			c.Reason, c.Message = "NotAskedFor", "spec.verification asks for no signature"
		case g.condition == v1alpha1.Verified && phase == policysource.Content:
			// What cannot be read at all is told before signatures are looked at.
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotReached", "the commit has no policies"
		case g.condition == v1alpha1.Bounded && ps.Spec.MaxDiff == nil:
			c.Reason, c.Message = "NoBound", "spec.maxDiff bounds nothing"
		}
		out = append(out, c)
	}
	return out
}

// ready says whether the newest commit is in effect.
func (s *Sources) ready(ps *v1alpha1.PolicySource, st policysource.Status, bad fault, state *policysource.State) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: st.Reason, Message: st.Message}
	current, why := s.current(state, ps.Name)
	done := s.results[ps.Name]
	switch {
	case bad.reason != "":
		c.Reason, c.Message = bad.reason, bad.message
	case st.Phase == policysource.Fetch && current:
		c.Status = metav1.ConditionUnknown // there may be a newer one
	case st.Phase != policysource.Active:
	case !current && done != nil && done.hold:
		c.Reason, c.Message = done.reason, done.message
	case !current:
		c.Reason, c.Message = "NotCurrent", why
	default:
		c.Status = metav1.ConditionTrue
	}
	return c
}

// appliedCondition says whether the hub has the FleetPolicies of the active commit. What
// was said before holds until something else is known.
func appliedCondition(done *applied, next *v1alpha1.PolicySourceStatus, st policysource.Status) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.Applied, Status: metav1.ConditionFalse}
	switch {
	case done == nil && meta.FindStatusCondition(next.Conditions, v1alpha1.Applied) != nil:
		return c, false
	case done == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotReached", "no commit is active: "+st.Reason
	case done.reason != "":
		c.Reason, c.Message = done.reason, done.message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Applied", "the hub has the FleetPolicies of commit "+done.commit
	}
	return c, true
}
