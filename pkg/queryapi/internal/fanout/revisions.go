package fanout

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"federator.dev/federator/pkg/aggregate"
)

// place is a part, apart from its revision.
type place struct {
	id           string
	epoch        aggregate.Revision
	except, also []string // see part.Ask
}

func (p place) equal(o place) bool {
	return p.id == o.id && p.epoch == o.epoch && slices.Equal(p.except, o.except) && slices.Equal(p.also, o.also)
}

// vector is how far each part has been read. It is immutable.
type vector struct {
	places    []place // shared by the vectors of a watch
	revisions []aggregate.Revision
	positions []string // of parts of a query, where a watch of it can go on; nil: nowhere
}

func (v *vector) equal(o *vector) bool {
	return slices.Equal(v.revisions, o.revisions) && slices.Equal(v.positions, o.positions) && slices.EqualFunc(v.places, o.places, place.equal)
}

// before reports whether a client may have seen a vector, and see another one then: they are of different places, or, unless they
// are of what different members serve, a part is further in the latter and none in the former. Positions are of other queries of the
// same state.
func (v *vector) before(next *vector) bool {
	if !slices.EqualFunc(v.places, next.places, place.equal) {
		return true
	}
	ahead := false
	for i, r := range v.revisions {
		to := next.revisions[i]
		if r > to || (r == 0) != (to == 0) {
			return false
		}
		ahead = ahead || r < to
	}
	return ahead
}

// maxLog bounds the revisions that are remembered.
const maxLog = 1 << 16

// Revisions are those that a process mints for clients, and what they stand for.
type Revisions struct {
	mu     sync.Mutex
	ranges []aggregate.Range // ascending; what is left of them
	log    []minted          // a ring: that of a revision is at its number
	last   minted
	count  uint64
}

type minted struct {
	revision aggregate.Revision
	vector   *vector
}

// ErrExhausted is returned once there are no revisions left.
var ErrExhausted = errors.New("fanout: no revisions are left")

// NewRevisions returns Revisions that are minted from a range, which no other process, and no
// index, ever uses.
func NewRevisions(r aggregate.Range) (*Revisions, error) {
	m := &Revisions{}
	return m, m.Extend(r)
}

// Extend adds a range for when the present ones are used up. It must be above them.
func (m *Revisions) Extend(r aggregate.Range) error {
	if r.First == 0 || r.End <= r.First || r.End > 1<<53 {
		return fmt.Errorf("fanout: %d to %d is not a range of revisions", r.First, r.End)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.ranges); n > 0 && r.First < m.ranges[n-1].End || r.First <= m.last.revision {
		return fmt.Errorf("fanout: revisions from %d on are not above those that there are", r.First)
	}
	m.ranges = append(m.ranges, r)
	return nil
}

// Unused returns how many revisions are left.
func (m *Revisions) Unused() (n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.ranges {
		n += uint64(r.End - r.First)
	}
	return n
}

// maxAgain is among how many revisions one is looked for that stands for the same.
const maxAgain = 256

// mint returns a revision for a vector, which must not change; nil is for one that stands for nothing. If
// again is set, a recent one of an equal vector is returned again, unless a client that had one that was minted since would
// see revisions go back.
func (m *Revisions) mint(v *vector, again bool) (aggregate.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := uint64(1); again && i <= min(m.count, uint64(len(m.log)), maxAgain); i++ {
		had := m.log[(m.count-i)%maxLog]
		if had.vector == nil || had.vector.before(v) {
			break
		}
		if had.vector.equal(v) {
			return had.revision, nil
		}
	}
	for len(m.ranges) > 0 && m.ranges[0].First >= m.ranges[0].End {
		m.ranges = m.ranges[1:]
	}
	if len(m.ranges) == 0 {
		return 0, ErrExhausted
	}
	m.last = minted{m.ranges[0].First, v}
	m.ranges[0].First++
	if at := m.count % maxLog; at < uint64(len(m.log)) {
		m.log[at] = m.last
	} else {
		m.log = append(m.log, m.last)
	}
	m.count++
	return m.last.revision, nil
}

// vector returns what a revision stands for, nil where that is not known.
func (m *Revisions) vector(r aggregate.Revision) *vector {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := uint64(len(m.log))
	oldest := m.count - n
	// Revisions ascend with the count.
	low, high := uint64(0), n
	for low < high {
		mid := (low + high) / 2
		if m.log[(oldest+mid)%maxLog].revision < r {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == n {
		return nil
	}
	if found := m.log[(oldest+low)%maxLog]; found.revision == r {
		return found.vector
	}
	return nil
}

// digits returns the number of digits of the next revision.
func (m *Revisions) digits() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.ranges {
		if r.First < r.End {
			return len(strconv.FormatUint(uint64(r.First), 10))
		}
	}
	return 1
}
