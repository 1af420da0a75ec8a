package selection

import (
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// NotSynced says that an answer is not fresh for a kind of a member.
type NotSynced struct {
	Member string          `json:"member"` // <namespace>/<name>
	Kind   aggregate.Kind  `json:"kind"`
	State  aggregate.State `json:"state"`
	Reason string          `json:"reason,omitempty"`
	// Age is the time since the member was last heard of the kind, rounded to
	// seconds and written as Go does ("1m30s"); "" when it never was.
	Age string `json:"age,omitempty"`
}

// Freshness returns, by member, the scopes of a kind that are neither Synced nor
// known to be empty, among members; nil is all. heard returns when a member was
// last heard of a kind, the zero time when it never was; nil is never.
func Freshness(s *aggregate.Snapshot, kind aggregate.Kind, members []string, heard func(member string, kind aggregate.Kind) time.Time, now time.Time) []NotSynced {
	var out []NotSynced
	add := func(member string) {
		info, _ := s.Scope(member, kind)
		if info.Status.State.Complete() {
			return
		}
		n := NotSynced{Member: member, Kind: kind, State: info.Status.State, Reason: info.Status.Reason}
		if heard != nil {
			if at := heard(member, kind); !at.IsZero() {
				n.Age = max(0, now.Sub(at)).Round(time.Second).String()
			}
		}
		out = append(out, n)
	}
	if members == nil {
		for m := range s.Members() {
			add(m.Name)
		}
		return out
	}
	for _, name := range members {
		if _, ok := s.Member(name); ok {
			add(name)
		}
	}
	return out
}
