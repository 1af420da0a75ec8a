package approval

import (
	"slices"

	"federator.dev/federator/api/v1alpha1"
)

// Authors have made what is to be approved.
type Authors struct {
	Users  []v1alpha1.UserName
	Proven bool // there are no others
}

// And returns the authors of both.
func (a Authors) And(b Authors) Authors {
	out := Authors{slices.Concat(a.Users, b.Users), a.Proven && b.Proven}
	slices.Sort(out.Users)
	out.Users = slices.Compact(out.Users)
	return out
}

// OfPolicy returns what must be met of a policy: what it has required since it was approved
// last, nil for nothing, and what it requires now.
func OfPolicy(kept *v1alpha1.KeptApproval, required []v1alpha1.ApprovalRequirement, authors Authors) []*Requirement {
	if kept == nil { // who has changed the policy is not known
		return All(required, authors.And(Authors{}))
	}
	return All(slices.Concat(kept.Requirements, required), authors.And(Authors{kept.Authors, !kept.AuthorsUnproven}))
}

// All returns what must be met where something is required. Where nothing is, that is one
// person.
func All(required []v1alpha1.ApprovalRequirement, authors Authors) []*Requirement {
	if len(required) == 0 {
		return []*Requirement{{People: 1, AuthorsProven: true, MustBeProven: true}}
	}
	out := make([]*Requirement, 0, len(required))
	for i := range required {
		r := Of(&required[i])
		r.AuthorsProven = authors.Proven
		for _, a := range authors.Users {
			r.Authors = append(r.Authors, string(a))
		}
		out = append(out, r)
	}
	return out
}
