package verdictmemory

import (
	"slices"

	"federator.dev/federator/pkg/policy"
)

// A verdict that is not Known says nothing about violations that it does not find: what it read was not all there. They keep their
// time until it is Known, or its subject is gone.

const (
	maxDoubts  = 1 << 18 // subjects: the violations of more of them would be seen for the first time again
	settleMost = 256     // doubts that are looked at with each record
)

// doubts are violations that may be there, by member, and by what they are of.
type doubts map[string]map[of][]policy.Seen

func (d doubts) of(x of) []policy.Seen { return d[x.subject.Ref.Member][x] }

func (d doubts) delete(x of) {
	member := x.subject.Ref.Member
	delete(d[member], x)
	if len(d[member]) == 0 {
		delete(d, member)
	}
}

// inDoubt reports whether a verdict on a subject is there, and may be wrong.
func inDoubt(s *policy.State, x of) bool {
	v, is := s.Get(x.binding, x.subject)
	return is && v.State != policy.Known
}

// recording is what a pass of the engine changes. Only the engine's goroutine changes doubts.
type recording struct {
	memory  *Memory
	after   *policy.State
	records []byte
	left    map[of][]policy.Seen // doubts that the pass leaves
}

func (r *recording) add(x of, seen policy.Seen) {
	if r.memory.directory != "" {
		r.records = r.memory.secrets.appendRecord(r.records, digest(x.binding), seen)
	}
}

func (r *recording) gone(x of, seen policy.Seen) {
	seen.At = 0
	r.add(x, seen)
}

// recalled takes what was recalled of a subject that was evaluated then: what was not found again is gone, or in doubt.
func (r *recording) recalled(t taken) {
	after, doubted, known := r.after.SeenOf(t.binding, t.subject), false, false
	for _, x := range t.seen {
		switch {
		case t.gone:
			r.gone(t.of, x)
			continue
		case slices.ContainsFunc(after, func(y policy.Seen) bool { return x.Violation == y.Violation }):
			continue
		case !known:
			doubted, known = inDoubt(r.after, t.of), true
		}
		if !doubted {
			r.gone(t.of, x)
			continue
		}
		r.doubt(t.of, x)
		if t.told {
			r.add(t.of, x)
		}
	}
}

// changed takes a violation that was first seen, or is not found any more.
func (r *recording) changed(x policy.SeenChange) {
	of := of{x.Binding, x.Of}
	switch {
	case !x.Gone:
		r.add(of, x.Seen)
	case inDoubt(r.after, of):
		r.doubt(of, x.Seen)
	default:
		r.gone(of, x.Seen)
	}
}

func (r *recording) doubt(x of, seen policy.Seen) {
	if !slices.ContainsFunc(r.left[x], func(y policy.Seen) bool { return y.Violation == seen.Violation }) {
		r.left[x] = append(r.left[x], seen)
	}
}

// settle returns which of some doubts are none any more: what they are of is gone, or the verdict Known without it.
func (r *recording) settle(doubts map[of][]policy.Seen) (settled []of) {
	for x, list := range doubts {
		if inDoubt(r.after, x) {
			continue
		}
		settled = append(settled, x)
		for _, seen := range list {
			r.gone(x, seen)
		}
	}
	return settled
}

// someDoubts returns some doubts, others each time.
func (m *Memory) someDoubts() map[of][]policy.Seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[of][]policy.Seen{}
	for _, list := range m.doubts {
		for x, list := range list {
			if out[x] = list; len(out) == settleMost {
				return out
			}
		}
	}
	return out
}

// setDoubts forgets doubts that are settled, and takes those of a pass. m.mu must be held.
func (m *Memory) setDoubts(settled []of, left map[of][]policy.Seen) {
	for _, x := range settled {
		m.doubts.delete(x)
	}
	n := 0
	for _, list := range m.doubts {
		n += len(list)
	}
	for x, list := range left {
		if m.doubts == nil {
			m.doubts = doubts{}
		}
		before := m.doubts.of(x)
		if before == nil && n >= maxDoubts {
			continue
		}
		member := x.subject.Ref.Member
		if m.doubts[member] == nil {
			m.doubts[member] = map[of][]policy.Seen{}
		}
		if before == nil {
			n++
		}
		m.doubts[member][x] = slices.Concat(before, list)
	}
}
