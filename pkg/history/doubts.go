package history

import (
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// doubts are violations that were not found any more when their verdicts turned Unknown. They close once their verdicts are known, if they
// are not found then.
type doubts struct {
	closed  map[string]doubt   // by what identifies the violation
	checked aggregate.Revision // the shape of the index: verdicts turn known with it
}

type doubt struct {
	record  Record
	subject policy.Subject
}

func (d *doubts) add(r Record, v *policy.Verdict) {
	if d.closed == nil {
		d.closed = map[string]doubt{}
	}
	d.closed[identify(&r)] = doubt{r, v.Subject}
	d.checked = 0
}

// dispel notes that a violation is found again, and returns what was in doubt, if it was.
func (d *doubts) dispel(id string) (was doubt, is bool) {
	was, is = d.closed[id]
	delete(d.closed, id)
	return was, is
}

// settle adds records of those that have closed.
func (d *doubts) settle(s *policy.State, now time.Time, out []Record) []Record {
	if len(d.closed) == 0 || d.checked == s.Snapshot.Shape() {
		return out
	}
	d.checked = s.Snapshot.Shape()
	for id, was := range d.closed {
		v, judged := s.Get(was.record.Policy, was.subject)
		if judged && v.State != policy.Known {
			continue
		}
		delete(d.closed, id)
		member := was.subject.Ref.Member
		_, there := s.Snapshot.Member(member)
		if there && !s.Judges(member) || slices.ContainsFunc(v.Violations, func(x policy.Violation) bool { return x.Digest() == was.record.violation }) {
			continue // another process goes on with it, or it is found
		}
		was.record.Time, was.record.Revision = now, s.Snapshot.Revision()
		out = append(out, was.record)
	}
	return out
}
