package remediate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// ApprovalTerms say who must approve what a policy would write, and who has changed it.
type ApprovalTerms struct {
	// Required are what the policy and the ceiling of its source require, all of them. What
	// earlier generations required is required, too, until one without it is approved.
	Required []v1alpha1.ApprovalRequirement
	// UID and Version are those of the FleetPolicy (metadata.generation): a version that does
	// not follow the one seen before may have had other authors.
	UID     string
	Version int64
	// Authors have made this generation of the policy what it is. AuthorsProven says that the
	// hub or a signature proves it, and that there are no others.
	Authors       []v1alpha1.UserName
	AuthorsProven bool
	// Made are the commits of what comes from git: the authors of all that were not seen
	// before count, too.
	Made []Made
	// Unsettled says that it is still being asked who they are: nothing is planned meanwhile.
	Unsettled bool
}

// Made is what comes from git, such as the FleetPolicy or a package: Signers of its Commits are
// users of the hub, "" where that is not proven.
type Made struct {
	Of      string
	Commits lineage.Line
}

// observed names what the authors have made: a version of the FleetPolicy with a generation.
func (t *ApprovalTerms) observed(generation string) string {
	return fmt.Sprintf("%s/%d/%s", t.UID, t.Version, generation)
}

// follows reports whether the version is the one that was seen before, or comes directly
// after it.
func (t *ApprovalTerms) follows(before string) bool {
	if before == "" {
		return t.Version == 1
	}
	return strings.HasPrefix(before, fmt.Sprintf("%s/%d/", t.UID, t.Version)) || strings.HasPrefix(before, fmt.Sprintf("%s/%d/", t.UID, t.Version-1))
}

// Approved is what the Approvals of one Plan amount to.
type Approved struct {
	Given    []v1alpha1.GivenApproval // those that count
	Required int                      // people who must approve
	Met      bool                     // enough have
	Until    time.Time                // when too few of them count any more
	// Unknown says that it is not known now which count: nothing is written, and nothing has
	// ended.
	Unknown bool
}

// PlanInfo is a Plan that waits for Approvals, or has them.
type PlanInfo struct {
	Name string
	// UID is another one where the same targets have been planned before.
	UID     types.UID
	Hash    v1alpha1.Digest
	Purpose v1alpha1.PlanPurpose
	State   v1alpha1.PlanState
	Targets int
	Written int // targets, as the hub has it
	// Since is when it was recorded: Approvals that are older are not of this Plan.
	Since      time.Time
	Generation string
	Halt       string // the id of the halt, of a Plan of one
	// Authors have changed what it is about; unless AuthorsProven, there may be others.
	Authors       []v1alpha1.UserName
	AuthorsProven bool
	Approved      Approved
}

// SetApprovals sets what the Approvals of a policy's Plans amount to, by UID, instead of
// what they did: a Plan that is not in it has none. Nothing is written that needs others.
func (d *Dispatcher) SetApprovals(binding string, approved map[types.UID]Approved) {
	d.mu.Lock()
	if s := d.policies[binding]; s != nil {
		s.approved = maps.Clone(approved)
	}
	d.mu.Unlock()
	d.trigger()
}

// Limits of the CRD.
const (
	maxRequirements = 10
	maxAuthors      = 20
)

// observeTerms remembers what a policy requires, and who has changed it since a generation
// was approved. A requirement stays until a generation without it is approved.
func (s *policyState) observeTerms() {
	t, k := &s.spec.Approval, s.approval
	s.tooManyTerms = false
	if k == nil && len(t.Required) == 0 {
		return
	}
	next := v1alpha1.KeptApproval{}
	if k != nil {
		next = *k.DeepCopy()
	}
	for _, r := range t.Required {
		switch {
		case slices.ContainsFunc(next.Requirements, func(x v1alpha1.ApprovalRequirement) bool { return sameRequirement(&x, &r) }):
		case len(next.Requirements) == maxRequirements: // the hub would refuse the whole record
			s.tooManyTerms = true
		default:
			next.Requirements = append(next.Requirements, *r.DeepCopy())
		}
	}
	if now := t.observed(s.spec.Generation); !t.Unsettled {
		if next.Observed != now && string(next.Generation) != s.spec.Generation { // it is not the one that was approved
			addAuthors(&next, t)
		}
		next.Observed, next.Commits = now, t.commits()
	}
	if k == nil || !sameKept(k, &next) {
		s.approval = &next
		s.touch()
	}
}

// commits are those that are seen now.
func (t *ApprovalTerms) commits() (out []v1alpha1.KeptCommit) {
	for _, m := range t.Made {
		if hash := m.Commits.Head(); hash != "" {
			out = append(out, v1alpha1.KeptCommit{Of: m.Of, Hash: v1alpha1.CommitHash(hash)})
		}
	}
	return out
}

// addAuthors adds those who have changed a policy.
func addAuthors(k *v1alpha1.KeptApproval, t *ApprovalTerms) {
	k.AuthorsUnproven = k.AuthorsUnproven || !t.AuthorsProven || !t.follows(k.Observed)
	authors := slices.Clone(t.Authors)
	for _, m := range t.Made {
		base := ""
		if n := slices.IndexFunc(k.Commits, func(c v1alpha1.KeptCommit) bool { return c.Of == m.Of }); n >= 0 {
			base = string(k.Commits[n].Hash)
		}
		commits, all := m.Commits.Since(base)
		k.AuthorsUnproven = k.AuthorsUnproven || !all
		for _, c := range commits {
			if c.Signer == "" {
				k.AuthorsUnproven = true
			} else {
				authors = append(authors, v1alpha1.UserName(c.Signer))
			}
		}
	}
	for _, a := range authors {
		switch {
		case slices.Contains(k.Authors, a):
		case len(k.Authors) == maxAuthors:
			k.AuthorsUnproven = true
		default:
			k.Authors = append(k.Authors, a)
		}
	}
}

func sameKept(a, b *v1alpha1.KeptApproval) bool {
	return slices.EqualFunc(a.Requirements, b.Requirements, func(x, y v1alpha1.ApprovalRequirement) bool { return sameRequirement(&x, &y) }) &&
		a.Generation == b.Generation && a.Observed == b.Observed && slices.Equal(a.Commits, b.Commits) && slices.Equal(a.Authors, b.Authors) && a.AuthorsUnproven == b.AuthorsUnproven
}

func sameRequirement(a, b *v1alpha1.ApprovalRequirement) bool {
	above := func(r *v1alpha1.ApprovalRequirement) int32 {
		if r.Above == nil {
			return -1
		}
		return *r.Above
	}
	valid := func(r *v1alpha1.ApprovalRequirement) time.Duration {
		if r.ValidFor == nil {
			return -1
		}
		return r.ValidFor.Duration
	}
	return a.Required == b.Required && above(a) == above(b) && valid(a) == valid(b) &&
		slices.Equal(a.Groups, b.Groups) && slices.Equal(a.ServiceAccounts, b.ServiceAccounts)
}

// adoptTerms makes what the present generation requires all that is required: it has been
// approved.
func (s *policyState) adoptTerms() {
	if len(s.spec.Approval.Required) == 0 {
		s.approval = nil
	} else {
		t := &s.spec.Approval
		s.approval = &v1alpha1.KeptApproval{Generation: v1alpha1.RolloutGeneration(s.spec.Generation), Observed: t.observed(s.spec.Generation), Commits: t.commits()}
		for _, r := range s.spec.Approval.Required {
			s.approval.Requirements = append(s.approval.Requirements, *r.DeepCopy())
		}
	}
	s.touch()
}

// errTooManyRequirements is why nothing is written for a policy whose approval was changed
// again and again without being approved.
var errTooManyRequirements = errors.New("spec.approval was changed too often without being approved: approve a generation, or restore the one that was approved last")

// share returns the number of targets that need no approval, and whether there is such a
// number: each requirement names a share.
func (s *policyState) share() (targets int, ok bool) {
	if s.tooManyTerms {
		return 0, false
	}
	least := int32(101)
	for _, r := range s.approval.Requirements {
		if r.Above == nil {
			return 0, false
		}
		least = min(least, *r.Above)
	}
	return int(int64(s.totals.Fleet) * int64(least) / 100), true
}

// reviewShare decides whether what is and was written is so little that it needs no approval.
func (s *policyState) reviewShare() {
	waiting := s.awaiting.len()
	if s.needsApproval() { // the ledger does not have them
		waiting += s.unresolved.len()
	}
	s.within = false
	if s.approval == nil {
		return
	}
	if most, ok := s.share(); ok {
		s.within = s.ledger.Affected(s.name).Targets+waiting <= most
	}
}

// needsApproval reports whether intents are written only with an approved Plan.
func (s *policyState) needsApproval() bool {
	return s.approval != nil && !s.within && !s.spec.DryRun
}

// waitsForApproval reports whether an intent is due, but for approval. What no Plan has is never
// sent.
func (s *policyState) waitsForApproval(i *desiredIntent) bool {
	return s.needsApproval() && s.isPlannable(i) && !s.isApproved(i)
}

// isUnapproved reports that nothing of the present generation may be written yet: its waves
// have not begun.
func (s *policyState) isUnapproved() bool {
	return s.approval != nil && !s.within && !s.spec.DryRun && !slices.ContainsFunc(s.plans, func(p *plan) bool { return p.passes(s.spec.Generation) })
}

// isApproved reports whether an approved Plan of this generation has an intent; of a Former one, one
// of its own generation may as well.
func (s *policyState) isApproved(i *desiredIntent) bool {
	former := s.formerGeneration()
	return slices.ContainsFunc(s.plans, func(p *plan) bool {
		return (p.passes(s.spec.Generation) || i.Former && former != "" && p.passes(former)) && p.targets[i.key()]
	})
}

// formerGeneration is the one whose place the present one takes, "" if there is none.
func (s *policyState) formerGeneration() string {
	if s.spec.Replaces == nil {
		return ""
	}
	return s.spec.Replaces.Generation
}

// refuseUnapproved returns why an intent must not be written, "" if it needs no approval or
// has it.
func (s *policyState) refuseUnapproved(i *Intent) string {
	if !s.needsApproval() {
		return ""
	}
	if now := s.intents[i.Remedy.Target]; now != nil && s.isApproved(now) {
		return ""
	}
	return s.awaitsApproval()
}

// awaitsApproval says what waits, and for whom.
func (s *policyState) awaitsApproval() string {
	if s.tooManyTerms {
		return errTooManyRequirements.Error()
	}
	if s.freezeError != "" {
		return "no Plan can be made: " + s.freezeError
	}
	for _, p := range s.plans {
		if p.State != v1alpha1.PlanWaiting || p.Generation != s.spec.Generation || p.Purpose == v1alpha1.PlanHalt {
			continue
		}
		missing := max(1, p.Approved.Required-len(p.Approved.Given))
		return fmt.Sprintf("Plan %s of %d targets waits for the Approval of %d more", p.Name, p.Targets, missing)
	}
	if slices.ContainsFunc(s.plans, (*plan).isUncertain) {
		return "it is not known now which Approvals count"
	}
	return fmt.Sprintf("%d targets wait for a Plan that can be approved", s.awaiting.len())
}

// reviewApprovals makes due what is approved now, and has wait what is not any more. Each pass does
// so, and the gate: what was set since the pass counts for what it has started.
func (s *policyState) reviewApprovals(p *pass) {
	if !s.ready || s.removed {
		return
	}
	s.observeTerms()
	s.reviewPlans(p)
	s.reviewShare()
	passing := s.passing()
	if passing == s.passed {
		return
	}
	s.passed = passing
	for target := range s.intents {
		s.updateDue(target, p.now)
	}
	s.reviewShare()
}

// passing names all that decides which intents are approved, or covered by an
// acknowledgement: while it stays the same, so does each answer.
func (s *policyState) passing() string {
	if s.approval == nil && len(s.allowances) == 0 {
		return ""
	}
	var b strings.Builder
	former := s.formerGeneration()
	fmt.Fprint(&b, s.approval != nil, s.within, " ", s.spec.Generation, " ", former)
	for _, p := range s.plans {
		if p.passes(s.spec.Generation) || former != "" && p.passes(former) {
			b.WriteString(" " + p.Name)
		}
	}
	for n := range s.allowances {
		if a := &s.allowances[n]; a.plan != "" && a.generation == s.spec.Generation {
			b.WriteString(" +" + a.plan)
		}
	}
	return b.String()
}

// coverage is the names of Plans, each followed by a space.
type coverage string

func (c coverage) has(plan string) bool {
	return plan != "" && strings.Contains(" "+string(c), " "+plan+" ")
}

// coverage returns the Plans with an intent whose halts are acknowledged.
func (s *policyState) coverage(i *desiredIntent, now time.Time) (of coverage) {
	if len(s.allowances) == 0 {
		return ""
	}
	for _, p := range s.plans { // few; one acknowledgement may have an allowance for each of many members
		if p.Purpose == v1alpha1.PlanHalt && p.targets[i.key()] && s.isAllowed(p.Name, now) {
			of += coverage(p.Name + " ")
		}
	}
	return of
}

// isAllowed reports whether the halt is acknowledged that a Plan is of.
func (s *policyState) isAllowed(plan string, now time.Time) bool {
	for n := range s.allowances {
		if a := &s.allowances[n]; a.plan == plan && a.effective(s.spec.Generation, now) {
			return true
		}
	}
	return false
}

// key identifies what an approval of the intent approves.
func (i *desiredIntent) key() plans.Key {
	if !i.keyed {
		t := i.planTarget()
		i.planKey, i.remedy, i.unnamable, i.keyed = t.Key(), t.Remedy, t.Validate() != nil, true
	}
	return i.planKey
}

// isPlannable reports whether the intent is one that a Plan has: it may be written, or tried.
func (s *policyState) isPlannable(i *desiredIntent) bool {
	if !s.spec.DryRun && (i.managed || i.Refused != "" || i.Unresolved != "" || s.isBeyond(i.Intent)) { // a dry run says so
		return false
	}
	if _, inWave := s.waveOf(i.Remedy.Target.Member); !inWave && len(s.spec.Waves) > 0 {
		return false
	}
	i.key()
	return !i.unnamable
}

func (i *desiredIntent) planTarget() plans.Target {
	remedy := i.remedy
	if !i.keyed {
		remedy = plans.RemedyDigest(&i.Remedy, i.apiVersion(), i.Force, i.ActAs)
	}
	return plans.Target{
		MemberUID: i.MemberUID, Ref: i.Remedy.Target, APIVersion: i.apiVersion(), UID: i.UID, Verb: v1alpha1.Verb(i.Remedy.Action),
		Remedy: remedy,
	}
}

// refs are targets, and how many there are in each member.
type refs struct {
	all     map[policy.Ref]bool
	members map[string]int
}

func newRefs() refs { return refs{map[policy.Ref]bool{}, map[string]int{}} }

func (r *refs) len() int { return len(r.all) }

func (r *refs) add(target policy.Ref) {
	if !r.all[target] {
		r.all[target] = true
		r.members[target.Member]++
	}
}

func (r *refs) remove(target policy.Ref) {
	if !r.all[target] {
		return
	}
	delete(r.all, target)
	if r.members[target.Member]--; r.members[target.Member] == 0 {
		delete(r.members, target.Member)
	}
}

// whyUnresolved returns why it is not known what the first unresolved target is, "" if there is none.
func (s *policyState) whyUnresolved() string {
	if s.unresolved.len() == 0 {
		return ""
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(s.unresolved.all)), func(a, b policy.Ref) int {
		return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return first.String() + ": " + s.intents[first].Unresolved
}
