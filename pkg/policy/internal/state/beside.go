package state

import "federator.dev/federator/pkg/policy/internal/verdict"

// Comparison is how the verdicts of the version of a policy that is to take the place of another differ from the
// other's, on all members.
type Comparison struct {
	Version  string // of the one that is to take the other's place
	Subjects int    // its subjects
	New      int    // violations that only it finds, exempt ones aside
	Gone     int    // violations that only the other finds, exempt ones aside
	Errors   int    // subjects whose verdict is an Error, and is not of the other
	Complete bool   // the state is Synced, and no scope is waited for that it evaluates or reads
	// Former and Next are the health of both.
	Former, Next verdict.Health
}

// Compare compares the versions of a policy; false if there is one only. It visits the violations of both.
func (s *State) Compare(binding string) (Comparison, bool) { return Comparison{}, false }
