package hub

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/hub/internal/promotion"
	"federator.dev/federator/pkg/hub/internal/sourcerollout"
	"federator.dev/federator/pkg/policysource"
)

// Limits of a PolicySource's status, as in the CRD.
const (
	maxFindings        = 50
	maxName            = 256 // of an author, a signer, an annotation
	maxCode            = 63
	maxPackages        = 2000
	maxSourceApprovals = 20
	contactInterval    = time.Minute // minimum time between updates of nothing but lastContact
	maxWriteAttempts   = 3           // of one write
)

// writtenStatus is a PolicySource as it was written, and the version that it replaced.
type writtenStatus struct {
	over   string // resourceVersion
	result *v1alpha1.PolicySource
	at     time.Time
}

// writeStatuses writes the statuses that have changed, each at most once a second.
func (s *PolicySources) writeStatuses(ctx context.Context, list []*v1alpha1.PolicySource, state *policysource.State) {
	here := map[string]bool{}
	for _, ps := range list {
		here[ps.Name] = true
		w := s.written[ps.Name]
		if time.Since(w.at) < statusInterval {
			continue
		}
		base := ps
		if w.result != nil && w.over == ps.ResourceVersion && w.result.UID == ps.UID {
			base = w.result // the informer has not received it yet
		}
		if err := s.write(ctx, base, state); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("writing the status of a PolicySource failed", "source", ps.Name, "error", err)
			s.written[ps.Name] = writtenStatus{at: time.Now()} // retried at the next tick
		}
	}
	for name := range s.written {
		if !here[name] {
			delete(s.written, name)
		}
	}
}

// write writes a status if it has changed.
func (s *PolicySources) write(ctx context.Context, base *v1alpha1.PolicySource, state *policysource.State) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid := base.UID
	for try := 1; ; try++ {
		next := s.statusOf(base, state)
		if next == nil || !sourceStatusDue(&base.Status, next, s.written[base.Name].at, time.Now()) {
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
			s.opts.Events.recordSource(base, next)
			s.opts.Events.recordSourceRollout(base, next.Rollout)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == maxWriteAttempts:
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

// sameSourceStatus reports whether two statuses are equal except for transition times and
// a recent lastContact.
func sameSourceStatus(a, b *v1alpha1.PolicySourceStatus) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	if x.LastContact != nil && y.LastContact != nil && y.LastContact.Sub(x.LastContact.Time) < contactInterval {
		x.LastContact, y.LastContact = nil, nil
	}
	for _, st := range []*v1alpha1.PolicySourceStatus{x, y} {
		for i := range st.Conditions {
			st.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		for _, c := range []*v1alpha1.Commit{st.ActiveCommit, st.ObservedCommit} {
			if c != nil {
				c.Time, c.Since = toSeconds(c.Time), toSeconds(c.Since)
			}
		}
		st.LastContact = toSeconds(st.LastContact)
		for i := range st.Approvals {
			a := &st.Approvals[i]
			a.At, a.Expires = *toSeconds(&a.At), *toSeconds(&a.Expires)
		}
	}
	return reflect.DeepEqual(x, y)
}

// sourceStatusDue reports whether a status is to be written: at once if more than the evidence of its rollout has
// changed.
func sourceStatusDue(old, next *v1alpha1.PolicySourceStatus, written, now time.Time) bool {
	if sameSourceStatus(old, next) {
		return false
	}
	counters := func(s *v1alpha1.PolicySourceStatus) *v1alpha1.PolicySourceStatus {
		if s.Rollout == nil || s.Rollout.Evidence == nil {
			return s
		}
		out := s.DeepCopy()
		out.Rollout.Evidence = &v1alpha1.RolloutEvidence{}
		return out
	}
	return now.Sub(written) >= countersInterval || !sameSourceStatus(counters(old), counters(next))
}

// toSeconds truncates a time to seconds, as the hub stores it.
func toSeconds(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	out := metav1.Unix(t.Unix(), 0)
	return &out
}

// statusOf returns the current status of a PolicySource, nil if nothing is known yet.
func (s *PolicySources) statusOf(ps *v1alpha1.PolicySource, state *policysource.State) *v1alpha1.PolicySourceStatus {
	old := ps.Status.DeepCopy()
	st, known := state.Status[ps.Name]
	bad := s.problems[ps.Name]
	switch {
	case bad.reason != "":
	case !known, st.Generation != ps.Generation, st.Phase == policysource.Pending, st.Phase == policysource.Active && !st.Current:
		if old.ObservedGeneration != 0 {
			return s.withLastSync(ps, old) // keep it until more is known
		}
		return nil
	}
	next := &v1alpha1.PolicySourceStatus{
		ObservedGeneration: ps.Generation, Conditions: old.Conditions, ActiveCommit: old.ActiveCommit, Packages: old.Packages, ObservedCommit: old.ObservedCommit,
		Rollout: old.Rollout, LastDiff: old.LastDiff, FleetPolicies: old.FleetPolicies, LastContact: old.LastContact, LastSync: old.LastSync, LastPush: old.LastPush,
	}
	if p, ok := state.Policies[ps.Name]; ok {
		next.ActiveCommit = toCommit(p.Commit, p.Since, old.ActiveCommit)
		next.Packages = p.Packages[:min(len(p.Packages), maxPackages)]
	}
	if st.Newest != nil {
		next.ObservedCommit = toCommit(*st.Newest, time.Now(), old.ObservedCommit)
	}
	if !st.Contact.IsZero() {
		next.LastContact = toSeconds(&metav1.Time{Time: st.Contact})
	}
	if bad.reason == "" {
		next.Rollout = s.rolloutOf(ps, &st, state, old.Rollout, time.Now())
	}
	next.LastDiff = toDiff(ps, st, old)
	next.Approvals = s.commitApprovals(ps, &st, old)
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
	next.Findings = toFindings(findings)
	for _, c := range newGateConditions(ps, st, bad) {
		if c.Type == v1alpha1.Bounded {
			c = s.boundedCondition(ps, &st, next, c)
		}
		setSourceCondition(next, ps, c)
	}
	setSourceCondition(next, ps, s.readyCondition(ps, st, bad, state, next.Rollout))
	if c, ok := appliedCondition(done, next, st); ok {
		setSourceCondition(next, ps, c)
	}
	s.addDocuments(next, ps)
	return s.withLastSync(ps, next)
}

// rolloutOf returns how far the newest commit of a source has come that rolls out, nil if it does
// not. What was taken back stays so until another commit is seen.
func (s *PolicySources) rolloutOf(ps *v1alpha1.PolicySource, st *policysource.Status, state *policysource.State, old *v1alpha1.SourceRolloutStatus, now time.Time) *v1alpha1.SourceRolloutStatus {
	c, ok := state.Candidates[ps.Name]
	switch {
	case ok:
	case old == nil || st.Phase == policysource.Fetch || st.Phase == policysource.Removed: // there may be a newer one
		return old
	case st.Newest != nil && st.Newest.Hash == string(old.Commit) && st.Phase != policysource.Active:
		return old
	default:
		return nil
	}
	list := s.fleetPolicies()
	policies := sourcerollout.PoliciesOf(ps.Name, &c, ps.Spec.Rollout, list)
	terms, err := promotion.TermsOf(ps.Spec.Rollout, 0)
	own := s.evidenceOf(ps.Name, &c, state, list, now)
	switch {
	case !own.Any():
		return sourcerollout.Next(old, c.Commit.Hash, policies, nil, now)
	case err != nil:
		policies = append(policies, sourcerollout.Policy{Phase: v1alpha1.RolloutShadow, Message: err.Error()})
		return sourcerollout.Next(old, c.Commit.Hash, policies, nil, now)
	}
	facts := promotion.Facts{Approved: s.ShadowApproved(ps.Name, c.Commit.Hash)}
	if s.opts.Evidence != nil {
		if own, err = s.opts.Evidence(ps.Name, own.Of); err != nil {
			facts.Missing = err.Error()
		}
	}
	if facts.Evidence, facts.Added = own.Status(); facts.Missing != "" && old != nil && string(old.Commit) == c.Commit.Hash && old.Evidence != nil {
		facts.Evidence = *promotion.Older(old.Evidence)
	}
	return sourcerollout.Next(old, c.Commit.Hash, policies, &sourcerollout.Rest{Terms: terms, Facts: facts}, now)
}

// withLastSync sets lastSync to the annotation that was last observed.
func (s *PolicySources) withLastSync(ps *v1alpha1.PolicySource, next *v1alpha1.PolicySourceStatus) *v1alpha1.PolicySourceStatus {
	if value, ok := s.syncRequests[string(ps.UID)]; ok {
		next.LastSync = clip.Text(value.sync, maxName)
	}
	return next
}

func setSourceCondition(s *v1alpha1.PolicySourceStatus, ps *v1alpha1.PolicySource, c metav1.Condition) {
	c.ObservedGeneration, c.Message = ps.Generation, clip.Text(c.Message, maxText)
	meta.SetStatusCondition(&s.Conditions, c)
}

// gateConditions are the conditions for the checks of the newest commit, in order, with the
// phases in which each of them fails.
var gateConditions = []struct {
	condition string
	phases    []policysource.Phase
	passed    metav1.Condition
}{
	{v1alpha1.Fetched, []policysource.Phase{policysource.Invalid, policysource.Fetch}, metav1.Condition{Reason: "Fetched", Message: "the newest commit was fetched"}},
	{v1alpha1.Verified, []policysource.Phase{policysource.Verify}, metav1.Condition{Reason: "Signed", Message: "the commit is signed by a trusted key"}},
	{v1alpha1.Compiled, []policysource.Phase{policysource.Content, policysource.Compile, policysource.Lint}, metav1.Condition{Reason: "Compiled", Message: "the policies compile without lint errors"}},
	{v1alpha1.Tested, []policysource.Phase{policysource.Test}, metav1.Condition{Reason: "Passed", Message: "the tests pass, or there are none"}},
	{v1alpha1.Bounded, []policysource.Phase{policysource.Diff}, metav1.Condition{Reason: "WithinBound", Message: "the commit changes no more verdicts than spec.maxDiff allows"}},
}

// newGateConditions returns the conditions for the checks of the newest commit.
func newGateConditions(ps *v1alpha1.PolicySource, st policysource.Status, bad problem) []metav1.Condition {
	var out []metav1.Condition
	phase, reason, message := st.Phase, st.Reason, st.Message
	if bad.reason != "" {
		phase, reason, message = policysource.Invalid, bad.reason, bad.message
	}
	reached := true
	for _, g := range gateConditions {
		c := g.passed
		c.Type, c.Status = g.condition, metav1.ConditionTrue
		switch {
		case slices.Contains(g.phases, phase):
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
			reached = false
		case !reached:
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotReached", "an earlier check failed"
		case g.condition == v1alpha1.Verified && ps.Spec.Verification == nil:
			c.Reason, c.Message = "NotAskedFor", "spec.verification is not set"
		case g.condition == v1alpha1.Verified && phase == policysource.Content:
			// Content is read before signatures are verified.
			c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotReached", "the commit has no policies"
		case g.condition == v1alpha1.Bounded && ps.Spec.MaxDiff == nil:
			c.Reason, c.Message = "NoBound", "spec.maxDiff is not set"
		}
		out = append(out, c)
	}
	return out
}

// commitApprovals returns the Approvals that count of the newest commit, or that have let it
// become active.
func (s *PolicySources) commitApprovals(ps *v1alpha1.PolicySource, st *policysource.Status, old *v1alpha1.PolicySourceStatus) []v1alpha1.GivenApproval {
	switch {
	case st.Newest == nil:
		return old.Approvals
	case isWide(st):
		return s.opts.Approved(ps.Name, st.Newest.Hash).Given
	case st.Reason == policysource.ReasonInRollout:
		given := s.opts.Approved(ps.Name, st.Newest.Hash).Given
		if s.approved[ps.Name].hash == st.Newest.Hash {
			return mergeApprovals(s.approved[ps.Name].given, given)
		} else if hashOf(old.ObservedCommit) == st.Newest.Hash && beyondBound(old) && old.Rollout != nil {
			return mergeApprovals(slices.DeleteFunc(slices.Clone(old.Approvals), func(a v1alpha1.GivenApproval) bool { return a.At.After(old.Rollout.Began.Time) }), given)
		}
		return given
	case st.Phase == policysource.Active && s.approved[ps.Name].hash == st.Newest.Hash:
		return s.approved[ps.Name].given
	case st.Phase == policysource.Active && old.ObservedCommit != nil && string(old.ObservedCommit.Hash) == st.Newest.Hash:
		return old.Approvals
	}
	return nil
}

// mergeApprovals returns the Approvals that have let a commit pass, and those that end its shadow.
func mergeApprovals(passed, given []v1alpha1.GivenApproval) []v1alpha1.GivenApproval {
	out := slices.DeleteFunc(slices.Clone(passed), func(a v1alpha1.GivenApproval) bool {
		return slices.ContainsFunc(given, func(b v1alpha1.GivenApproval) bool { return a.Name == b.Name })
	})
	out = append(out, given...)
	return out[:min(len(out), maxSourceApprovals)]
}

// boundedCondition completes the condition Bounded: who must approve a commit, or has.
func (s *PolicySources) boundedCondition(ps *v1alpha1.PolicySource, st *policysource.Status, next *v1alpha1.PolicySourceStatus, c metav1.Condition) metav1.Condition {
	switch {
	case isWide(st):
		a := s.opts.Approved(ps.Name, st.Newest.Hash)
		c.Message = fmt.Sprintf("%s; it has Approvals of %d people, and needs %d: federator actions approve --source %s --commit %s --reason TEXT",
			c.Message, len(a.Given), max(a.Required, 1), ps.Name, st.Newest.Hash)
	case c.Status == metav1.ConditionTrue && len(next.Approvals) > 0 && (next.LastDiff == nil && next.Rollout == nil || beyondBound(next)):
		c.Reason, c.Message = "Approved", fmt.Sprintf("the commit changes more verdicts than spec.maxDiff allows, and people have approved it: see status.approvals (%d)", len(next.Approvals))
	}
	return c
}

// readyCondition returns the condition Ready.
func (s *PolicySources) readyCondition(ps *v1alpha1.PolicySource, st policysource.Status, bad problem, state *policysource.State, r *v1alpha1.SourceRolloutStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: st.Reason, Message: st.Message}
	current, why := s.current(state, ps.Name)
	done := s.results[ps.Name]
	switch {
	case bad.reason != "":
		c.Reason, c.Message = bad.reason, bad.message
	case st.Phase == policysource.Fetch && current:
		c.Status = metav1.ConditionUnknown // there may be a newer one
	case st.Reason == policysource.ReasonInRollout && r != nil:
		c.Message = fmt.Sprintf("commit %s rolls out and is not active yet: phase %s: %s", r.Commit, r.Phase, r.Message)
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

// appliedCondition returns the condition Applied, and false if an existing one is to be
// kept until more is known.
func appliedCondition(done *applyResult, next *v1alpha1.PolicySourceStatus, st policysource.Status) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.Applied, Status: metav1.ConditionFalse}
	switch {
	case done == nil && meta.FindStatusCondition(next.Conditions, v1alpha1.Applied) != nil:
		return c, false
	case done == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotReached", "no commit is active: "+st.Reason
	case done.reason != "":
		c.Reason, c.Message = done.reason, done.message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Applied", "the FleetPolicies of commit "+done.commit+" are applied"
	}
	return c, true
}

// isWide reports whether the newest commit of a source is not active because it changes more
// verdicts than spec.maxDiff of the PolicySource.
func isWide(st *policysource.Status) bool {
	return st.Phase == policysource.Diff && st.Reason == policysource.ReasonTooWide && st.Newest != nil
}

// WideCommits returns the commits that wait for approval: to change so many verdicts, or to end
// their shadow. That ends by Approvals since the rollout began: who has approved a commit's width
// before has not approved to skip what shows whether it was right.
func (s *PolicySources) WideCommits() []WideCommit {
	var out []WideCommit
	state := s.opts.Manager.State()
	for _, ps := range s.list() {
		st := state.Status[ps.Name]
		since := ps.CreationTimestamp.Time
		shadow := inShadow(ps, state)
		if !isWide(&st) && !shadow || st.Generation != ps.Generation {
			continue
		}
		if shadow {
			since = ps.Status.Rollout.Began.Time
			if beyondBound(&ps.Status) { // in the same second, maybe, which is all that is known of it
				since = since.Add(time.Second)
			}
		}
		c := WideCommit{Source: ps.Name, Hash: st.Newest.Hash, Signer: st.Newest.Signer, Commits: st.Line, Since: since}
		if st.Active != nil {
			c.Active = st.Active.Hash
		}
		if r := ps.Spec.Ceiling.Approval; r != nil {
			c.Required = append(c.Required, *r)
		}
		out = append(out, c)
	}
	return out
}

// CommitApproved reports whether people have approved a commit that changes more verdicts
// than spec.maxDiff: the leader counts their Approvals, and the others follow it.
func (s *PolicySources) CommitApproved(source, commit string) bool {
	if s.opts.IsLeader() {
		a := s.opts.Approved(source, commit)
		return a.Met && time.Now().Before(a.Until)
	}
	ps := s.source(source)
	return ps != nil && ps.Status.ActiveCommit != nil && string(ps.Status.ActiveCommit.Hash) == commit
}

// syncApproved checks commits again, once each, that are approved now.
func (s *PolicySources) syncApproved(list []*v1alpha1.PolicySource, state *policysource.State) {
	for _, ps := range list {
		switch st := state.Status[ps.Name]; {
		case !isWide(&st):
		case !s.CommitApproved(ps.Name, st.Newest.Hash):
			delete(s.approved, ps.Name)
		case s.approved[ps.Name].hash != st.Newest.Hash:
			s.approved[ps.Name] = approvedCommit{st.Newest.Hash, s.opts.Approved(ps.Name, st.Newest.Hash).Given}
			s.syncSource(ps.Name)
		}
	}
}

// inShadow reports whether people may end the shadow of the newest commit of a source: it rolls
// out, and not all of its policies are in effect.
func inShadow(ps *v1alpha1.PolicySource, state *policysource.State) bool {
	c, ok := state.Candidates[ps.Name]
	r := ps.Status.Rollout
	return ok && r != nil && string(r.Commit) == c.Commit.Hash && (r.Phase == v1alpha1.RolloutShadow || r.Phase == v1alpha1.RolloutWaves)
}

// beyondBound reports whether the observed commit changes more verdicts than spec.maxDiff allows.
func beyondBound(st *v1alpha1.PolicySourceStatus) bool {
	d := st.LastDiff
	return d != nil && st.ObservedCommit != nil && d.Commit == st.ObservedCommit.Hash && d.Allowed > 0 && d.Appeared+d.Cleared+d.Changed+d.Unknown+d.Enforcement > d.Allowed
}

// ShadowApproved reports whether people have approved to end the shadow of a commit. The leader
// counts their Approvals.
func (s *PolicySources) ShadowApproved(source, commit string) bool {
	ps := s.source(source)
	if ps == nil || ps.Status.Rollout == nil || string(ps.Status.Rollout.Commit) != commit || !inShadow(ps, s.opts.Manager.State()) {
		return false
	}
	a := s.opts.Approved(source, commit)
	return a.Met && time.Now().Before(a.Until)
}
