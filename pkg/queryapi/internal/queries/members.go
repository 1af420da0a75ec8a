package queries

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// MemberList is the response of members.
type MemberList struct {
	header
	Items []MemberInfo `json:"items"` // by name
}

// MemberInfo describes one member, as far as the caller may list it.
type MemberInfo struct {
	Name    string                  `json:"name"`
	Labels  map[string]string       `json:"labels,omitempty"`  // of its Cluster
	Version string                  `json:"version,omitempty"` // of its API server
	Scopes  map[aggregate.State]int `json:"scopes"`            // kinds by state
	Objects int                     `json:"objects"`           // in namespaces that may be listed
	// NotSynced are the kinds for which the member is not fresh.
	NotSynced []selection.NotSynced `json:"notSynced"`
}

// Members serves GET /query/v1/members: the members in which the caller may read
// anything.
func (s *Handler) Members(w http.ResponseWriter, r *http.Request, reader Caller) error {
	p, err := parse(r, "members")
	if err != nil {
		return err
	}
	asTable, err := wantsTable(r)
	if err != nil {
		return err
	}
	selector, err := memberSelector(p.get("labelSelector"))
	if err != nil {
		return err
	}
	snapshot := s.options.Index.Snapshot()
	visible, _, err := reader.Visible(r.Context(), snapshot)
	if err != nil {
		return err
	}
	grants, err := s.kindGrants(r.Context(), snapshot, reader, visible)
	if err != nil {
		return err
	}
	list := &MemberList{header: newHeader("MemberList", snapshot), Items: []MemberInfo{}}
	for _, name := range visible {
		if m, ok := snapshot.Member(name); ok && selector.MatchesMember(m) {
			list.Items = append(list.Items, s.member(snapshot, m, grants))
		}
	}
	return p.write(w, asTable, list)
}

// memberSelector compiles a selector that may only use virtual labels of members.
func memberSelector(text string) (*selection.Selector, error) {
	selector, err := selection.Compile(text, "", "")
	if err != nil {
		return nil, err
	}
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, err
	}
	for _, q := range requirements {
		if !selection.IsMemberLabel(q.Key()) {
			return nil, selection.NewBadParameter("labelSelector", fmt.Sprintf(
				"has %q: members are selected by %s, %s, %s, <prefix>.member.federator.dev/<name> and member.federator.dev/<name>",
				q.Key(), selection.MemberKey, selection.MemberNamespaceKey, selection.MemberNameKey))
		}
	}
	return selector, nil
}

// kindGrants returns what may be listed of each kind in those of the members that have it in
// the snapshot, concurrently: a member may serve thousands of kinds, which need no review
// for the others.
func (s *Handler) kindGrants(ctx context.Context, snapshot *aggregate.Snapshot, reader Caller, members []string) (map[aggregate.Kind]*authz.Grants, error) {
	kinds := map[aggregate.Kind][]string{}
	for _, m := range members {
		for scope := range snapshot.Scopes(m) {
			kinds[scope.Kind] = append(kinds[scope.Kind], m)
		}
	}
	var mu sync.Mutex
	out := make(map[aggregate.Kind]*authz.Grants, len(kinds))
	g, ctx := panicgroup.WithContext(ctx, 16)
	for kind, members := range kinds {
		g.Go(func() error {
			grants, err := reader.GrantsIn(ctx, selection.List, kind, snapshot, members)
			if err != nil || grants.Empty() {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			out[kind] = grants
			return nil
		})
	}
	return out, g.Wait()
}

func (s *Handler) member(snapshot *aggregate.Snapshot, m aggregate.Member, grants map[aggregate.Kind]*authz.Grants) MemberInfo {
	info := MemberInfo{
		Name: m.Name, Version: m.Version, Labels: map[string]string{},
		Scopes: map[aggregate.State]int{}, NotSynced: []selection.NotSynced{},
	}
	for _, l := range m.Labels {
		info.Labels[l.Key] = l.Value
	}
	for scope := range snapshot.Scopes(m.Name) {
		grant := grants[scope.Kind].Member(m.Name)
		if grant.Empty() {
			continue
		}
		info.Scopes[scope.Status.State]++
		if grant.All {
			info.Objects += scope.Objects
		}
		for _, namespace := range grant.Namespaces {
			n, err := snapshot.Count(aggregate.Query{Kind: scope.Kind, Members: []string{m.Name}, Namespace: namespace})
			if namespace != "" && err == nil { // it fails for fields only
				info.Objects += n
			}
		}
		info.NotSynced = append(info.NotSynced,
			selection.Freshness(snapshot, scope.Kind, []string{m.Name}, s.options.LastContact, s.options.Now())...)
	}
	return info
}

func (l *MemberList) notSynced() []selection.NotSynced {
	var out []selection.NotSynced
	for _, m := range l.Items {
		out = append(out, m.NotSynced...)
	}
	return out
}

func (l *MemberList) table() *metav1.Table {
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: l.Revision}}
	t.ColumnDefinitions = columns("Name", "Version", "#Synced", "#Kinds", "#Objects", "Not Synced", "Labels")
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
		const limit = 3
		if len(stale) > limit {
			stale = append(stale[:limit], fmt.Sprintf("+%d", len(stale)-limit))
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{
			m.Name, m.Version, m.Scopes[aggregate.Synced] + m.Scopes[aggregate.NotServed], kinds, m.Objects,
			strings.Join(stale, ","), formatLabels(m.Labels),
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
