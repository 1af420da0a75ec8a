package approval

import "federator.dev/federator/api/v1alpha1"

// SubjectKey names what an Approval is of: Approvals of one thing have one key.
func SubjectKey(a *v1alpha1.Approval) string {
	switch s := &a.Spec; {
	case s.Halt != "":
		return HaltKey(string(s.FleetPolicy), s.Halt)
	case s.Plan != "":
		return PlanKey(string(s.FleetPolicy), v1alpha1.PlanGeneration, s.Plan)
	case s.Rollback != "":
		return PlanKey(string(s.FleetPolicy), v1alpha1.PlanRollback, s.Rollback)
	case s.Version != "":
		return VersionKey(string(s.FleetPolicy), s.Version)
	default:
		return CommitKey(s.PolicySource, string(s.Commit))
	}
}

// HaltKey is the SubjectKey of Approvals of a halt.
func HaltKey(policy, id string) string { return "halt " + policy + " " + id }

// VersionKey is the SubjectKey of Approvals of a version in shadow.
func VersionKey(policy string, digest v1alpha1.Digest) string {
	return "version " + policy + " " + string(digest)
}

// CommitKey is the SubjectKey of Approvals of a commit of a PolicySource.
func CommitKey(source, hash string) string { return "commit " + source + " " + hash }

// PlanKey is the SubjectKey of Approvals of a Plan: those of a rollback name it as such.
func PlanKey(policy string, purpose v1alpha1.PlanPurpose, hash v1alpha1.Digest) string {
	if purpose == v1alpha1.PlanRollback {
		return "rollback " + policy + " " + string(hash)
	}
	return "plan " + policy + " " + string(hash)
}
