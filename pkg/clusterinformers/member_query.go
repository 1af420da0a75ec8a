package clusterinformers

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// MemberQuery selects members. The zero value selects all of them.
type MemberQuery struct {
	Name     string             // <namespace>/<name>, or <name> in any namespace; "": any
	Selector labels.Selector    // of the labels of Clusters; nil: all
	States   []connection.State // none: all
	NotReady bool               // only members that are not Ready

	After   string // only members after this name, in order
	Limit   int    // of members; 0: none
	Details bool   // describe their scopes
}

// Ready reports whether the member is connected and has everything that it is to have. What
// configuration leaves out is not missing.
func (st *MemberStatus) Ready() bool {
	for state, n := range st.Scopes {
		if n > 0 && !state.Complete() && state != aggregate.Partial {
			return false
		}
	}
	return st.State == connection.Connected && st.Synced
}

// matches reports whether the query selects a member, apart from its scopes.
func (q *MemberQuery) matches(st *MemberStatus) bool {
	switch {
	case q.Name != "" && st.Name != q.Name && !strings.HasSuffix(st.Name, "/"+q.Name),
		q.Selector != nil && !q.Selector.Matches(labels.Set(st.Labels)),
		len(q.States) > 0 && !slices.Contains(q.States, st.State):
		return false
	}
	return true
}

// Select returns what is known of the members that a query selects, by name, and whether it
// selects more than its limit. Only what it returns costs more than a few words.
func (m *Manager) Select(q MemberQuery) (selected []MemberStatus, more bool) {
	for _, mb := range m.sortedMembers() {
		if mb.name <= q.After {
			continue
		}
		st := mb.connStatus()
		if !q.matches(&st) {
			continue
		}
		if !q.NotReady && q.Limit > 0 && len(selected) == q.Limit {
			return selected, true
		}
		mb.addScopes(&st, q.Details)
		switch {
		case q.NotReady && st.Ready():
		case q.Limit > 0 && len(selected) == q.Limit:
			return selected, true
		default:
			selected = append(selected, st)
		}
	}
	return selected, false
}
