package rollbackplan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

// Reasons why Actions that were selected are left out.
const (
	RolledBack   = "RolledBack"
	Overwritten  = "Overwritten"  // by an Action that stays
	Reverted     = "Reverted"     // by somebody else, before the policy wrote the target again
	Irreversible = "Irreversible" // it has no inverse
	InDoubt      = "InDoubt"      // it is not known whether it was written
	MemberGone   = "MemberGone"   // the member is not there any more
	NotNamed     = "NotNamed"     // no Plan can name the target
)

// Target is an object of which Actions are rolled back.
type Target struct {
	Ref        policy.Ref
	MemberUID  string // of the member that was written; "" if an earlier version has recorded it
	APIVersion string
	UID        string   // of the object that the newest Action has written; "" if it was created or deleted
	Actions    []string // the newest first
	Verb       v1alpha1.Verb
	Lost       string // what is not restored, "" for nothing that matters

	digest v1alpha1.Digest // of the inverses
}

// LeftOut are Actions that are left out for one reason.
type LeftOut struct {
	Reason  string
	Actions int
	Action  string // the first of them, by name
	Message string // about that one
}

// Selection is what a Rollback rolls back.
type Selection struct {
	Targets []Target // sorted
	LeftOut []LeftOut
	// InDoubt is how many Actions are being written that the Rollback would select.
	InDoubt int
	// Generations are those of the policy that the Actions are of.
	Generations map[string]bool

	newest     time.Time
	generation string // of the newest Action
}

// Actions returns how many Actions are rolled back.
func (s *Selection) Actions() (n int) {
	for i := range s.Targets {
		n += len(s.Targets[i].Actions)
	}
	return n
}

// Irreversible returns how many targets cannot be restored, or not in full.
func (s *Selection) Irreversible() (n int) {
	for i := range s.Targets {
		if s.Targets[i].Lost != "" {
			n++
		}
	}
	for _, l := range s.LeftOut {
		if l.Reason == Irreversible {
			n += l.Actions
		}
	}
	return n
}

// leaveOut counts an Action that is left out.
func (s *Selection) leaveOut(reason, action, message string) {
	n := slices.IndexFunc(s.LeftOut, func(l LeftOut) bool { return l.Reason == reason })
	if n < 0 {
		s.LeftOut = append(s.LeftOut, LeftOut{Reason: reason, Action: action, Message: message})
		n = len(s.LeftOut) - 1
	}
	l := &s.LeftOut[n]
	if l.Actions++; action < l.Action {
		l.Action, l.Message = action, message
	}
}

// action is what matters of an Action.
type action struct {
	name, apiVersion, uid string
	memberUID             string
	phase                 v1alpha1.ActionPhase
	at                    time.Time // it was written
	commit                v1alpha1.CommitHash
	rollbackOf            string
	generation            string
	before, after         v1alpha1.Digest
	inverse               v1alpha1.Verb
	digest                v1alpha1.Digest // of the inverse
	irreversible, lost    string
}

// Gatherer takes the Actions of a policy.
type Gatherer struct {
	policy  string
	targets map[policy.Ref][]action
	phases  map[string]v1alpha1.ActionPhase // of corrections that were written, by name
}

// NewGatherer returns a Gatherer of a policy's Actions.
func NewGatherer(name v1alpha1.PolicyName) *Gatherer {
	return &Gatherer{policy: string(name), targets: map[policy.Ref][]action{}, phases: map[string]v1alpha1.ActionPhase{}}
}

// Add takes an Action, which may be of another policy.
func (g *Gatherer) Add(a *v1alpha1.Action) {
	if a.Spec.Binding != g.policy {
		return
	}
	phase := a.Status.Phase
	switch {
	case !a.Ended():
		phase = v1alpha1.PhaseWriting
	case phase != v1alpha1.PhaseSucceeded && phase != v1alpha1.PhaseRolledBack:
		return // it was not written
	}
	t := &a.Spec.Target
	ref := policy.Ref{Member: t.Member, Kind: policy.Kind(t.Kind), Namespace: t.Namespace, Name: t.Name}
	if a.Spec.RollbackOf == "" {
		g.phases[a.Name] = phase
	}
	g.targets[ref] = append(g.targets[ref], decode(a, phase))
}

func decode(a *v1alpha1.Action, phase v1alpha1.ActionPhase) action {
	out := action{
		name: a.Name, apiVersion: a.Spec.Target.APIVersion, uid: a.Spec.Target.UID, memberUID: a.Spec.Target.MemberUID, phase: phase, at: a.CreationTimestamp.Time,
		commit: a.Spec.Origin.Commit, rollbackOf: a.Spec.RollbackOf, generation: string(a.Spec.Generation), before: a.Spec.BeforeHash, after: a.Spec.AfterHash,
	}
	if a.Status.StartedAt != nil {
		out.at = a.Status.StartedAt.Time
	}
	if a.Status.EndedAt != nil && phase != v1alpha1.PhaseRolledBack { // then it is when it was rolled back
		out.at = a.Status.EndedAt.Time
	}
	switch i := a.Inverse; {
	case i == nil:
		out.irreversible = "its inverse is not recorded"
	case i.Verb == "":
		out.irreversible = i.Irreversible
	default:
		sum := sha256.Sum256([]byte(string(i.Verb) + " " + string(i.Patch)))
		out.inverse, out.digest, out.lost = i.Verb, v1alpha1.Digest(hex.EncodeToString(sum[:])), lost(a)
	}
	return out
}

// lost returns what no rollback of an Action restores, "" if nothing of it matters but to who
// refers to the object by UID.
func lost(a *v1alpha1.Action) string {
	switch kind := a.Spec.Target.Kind; {
	case a.Inverse.Verb == v1alpha1.Apply && kind == "PersistentVolumeClaim":
		return "the data of its volume, if the volume's reclaim policy is Delete"
	case a.Inverse.Verb == v1alpha1.Apply && kind == "PersistentVolume":
		return "the data, and the binding to its claim"
	case a.Inverse.Verb == v1alpha1.Apply && kind == "StatefulSet.apps":
		return "claims that were deleted with it (persistentVolumeClaimRetentionPolicy), with their data"
	case a.Inverse.Verb == v1alpha1.Apply && kind == "Pod":
		return "the state of its containers, and its emptyDir and ephemeral volumes"
	case a.Inverse.Verb == v1alpha1.Delete && kind == "PersistentVolumeClaim":
		return "anything: the volume that was made for the claim is deleted with it, if its reclaim policy is Delete"
	}
	return ""
}

// longestWrite is how long an Action may have been written after it began.
const longestWrite = 10 * time.Minute

// Generations returns the generations of the policy that have written what a Rollback selects, and
// "" if some do not say theirs. What is rolled back already counts, too: when it was written is
// not known then, but when that began.
func (g *Gatherer) Generations(r *v1alpha1.RollbackSpec) map[string]bool {
	earlier := *r
	if r.Since != nil {
		at := metav1.NewTime(r.Since.Add(-longestWrite))
		earlier.Since = &at
	}
	out := map[string]bool{}
	for _, list := range g.targets {
		for n := range list {
			a := &list[n]
			if a.rollbackOf == "" && (matches(r, a) || a.phase == v1alpha1.PhaseRolledBack && matches(&earlier, a)) {
				out[a.generation] = true
			}
		}
	}
	return out
}

// Select selects what a Rollback rolls back.
func (g *Gatherer) Select(r *v1alpha1.RollbackSpec) *Selection {
	s := &Selection{Generations: map[string]bool{}}
	for ref, list := range g.targets {
		slices.SortFunc(list, func(a, b action) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.name, a.name)) })
		g.selectTarget(s, r, ref, list)
	}
	slices.SortFunc(s.Targets, func(a, b Target) int { return compare(&a.Ref, &b.Ref) })
	slices.SortFunc(s.LeftOut, func(a, b LeftOut) int {
		return cmp.Or(cmp.Compare(b.Actions, a.Actions), strings.Compare(a.Reason, b.Reason))
	})
	return s
}

// matches reports whether a Rollback selects an Action, or would if it was a correction that
// has succeeded.
func matches(r *v1alpha1.RollbackSpec, a *action) bool {
	return (r.Commit == "" || a.commit == r.Commit) && (r.Since == nil || !a.at.Before(r.Since.Time)) && (r.Until == nil || a.at.Before(r.Until.Time))
}

// selectTarget selects Actions of one target, the newest first. One that stays holds those
// before it.
func (g *Gatherer) selectTarget(s *Selection, r *v1alpha1.RollbackSpec, ref policy.Ref, list []action) {
	var chosen []*action
	stays := "" // the name of an Action that stays
	member := memberOf(list)
	for n := range list {
		a := &list[n]
		selected := matches(r, a)
		if a.memberUID != "" && a.memberUID != member {
			if selected && a.rollbackOf == "" {
				s.leaveOut(MemberGone, a.name, "its member is not there any more: another one has its name")
			}
			continue // it says nothing of an object of this one
		}
		if a.rollbackOf != "" {
			if !g.cancels(a) {
				stays = cmp.Or(stays, a.name)
			}
			continue
		}
		switch {
		case a.phase == v1alpha1.PhaseRolledBack:
			if selected {
				s.leaveOut(RolledBack, a.name, "it is rolled back already")
			}
			continue
		case !selected:
		case stays != "":
			s.leaveOut(Overwritten, a.name, "the target was written by "+stays+" since")
		case a.phase == v1alpha1.PhaseWriting:
			s.InDoubt++
			s.leaveOut(InDoubt, a.name, "it is not known yet whether it was written")
		case len(chosen) > 0 && a.before == chosen[len(chosen)-1].before:
			s.leaveOut(Reverted, a.name, "the target was as before it when "+chosen[len(chosen)-1].name+" wrote it")
			continue
		case a.inverse == "":
			s.leaveOut(Irreversible, a.name, cmp.Or(a.irreversible, "it has no inverse"))
		case len(chosen) == plans.MaxActions:
			s.leaveOut(NotNamed, a.name, fmt.Sprintf("%d later Actions of its target are rolled back, which is the most", plans.MaxActions))
		default:
			chosen = append(chosen, a)
			continue
		}
		stays = cmp.Or(stays, a.name)
	}
	if len(chosen) > 0 {
		s.add(ref, member, chosen)
	}
}

// memberOf returns the UID of the member that was written last, "" if it is not recorded.
func memberOf(list []action) string {
	for n := range list {
		if uid := list[n].memberUID; uid != "" {
			return uid
		}
	}
	return ""
}

// cancels reports whether an Action has rolled a correction back, and is in effect: together
// they have changed nothing.
func (g *Gatherer) cancels(a *action) bool {
	return a.phase == v1alpha1.PhaseSucceeded && g.phases[a.rollbackOf] == v1alpha1.PhaseRolledBack
}

// add adds a target with the Actions that are rolled back, the newest first.
func (s *Selection) add(ref policy.Ref, memberUID string, chosen []*action) {
	newest, verbs, h := chosen[0], map[v1alpha1.Verb]bool{}, sha256.New()
	t := Target{Ref: ref, MemberUID: memberUID, APIVersion: newest.apiVersion}
	if newest.inverse == v1alpha1.Patch {
		t.UID = newest.uid
	}
	for _, a := range chosen {
		t.Actions, t.Lost, verbs[a.inverse] = append(t.Actions, a.name), cmp.Or(t.Lost, a.lost), true
		s.Generations[a.generation] = true
		fmt.Fprintln(h, a.digest)
	}
	t.digest = v1alpha1.Digest(hex.EncodeToString(h.Sum(nil)))
	switch oldest := chosen[len(chosen)-1]; {
	case oldest.inverse == v1alpha1.Delete:
		t.Verb = v1alpha1.Delete
	case verbs[v1alpha1.Apply]:
		t.Verb = v1alpha1.Apply
	default:
		t.Verb = v1alpha1.Patch
	}
	if newest.at.After(s.newest) || s.generation == "" {
		s.newest, s.generation = newest.at, newest.generation
	}
	s.Targets = append(s.Targets, t)
}

func compare(a, b *policy.Ref) int {
	return cmp.Or(strings.Compare(a.Member, b.Member), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
