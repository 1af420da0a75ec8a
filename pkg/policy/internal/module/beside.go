package module

// Candidate is what the packages of a source are to be instead.
type Candidate struct {
	Source string
	Set    *Set // with the packages of the source as they are to be, and those of all others as they are
}

// Beside returns an active set with what differs in candidates beside it: their versions of the packages of
// their sources, each compiled with its own candidate, and under a name of its own. All others read what is
// active.
func Beside(active *Set, candidates []Candidate) *Set { return active }

// Candidate returns the name of the version that is to take the place of a package, "" where there is none.
func (s *Set) Candidate(pkg string) string { return "" }
