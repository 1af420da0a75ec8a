// Package sourcerollout says how far a commit of a PolicySource has come whose versions of
// policies take the place of others: no further than any of them. It reads no clock and
// keeps nothing.
package sourcerollout

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/hub/internal/promotion"
)

const maxMessage = 2048 // bytes, as in the CRD

// Policy is a policy that a commit changes.
type Policy struct {
	Name    string                // of the FleetPolicy
	Phase   v1alpha1.RolloutPhase // of the commit's version; "": its rollout has not begun
	Message string
}

// Rest are all packages that a commit changes and that have no FleetPolicy: they observe, and
// count as one policy.
type Rest struct {
	Terms promotion.Terms
	Facts promotion.Facts
}

// Next returns the status of the rollout of a commit after old, which may be of another one:
// then it begins. What is taken back or promoted stays so. rest is nil if there are none.
func Next(old *v1alpha1.SourceRolloutStatus, commit string, policies []Policy, rest *Rest, now time.Time) *v1alpha1.SourceRolloutStatus {
	at := metav1.Unix(now.Unix(), 0) // as it is stored
	if old == nil || string(old.Commit) != commit {
		n := len(policies)
		if rest != nil {
			n++
		}
		return &v1alpha1.SourceRolloutStatus{
			Commit: v1alpha1.CommitHash(commit), Phase: v1alpha1.RolloutShadow, Began: at, Since: at, Policies: int32(n), Waiting: int32(n), Message: "the rollout has begun",
		}
	}
	if old.Phase == v1alpha1.RolloutTakenBack || old.Phase == v1alpha1.RolloutPromoted {
		return old
	}
	next := &v1alpha1.SourceRolloutStatus{Commit: old.Commit, Began: old.Began, Since: old.Since}
	if rest != nil {
		shadow := shadowOf(old, rest, at.Time)
		next.Since = metav1.NewTime(shadow.Since)
		is := shadow.Next(&rest.Terms, &rest.Facts, at.Time)
		policies = append(policies[:len(policies):len(policies)], Policy{Phase: is.Phase, Message: is.Message})
		next.Evidence = rest.Facts.Evidence.DeepCopy()
	}
	next.Policies = int32(len(policies))
	next.Phase, next.Waiting, next.Message = combine(policies)
	ended := next.Phase == v1alpha1.RolloutTakenBack || next.Phase == v1alpha1.RolloutPromoted
	if next.Message = clip.Text(next.Message, maxMessage); next.Phase != old.Phase && (ended || rest == nil) {
		next.Since = at
	}
	return next
}

// shadowOf returns the shadow of the packages without a FleetPolicy. It counts from their first complete
// evidence, which Since of the commit is while it waits for them, whatever phase others bring it to.
func shadowOf(old *v1alpha1.SourceRolloutStatus, rest *Rest, now time.Time) promotion.State {
	s := promotion.Begin(old.Began.Time)
	if old.Evidence != nil { // they were there already
		s.Since = old.Since.Time
	}
	if rest.Facts.Evidence.Complete && s.Since.Equal(s.Began) {
		s.Since = now
	}
	return s
}

// combine returns how far all policies have come, how many of them have not come to the end, and
// what the first one of those waits for, or why one was taken back.
func combine(policies []Policy) (phase v1alpha1.RolloutPhase, waiting int32, message string) {
	phase = v1alpha1.RolloutPromoted
	for i := range policies {
		p := &policies[i]
		switch p.Phase {
		case v1alpha1.RolloutPromoted:
			continue
		case v1alpha1.RolloutTakenBack:
			return v1alpha1.RolloutTakenBack, int32(len(policies)), p.says("it was taken back")
		case v1alpha1.RolloutWaves:
			phase = v1alpha1.RolloutWaves
		default:
			if phase == v1alpha1.RolloutPromoted {
				phase = v1alpha1.RolloutShadow
			}
		}
		if waiting++; waiting == 1 {
			message = p.says("its rollout has not begun")
		}
	}
	if waiting == 0 {
		return phase, 0, fmt.Sprintf("the versions of all %d policies are in effect", len(policies))
	}
	return phase, waiting, fmt.Sprintf("%d of %d policies wait; %s", waiting, len(policies), message)
}

func (p *Policy) says(otherwise string) string {
	message := cmp.Or(p.Message, otherwise)
	if p.Name == "" {
		return "packages without a FleetPolicy: " + message
	}
	return fmt.Sprintf("policy %q: %s", p.Name, message)
}
