package queries

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// MemberList is the response of members.
type MemberList struct {
	header
	Items    []MemberInfo `json:"items"`              // by name
	Continue string       `json:"continue,omitempty"` // parameter of the next page; "" on the last one
	// Summary is of all selected members; then there are no Items.
	Summary *MemberSummary `json:"summary,omitempty"`
	// Installation is the ID of this federator, with facts.
	Installation string `json:"installation,omitempty"`
	// Partial says, with facts, that there may be other members: not all sources have said which there are.
	Partial bool `json:"partial,omitempty"`
}

// MemberInfo describes one member, as far as the caller may list it.
type MemberInfo struct {
	Name    string                  `json:"name"`
	Labels  map[string]string       `json:"labels,omitempty"`  // of its Cluster
	Version string                  `json:"version,omitempty"` // of its API server
	Scopes  map[aggregate.State]int `json:"scopes"`            // kinds by state
	Objects int                     `json:"objects"`           // in namespaces that may be listed
	Bytes   int64                   `json:"bytes"`             // of memory, for kinds that may be listed in all namespaces
	// Held is why federator writes nothing to it at the moment.
	Held string `json:"held,omitempty"`
	// WritesWith names the credentials that federator writes with: a Secret of the hub.
	WritesWith string `json:"writesWith,omitempty"`
	// NotSynced are the first kinds for which the member is not fresh, NotSyncedMore the
	// number of others.
	NotSynced     []selection.NotSynced `json:"notSynced"`
	NotSyncedMore int                   `json:"notSyncedMore,omitempty"`
	Details       []ScopeDetails        `json:"details,omitempty"` // by kind
	// Health is there with details, for callers who may list everything in the member; to others
	// HealthForbidden says what they would need.
	Health          *MemberHealth `json:"health,omitempty"`
	HealthForbidden string        `json:"healthForbidden,omitempty"`
	Facts           *MemberFacts  `json:"facts,omitempty"` // with facts
}

// ScopeDetails describe one kind of a member.
type ScopeDetails struct {
	Kind    aggregate.Kind  `json:"kind"`
	Version string          `json:"version,omitempty"` // of the API, that objects are held at
	State   aggregate.State `json:"state"`
	Reason  string          `json:"reason,omitempty"` // why it is not fresh
	Age     string          `json:"age,omitempty"`    // since the last contact, where it is not fresh
	// Proved is the time since what is held was last known to be what the member has, by a list or
	// an audit, as Age is written; "" where it never was.
	Proved  string `json:"proved,omitempty"`
	Objects int    `json:"objects"` // in namespaces that may be listed
	Bytes   int64  `json:"bytes,omitempty"`
}

// maxNotSynced bounds the kinds that a member's NotSynced has.
const maxNotSynced = 3

// Members serves GET /query/v1/members: the members in which the caller may read
// anything.
func (s *Handler) Members(w http.ResponseWriter, r *http.Request, reader Caller) error {
	p, err := parse(r, "members")
	if err != nil {
		return err
	}
	q := &memberQuery{Handler: s, reader: reader}
	if err := q.parse(p); err != nil {
		return err
	}
	list := &MemberList{header: newHeader("MemberList", q.snapshot), Items: []MemberInfo{}}
	if q.facts {
		list.Installation, list.Partial = q.options.Installation, !q.known
	}
	stale := freshness{asked: q.of}
	if q.summary {
		if list.Summary, stale, err = q.summarize(r.Context()); err != nil {
			return err
		}
		stale.asked = q.of
		return p.write(w, list, stale)
	}
	for m, err := range q.members(r.Context()) {
		if err != nil {
			return err
		}
		if q.limit > 0 && len(list.Items) == q.limit {
			list.Continue = q.continueAfter(list.Items[q.limit-1].Name)
			break
		}
		stale.add(m)
		list.Items = append(list.Items, m)
	}
	if q.ask != nil && q.limit > 0 && len(list.Items) > 0 { // who merges may send fewer of them
		q.options.Pins.Pin(q.snapshot, q.reader.User().GetName(), q.options.Index.Snapshot(), q.options.Now())
	}
	return p.write(w, list, stale)
}

// add adds what is not fresh of a member.
func (f *freshness) add(m MemberInfo) {
	n := min(len(m.NotSynced), selection.MaxListed-len(f.first))
	f.first = append(f.first, m.NotSynced[:n]...)
	f.more += len(m.NotSynced) - n + m.NotSyncedMore
}

// describe describes a member as far as it may be listed. ok is false for one that the
// query does not select.
func (q *memberQuery) describe(m aggregate.Member, grants memberGrants) (info MemberInfo, ok bool) {
	info = MemberInfo{Name: m.Name, Version: m.Version, Held: q.options.Held(m.Name), WritesWith: q.options.WritesWith(m.Name), Scopes: map[aggregate.State]int{}, NotSynced: []selection.NotSynced{}}
	for scope := range q.scopesOf(m.Name) {
		grant := grants[scope.Kind].Member(m.Name)
		if grant.Empty() {
			continue
		}
		d := ScopeDetails{Kind: scope.Kind, Version: scope.Version, State: scope.Status.State}
		d.Objects, d.Bytes = q.amounts(scope, grant)
		info.Scopes[d.State]++
		info.Objects += d.Objects
		info.Bytes += d.Bytes
		if !d.State.Complete() {
			if len(info.NotSynced) == maxNotSynced && !q.details {
				info.NotSyncedMore++
				continue
			}
			n := selection.NewNotSynced(scope, q.options.LastContact, q.options.Now())
			d.Reason, d.Age = n.Reason, n.Age
			if len(info.NotSynced) < maxNotSynced {
				info.NotSynced = append(info.NotSynced, n)
			} else {
				info.NotSyncedMore++
			}
		}
		if q.details {
			if at := q.options.Proved(scope.Member, scope.Kind); !at.IsZero() {
				d.Proved = age(q.options.Now().Sub(at))
			}
			info.Details = append(info.Details, d)
		}
	}
	if !q.selects(len(info.NotSynced) > 0, func(state aggregate.State) bool { return info.Scopes[state] > 0 }) {
		return info, false
	}
	info.Labels = make(map[string]string, len(m.Labels))
	for _, l := range m.Labels {
		info.Labels[l.Key] = l.Value
	}
	return info, true
}

// selects reports whether the query selects a member by the states of its scopes.
func (q *memberQuery) selects(notSynced bool, inState func(aggregate.State) bool) bool {
	return (notSynced || !q.notSynced) && (len(q.states) == 0 || slices.ContainsFunc(q.states, inState))
}

// scopesOf yields the scopes that the query considers: of the kinds that it names also those
// that are not open.
func (q *memberQuery) scopesOf(member string) iter.Seq[aggregate.ScopeInfo] {
	if q.kinds == nil {
		return q.snapshot.Scopes(member)
	}
	return func(yield func(aggregate.ScopeInfo) bool) {
		for _, kind := range q.kinds {
			if scope, _ := q.snapshot.Scope(member, kind); !yield(scope) {
				return
			}
		}
	}
}

// amounts returns the objects of a scope that may be listed, and the bytes of one that may
// be listed in full.
func (q *memberQuery) amounts(scope aggregate.ScopeInfo, grant authz.MemberGrant) (objects int, bytes int64) {
	if grant.All {
		return scope.Objects, scope.Bytes
	}
	for _, namespace := range grant.Namespaces {
		n, err := q.snapshot.Count(aggregate.Query{Kind: scope.Kind, Members: []string{scope.Member}, Namespace: namespace})
		if namespace != "" && err == nil { // it fails for fields only
			objects += n
		}
	}
	return objects, 0
}

func (l *MemberList) table() *metav1.Table {
	if l.Summary != nil {
		return l.Summary.table(l.Revision)
	}
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: l.Revision, Continue: l.Continue}}
	t.ColumnDefinitions = columns("Name", "Version", "#Synced", "#Kinds", "#Objects", "Not Synced", "Writes Held", "Labels")
	t.ColumnDefinitions[len(t.ColumnDefinitions)-1].Priority = 1
	for _, m := range l.Items {
		kinds := 0
		for _, n := range m.Scopes {
			kinds += n
		}
		var stale []string
		for _, n := range m.NotSynced {
			stale = append(stale, string(n.Kind)+"="+n.State.String())
		}
		if m.NotSyncedMore > 0 {
			stale = append(stale, fmt.Sprintf("+%d", m.NotSyncedMore))
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{
			m.Name, m.Version, m.Scopes[aggregate.Synced] + m.Scopes[aggregate.NotServed], kinds, m.Objects,
			strings.Join(stale, ","), m.Held, formatLabels(m.Labels),
		}})
	}
	return t
}

func formatLabels(set map[string]string) string {
	out := make([]string, 0, len(set))
	for k, v := range set {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}
