package state

// LineCost is a line of a policy's rules and its part of the time of evaluations.
type LineCost struct {
	Rule  string // that it belongs to, such as violation
	File  string // as findings name it
	Line  int    // from 1
	Share float64
}

// DearestLines returns the lines on which evaluations of a binding spend most, at most n, from how many samples that
// is known; it goes on changing while the state does not. Views are not included: policies share them.
func (s *State) DearestLines(binding string, n int) (lines []LineCost, samples int) {
	b := s.parts.Binding(binding)
	if b == nil || b.main().Profile == nil {
		return nil, 0
	}
	b = b.main()
	set := s.parts.Set.Of(b.Pkg)
	top, samples := b.Profile.Top(n)
	for _, l := range top {
		lines = append(lines, LineCost{Rule: set.RuleAt(l.File, l.Row), File: l.File, Line: l.Row, Share: l.Share})
	}
	return lines, samples
}
