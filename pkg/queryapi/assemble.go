package queryapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/catalog"
	"federator.dev/federator/pkg/queryapi/internal/fanout"
	"federator.dev/federator/pkg/queryapi/internal/queries"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// assemble makes the handlers behind the chain.
func (s *Server) assemble() error {
	s.catalog = catalog.New(s.options.Fleet)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	tokens, err := selection.NewTokenCodec(key, s.options.Index.First())
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	pins, err := selection.NewPins(selection.PinOptions{})
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	builtin, err := queries.New(queries.Options{
		Index: s.options.Index, LastContact: s.options.Fleet.LastContact, Proved: s.options.Proved, Held: s.options.WritesHeld, WritesWith: s.options.WritesWith, Health: s.options.Health, Via: s.options.Via, Installation: s.options.Installation, Known: s.options.Known, Tokens: tokens, Pins: pins,
		View: func(snapshot *aggregate.Snapshot) queries.View { return queryView{s.catalog.View(snapshot)} },
	})
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	s.queries = maps.Clone(s.options.Queries)
	if s.queries == nil {
		s.queries = make(map[string]Query)
	}
	s.queries["count"] = builtinQuery{"count", builtin.Count, builtin.CountShared}
	s.queries["find"] = builtinQuery{"find", builtin.Find, builtin.FindShared}
	s.queries["related"] = builtinQuery{"related", builtin.Related, nil}
	s.queries["members"] = builtinQuery{"members", builtin.Members, builtin.MembersShared}
	if s.queries["stream"], err = s.newStream(); err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	if s.openAPI, err = json.Marshal(openAPIDocument(s.queries)); err != nil {
		return fmt.Errorf("query API: describe: %w", err)
	}
	if s.objects, err = s.newResourceHandler(tokens, pins); err != nil {
		return err
	}
	return s.newFanout(fanout.Options{Tokens: tokens, Own: s.servePart, Answer: s.options.Limits.Peer})
}

// newResourceHandler makes the handler of get, list and watch.
func (s *Server) newResourceHandler(tokens *selection.TokenCodec, pins *selection.Pins) (*resources.Handler, error) {
	var left func(string) bool
	if s.options.Peers != nil {
		left = s.leftFleet
	}
	h, err := resources.New(resources.Options{
		Left:  left,
		Index: s.options.Index, LastContact: s.options.Fleet.LastContact, Tokens: tokens, Pins: pins, Grants: s.options.Grants, ValuesRedacted: s.options.ValuesRedacted,
		View: func(snapshot *aggregate.Snapshot, target route.Target) *catalog.View {
			view := s.catalog.View(snapshot)
			if target.Member != "" {
				view = view.ForMember(snapshot, target.Member)
			}
			return view
		},
	})
	if err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	return h, nil
}

// builtinQuery makes a function a Query.
type builtinQuery struct {
	name  string
	serve func(http.ResponseWriter, *http.Request, queries.Caller) error
	// shared serves it for a fleet that several processes share; nil: it is of one member.
	shared func(http.ResponseWriter, *http.Request, queries.Caller, *queries.Shared) error
}

// ServeShared implements Sharer.
func (a builtinQuery) ServeShared(w http.ResponseWriter, r *http.Request, c Caller, fleet SharedFleet) error {
	of, _ := fleet.(sharedFleet)
	if a.shared != nil {
		return a.shared(w, r, c, &queries.Shared{Ask: of.askPage, Readable: func(resource schema.GroupResource, members []string) ([]string, error) {
			return of.server.readableMembers(r.Context(), c.User(), "list", resource, members)
		}})
	}
	if member := r.URL.Query().Get("member"); !of.Judge(member) {
		return of.Forward(member)
	}
	return a.serve(w, r, c)
}

// Serve implements Query.
func (a builtinQuery) Serve(w http.ResponseWriter, r *http.Request, c Caller) error {
	return a.serve(w, r, c)
}

// Describe implements Describer.
func (a builtinQuery) Describe() Operation { return queries.Describe(a.name) }

// queryView finds resources by the names in queries.
type queryView struct{ view *catalog.View }

func (n queryView) ByName(name string) (queries.Resource, bool) {
	r, ok := n.view.ByName(name)
	if !ok {
		return queries.Resource{}, false
	}
	return resourceOf(r), true
}

func resourceOf(r *catalog.Resource) queries.Resource {
	return queries.Resource{GroupResource: r.Resource.GroupResource(), Kind: r.Kind, Namespaced: r.Namespaced}
}

// view returns the catalog's view of a target, and its snapshot.
func (s *Server) view(target route.Target) (*catalog.View, *aggregate.Snapshot) {
	snapshot := s.options.Index.Snapshot()
	view := s.catalog.View(snapshot)
	if target.Member != "" {
		view = view.ForMember(snapshot, target.Member)
	}
	return view, snapshot
}

// serveDiscovery serves discovery: that of a member to callers who may read anything in
// it, that of the fleet to every caller.
func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request, target route.Target) error {
	if target.Member != "" {
		if err := s.checkMember(r.Context(), target.Member); err != nil {
			return err
		}
	}
	view, snapshot := s.view(target)
	return view.ServeDiscovery(w, r, snapshot, target)
}

// checkMember refuses members in which the caller may read nothing. A member that does not
// exist gets the same response, unless the caller may read all that do.
func (s *Server) checkMember(ctx context.Context, member string) error {
	c := s.callerOf(ctx)
	any, err := s.authorizer.AnyGrant(ctx, c.user, member)
	if err != nil {
		return err
	}
	if !any {
		return memberForbidden(c.user, member)
	}
	if _, ok := s.options.Index.Snapshot().Member(member); !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "members"}, member)
	}
	return nil
}

// resources are those that can be granted: what members serve of the collected kinds, and
// what objects were read under. Those of several members come first, so that a review of
// a limited number skips what one member has invented.
func (s *Server) resources() []authz.Resource {
	snapshot := s.options.Index.Snapshot()
	onlyMember := onlyMember
	if s.options.Peers != nil { // members of others may have it, too
		onlyMember = func(*aggregate.Snapshot, aggregate.Kind) string { return "" }
	}
	var out []authz.Resource
	at := make(map[schema.GroupResource]int)
	add := func(gr schema.GroupResource, only string) {
		i, seen := at[gr]
		if !seen {
			at[gr] = len(out)
			out = append(out, authz.Resource{GroupResource: gr, OnlyMember: only})
		} else if out[i].OnlyMember != only {
			out[i].OnlyMember = ""
		}
	}
	view, _ := s.view(route.Target{})
	for r := range view.Resources() {
		add(r.Resource.GroupResource(), onlyMember(snapshot, r.Kind))
	}
	for kind, resources := range snapshot.AllResources() {
		_, group := kind.Split()
		for _, resource := range resources {
			add(schema.GroupResource{Group: group, Resource: resource}, onlyMember(snapshot, kind))
		}
	}
	slices.SortStableFunc(out, func(a, b authz.Resource) int {
		return cmp.Compare(min(len(a.OnlyMember), 1), min(len(b.OnlyMember), 1))
	})
	return out
}

// onlyMember returns the only member that has a scope of a kind, "" where none or several
// do.
func onlyMember(snapshot *aggregate.Snapshot, kind aggregate.Kind) string {
	only := ""
	for scope := range snapshot.ScopesOf(kind) {
		if only != "" {
			return ""
		}
		only = scope.Member
	}
	return only
}
