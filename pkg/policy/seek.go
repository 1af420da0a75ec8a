package policy

import "iter"

// FindingsAfter yields those of Findings of a subject's member that come after it,
// without looking at those before.
func (s *State) FindingsAfter(binding string, after Subject) iter.Seq[Verdict] {
	return func(yield func(Verdict) bool) {
		b := s.binding(binding)
		if b == nil {
			return
		}
		b.records.Ascend(record{subject: after}, func(r record) bool {
			if r.subject.Ref.Member != after.Ref.Member {
				return false
			}
			return r.found == nil || r.subject == after || yield(s.verdict(b, r.subject, r.class, r.found))
		})
	}
}
