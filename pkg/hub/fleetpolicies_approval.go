package hub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/remediate"
)

// appliedGrace is how long after a change of a FleetPolicy of a source it may not be known yet
// which commit it is of.
const appliedGrace = 10 * time.Second

// authorProof is whether the hub proves who made a version of a FleetPolicy. Once that is
// known of a version it stays so.
type authorProof struct {
	generation      int64
	seen            time.Time // the version, first
	decided, proven bool
	applied         bool // a source has changed it last: the annotation is of an older version
}

// required returns the approval that a FleetPolicy and the ceiling of its source require now.
func (f *FleetPolicies) required(fp *v1alpha1.FleetPolicy) []v1alpha1.ApprovalRequirement {
	return requiredApproval(fp, f.opts.Library.Origin(fp.Spec.Package))
}

func requiredApproval(fp *v1alpha1.FleetPolicy, from Origin) []v1alpha1.ApprovalRequirement {
	var out []v1alpha1.ApprovalRequirement
	if r := fp.Spec.Approval; r != nil {
		out = append(out, *r)
	}
	if r := from.Approval; r != nil {
		out = append(out, *r)
	}
	return out
}

// Required returns the FleetPolicies that require approval, or have, with what they require
// now; false while they are not known.
func (f *FleetPolicies) Required() (map[string][]v1alpha1.ApprovalRequirement, bool) {
	if !f.informer.HasSynced() {
		return nil, false
	}
	out := map[string][]v1alpha1.ApprovalRequirement{}
	for _, fp := range f.list() {
		if r := f.required(fp); len(r) > 0 || fp.Status.Approval != nil {
			out[fp.Name] = r
		}
	}
	return out, true
}

// approvalTerms returns the terms of all policies. Of those that require no approval, and have
// required none, it is not asked here who has changed them.
func (f *FleetPolicies) approvalTerms(policies []*v1alpha1.FleetPolicy, origins map[string]Origin, rollings map[string]*rolling) map[string]remediate.ApprovalTerms {
	out, now := map[string]remediate.ApprovalTerms{}, time.Now()
	here := map[types.UID]bool{}
	for _, fp := range policies {
		from := origins[fp.Spec.Package]
		if r := rollings[fp.Name]; r != nil {
			from = r.origin(fp, r.InEffect(), origins)
		}
		t := remediate.ApprovalTerms{UID: string(fp.UID), Version: fp.Generation, Required: requiredApproval(fp, from)}
		here[fp.UID] = f.opts.IsLeader()
		if len(t.Required) > 0 || fp.Status.Approval != nil {
			f.addAuthors(&t, fp, from, now)
		}
		out[fp.Name] = t
	}
	maps.DeleteFunc(f.authors, func(uid types.UID, _ *authorProof) bool { return !here[uid] })
	return out
}

// addAuthors adds who has made a FleetPolicy and its package what they are: the signer of the
// commit that they are of and those of the commits before it, or the user who has changed the
// FleetPolicy.
func (f *FleetPolicies) addAuthors(t *remediate.ApprovalTerms, fp *v1alpha1.FleetPolicy, from Origin, now time.Time) {
	if !f.opts.IsLeader() {
		t.Unsettled = true // the leader knows
		return
	}
	seen := f.proofOf(fp, now)
	t.AuthorsProven = true
	add := func(user string, proven bool) {
		if user == "" || !proven {
			t.AuthorsProven = false
		}
		if name := v1alpha1.UserName(user); user != "" && !slices.Contains(t.Authors, name) {
			t.Authors = append(t.Authors, name)
		}
	}
	user := func(signer string) string { return userOf(f.opts.Signers, signer) }
	if from.Source != "" && from.Commit != "" {
		add(user(from.Signer), true)
		t.Made = append(t.Made, remediate.Made{Of: "package " + fp.Spec.Package, Commits: from.Commits.Map(user)})
	}
	commits, signer, exactly := f.opts.Library.AppliedAs(fp)
	switch {
	case exactly:
		add(user(signer), true)
		t.Made = append(t.Made, remediate.Made{Of: "FleetPolicy", Commits: commits.Map(user)})
	case fp.Labels[api.SourceKey] != "" && now.Sub(seen.seen) < appliedGrace:
		t.Unsettled = true
	default:
		t.Unsettled = !f.proveAuthor(seen, fp)
		add(clip.Text(fp.Annotations[api.ChangedByKey], maxUserName), seen.proven && !seen.applied)
	}
}

// ShadowVersion is a version in shadow, which people may end.
type ShadowVersion struct {
	Policy        string
	Digest        v1alpha1.Digest
	Since         time.Time // Approvals that are older are not of it
	Authors       []v1alpha1.UserName
	AuthorsProven bool // there are no others
}

// Shadows returns the versions that are in shadow, or may begin again, while this process leads.
func (f *FleetPolicies) Shadows() []ShadowVersion {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.shadows)
}

// shadowsOf returns the versions that are recorded as being in shadow, or as taken back where people may have them begin
// again.
func (f *FleetPolicies) shadowsOf(policies []*v1alpha1.FleetPolicy, now time.Time) (out []ShadowVersion) {
	for _, fp := range policies {
		r := f.rollings[fp.Name]
		if r == nil {
			continue
		}
		since, ok := r.approvableSince(fp)
		if !ok {
			continue
		}
		v := ShadowVersion{Policy: fp.Name, Digest: r.Next.Digest, Since: since}
		if len(f.required(fp)) > 0 || fp.Status.Approval != nil {
			f.addShadowAuthors(&v, fp, r, now)
		}
		out = append(out, v)
	}
	return out
}

// addShadowAuthors adds who has made a version: as of what would be written of it, and who has
// signed a commit since the active one.
func (f *FleetPolicies) addShadowAuthors(v *ShadowVersion, fp *v1alpha1.FleetPolicy, r *rolling, now time.Time) {
	from := r.origin(fp, r.Next, f.origins)
	var t remediate.ApprovalTerms
	f.addAuthors(&t, fp, from, now)
	v.Authors, v.AuthorsProven = t.Authors, t.AuthorsProven && !t.Unsettled
	if !r.OfPackage() {
		return
	}
	commits, all := from.Commits.Since(f.origins[fp.Spec.Package].Commit)
	v.AuthorsProven = v.AuthorsProven && all && from.Commits.Head() == from.Commit
	for _, signer := range commits.Signers() {
		user := v1alpha1.UserName(userOf(f.opts.Signers, signer))
		if v.AuthorsProven = v.AuthorsProven && user != ""; user != "" && !slices.Contains(v.Authors, user) {
			v.Authors = append(v.Authors, user)
		}
	}
}

// shadowEnds reports whether people have approved that the next version leaves the shadow: itself,
// or the commit whose change it is: other parameters than those are no part of that.
func (f *FleetPolicies) shadowEnds(fp *v1alpha1.FleetPolicy, r *rolling) bool {
	if r.Phase != v1alpha1.RolloutShadow {
		return false
	}
	if _, ok := f.versionApproved(fp, r); ok {
		return true
	}
	from := r.origin(fp, r.Next, f.origins)
	return r.ByCommit() && from.Source != "" && f.opts.Library.ShadowApproved(from.Source, from.Commit)
}

// beginsAgain reports whether people have approved that a version begins again that was taken back, and from when: later
// than their Approvals, whatever the clock here says, so that these do not end its shadow as well.
func (f *FleetPolicies) beginsAgain(fp *v1alpha1.FleetPolicy, r *rolling, now time.Time) (from time.Time, ok bool) {
	if !r.mayBeginAgain() {
		return now, false
	}
	last, ok := f.versionApproved(fp, r)
	if !ok {
		return now, false
	}
	if last.After(now) {
		now = last
	}
	return now.Add(time.Second), true
}

// versionApproved reports whether people have approved what comes next for the next version, as it is recorded, and when the
// last of them did.
func (f *FleetPolicies) versionApproved(fp *v1alpha1.FleetPolicy, r *rolling) (last time.Time, ok bool) {
	since, ok := r.approvableSince(fp)
	if !ok || f.opts.Proofs == nil {
		return time.Time{}, false
	}
	return f.opts.Proofs.VersionApproved(fp.Name, r.Next.Digest, since)
}

// approvableSince returns since when people may approve that the next version leaves its shadow, or begins again; false
// while they may not.
func (r *rolling) approvableSince(fp *v1alpha1.FleetPolicy) (time.Time, bool) {
	st := fp.Status.Rollout
	switch {
	case r.Next == nil || st == nil || st.Candidate == nil || st.Candidate.Digest != r.Next.Digest:
		return time.Time{}, false
	case r.Phase == v1alpha1.RolloutShadow:
		return st.Candidate.Began.Time, true
	case r.mayBeginAgain():
		return st.Candidate.Since.Add(time.Second), true // what was approved in that second has not seen it taken back
	}
	return time.Time{}, false
}

// mayBeginAgain reports whether the next version was taken back and has the package in effect: other parameters of it. A
// commit is taken back as a whole, for all policies, and another one takes its place.
func (r *rolling) mayBeginAgain() bool {
	return r.Next != nil && r.Phase == v1alpha1.RolloutTakenBack && r.refused == "" && !r.OfPackage()
}

// proofOf returns what is known of who made the present version of a FleetPolicy. The hub is asked when the
// version is seen first.
func (f *FleetPolicies) proofOf(fp *v1alpha1.FleetPolicy, now time.Time) *authorProof {
	seen := f.authors[fp.UID]
	if seen == nil || seen.generation != fp.Generation {
		seen = &authorProof{generation: fp.Generation, seen: now}
		f.authors[fp.UID] = seen
		if f.opts.Proofs != nil {
			f.opts.Proofs.Request()
		}
	}
	seen.applied = seen.applied || appliedLast(fp)
	return seen
}

// provenAuthor returns the user who has changed a FleetPolicy, "" if that is not proven, or a source has;
// false while that may be known soon.
func (f *FleetPolicies) provenAuthor(fp *v1alpha1.FleetPolicy, now time.Time) (string, bool) {
	if _, _, exactly := f.opts.Library.AppliedAs(fp); exactly {
		return "", true
	}
	seen := f.proofOf(fp, now)
	decided := f.proveAuthor(seen, fp)
	if now.Sub(seen.seen) < appliedGrace && (!decided || fp.Labels[api.SourceKey] != "") {
		return "", false
	}
	if !seen.proven || seen.applied {
		return "", true
	}
	return clip.Text(fp.Annotations[api.ChangedByKey], maxUserName), true
}

// maxUserName is how long a UserName may be, as in the CRD.
const maxUserName = 512

// proveAuthor decides whether the hub proves who made a version of a FleetPolicy, by an answer
// of the hub since the version was seen. It returns false while there is none.
func (f *FleetPolicies) proveAuthor(p *authorProof, fp *v1alpha1.FleetPolicy) bool {
	if f.opts.Proofs == nil {
		p.decided = true
	}
	if !p.decided {
		if since, asked := f.opts.Proofs.AuthorsSince(); asked.After(p.seen) {
			// managedFields may be changed by whoever may change the object: what was seen
			// before names were proven stays unproven, whatever they say later.
			p.decided, p.proven = true, !since.IsZero() && specChanged(fp).After(since) && p.seen.After(since)
		}
	}
	return p.decided
}

// ownsSpec reports whether a field manager owns a field of the spec, or may.
func ownsSpec(m *metav1.ManagedFieldsEntry) bool {
	if m.Subresource != "" {
		return false
	}
	var fields map[string]json.RawMessage
	if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
		return true
	}
	_, owns := fields["f:spec"]
	return owns
}

// specChanged returns when the spec of an object was changed last, as far as managedFields
// tell: zero if they do not.
func specChanged(fp *v1alpha1.FleetPolicy) time.Time {
	var last time.Time
	for _, m := range fp.ManagedFields {
		if !ownsSpec(&m) {
			continue
		}
		if m.Time == nil {
			return time.Time{}
		}
		last = later(last, m.Time.Time)
	}
	return last
}

// appliedLast reports whether a source has changed a FleetPolicy since people have changed its
// spec, or may have: managedFields tell seconds.
func appliedLast(fp *v1alpha1.FleetPolicy) bool {
	var people, source time.Time
	for _, m := range fp.ManagedFields {
		switch {
		case m.Time == nil || m.Subresource != "":
		case m.Operation == metav1.ManagedFieldsOperationApply && strings.HasPrefix(m.Manager, fieldManager("")):
			source = later(source, m.Time.Time)
		case ownsSpec(&m):
			people = later(people, m.Time.Time)
		}
	}
	return !source.IsZero() && !source.Before(people)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// userOf returns the user of the hub who owns the key that has signed a commit, "" if that is
// not configured.
func userOf(signers map[string]string, signer string) string {
	return signers[signer[strings.LastIndexByte(signer, ' ')+1:]]
}

// withTerms returns specs with the terms of their approval.
func withTerms(specs map[string]enforce.EnforcementSpec, terms map[string]remediate.ApprovalTerms) map[string]enforce.EnforcementSpec {
	out := make(map[string]enforce.EnforcementSpec, len(specs))
	for name, spec := range specs {
		spec.Approval = terms[name]
		out[name] = spec
	}
	return out
}

// showApproval shows what waits for Approvals, and what has them, of a policy that requires
// approval. Before that is known, what is shown stays.
func (f *FleetPolicies) showApproval(s *v1alpha1.FleetPolicyStatus, fp *v1alpha1.FleetPolicy, actions *remediate.Status, bad bool) {
	if !actions.Restored {
		s.Approval = fp.Status.Approval.DeepCopy()
		return
	}
	if actions.Approval == nil && (bad || len(f.required(fp)) == 0) {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.Approved)
		return
	}
	p := &v1alpha1.ApprovalProgress{}
	kept := cmp.Or(actions.Approval, &v1alpha1.KeptApproval{Requirements: f.required(fp), AuthorsUnproven: true})
	for _, r := range kept.Requirements {
		p.Required = max(p.Required, max(r.Required, 1)+int32(boolInt(kept.AuthorsUnproven)))
	}
	p.Authors = kept.Authors[:min(len(kept.Authors), maxApprover)]
	p.Unproven = "it is not known yet"
	if f.opts.Proofs != nil {
		p.Unproven = clip.Text(f.opts.Proofs.Unproven(), maxText)
	}
	for i := range actions.Plans[:min(len(actions.Plans), maxPlans)] {
		p.Plans = append(p.Plans, toPlanProgress(&actions.Plans[i]))
	}
	s.Approval = p
	setCondition(s, fp, approvedCondition(fp.Name, p, actions))
}

func toPlanProgress(p *remediate.PlanInfo) v1alpha1.PlanProgress {
	return v1alpha1.PlanProgress{
		Name: p.Name, Hash: p.Hash, Purpose: p.Purpose, State: p.State, Targets: int32(p.Targets), // at most v1alpha1.MaxPlanTargets
		Since: metav1.NewTime(p.Since), Approvals: p.Approved.Given[:min(len(p.Approved.Given), maxApprover)],
	}
}

// approvedCondition returns the condition Approved; its message says what ends the waiting.
func approvedCondition(name string, p *v1alpha1.ApprovalProgress, actions *remediate.Status) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.Approved, Status: metav1.ConditionFalse}
	waits := func(reason, format string, args ...any) metav1.Condition {
		c.Reason, c.Message = reason, fmt.Sprintf(format, args...)
		if p.Unproven != "" {
			c.Reason, c.Message = "Unproven", fmt.Sprintf("Approvals do not count now: %s; %s", p.Unproven, c.Message)
		}
		return c
	}
	for i := range actions.Plans {
		switch x := &actions.Plans[i]; {
		case x.State == v1alpha1.PlanFreezing:
			return waits("Freezing", "Plan %s is being recorded", x.Name)
		case x.State == v1alpha1.PlanWaiting && x.Purpose == v1alpha1.PlanHalt:
		case x.State == v1alpha1.PlanWaiting:
			flag := "plan"
			if x.Purpose == v1alpha1.PlanRollback {
				flag = "rollback"
			}
			return waits("Waiting", "Plan %s of %d targets (%s) waits for Approvals of %d people, and has %d; see federator actions plan %s, then %s",
				x.Name, x.Targets, x.Purpose, max(x.Approved.Required, 1), len(x.Approved.Given), name, approveCommand(name, flag, string(x.Hash)))
		}
	}
	for _, h := range actions.Halts {
		return waits("Halted", "halt %s waits for Approvals of %d people: %s", h.ID, p.Required, approveCommand(name, "halt", h.ID))
	}
	c.Status = metav1.ConditionTrue
	for i := range actions.Plans {
		if x := &actions.Plans[i]; x.State == v1alpha1.PlanApproved {
			c.Reason, c.Message = "Approved", fmt.Sprintf("Plan %s is approved until %s", x.Name, x.Approved.Until.UTC().Format(time.RFC3339))
			return c
		}
	}
	c.Reason, c.Message = "NothingWaits", "nothing waits for approval"
	return c
}

// approveCommand is what to run to approve something.
func approveCommand(policy, flag, of string) string {
	return fmt.Sprintf("federator actions approve %s --%s %s --reason TEXT", policy, flag, of)
}

// acknowledgeHalts passes acknowledgements of halts to the Dispatcher, unless approval is
// required: then an annotation, which does not prove who has set it, does nothing.
func (f *FleetPolicies) acknowledgeHalts(policies []*v1alpha1.FleetPolicy) {
	for _, fp := range policies {
		id := fp.Annotations[api.AcknowledgeKey]
		if id == "" { // what has been acknowledged is no halt any more, unless recording that failed
			continue
		}
		if st, _ := f.opts.Dispatcher.Status(fp.Name); st.Approval != nil || len(f.required(fp)) > 0 {
			f.ignoreAcknowledgement(fp, id, &st)
			continue
		}
		if err := f.opts.Dispatcher.Acknowledge(fp.Name, id, clip.Text(acknowledgedBy(fp), 253)); err == nil {
			f.opts.Logger.Info("halt acknowledged", "policy", fp.Name, "halt", id, "by", acknowledgedBy(fp))
		}
	}
}

// ignoreAcknowledgement says once of each halt that the annotation does nothing.
func (f *FleetPolicies) ignoreAcknowledgement(fp *v1alpha1.FleetPolicy, id string, st *remediate.Status) {
	if f.ignored[fp.Name] == id || !slices.ContainsFunc(st.Halts, func(h *remediate.Halt) bool { return h.ID == id }) {
		return
	}
	f.ignored[fp.Name] = id
	f.opts.Logger.Warn("acknowledgement ignored: the policy requires approval", "policy", fp.Name, "halt", id)
	if f.opts.IsLeader() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.recorder.ignored(fp, id)
	}
}

// acknowledgedBy returns who set the annotation, according to managedFields.
func acknowledgedBy(fp *v1alpha1.FleetPolicy) string {
	return fieldManagerOf(fp.ManagedFields, api.AcknowledgeKey)
}
