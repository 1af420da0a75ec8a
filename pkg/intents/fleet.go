package intents

import (
	"cmp"
	"net/http"
	"slices"
)

// Peer is another process that shares the fleet.
type Peer struct {
	ID     string
	URL    string       // of its listener for peers, without a path
	Client *http.Client // whose transport proves who both are
}

// Member is what the map says of a member.
type Member struct {
	UID   string // of what describes it; "" if that is not known
	Judge string // the process that judges it; "" if there is none
}

// Fleet is who judges what. It is immutable, and another one where anything has changed.
type Fleet struct {
	Self string
	// Processes are all that something is assigned to, members or keys of views, whether or not they live.
	Processes []string
	Peers     map[string]Peer   // by ID: those that live, without this process
	Members   map[string]Member // all that are described
}

// everybody returns the processes that must have spoken, sorted.
func (f *Fleet) everybody() []string {
	all := append(slices.Clone(f.Processes), f.Self)
	for id := range f.Peers {
		all = append(all, id)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// JudgeOf returns who judges a member, and whether that is another process that can be asked. A nil Fleet knows
// nothing.
func (f *Fleet) JudgeOf(member string) (judge string, peer *Peer) {
	if f == nil {
		return "", nil
	}
	judge = f.Members[member].Judge
	if p, ok := f.Peers[judge]; ok {
		return judge, &p
	}
	return judge, nil
}

// Judges reports whether this process judges a member.
func (f *Fleet) Judges(member string) bool {
	return f != nil && f.Self != "" && cmp.Compare(f.Members[member].Judge, f.Self) == 0
}
