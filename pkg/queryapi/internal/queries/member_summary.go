package queries

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// MemberSummary counts members and what the caller may list of them.
type MemberSummary struct {
	Members int                     `json:"members"`
	Synced  int                     `json:"synced"`  // members that are fresh for every kind
	ByState map[aggregate.State]int `json:"byState"` // members with a kind in a state
	Scopes  map[aggregate.State]int `json:"scopes"`  // kinds of members by state
	Objects int                     `json:"objects"`
	Bytes   int64                   `json:"bytes"`
}

// memberTally is what is counted of one member.
type memberTally struct {
	scopes    map[aggregate.State]int
	objects   int
	bytes     int64
	notSynced int
	stale     aggregate.ScopeInfo // the first that is not fresh
}

func (q *memberQuery) tally(t *memberTally, scope aggregate.ScopeInfo, grant authz.MemberGrant) {
	objects, bytes := q.amounts(scope, grant)
	t.scopes[scope.Status.State]++
	t.objects += objects
	t.bytes += bytes
	if scope.Status.State.Complete() {
		return
	}
	if t.notSynced++; t.notSynced == 1 {
		t.stale = scope
	}
}

// summarize counts all selected members. It goes by kind, as the index is ordered: a fleet has
// many scopes.
func (q *memberQuery) summarize(ctx context.Context) (*MemberSummary, freshness, error) {
	names, _, err := q.reader.VisibleIn(ctx, slices.Collect(q.candidates()))
	if err != nil {
		return nil, freshness{}, err
	}
	grants, err := q.kindGrants(ctx, names)
	if err != nil {
		return nil, freshness{}, err
	}
	tallies := make(map[string]*memberTally, len(names))
	for _, name := range names {
		tallies[name] = &memberTally{scopes: make(map[aggregate.State]int, 1)}
	}
	for _, kind := range slices.Sorted(maps.Keys(grants)) {
		if err := context.Cause(ctx); err != nil {
			return nil, freshness{}, err
		}
		for scope := range q.scopesOfKind(kind, names) {
			if t, grant := tallies[scope.Member], grants[kind].Member(scope.Member); t != nil && !grant.Empty() {
				q.tally(t, scope, grant)
			}
		}
	}
	sum, stale := q.addUp(names, tallies)
	return sum, stale, nil
}

// scopesOfKind yields the scopes of a kind that the query considers, as scopesOf does those of
// a member.
func (q *memberQuery) scopesOfKind(kind aggregate.Kind, members []string) iter.Seq[aggregate.ScopeInfo] {
	if q.kinds == nil {
		return q.snapshot.ScopesOf(kind)
	}
	return func(yield func(aggregate.ScopeInfo) bool) {
		for _, m := range members {
			if scope, _ := q.snapshot.Scope(m, kind); !yield(scope) {
				return
			}
		}
	}
}

// addUp adds the members that the query selects.
func (q *memberQuery) addUp(names []string, tallies map[string]*memberTally) (*MemberSummary, freshness) {
	sum := &MemberSummary{ByState: map[aggregate.State]int{}, Scopes: map[aggregate.State]int{}}
	var stale freshness
	for _, name := range names {
		t := tallies[name]
		if !q.selects(t.notSynced > 0, func(state aggregate.State) bool { return t.scopes[state] > 0 }) {
			continue
		}
		sum.Members++
		sum.Objects += t.objects
		sum.Bytes += t.bytes
		for state, n := range t.scopes {
			sum.ByState[state]++
			sum.Scopes[state] += n
		}
		switch {
		case t.notSynced == 0:
			sum.Synced++
		case len(stale.first) < selection.MaxListed:
			stale.first = append(stale.first, selection.NewNotSynced(t.stale, q.options.LastContact, q.options.Now()))
			stale.more += t.notSynced - 1
		default:
			stale.more += t.notSynced
		}
	}
	return sum, stale
}

func (s *MemberSummary) table(revision string) *metav1.Table {
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: revision}}
	t.ColumnDefinitions = columns("#Members", "#Synced", "#Kinds", "#Objects", "Members By State")
	kinds := 0
	for _, n := range s.Scopes {
		kinds += n
	}
	var states []string
	for _, state := range slices.Sorted(maps.Keys(s.ByState)) {
		states = append(states, fmt.Sprintf("%s=%d", state, s.ByState[state]))
	}
	t.Rows = []metav1.TableRow{{Cells: []any{s.Members, s.Synced, kinds, s.Objects, strings.Join(states, ",")}}}
	return t
}
