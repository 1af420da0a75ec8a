package queries

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// CountResult is the response of count.
type CountResult struct {
	header
	Total   int      `json:"total"` // objects
	GroupBy []string `json:"groupBy,omitempty"`
	// Groups are sorted by descending count, then by key. An object with several
	// values of a field is in the group of each.
	Groups []Group `json:"groups,omitempty"`
	// Truncated says that there are more groups than the limit; Other counts objects
	// that are in none of Groups.
	Truncated bool `json:"truncated,omitempty"`
	Other     int  `json:"other,omitempty"`
	// NotSynced are the first members that are not fresh, NotSyncedMore the number of others.
	NotSynced     []selection.NotSynced `json:"notSynced"`
	NotSyncedMore int                   `json:"notSyncedMore,omitempty"`
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (CountResult) SchemaName() string { return "Counted" }

// Group is the objects of one key: a value for each of GroupBy, "" for a label
// or field that is absent.
type Group struct {
	Key   []string `json:"key"`
	Count int      `json:"count"`
}

// Bounds of one count.
const (
	maxResources = 64
	maxGroupBy   = 4
)

// Count serves GET /query/v1/count.
func (s *Handler) Count(w http.ResponseWriter, r *http.Request, reader Caller) error {
	p, err := parse(r, "count")
	if err != nil {
		return err
	}
	namespace := p.get("namespace")
	if problems := validation.IsDNS1123Label(namespace); namespace != "" && len(problems) > 0 {
		return selection.NewBadParameter("namespace", problems[0])
	}
	snapshot := s.options.Index.Snapshot()
	resources, of, err := s.asked(snapshot, p)
	if err != nil {
		return err
	}
	counted := &CountResult{header: newHeader("Count", snapshot), GroupBy: p.values["groupBy"]}
	if len(counted.GroupBy) > maxGroupBy {
		return selection.NewBadParameter("groupBy", fmt.Sprintf("is given %d times, %d at most", len(counted.GroupBy), maxGroupBy))
	}
	stale, names := []selection.NotSynced{}, []string{}
	t := &tally{snapshot: snapshot, maxGroups: s.options.MaxGroups, counts: map[string]int{}}
	for _, resource := range resources {
		c, err := newCountPlan(resource.Kind, p.get("labelSelector"), p.get("fieldSelector"), counted.GroupBy)
		if err != nil {
			return err
		}
		grants, err := reader.Grants(r.Context(), selection.List, resource.Kind, snapshot)
		if err != nil {
			return err
		}
		if grants.Empty() && p.ask != nil {
			forbid(of, resource)
			continue
		}
		if grants.Empty() {
			return forbidden(reader.User(), selection.List, resource.GroupResource, "")
		}
		c.find = selection.Listing{Snapshot: snapshot, Selector: c.selector, Grants: grants, Namespace: namespace, Members: p.members(snapshot)}
		if err := c.addTo(r.Context(), t); err != nil {
			return err
		}
		names = append(names, resource.String())
		stale = append(stale,
			selection.Freshness(snapshot, resource.Kind, c.find.Visible(), s.options.LastContact, s.options.Now())...)
	}
	counted.Total, counted.Truncated, counted.Other = t.total, t.truncated, t.other
	if len(counted.GroupBy) > 0 {
		counted.Groups = t.groups()
	}
	counted.NotSynced, counted.NotSyncedMore = selection.Listed(stale)
	return p.write(w, counted, freshness{first: stale, link: selection.MembersLink(p.get("labelSelector"), names...), asked: of, unsure: p.unsure(snapshot, of)})
}

// resources resolves names, each once.
func (s *Handler) resources(snapshot *aggregate.Snapshot, names []string) ([]Resource, error) {
	if len(names) == 0 || slices.Contains(names, "") {
		return nil, selection.NewBadParameter("resource", "is required, such as pods or deployments.apps")
	}
	if len(names) > maxResources {
		return nil, selection.NewBadParameter("resource", fmt.Sprintf("is given %d times, %d at most", len(names), maxResources))
	}
	view := s.options.View(snapshot)
	var out []Resource
	for _, name := range names {
		resource, err := byName(view, "resource", name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o Resource) bool { return o.Kind == resource.Kind }) {
			out = append(out, resource)
		}
	}
	return out, nil
}

// newCountPlan compiles the selectors and groupBy.
func newCountPlan(kind aggregate.Kind, labels, fields string, groupBy []string) (*countPlan, error) {
	selector, err := selection.Compile(labels, fields, kind)
	if err != nil {
		return nil, err
	}
	c := &countPlan{kind: kind, selector: selector}
	for _, by := range groupBy {
		k, err := newGroupKey(by, kind)
		if err != nil {
			return nil, selection.NewBadParameter("groupBy", fmt.Sprintf("is %.64q: %v", by, err))
		}
		c.keys = append(c.keys, k)
	}
	return c, nil
}

// newGroupKey parses one groupBy.
func newGroupKey(by string, kind aggregate.Kind) (groupKey, error) {
	name, arg, ok := strings.Cut(by, ":")
	if of := map[string]keySource{"member": byMember, "namespace": byNamespace, "kind": byKind}[name]; of != 0 && !ok {
		return groupKey{source: of}, nil
	}
	switch name {
	case "label", "memberLabel":
		if problems := validation.IsQualifiedName(arg); len(problems) > 0 {
			return groupKey{}, fmt.Errorf("%q is not a valid label key: %s", arg, problems[0])
		}
		if name == "label" {
			return groupKey{source: byLabel, label: arg}, nil
		}
		return groupKey{source: byMemberLabel, label: arg}, nil
	case "field":
		field, err := selection.CompileField(arg, kind)
		return groupKey{source: byField, field: field}, err
	}
	return groupKey{}, fmt.Errorf("must be member, memberLabel:<key>, namespace, kind, label:<key> or field:<path>")
}

func (c *CountResult) table() *metav1.Table {
	t := &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: c.Revision}}
	t.ColumnDefinitions = columns(append(slices.Clone(c.GroupBy), "#Count")...)
	row := func(key []string, count int) {
		var cells []any
		for i := range c.GroupBy {
			cells = append(cells, key[i])
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: append(cells, count)})
	}
	switch {
	case len(c.GroupBy) == 0:
		row(nil, c.Total)
		return t
	case c.Truncated:
		defer func() { row(append([]string{"(others)"}, make([]string, len(c.GroupBy))...), c.Other) }()
	}
	for _, g := range c.Groups {
		row(g.Key, g.Count)
	}
	return t
}

func compareGroups(a, b Group) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), slices.Compare(a.Key, b.Key))
}
