package verdictmemory

import (
	"iter"
	"time"

	"federator.dev/federator/pkg/policy"
)

// toldFor is how long what others have told counts at least.
const toldFor = 5 * time.Minute

// Source is what another process has told of: a member, or the keys of views that a process judges.
type Source struct {
	Member  string // "": keys of views
	Process string // that judges the keys; "" for a member
}

// Record is when a violation was first seen, of what is known by digests.
type Record struct {
	policy.Seen

	Binding uint64
}

// told is what another process knew.
type told struct {
	at   time.Time
	seen seen
}

// Learn takes what another process knows of what this one may come to judge, in the place of what was told of it before. What an
// earlier process knew of the member is older. It is kept for an hour.
func (m *Memory) Learn(from Source, records []Record) {
	x := told{seen: seen{}}
	for _, r := range records {
		x.seen.set(r.Binding, r.Seen)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil {
		m.told = map[Source]told{}
	}
	x.at = m.clock()
	m.told[from] = x
}

// Known yields what this process knows of a member, or of keys of views where it is "", for Learn of another one: the last of a
// violation counts.
func (m *Memory) Known(member string) iter.Seq[Record] {
	var kept []Record
	m.mu.Lock()
	for from, x := range m.told {
		if from.Member == member && member != "" {
			for binding, of := range x.seen {
				for _, list := range of {
					for _, s := range list {
						kept = append(kept, Record{s, binding})
					}
				}
			}
		}
	}
	for x, list := range m.doubts {
		if x.subject.Ref.Member == member {
			for _, s := range list {
				kept = append(kept, Record{s, digest(x.binding)})
			}
		}
	}
	state := m.state
	m.mu.Unlock()
	return func(yield func(Record) bool) {
		for _, r := range kept {
			if !yield(r) {
				return
			}
		}
		if state == nil {
			return
		}
		for b := range state.Bindings() {
			binding := digest(b.Name)
			for x := range state.SeenIn(b.Name, member) {
				if !yield(Record{x, binding}) {
					return
				}
			}
		}
	}
}

// ForgetJudged forgets what others have told a while ago of members that are judged here, and of keys of views: what it is of was
// evaluated, or is gone.
func (m *Memory) ForgetJudged(judged func(member string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for from, x := range m.told {
		if m.clock().Sub(x.at) > toldFor && (from.Member == "" || judged(from.Member)) {
			delete(m.told, from)
		}
	}
}

// heard returns what others have told of a subject. m.mu must be held.
func (m *Memory) heard(binding string, s policy.Subject) []policy.Seen {
	if s.Ref.Member != "" {
		return m.told[Source{Member: s.Ref.Member}].seen[digest(binding)][s.Digest()]
	}
	for from, x := range m.told {
		if from.Member != "" {
			continue
		}
		if list := x.seen[digest(binding)][s.Digest()]; len(list) > 0 {
			return list
		}
	}
	return nil
}

// isTold reports whether another process has told of a member. m.mu must be held.
func (m *Memory) isTold(member string) bool {
	_, is := m.told[Source{Member: member}]
	return is
}

// forgetTold forgets what was told long ago. m.mu must be held.
func (m *Memory) forgetTold() {
	for from, x := range m.told {
		if m.clock().Sub(x.at) > recallFor {
			delete(m.told, from)
		}
	}
}
