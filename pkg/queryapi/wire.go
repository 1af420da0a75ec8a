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
	"federator.dev/federator/pkg/queryapi/internal/queries"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// wire puts the parts behind the chain.
func (s *Server) wire() error {
	s.catalog = catalog.New(s.options.Fleet)
	asked, err := queries.New(queries.Options{
		Index: s.options.Index, Heard: s.options.Fleet.Heard,
		View: func(snapshot *aggregate.Snapshot) queries.View { return named{s.catalog.View(snapshot)} },
	})
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	s.questions = maps.Clone(s.options.Questions)
	if s.questions == nil {
		s.questions = make(map[string]Question)
	}
	s.questions["count"] = answering{"count", asked.Count}
	s.questions["related"] = answering{"related", asked.Related}
	s.questions["members"] = answering{"members", asked.Members}
	if s.openAPI, err = json.Marshal(describe(s.questions)); err != nil {
		return fmt.Errorf("query API: describe: %w", err)
	}
	s.objects, err = s.reader()
	return err
}

// reader makes what answers get, list and watch.
func (s *Server) reader() (*resources.Handler, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	sealer, err := selection.NewSealer(key, s.options.Index.First())
	if err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	pins, err := selection.NewPins(selection.PinOptions{})
	if err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	h, err := resources.New(resources.Options{
		Index: s.options.Index, Heard: s.options.Fleet.Heard, Sealer: sealer, Pins: pins, ValuesCut: s.options.ValuesCut,
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

// answering makes a function a Question.
type answering struct {
	name string
	with func(http.ResponseWriter, *http.Request, queries.Reader) error
}

// Answer implements Question.
func (a answering) Answer(w http.ResponseWriter, r *http.Request, c Caller) error {
	return a.with(w, r, c)
}

// Describe implements Describer.
func (a answering) Describe() Description { return queries.Describe(a.name) }

// named finds resources as questions name them.
type named struct{ view *catalog.View }

func (n named) ByName(name string) (queries.Resource, bool) {
	r, ok := n.view.ByName(name)
	if !ok {
		return queries.Resource{}, false
	}
	return resourceOf(r), true
}

func resourceOf(r *catalog.Resource) queries.Resource {
	return queries.Resource{GroupResource: r.Resource.GroupResource(), Kind: r.Kind, Namespaced: r.Namespaced}
}

// view returns what is served to a target, and the snapshot that it is of.
func (s *Server) view(target route.Target) (*catalog.View, *aggregate.Snapshot) {
	snapshot := s.options.Index.Snapshot()
	view := s.catalog.View(snapshot)
	if target.Member != "" {
		view = view.ForMember(snapshot, target.Member)
	}
	return view, snapshot
}

// discover answers what is served. Of a member it tells whoever may read
// anything in it, of the fleet every caller.
func (s *Server) discover(w http.ResponseWriter, r *http.Request, target route.Target) error {
	if target.Member != "" {
		if err := s.mayVisit(r.Context(), target.Member); err != nil {
			return err
		}
	}
	view, snapshot := s.view(target)
	return view.ServeDiscovery(w, r, snapshot, target)
}

// mayVisit refuses members that the caller may read nothing of. One that does
// not exist reads the same unless he may read all of those that do.
func (s *Server) mayVisit(ctx context.Context, member string) error {
	c := s.callerOf(ctx)
	any, err := s.authority.AnyGrant(ctx, c.user, member)
	if err != nil {
		return err
	}
	if !any {
		return forbiddenMember(c.user, member)
	}
	if _, ok := s.options.Index.Snapshot().Member(member); !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "members"}, member)
	}
	return nil
}

// resources are those that can be granted: what members serve of the kinds
// that are kept, and what was read of them. Those that several members have come
// first: a review that looks at some only passes over what one member has invented.
func (s *Server) resources() []authz.Resource {
	snapshot := s.options.Index.Snapshot()
	var out []authz.Resource
	at := make(map[schema.GroupResource]int)
	add := func(gr schema.GroupResource, only string) {
		i, seen := at[gr]
		if !seen {
			at[gr] = len(out)
			out = append(out, authz.Resource{GroupResource: gr, Only: only})
		} else if out[i].Only != only {
			out[i].Only = ""
		}
	}
	view, _ := s.view(route.Target{})
	for r := range view.Resources() {
		add(r.Resource.GroupResource(), onlyIn(snapshot, r.Kind))
	}
	for kind, resources := range snapshot.AllResources() {
		_, group := kind.Split()
		for _, resource := range resources {
			add(schema.GroupResource{Group: group, Resource: resource}, onlyIn(snapshot, kind))
		}
	}
	slices.SortStableFunc(out, func(a, b authz.Resource) int { return cmp.Compare(min(len(a.Only), 1), min(len(b.Only), 1)) })
	return out
}

// onlyIn returns the one member that has a scope of a kind, "" where none or several
// have.
func onlyIn(snapshot *aggregate.Snapshot, kind aggregate.Kind) string {
	only := ""
	for scope := range snapshot.ScopesOf(kind) {
		if only != "" {
			return ""
		}
		only = scope.Member
	}
	return only
}
