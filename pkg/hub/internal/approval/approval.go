// Package approval decides which Approvals count, and whether enough people have approved.
// It is pure: it asks nobody and reads no clock.
package approval

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
)

// Reasons why an Approval is ignored; see v1alpha1.ApprovalStatus.
const (
	Unproven       = "Unproven"
	NotAllowed     = "NotAllowed"
	NotInGroup     = "NotInGroup"
	ServiceAccount = "ServiceAccount"
	Author         = "Author"
	Unknown        = "Unknown"
	Withdrawn      = "Withdrawn"
	Repeated       = "Repeated"
)

// Requirement is who must approve.
type Requirement struct {
	People          int // at least 1
	Groups          []string
	ServiceAccounts []string
	ValidFor        time.Duration // after an Approval was created; 0 is until it expires
	// Authors have changed what is approved, and do not count. Unless they are proven to be
	// all, one person more is required.
	Authors       []string
	AuthorsProven bool
	// MustBeProven says that names count only if the hub is proven to check them.
	MustBeProven bool
}

// Needed returns how many people must approve.
func (r *Requirement) Needed() int {
	if r.AuthorsProven {
		return max(r.People, 1)
	}
	return max(r.People, 1) + 1
}

// Of returns the requirement of a FleetPolicy or a ceiling: nil for none.
func Of(r *v1alpha1.ApprovalRequirement) *Requirement {
	if r == nil {
		return nil
	}
	out := &Requirement{People: int(r.Required), MustBeProven: true, ValidFor: 24 * time.Hour}
	for _, g := range r.Groups {
		out.Groups = append(out.Groups, string(g))
	}
	for _, s := range r.ServiceAccounts {
		out.ServiceAccounts = append(out.ServiceAccounts, string(s))
	}
	if r.ValidFor != nil {
		out.ValidFor = r.ValidFor.Duration
	}
	return out
}

// Proof says whether the hub checks that Approvals are created by whom they name.
type Proof struct {
	Since time.Time // zero: it does not, or that is not known
	Why   string    // it does not
}

// Allowed reports whether a user, with these groups, may approve. It is asked for each
// Approval that would count otherwise.
type Allowed func(user string, groups []string) (bool, error)

// Counted is an Approval that counts.
type Counted struct {
	Name, UID, By string
	Since, Until  time.Time
}

// maxMessage is how long a message may be, as in the CRD.
const maxMessage = 1024

// Decision is whether an Approval counts.
type Decision struct {
	State           v1alpha1.ApprovalState
	Reason, Message string
}

// Result is what a list of Approvals amounts to.
type Result struct {
	Counted   []Counted           // one for each person, the one that lasts longest
	Decisions map[string]Decision // by UID of the Approval
	Next      time.Time           // when it may change by itself; zero is never
}

// Met reports whether enough people have approved.
func (r *Result) Met(req *Requirement) bool { return len(r.Counted) >= req.Needed() }

// Count decides which Approvals of one thing count. An error of allowed leaves the Approval
// without a decision, and uncounted.
func Count(req *Requirement, list []*v1alpha1.Approval, proof Proof, allowed Allowed, now time.Time) (Result, error) {
	out := Result{Decisions: map[string]Decision{}}
	byPerson := map[string]Counted{}
	var failed error
	for _, a := range list {
		c := Counted{Name: a.Name, UID: string(a.UID), By: string(a.Spec.By), Since: a.CreationTimestamp.Time, Until: req.until(a)}
		d, err := req.decide(a, proof, allowed, now)
		if err != nil {
			failed = fmt.Errorf("approval %q: %w", a.Name, err)
			continue
		}
		out.Decisions[c.UID] = d
		if d.State != v1alpha1.ApprovalCounts {
			continue
		}
		if other, again := byPerson[c.By]; !again || c.Until.After(other.Until) || c.Until.Equal(other.Until) && c.UID < other.UID {
			byPerson[c.By] = c
		}
		if out.Next.IsZero() || c.Until.Before(out.Next) {
			out.Next = c.Until
		}
	}
	for _, c := range byPerson {
		out.Counted = append(out.Counted, c)
	}
	slices.SortFunc(out.Counted, func(a, b Counted) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.UID, b.UID)) })
	for _, a := range list {
		c, counts := byPerson[string(a.Spec.By)]
		if d := out.Decisions[string(a.UID)]; counts && d.State == v1alpha1.ApprovalCounts && c.UID != string(a.UID) {
			out.Decisions[string(a.UID)] = Decision{v1alpha1.ApprovalIgnored, Repeated, fmt.Sprintf("Approval %q of the same person counts", c.Name)}
		}
	}
	return out, failed
}

// until is when an Approval ceases to count.
func (r *Requirement) until(a *v1alpha1.Approval) time.Time {
	end := a.Spec.Expires.Time
	if r.ValidFor > 0 {
		if valid := a.CreationTimestamp.Add(r.ValidFor); valid.Before(end) {
			end = valid
		}
	}
	return end
}

func (r *Requirement) decide(a *v1alpha1.Approval, proof Proof, allowed Allowed, now time.Time) (Decision, error) {
	by, groups := string(a.Spec.By), groupsOf(a)
	ignored := func(reason, format string, args ...any) (Decision, error) {
		return Decision{v1alpha1.ApprovalIgnored, reason, fmt.Sprintf(format, args...)}, nil
	}
	switch {
	case a.DeletionTimestamp != nil:
		return ignored(Withdrawn, "it is being deleted")
	case !now.Before(r.until(a)):
		return Decision{v1alpha1.ApprovalExpired, "", "it expired at " + r.until(a).UTC().Format(time.RFC3339)}, nil
	case r.MustBeProven && proof.Since.IsZero():
		return ignored(Unproven, "it is not proven that the hub checks who creates Approvals: %s", proof.Why)
	case r.MustBeProven && !a.CreationTimestamp.After(proof.Since):
		return ignored(Unproven, "it was created before the hub was proven to check who creates Approvals, at %s", proof.Since.UTC().Format(time.RFC3339))
	case slices.Contains(r.Authors, by):
		return ignored(Author, "%s has changed what is to be approved", by)
	}
	listed := slices.Contains(r.ServiceAccounts, by)
	switch {
	case isServiceAccount(by) && !listed:
		return ignored(ServiceAccount, "service accounts count only if spec.approval.serviceAccounts lists them")
	case !listed && len(r.Groups) > 0 && !slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(r.Groups, g) }):
		return ignored(NotInGroup, "spec.groups has none of the groups %s", strings.Join(r.Groups, ", "))
	}
	yes, err := allowed(by, groups)
	if err != nil {
		return Decision{}, err
	}
	if !yes {
		return ignored(NotAllowed, "RBAC does not grant %s, in the groups that spec.groups lists, the verb approve", by)
	}
	return Decision{State: v1alpha1.ApprovalCounts}, nil
}

func groupsOf(a *v1alpha1.Approval) []string {
	out := make([]string, 0, len(a.Spec.Groups))
	for _, g := range a.Spec.Groups {
		out = append(out, string(g))
	}
	return out
}

// isServiceAccount reports whether a user is a service account. No other user can have such
// a name: authenticators of people do not issue names with the prefix system:.
func isServiceAccount(user string) bool { return strings.HasPrefix(user, "system:serviceaccount:") }

// Status returns what the hub is to show of an Approval.
func (d Decision) Status(was v1alpha1.ApprovalStatus) v1alpha1.ApprovalStatus {
	was.State, was.Reason, was.Message = d.State, d.Reason, clip.Text(d.Message, maxMessage)
	return was
}
