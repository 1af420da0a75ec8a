package approval

import (
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// Combined is what a list of Approvals amounts to under several requirements, all of which
// must be met. An Approval may count towards several of them.
type Combined struct {
	Given     []v1alpha1.GivenApproval // one of each person whose Approval counts towards any of them, the oldest first
	Required  int                      // people: the most that any of them needs
	Met       bool                     // all of them are
	Until     time.Time                // when they are not any more, if they are met
	Decisions map[string]Decision      // by UID of the Approval
	Next      time.Time                // when it may change by itself; zero is never
}

// CountAll decides which Approvals of one thing count under all requirements, of which there
// must be one at least. After an error the Approvals that it is about are not counted.
func CountAll(reqs []*Requirement, list []*v1alpha1.Approval, proof Proof, allowed Allowed, now time.Time) (Combined, error) {
	out := Combined{Met: len(reqs) > 0, Decisions: map[string]Decision{}}
	given := map[string]Counted{} // by person
	var errs []error
	for _, req := range reqs {
		r, err := Count(req, list, proof, allowed, now)
		errs = append(errs, err)
		out.Required = max(out.Required, req.Needed())
		out.Met = out.Met && r.Met(req)
		out.Until = sooner(out.Until, r.until(req))
		out.Next = sooner(out.Next, r.Next)
		for _, c := range r.Counted {
			if was, again := given[c.By]; !again || c.Until.After(was.Until) {
				given[c.By] = c
			}
		}
		for uid, d := range r.Decisions {
			if was, decided := out.Decisions[uid]; !decided || was.State != v1alpha1.ApprovalCounts && d.State == v1alpha1.ApprovalCounts {
				out.Decisions[uid] = d
			}
		}
	}
	if !out.Met {
		out.Until = time.Time{}
	}
	out.Given = toGiven(given)
	return out, errors.Join(errs...)
}

// until is when fewer people than needed count, if enough do now.
func (r *Result) until(req *Requirement) time.Time {
	if !r.Met(req) {
		return time.Time{}
	}
	ends := make([]time.Time, 0, len(r.Counted))
	for _, c := range r.Counted {
		ends = append(ends, c.Until)
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[req.Needed()-1]
}

// sooner returns the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// maxGiven is how many Approvals that count a status lists.
const maxGiven = 20

func toGiven(counted map[string]Counted) []v1alpha1.GivenApproval {
	var out []v1alpha1.GivenApproval
	for _, c := range counted {
		out = append(out, v1alpha1.GivenApproval{Name: c.Name, By: v1alpha1.UserName(c.By), At: metav1.NewTime(c.Since), Expires: metav1.NewTime(c.Until)})
	}
	slices.SortFunc(out, func(a, b v1alpha1.GivenApproval) int {
		if n := a.At.Compare(b.At.Time); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out[:min(len(out), maxGiven)]
}
