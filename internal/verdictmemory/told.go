package verdictmemory

import (
	"iter"
	"maps"
	"slices"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// keysFor is how long what others have told of keys of views counts.
const keysFor = 5 * time.Minute

// Source is what another process has told of: a member, or the keys of views that a process judges.
type Source struct {
	Member  string // "": keys of views
	UID     string // of the member; "": it is not known
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
	uid  string // of the member
	seen seen
}

// Learn takes what another process knows of what this one may come to judge, in the place of what was told of it before. What an
// earlier process knew of the member is older. It counts until all of it that is there was evaluated, for an hour at most.
func (m *Memory) Learn(from Source, records []Record) {
	x := told{uid: from.UID, seen: seen{}}
	for _, r := range records {
		x.seen.set(r.Binding, r.Seen)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.told == nil {
		m.told, m.toldKeys = map[string]told{}, map[string]told{}
	}
	x.at = m.clock()
	if from.Member != "" {
		m.told[from.Member] = x
		return
	}
	m.toldKeys[from.Process] = x
}

// Joins forgets what was told of another member of a name, as one joins.
func (m *Memory) Joins(member, uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x, is := m.told[member]; is && x.uid != uid && x.uid != "" && uid != "" {
		delete(m.told, member)
	}
}

// Known yields what this process knows of a member, or of keys of views where it is "", for Learn of another one: the last of a
// violation counts. It is nil where this process neither judges the member, and has read it, nor was told of it: what it would say
// is no more than nothing.
func (m *Memory) Known(member string) iter.Seq[Record] {
	m.mu.Lock()
	state, kept := m.state, m.keptOf(member)
	_, is := m.told[member]
	m.mu.Unlock()
	if state == nil && !is || member != "" && !is && !hasRead(state, member) {
		return nil
	}
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

// keptOf returns what is known of a member, or of keys, beside the state. m.mu must be held.
func (m *Memory) keptOf(member string) (kept []Record) {
	if member != "" {
		for binding, of := range m.told[member].seen {
			for _, list := range of {
				for _, s := range list {
					kept = append(kept, Record{s, binding})
				}
			}
		}
	}
	for x, list := range m.doubts[member] {
		for _, s := range list {
			kept = append(kept, Record{s, digest(x.binding)})
		}
	}
	return kept
}

// hasRead reports whether a state judges a member, and has all that policies read of it.
func hasRead(s *policy.State, member string) bool {
	known, is := s.Snapshot.Member(member)
	return is && known.Role == aggregate.Judge && !slices.Contains(s.Awaited(), member)
}

// heard returns what others have told of a subject. m.mu must be held.
func (m *Memory) heard(binding string, s policy.Subject) []policy.Seen {
	if s.Ref.Member != "" {
		return m.told[s.Ref.Member].seen[digest(binding)][s.Digest()]
	}
	var out []policy.Seen
	for _, x := range m.toldKeys {
		for _, one := range x.seen[digest(binding)][s.Digest()] {
			i := slices.IndexFunc(out, func(y policy.Seen) bool { return y.Violation == one.Violation })
			switch {
			case i < 0:
				out = append(out, one)
			case one.At < out[i].At: // two may have judged the key for a moment
				out[i] = one
			}
		}
	}
	return out
}

// takeTold forgets what others have told of a subject, which was evaluated. m.mu must be held.
func (m *Memory) takeTold(binding uint64, s policy.Subject) {
	if s.Ref.Member != "" {
		m.told[s.Ref.Member].seen.delete(binding, s.Digest())
		return
	}
	for _, x := range m.toldKeys {
		x.seen.delete(binding, s.Digest())
	}
}

// forgetTold forgets what was told long ago, and what was told of members that this process has evaluated by now: the subjects that
// are left are gone, and others may come under their names. m.mu must be held.
func (m *Memory) forgetTold() {
	now := m.clock()
	maps.DeleteFunc(m.toldKeys, func(_ string, x told) bool { return now.Sub(x.at) > keysFor })
	maps.DeleteFunc(m.told, func(_ string, x told) bool { return now.Sub(x.at) > recallFor })
	var judged []string
	for member, x := range m.told {
		if known, is := m.state.Snapshot.Member(member); is && known.Role == aggregate.Judge && len(x.seen) > 0 {
			judged = append(judged, member)
		}
	}
	if len(judged) == 0 {
		return
	}
	for b := range m.state.Bindings() {
		unread, binding := m.state.Unread(b.Name), digest(b.Name)
		for _, member := range judged {
			if !unread[member] {
				delete(m.told[member].seen, binding)
			}
		}
	}
}
