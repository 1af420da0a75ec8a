package queries

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// FindResult is the response of find.
type FindResult struct {
	header
	// Items are the objects by resource, in the order of the request, and of each resource those with the
	// shortest names first.
	Items []FoundObject `json:"items"`
	// Truncated says that there are more than Items, or that not all have been looked at.
	Truncated bool `json:"truncated,omitempty"`
	// Forbidden are the resources that the caller may list nowhere.
	Forbidden []string `json:"forbidden,omitempty"`
	// NotSynced are the first members that are not fresh, NotSyncedMore the number of others.
	NotSynced     []selection.NotSynced `json:"notSynced"`
	NotSyncedMore int                   `json:"notSyncedMore,omitempty"`
}

// FoundObject is what has one name in one namespace.
type FoundObject struct {
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Member    string `json:"member"`  // the first that has it
	Members   int    `json:"members"` // that have it, at least: where Truncated, not all have been looked at
}

// Bounds of one find.
const (
	minPrefix   = 2 // bytes
	maxPrefix   = 253
	findLimit   = 10
	maxFind     = 100
	maxLookedAt = 10_000 // objects, of all resources together, and once more at most for whole names
)

// Find serves GET /query/v1/find. What it costs depends on the number of namespaces and on what it finds, but not on how
// many objects there are.
func (s *Handler) Find(w http.ResponseWriter, r *http.Request, reader Caller) error {
	p, err := parse(r, "find")
	if err != nil {
		return err
	}
	prefix, limit := p.get("namePrefix"), findLimit
	if len(prefix) < minPrefix || len(prefix) > maxPrefix {
		return selection.NewBadParameter("namePrefix", fmt.Sprintf("must have %d to %d characters", minPrefix, maxPrefix))
	}
	if p.values.Has("limit") {
		if limit, err = strconv.Atoi(p.get("limit")); err != nil || limit < 1 || limit > maxFind {
			return selection.NewBadParameter("limit", fmt.Sprintf("is not a number from 1 to %d", maxFind))
		}
	}
	snapshot := s.options.Index.Snapshot()
	resources, of, err := s.asked(snapshot, p)
	if err != nil {
		return err
	}
	found := &FindResult{header: newHeader("Find", snapshot), Items: []FoundObject{}}
	stale, names, left := []selection.NotSynced{}, []string{}, maxLookedAt
	for i, resource := range resources {
		grants, err := reader.Grants(r.Context(), selection.List, resource.Kind, snapshot)
		if err != nil {
			return err
		}
		if grants.Empty() {
			forbid(of, resource)
			found.Forbidden = append(found.Forbidden, resource.String())
			continue
		}
		selector, err := selection.Compile("", "", resource.Kind)
		if err != nil {
			return err
		}
		one := search{resource: resource, prefix: prefix, places: map[place]*FoundObject{}}
		one.list = selection.Listing{Snapshot: snapshot, Selector: selector.WithNamePrefix(prefix), Grants: grants, Members: p.members(snapshot)}
		used, err := one.run(r.Context(), left/(len(resources)-i)) // of which there is much takes nothing from the others
		if err != nil {
			return err
		}
		left -= used
		found.add(&one, limit)
		names = append(names, resource.String())
		stale = append(stale, selection.Freshness(snapshot, resource.Kind, one.list.Visible(), s.options.LastContact, s.options.Now())...)
	}
	found.NotSynced, found.NotSyncedMore = selection.Listed(stale)
	return p.write(w, found, freshness{first: stale, link: selection.MembersLink("", names...), asked: of, unsure: p.unsure(snapshot, of)})
}

// place is where members have what is the same object to a reader.
type place struct{ namespace, name string }

// search is what is looked for, and found, of one resource.
type search struct {
	resource Resource
	prefix   string
	list     selection.Listing
	places   map[place]*FoundObject
	cut      bool // there may be more
}

// run looks at some objects at most, and returns how many it were. The one with the shortest name there can be is
// found, with its members, also where the others are too many.
func (s *search) run(ctx context.Context, most int) (int, error) {
	used, err := s.look(ctx, most)
	if err != nil || !s.cut {
		return used, err
	}
	maps.DeleteFunc(s.places, func(at place, _ *FoundObject) bool { return at.name == s.prefix })
	s.list.Selector = s.list.Selector.WithName(s.prefix)
	_, err = s.look(ctx, most)
	return used, err
}

func (s *search) look(ctx context.Context, most int) (used int, err error) {
	for o, err := range s.list.List(ctx) {
		if err != nil {
			return used, err
		}
		if used == most {
			s.cut = true
			break
		}
		used++
		at := place{o.Namespace(), o.Name()}
		if held := s.places[at]; held != nil {
			held.Members++
			continue
		}
		s.places[at] = &FoundObject{Resource: s.resource.String(), Kind: string(s.resource.Kind), Namespace: at.namespace, Name: at.name, Member: o.Member(), Members: 1}
	}
	return used, nil
}

// add adds the first of what is found of one resource.
func (f *FindResult) add(s *search, limit int) {
	all := make([]FoundObject, 0, len(s.places))
	for _, one := range s.places {
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b FoundObject) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	})
	if f.Truncated = f.Truncated || s.cut; len(all) > limit {
		all, f.Truncated = all[:limit], true
	}
	f.Items = append(f.Items, all...)
}

func (f *FindResult) table() *metav1.Table {
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: f.Revision}, ColumnDefinitions: columns("Resource", "Namespace", "Name", "Member", "#Members")}
	for _, o := range f.Items {
		t.Rows = append(t.Rows, metav1.TableRow{Cells: []any{o.Resource, o.Namespace, o.Name, o.Member, o.Members}})
	}
	return t
}
