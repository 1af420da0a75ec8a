package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/hub/internal/approval"
	"federator.dev/federator/pkg/hub/internal/people"
	"federator.dev/federator/pkg/remediate"
)

// pass counts what may have changed, and tells the Dispatcher what it comes to.
func (a *Approvals) pass(now time.Time) {
	required, known := a.opts.Required()
	if !known {
		return
	}
	names := a.informer.GetIndexer().ListIndexFuncValues(byPolicy)
	for name := range required {
		names = append(names, name)
	}
	slices.Sort(names)
	live, used, restored := map[string]bool{}, map[string]int{}, true
	for _, name := range slices.Compact(names) {
		st, _ := a.opts.Dispatcher.Status(name)
		if !st.Restored {
			restored = false // what is there is not known: neither is what is not
			continue
		}
		a.countPlans(name, &st, required[name], live, now)
		a.countHalts(name, &st, required[name], live, now)
		for i := range st.Plans {
			used[planKey(name, &st.Plans[i])] = st.Plans[i].Written
		}
	}
	a.countCommits(live, now)
	a.countRollbacks(required, live, used, now)
	a.countShadows(required, live, now)
	if !restored {
		return
	}
	if !maps.Equal(used, a.used) {
		a.used, a.recount = used, true
	}
	for key := range a.counts {
		if !live[key] {
			delete(a.counts, key)
			a.recount = true
		}
	}
	a.forgetVersions()
	a.updateStatuses(now)
}

// forgetVersions forgets subjects that have no Approvals any more.
func (a *Approvals) forgetVersions() {
	keys := a.informer.GetIndexer().ListIndexFuncValues(bySubject)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.versions) <= 2*len(keys)+100 {
		return
	}
	maps.DeleteFunc(a.versions, func(key string, _ uint64) bool { return !slices.Contains(keys, key) && a.counts[key] == nil })
}

// countPlans tells the Dispatcher what the Approvals of a policy's Plans come to.
func (a *Approvals) countPlans(name string, st *remediate.Status, required []v1alpha1.ApprovalRequirement, live map[string]bool, now time.Time) {
	approved, changed := map[types.UID]remediate.Approved{}, false
	for i := range st.Plans {
		p := &st.Plans[i]
		if p.State != v1alpha1.PlanWaiting && p.State != v1alpha1.PlanApproved {
			continue
		}
		s := subject{
			key: planKey(name, p), resource: v1alpha1.FleetPolicies, name: name, since: p.Since,
			requirements: approval.OfPolicy(st.Approval, required, approval.Authors{Users: p.Authors, Proven: p.AuthorsProven}),
		}
		if p.Purpose == v1alpha1.PlanHalt {
			s = haltSubject(name, p.Halt, st, required)
		}
		live[s.key] = true
		is := a.count(&s, now).approved()
		approved[p.UID] = is
		told, was := a.told[name][p.UID]
		again := was && sameApproved(told, is)
		// While that is unknown, the Dispatcher shows what was known before.
		changed = changed || !again || !is.Unknown && !sameApproved(p.Approved, is)
	}
	if changed || len(a.told[name]) > 0 && len(approved) == 0 {
		a.opts.Dispatcher.SetApprovals(name, approved)
	}
	if a.told[name] = approved; len(approved) == 0 {
		delete(a.told, name)
	}
}

// planKey is the key of what Approvals of a Plan name.
func planKey(policy string, p *remediate.PlanInfo) string {
	if p.Purpose == v1alpha1.PlanHalt {
		return approval.HaltKey(policy, p.Halt)
	}
	return approval.PlanKey(policy, p.Purpose, p.Hash)
}

func sameApproved(a, b remediate.Approved) bool {
	return a.Required == b.Required && a.Met == b.Met && a.Unknown == b.Unknown && a.Until.Equal(b.Until) && slices.EqualFunc(a.Given, b.Given, func(x, y v1alpha1.GivenApproval) bool {
		return x.Name == y.Name && x.By == y.By && x.At.Equal(&y.At) && x.Expires.Equal(&y.Expires)
	})
}

// countHalts acknowledges the halts of a policy that enough people have approved. Where no
// approval is required that is one person, who may approve.
func (a *Approvals) countHalts(name string, st *remediate.Status, required []v1alpha1.ApprovalRequirement, live map[string]bool, now time.Time) {
	for _, h := range st.Halts {
		s := haltSubject(name, h.ID, st, required)
		live[s.key] = true
		got := a.count(&s, now)
		if !got.Met {
			continue
		}
		var by []string
		for _, g := range got.Given {
			by = append(by, string(g.By))
		}
		who := clip.Text(strings.Join(by, ", "), 253)
		if err := a.opts.Dispatcher.AcknowledgeUntil(name, h.ID, who, got.Until); err == nil {
			a.opts.Logger.Info("halt acknowledged", "policy", name, "halt", h.ID, "by", who)
		} else if !errors.Is(err, remediate.ErrNoHalt) && !errors.Is(err, remediate.ErrNotNow) {
			a.opts.Logger.Warn("acknowledging a halt failed", "policy", name, "halt", h.ID, "error", err)
		}
	}
}

// haltSubject is a halt. Who has made what was written, or would be, does not end it; and
// who has approved before its Plan was recorded has not seen what waits.
func haltSubject(name, id string, st *remediate.Status, required []v1alpha1.ApprovalRequirement) subject {
	authors, since := approval.Authors{Proven: true}, time.Time{}
	for i := range st.Plans {
		p := &st.Plans[i]
		authors = authors.And(approval.Authors{Users: p.Authors, Proven: p.AuthorsProven})
		if p.Purpose == v1alpha1.PlanHalt && p.Halt == id {
			since = p.Since
		}
	}
	return subject{key: approval.HaltKey(name, id), resource: v1alpha1.FleetPolicies, name: name, since: since, requirements: approval.OfPolicy(st.Approval, required, authors)}
}

// countCommits has sources checked again whose commits people have approved.
func (a *Approvals) countCommits(live map[string]bool, now time.Time) {
	commits := map[string]remediate.Approved{}
	for _, c := range a.opts.Commits() {
		s := subject{key: approval.CommitKey(c.Source, c.Hash), resource: v1alpha1.PolicySources, name: c.Source, since: c.Since}
		s.requirements = approval.All(c.Required, a.authorsOf(&c))
		live[s.key] = true
		commits[s.key] = a.count(&s, now).approved()
	}
	a.mu.Lock()
	changed := len(commits) != len(a.commits)
	for key, is := range commits {
		was, counted := a.commits[key]
		changed = changed || !counted || !sameApproved(was, is)
	}
	a.commits = commits
	a.mu.Unlock()
	if changed {
		a.opts.OnCommits()
	}
}

// authorsOf returns who has made a commit what it is, since the one that it would replace.
func (a *Approvals) authorsOf(c *WideCommit) approval.Authors {
	commits, all := c.Commits.Since(c.Active)
	out := approval.Authors{Proven: all && c.Commits.Head() == c.Hash}
	for _, signer := range append([]string{c.Signer}, commits.Signers()...) {
		user := v1alpha1.UserName(userOf(a.opts.Signers, signer))
		if out.Proven = out.Proven && user != ""; user != "" && !slices.Contains(out.Users, user) {
			out.Users = append(out.Users, user)
		}
	}
	return out
}

// countRollbacks counts the Approvals of the Plans of Rollbacks. Who wants one does not
// approve it; who has changed the policy may: what is restored is not theirs.
func (a *Approvals) countRollbacks(required map[string][]v1alpha1.ApprovalRequirement, live map[string]bool, used map[string]int, now time.Time) {
	rollbacks := map[string]remediate.Approved{}
	for _, p := range a.opts.Rollbacks() {
		st, _ := a.opts.Dispatcher.Status(p.Policy)
		if !st.Restored {
			continue // what the policy has required is not known
		}
		reqs := slices.Clone(required[p.Policy])
		if st.Approval != nil {
			reqs = append(reqs, st.Approval.Requirements...)
		}
		key := approval.PlanKey(p.Policy, v1alpha1.PlanRollback, p.Hash)
		if len(reqs) == 0 {
			rollbacks[key] = remediate.Approved{Met: true}
			continue
		}
		authors := approval.Authors{Users: []v1alpha1.UserName{p.By}, Proven: true}
		s := subject{key: key, resource: v1alpha1.FleetPolicies, name: p.Policy, since: p.Since, requirements: approval.All(reqs, authors)}
		live[key], used[key] = true, p.Written
		rollbacks[key] = a.count(&s, now).approved()
	}
	a.mu.Lock()
	changed := !maps.EqualFunc(rollbacks, a.rollbacks, sameApproved)
	a.rollbacks = rollbacks
	a.mu.Unlock()
	if changed {
		a.opts.OnRollbacks()
	}
}

// Rollback returns what the Approvals of the Plan of a Rollback amount to: Unknown until they
// have been counted.
func (a *Approvals) Rollback(policy string, hash v1alpha1.Digest) remediate.Approved {
	a.mu.Lock()
	defer a.mu.Unlock()
	if is, counted := a.rollbacks[approval.PlanKey(policy, v1alpha1.PlanRollback, hash)]; counted {
		return is
	}
	return remediate.Approved{Unknown: true}
}

// countShadows counts the Approvals of versions in shadow.
func (a *Approvals) countShadows(required map[string][]v1alpha1.ApprovalRequirement, live map[string]bool, now time.Time) {
	shadows := map[string]shadowCount{}
	for _, v := range a.opts.Shadows() {
		st, _ := a.opts.Dispatcher.Status(v.Policy)
		if !st.Restored {
			continue // what the policy has required is not known
		}
		s := subject{
			key: approval.VersionKey(v.Policy, v.Digest), resource: v1alpha1.FleetPolicies, name: v.Policy, since: v.Since,
			requirements: approval.OfPolicy(st.Approval, required[v.Policy], approval.Authors{Users: v.Authors, Proven: v.AuthorsProven}),
		}
		live[s.key] = true
		shadows[s.key] = shadowCount{a.count(&s, now).approved(), v.Since}
	}
	a.mu.Lock()
	changed := !maps.EqualFunc(shadows, a.shadows, func(x, y shadowCount) bool { return x.since.Equal(y.since) && sameApproved(x.Approved, y.Approved) })
	a.shadows = shadows
	a.mu.Unlock()
	if changed {
		a.opts.OnChange()
	}
}

// shadowCount is what the Approvals of a version come to that are not older than since.
type shadowCount struct {
	remediate.Approved

	since time.Time
}

// VersionApproved reports whether people have approved, since a time, that the shadow of a version ends, or that it begins
// again, and when the last of them did: what was counted since another time is of another attempt.
func (a *Approvals) VersionApproved(policy string, version v1alpha1.Digest, since time.Time) (last time.Time, ok bool) {
	a.mu.Lock()
	is := a.shadows[approval.VersionKey(policy, version)]
	a.mu.Unlock()
	for i := range is.Given {
		if at := is.Given[i].At.Time; at.After(last) {
			last = at
		}
	}
	return last, is.Met && is.since.Equal(since) && time.Now().Before(is.Until)
}

// Commit returns what the Approvals of a commit that waits for them amount to.
func (a *Approvals) Commit(source, hash string) remediate.Approved {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.commits[approval.CommitKey(source, hash)]
}

// subject is what Approvals may be of.
type subject struct {
	key          string
	resource     string // of what names the subject, and its name
	name         string
	since        time.Time // Approvals that are older are not of it
	requirements []*approval.Requirement
}

// subjectCount is what the Approvals of a subject came to.
type subjectCount struct {
	approval.Combined

	unknown         bool // it is not known of each Approval whether it counts
	since           time.Time
	mark            string // of the requirements
	version, answer uint64
	until           time.Time // of the answers that it rests on
}

// approved is what the Dispatcher is told. What is enough is so whatever is not known.
func (c *subjectCount) approved() remediate.Approved {
	return remediate.Approved{Given: c.Given, Required: c.Required, Met: c.Met, Until: c.Until, Unknown: c.unknown && !c.Met}
}

// count counts the Approvals of a subject, unless that was done and nothing has changed.
func (a *Approvals) count(s *subject, now time.Time) *subjectCount {
	mark := fmt.Sprint(s.since.Unix())
	for _, r := range s.requirements {
		mark += fmt.Sprintf(" %+v", *r)
	}
	a.mu.Lock()
	next := &subjectCount{since: s.since, mark: mark, version: a.versions[s.key], answer: a.answers}
	a.mu.Unlock()
	was := a.counts[s.key]
	if was != nil && was.mark == mark && was.version == next.version && was.answer == next.answer &&
		(was.Next.IsZero() || now.Before(was.Next)) && (was.until.IsZero() || now.Before(was.until)) {
		return was
	}
	answer := a.proofs.Answer(now)
	list, all := a.approvalsOf(s, answer)
	if len(list) > 0 {
		next.until = now.Add(unknownGrace) // a proof gets old by itself
	}
	allowed := func(user string, groups []string) (bool, error) {
		yes, until, err := a.reviews.Allowed(people.Ask(people.Approve, s.resource, s.name, user, groups), now)
		if err == nil && until.Before(next.until) {
			next.until = until
		}
		return yes, err
	}
	var err error
	if next.Combined, err = approval.CountAll(s.requirements, list, proofOf(answer), allowed, now); err != nil {
		a.opts.Logger.Debug("Approvals cannot be counted yet", s.resource, s.name, "error", err)
	}
	next.unknown = !all || err != nil
	a.counts[s.key], a.recount = next, true
	return next
}

// approvalsOf returns the Approvals of a subject about which the hub has answered since they
// were seen, by name, and whether these are all.
func (a *Approvals) approvalsOf(s *subject, answer people.Answer) (out []*v1alpha1.Approval, all bool) {
	objects, err := a.informer.GetIndexer().ByIndex(bySubject, s.key)
	if err != nil {
		return nil, false // there is such an index
	}
	all = true
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range objects {
		g, ok := o.(*v1alpha1.Approval)
		if !ok || olderThan(g, s.since) {
			continue
		}
		if seen, known := a.seen[g.UID]; !known || !answer.Asked.After(seen) {
			all = false
			continue
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(x, y *v1alpha1.Approval) int { return strings.Compare(x.Name, y.Name) })
	return out, all
}

// olderThan reports whether an Approval was created before what it names, which is known to
// the second.
func olderThan(g *v1alpha1.Approval, since time.Time) bool {
	return !since.IsZero() && g.CreationTimestamp.Unix() < since.Unix()
}

// updateStatuses has the statuses written that have changed.
func (a *Approvals) updateStatuses(now time.Time) {
	a.mu.Lock()
	changes := a.changes
	a.mu.Unlock()
	if !a.recount && changes == a.reviewed && !a.statuses.Failed() && now.Before(a.reviewAt) {
		return
	}
	a.recount, a.reviewed, a.reviewAt = false, changes, now.Add(time.Hour)
	pending := map[string]*v1alpha1.Approval{}
	for _, o := range a.informer.GetStore().List() {
		g, ok := o.(*v1alpha1.Approval)
		if !ok {
			continue
		}
		d, decided := a.decide(g, now)
		next := d.Status(g.Status)
		if n := a.used[approval.SubjectKey(g)]; d.State == v1alpha1.ApprovalCounts {
			next.Used = max(next.Used, int32(n)) // at most v1alpha1.MaxPlanTargets
		}
		if decided && next != g.Status {
			update := g.DeepCopy()
			update.ManagedFields, update.Status = nil, next
			pending[g.Name] = update
		}
	}
	a.statuses.Set(pending)
}

// decide returns whether an Approval counts, as far as that is known.
func (a *Approvals) decide(g *v1alpha1.Approval, now time.Time) (approval.Decision, bool) {
	ignored := func(format string, args ...any) (approval.Decision, bool) {
		return approval.Decision{State: v1alpha1.ApprovalIgnored, Reason: approval.Unknown, Message: fmt.Sprintf(format, args...)}, true
	}
	key := approval.SubjectKey(g)
	if c := a.counts[key]; c != nil {
		if d, decided := c.Decisions[string(g.UID)]; decided {
			return d, true
		}
		if olderThan(g, c.since) {
			return ignored("it is older than the Plan that it names")
		}
		return approval.Decision{}, false
	}
	a.mu.Lock()
	grace := a.seen[g.UID].Add(unknownGrace)
	a.mu.Unlock()
	if now.Before(grace) { // what it names may not have been seen yet
		if grace.Before(a.reviewAt) {
			a.reviewAt = grace
		}
		return approval.Decision{}, false
	}
	switch counted := g.Status.State == v1alpha1.ApprovalCounts; {
	case g.Status.State == v1alpha1.ApprovalExpired:
		return approval.Decision{}, false
	case counted && !now.Before(g.Spec.Expires.Time):
		return approval.Decision{State: v1alpha1.ApprovalExpired, Message: "it expired at " + g.Spec.Expires.UTC().Format(time.RFC3339)}, true
	case counted:
		if g.Spec.Expires.Time.Before(a.reviewAt) {
			a.reviewAt = g.Spec.Expires.Time
		}
		return approval.Decision{State: v1alpha1.ApprovalCounts, Message: "what it names has ended, or is done"}, true
	}
	what, name, _ := strings.Cut(key, " ")
	of, name, _ := strings.Cut(name, " ")
	return ignored("%s has no %s %s that waits for approval, or it has ended", of, what, name)
}

// writeStatus writes the status of an Approval as it was seen: an older decision does not
// replace a newer one.
func (a *Approvals) writeStatus(ctx context.Context, g *v1alpha1.Approval) error {
	if !a.opts.IsLeader() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := a.client.rest.Put().Resource(v1alpha1.Approvals).Name(g.Name).SubResource("status").
		VersionedParams(&metav1.UpdateOptions{FieldManager: "federator"}, a.client.codec).Body(g).Do(ctx).Error()
	if err != nil && ctx.Err() == nil {
		a.opts.Logger.Debug("writing the status of an Approval failed", "approval", g.Name, "error", err) // retried
	}
	return err
}
