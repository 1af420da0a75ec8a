package queries

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// memberQuery is one request for members.
type memberQuery struct {
	*Handler
	reader   Caller
	snapshot *aggregate.Snapshot
	token    selection.TokenScope
	after    string // the last member of the page before; "": none

	selector   *selection.Selector
	fields     fields.Selector
	namePrefix string
	kinds      []aggregate.Kind // that are considered, sorted; nil: all
	states     []aggregate.State
	notSynced  bool

	limit            int       // of members; 0: none
	ask              *part.Ask // nil: the result is whole
	of               []asked   // of a part
	details, summary bool
	facts            bool
	known            bool // the snapshot has all members
}

// parse parses the parameters, and chooses the snapshot.
func (q *memberQuery) parse(p params) (err error) {
	if q.selector, err = memberSelector(p.get("labelSelector")); err != nil {
		return err
	}
	if q.fields, err = memberFields(p.get("fieldSelector")); err != nil {
		return err
	}
	q.namePrefix = p.get("namePrefix")
	for _, name := range p.list("state") {
		var state aggregate.State
		if state.UnmarshalText([]byte(name)) != nil {
			return selection.NewBadParameter("state", fmt.Sprintf("is %.64q, must be the state of a scope, such as Stale", name))
		}
		q.states = append(q.states, state)
	}
	for name, to := range map[string]*bool{"notSynced": &q.notSynced, "details": &q.details, "summary": &q.summary, "facts": &q.facts} {
		if *to, err = p.flag(name); err != nil {
			return err
		}
	}
	if err := q.parsePage(p); err != nil {
		return err
	}
	if len(p.values["resource"]) == 0 {
		return nil
	}
	resources, of, err := q.asked(q.snapshot, p)
	q.of = of
	if p.ask != nil && q.kinds == nil {
		q.kinds = []aggregate.Kind{} // the resources that there are may be of members of other processes
	}
	for _, r := range resources {
		q.kinds = append(q.kinds, r.Kind)
	}
	slices.Sort(q.kinds)
	return err
}

// parsePage parses limit and continue, and sets the snapshot: that of the first page.
func (q *memberQuery) parsePage(p params) error {
	q.known = q.options.Known() // before the snapshot: what has come since is in it
	q.snapshot = q.options.Index.Snapshot()
	page, selected := url.Values{}, url.Values{}
	for name, values := range p.values {
		switch {
		case name == "limit" || name == "continue":
			page[name] = values
		case name != "details" && name != "facts" && !isCommon(name):
			selected[name] = values
		}
	}
	parsed, err := selection.Parse(page, selection.List)
	if err != nil {
		return err
	}
	if q.limit = int(parsed.Limit); q.summary && (q.limit > 0 || parsed.Continue != "") {
		return selection.NewBadParameter("summary", "is not supported with limit and continue")
	}
	q.token = selection.NewTokenScope(q.reader.User(), route.Query+"/members", selected.Encode())
	if p.ask != nil {
		q.ask, q.after = p.ask, p.ask.After.Member
		return q.pin(p.ask.At, p.ask.After)
	}
	if parsed.Continue == "" {
		return nil
	}
	token, err := q.options.Tokens.Decode(q.token, parsed.Continue)
	if err != nil {
		return err
	}
	q.after = token.After.Member
	return q.pin(token.Revision, token.After)
}

// pin sets the snapshot to that of a revision, of a page after a position.
func (q *memberQuery) pin(revision aggregate.Revision, after aggregate.Position) error {
	if revision == 0 || revision == q.snapshot.Revision() {
		return nil
	}
	pinned, ok := q.options.Pins.Snapshot(revision, q.snapshot, q.options.Now())
	if !ok {
		return q.options.Tokens.Expired(q.token, after)
	}
	q.snapshot = pinned
	return nil
}

// continueAfter returns the token of the page after a member, and keeps its snapshot.
func (q *memberQuery) continueAfter(member string) string {
	q.options.Pins.Pin(q.snapshot, q.reader.User().GetName(), q.options.Index.Snapshot(), q.options.Now())
	return q.options.Tokens.Encode(q.token, selection.Token{Revision: q.snapshot.Revision(), After: aggregate.Position{Member: member}})
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

// memberFields compiles a selector of fields of members.
func memberFields(text string) (fields.Selector, error) {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return nil, selection.NewBadParameter("fieldSelector", fmt.Sprintf("is %.64q, %v", text, err))
	}
	for _, r := range selector.Requirements() {
		if _, ok := fieldsOf(aggregate.Member{})[r.Field]; !ok {
			return nil, selection.NewBadParameter("fieldSelector", fmt.Sprintf(
				"has %.64q: members are selected by metadata.name, metadata.namespace and version", r.Field))
		}
	}
	return selector, nil
}

func fieldsOf(m aggregate.Member) fields.Set {
	namespace, name, _ := strings.Cut(m.Name, "/")
	return fields.Set{"metadata.name": name, "metadata.namespace": namespace, "version": m.Version}
}

// maxBatch bounds the members that are authorized together.
const maxBatch = 500

// members yields those that the query selects, by name, after the page before. An error is
// yielded last.
func (q *memberQuery) members(ctx context.Context) iter.Seq2[MemberInfo, error] {
	size := maxBatch
	if q.limit > 0 && len(q.states) == 0 && !q.notSynced {
		size = min(size-1, q.limit) + 1 // with the one that shows that a page follows
	}
	return func(yield func(MemberInfo, error) bool) {
		var names []string
		for name := range q.candidates() {
			if names = append(names, name); len(names) < size {
				continue
			}
			if !q.batch(ctx, names, yield) {
				return
			}
			names = names[:0]
		}
		q.batch(ctx, names, yield)
	}
}

// candidates yields the members after the page before that the query selects apart from their
// scopes, whether the caller may see them or not.
func (q *memberQuery) candidates() iter.Seq[string] {
	return func(yield func(string) bool) {
		for m := range q.snapshot.MembersFrom(max(q.after, q.namePrefix)) {
			if !strings.HasPrefix(m.Name, q.namePrefix) {
				return
			}
			if m.Name != q.after && (q.ask == nil || q.ask.Answers(&m)) && q.selector.MatchesMember(m) && q.fields.Matches(fieldsOf(m)) && !yield(m.Name) {
				return
			}
		}
	}
}

// batch yields those of members that the caller may see and that the query selects.
func (q *memberQuery) batch(ctx context.Context, names []string, yield func(MemberInfo, error) bool) (more bool) {
	visible, _, err := q.reader.VisibleIn(ctx, names)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		yield(MemberInfo{}, err)
		return false
	}
	grants, err := q.kindGrants(ctx, visible)
	var all *authz.Grants
	if err == nil {
		all, err = q.mayListAll(ctx, visible)
	}
	if err != nil {
		yield(MemberInfo{}, err)
		return false
	}
	for _, name := range visible {
		m, _ := q.snapshot.Member(name)
		info, ok := q.describe(m, grants)
		if !ok {
			continue
		}
		q.addHealth(&info, all.Member(name).All)
		info.Facts = q.factsOf(name, all)
		if !yield(info, nil) {
			return false
		}
	}
	return true
}

// memberGrants are what may be listed, by kind.
type memberGrants = map[aggregate.Kind]*authz.Grants

// kindGrants returns what may be listed of each kind in those of the members that have it in
// the snapshot, concurrently: a member may serve thousands of kinds, which need no review
// for the others.
func (q *memberQuery) kindGrants(ctx context.Context, members []string) (memberGrants, error) {
	kinds := map[aggregate.Kind][]string{}
	for _, m := range members {
		of := q.kinds
		if of == nil {
			of = q.snapshot.KindsOf(m)
		}
		for _, kind := range of {
			kinds[kind] = append(kinds[kind], m)
		}
	}
	var mu sync.Mutex
	out := make(memberGrants, len(kinds))
	g, ctx := panicgroup.WithContext(ctx, 16)
	for kind, members := range kinds {
		g.Go(func() error {
			grants, err := q.reader.GrantsIn(ctx, selection.List, kind, q.snapshot, members)
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
