package queries

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Shared is the fleet of a request, which several processes share.
type Shared struct {
	// Ask asks all for their parts of the query, with these parameters: of a page after a position, at a
	// revision that was minted for the first; 0: the newest.
	Ask func(query url.Values, at aggregate.Revision, after aggregate.Position) (*part.Answers, error)
	// Readable returns those of some members in which the caller may list a resource.
	Readable func(resource schema.GroupResource, members []string) ([]string, error)
}

// answers are the parts of a query, decoded.
type answers struct {
	*part.Answers
	fleet *Shared
	parts []partResult
}

// about asks all for their parts of a query about resources, and returns these, and what of them is not fresh in members that the
// label selector selects.
func (f *Shared) about(s *Handler, q params, labelSelector string) (a *answers, of []asked, stale freshness, err error) {
	raw, err := f.Ask(q.values, 0, aggregate.Position{})
	if err != nil {
		return nil, nil, stale, err
	}
	if a, err = f.decode(raw); err != nil {
		return nil, nil, stale, err
	}
	if of, err = a.resources(); err != nil {
		return nil, nil, stale, err
	}
	stale, err = a.stale(s, labelSelector, of)
	return a, of, stale, err
}

func (f *Shared) decode(a *part.Answers) (*answers, error) {
	out := &answers{a, f, make([]partResult, len(a.Bodies))}
	for i, body := range a.Bodies {
		if err := json.Unmarshal(body, &out.parts[i]); err != nil {
			return nil, fmt.Errorf("queries: a part: %w", err)
		}
	}
	return out, nil
}

// into decodes the result of each part.
func into[T any](a *answers) ([]T, error) {
	out := make([]T, len(a.parts))
	for i, p := range a.parts {
		if err := json.Unmarshal(p.Result, &out[i]); err != nil {
			return nil, fmt.Errorf("queries: a part: %w", err)
		}
	}
	return out, nil
}

func (a *answers) header(kind string) header {
	return header{Kind: kind, APIVersion: apiVersion, Revision: strconv.FormatUint(uint64(a.Revision), 10)}
}

// resources returns what the query asks for, in its order: of each resource what it is, and whether it
// is forbidden in all parts. The error is that of one which no part knows.
func (a *answers) resources() ([]asked, error) {
	var out []asked
	for i := range a.parts[0].Asked {
		one := a.parts[0].Asked[i]
		for _, p := range a.parts[1:] {
			// All parts have the names in one order, each once but for those that are of the same kind.
			at := slices.IndexFunc(p.Asked, func(o asked) bool { return o.Name == one.Name })
			if at < 0 {
				continue
			}
			switch other := p.Asked[at]; {
			case one.Unknown || other.Unknown:
				if one.Unknown {
					one = other
				}
			default:
				one.Forbidden = one.Forbidden && other.Forbidden
			}
		}
		if one.Unknown {
			return nil, unknownResource("resource", one.Name)
		}
		out = append(out, one)
	}
	return out, nil
}

// stale returns what is not fresh, by resource and then by member, with the members that nobody answers for.
func (a *answers) stale(s *Handler, labelSelector string, of []asked) (freshness, error) {
	out := freshness{first: []selection.NotSynced{}}
	order := map[aggregate.Kind]int{}
	var names []string
	absent := selection.ByName(labelSelector, a.Absent)
	for i, one := range of {
		order[one.Kind] = i
		unknown := absent
		for _, p := range a.parts {
			if slices.ContainsFunc(p.Asked, func(o asked) bool { return o.Name == one.Name && o.Unknown }) {
				unknown = slices.Concat(unknown, selection.ByName(labelSelector, p.Unsure))
			}
		}
		var readable []string
		if len(unknown) > 0 {
			var err error
			if readable, err = a.fleet.Readable(schema.ParseGroupResource(one.Resource), unknown); err != nil {
				return out, err
			}
		}
		if !one.Forbidden || len(readable) > 0 {
			names = append(names, one.Resource)
		}
		for _, member := range readable {
			out.first = append(out.first, selection.NewNotSynced(aggregate.ScopeInfo{Member: member, Kind: one.Kind}, nil, s.options.Now()))
		}
	}
	for _, p := range a.parts {
		out.first = append(out.first, p.Stale...)
		out.more += p.More
	}
	slices.SortStableFunc(out.first, func(a, b selection.NotSynced) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), strings.Compare(a.Member, b.Member))
	})
	out.link = selection.MembersLink(labelSelector, names...)
	return out, nil
}

// CountShared is Count of a fleet that several processes share.
func (s *Handler) CountShared(w http.ResponseWriter, r *http.Request, reader Caller, fleet *Shared) error {
	p, err := parse(r, "count")
	if err != nil {
		return err
	}
	a, of, stale, err := fleet.about(s, p, p.get("labelSelector"))
	if err != nil {
		return err
	}
	for _, one := range of {
		missing := slices.ContainsFunc(stale.first, func(n selection.NotSynced) bool { return n.Kind == one.Kind })
		if one.Forbidden && !missing {
			return forbidden(reader.User(), selection.List, schema.ParseGroupResource(one.Resource), "")
		}
	}
	parts, err := into[CountResult](a)
	if err != nil {
		return err
	}
	counted := &CountResult{header: a.header("Count"), GroupBy: p.values["groupBy"]}
	groups := map[string]*Group{}
	for _, c := range parts {
		counted.Total += c.Total
		counted.Other += c.Other
		counted.Truncated = counted.Truncated || c.Truncated
		for _, g := range c.Groups {
			key := []byte{}
			for _, k := range g.Key {
				key = appendKeyPart(key, k)
			}
			if had := groups[string(key)]; had != nil {
				had.Count += g.Count
			} else {
				groups[string(key)] = &g
			}
		}
	}
	if len(counted.GroupBy) > 0 {
		counted.Groups = make([]Group, 0, len(groups))
		for _, g := range groups {
			counted.Groups = append(counted.Groups, *g)
		}
		slices.SortFunc(counted.Groups, compareGroups)
		if n := s.options.MaxGroups; len(counted.Groups) > n {
			for _, g := range counted.Groups[n:] {
				counted.Other += g.Count
			}
			counted.Groups, counted.Truncated = counted.Groups[:n], true
		}
	}
	counted.NotSynced, counted.NotSyncedMore = selection.Listed(stale.first)
	return p.write(w, counted, stale)
}

// FindShared is Find of a fleet that several processes share.
func (s *Handler) FindShared(w http.ResponseWriter, r *http.Request, reader Caller, fleet *Shared) error {
	p, err := parse(r, "find")
	if err != nil {
		return err
	}
	limit := findLimit
	if p.values.Has("limit") {
		limit, _ = strconv.Atoi(p.get("limit")) //nolint:errcheck // the parts refuse what is no number
	}
	a, of, stale, err := fleet.about(s, p, "")
	if err != nil {
		return err
	}
	parts, err := into[FindResult](a)
	if err != nil {
		return err
	}
	found := &FindResult{header: a.header("Find"), Items: []FoundObject{}}
	for _, one := range of {
		if one.Forbidden {
			found.Forbidden = append(found.Forbidden, one.Resource)
			continue
		}
		merged := search{places: map[place]*FoundObject{}}
		for _, part := range parts {
			for _, o := range part.Items {
				if o.Resource != one.Resource {
					continue
				}
				at := place{o.Namespace, o.Name}
				had := merged.places[at]
				if had == nil {
					merged.places[at] = &o
					continue
				}
				had.Members += o.Members
				had.Member = min(had.Member, o.Member)
			}
			merged.cut = merged.cut || part.Truncated
		}
		found.add(&merged, limit)
	}
	found.NotSynced, found.NotSyncedMore = selection.Listed(stale.first)
	return p.write(w, found, stale)
}

// MembersShared is Members of a fleet that several processes share.
func (s *Handler) MembersShared(w http.ResponseWriter, r *http.Request, reader Caller, fleet *Shared) error {
	p, err := parse(r, "members")
	if err != nil {
		return err
	}
	limit, scope, token, err := s.sharedPage(p, reader)
	if err != nil {
		return err
	}
	raw, err := fleet.Ask(p.values, token.Revision, token.After)
	if apierrors.IsResourceExpired(err) && token.After.Member != "" {
		return s.options.Tokens.Expired(scope, token.After)
	}
	if err != nil {
		return err
	}
	a, err := fleet.decode(raw)
	if err != nil {
		return err
	}
	if len(p.values["resource"]) > 0 {
		if _, err := a.resources(); err != nil {
			return err
		}
	}
	parts, err := into[MemberList](a)
	if err != nil {
		return err
	}
	absent, err := s.absentMembers(r, reader, p, a.Absent, token.After.Member)
	if err != nil {
		return err
	}
	list := &MemberList{header: a.header("MemberList"), Items: []MemberInfo{}}
	var stale freshness
	if parts[0].Summary != nil {
		list.Summary = &MemberSummary{ByState: map[aggregate.State]int{}, Scopes: map[aggregate.State]int{}}
		for i, part := range parts {
			list.Summary.add(part.Summary)
			stale.first = append(stale.first, a.parts[i].Stale...)
			stale.more += a.parts[i].More
		}
		for _, m := range absent {
			list.Summary.Members++
			list.Summary.ByState[aggregate.Unknown]++
			stale.add(m)
		}
		slices.SortStableFunc(stale.first, func(a, b selection.NotSynced) int { return strings.Compare(a.Member, b.Member) })
		return p.write(w, list, stale)
	}
	more := false
	for _, part := range parts {
		list.Items = append(list.Items, part.Items...)
		more = more || part.Continue != ""
	}
	list.Items = append(list.Items, absent...)
	slices.SortFunc(list.Items, func(a, b MemberInfo) int { return strings.Compare(a.Name, b.Name) })
	if limit > 0 && (more || len(list.Items) > limit) {
		list.Items = list.Items[:min(limit, len(list.Items))]
		last := aggregate.Position{Member: list.Items[len(list.Items)-1].Name}
		list.Continue = s.options.Tokens.Encode(scope, selection.Token{Revision: a.Revision, After: last})
	}
	for _, m := range list.Items {
		stale.add(m)
	}
	return p.write(w, list, stale)
}

// sharedPage returns the limit, what a token is valid for, and where the page begins.
func (s *Handler) sharedPage(p params, reader Caller) (limit int, scope selection.TokenScope, token selection.Token, err error) {
	page, selected := url.Values{}, url.Values{}
	for name, values := range p.values {
		switch {
		case name == "limit" || name == "continue":
			page[name] = values
		case name != "details" && !isCommon(name):
			selected[name] = values
		}
	}
	parsed, err := selection.Parse(page, selection.List)
	if err != nil {
		return 0, scope, token, err
	}
	scope = selection.NewTokenScope(reader.User(), route.Query+"/members", selected.Encode())
	if parsed.Continue != "" {
		token, err = s.options.Tokens.Decode(scope, parsed.Continue)
	}
	return int(parsed.Limit), scope, token, err
}

// absentMembers describes the members that nobody answers for, as far as that is known, which the
// caller may see: in no kind is it known what they have.
func (s *Handler) absentMembers(r *http.Request, reader Caller, p params, absent []string, after string) ([]MemberInfo, error) {
	if states := p.list("state"); len(states) > 0 && !slices.Contains(states, aggregate.Unknown.String()) {
		return nil, nil
	}
	fields, err := memberFields(p.get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	absent = slices.DeleteFunc(slices.Clone(selection.ByName(p.get("labelSelector"), absent)), func(m string) bool {
		return !fields.Matches(fieldsOf(aggregate.Member{Name: m})) || m <= after && after != "" || !strings.HasPrefix(m, p.get("namePrefix"))
	})
	if len(absent) == 0 {
		return nil, nil
	}
	visible, _, err := reader.VisibleIn(r.Context(), absent)
	if err != nil {
		return nil, err
	}
	var out []MemberInfo
	for _, m := range visible {
		n := selection.NewNotSynced(aggregate.ScopeInfo{Member: m, Kind: EveryKind}, nil, s.options.Now())
		out = append(out, MemberInfo{Name: m, Scopes: map[aggregate.State]int{}, NotSynced: []selection.NotSynced{n}})
	}
	return out, nil
}

// add adds the summary of other members.
func (s *MemberSummary) add(o *MemberSummary) {
	if o == nil {
		return
	}
	s.Members += o.Members
	s.Synced += o.Synced
	s.Objects += o.Objects
	s.Bytes += o.Bytes
	for state, n := range maps.All(o.ByState) {
		s.ByState[state] += n
	}
	for state, n := range maps.All(o.Scopes) {
		s.Scopes[state] += n
	}
}
