package queryapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// caller is who a request is from, and of which members it asks.
type caller struct {
	server    *Server
	user      user.Info
	member    string // "": all
	namespace string // "": all
}

// callerOf returns who the request is from. Authentication comes before.
func (s *Server) callerOf(ctx context.Context) caller {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		panic("queryapi: a request without a user")
	}
	c := caller{server: s, user: u}
	target, _ := route.From(ctx)
	c.member = target.Member
	if info, ok := apirequest.RequestInfoFrom(ctx); ok {
		place := route.PlaceOf(target, info)
		c.member, c.namespace = place.Member, place.Namespace
	}
	return c
}

// User implements Caller.
func (c caller) User() user.Info { return c.user }

// Grants implements Caller.
func (c caller) Grants(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot) (*Grants, error) {
	return c.GrantsIn(ctx, verb, kind, at, membersOf(at))
}

// GrantsIn implements Caller.
func (c caller) GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, members []string) (*Grants, error) {
	authorities := c.server.catalog.Authorities(at, kind)
	_, group := kind.Split()
	parts := make(authz.Parts, len(authorities))
	for i, a := range authorities {
		g, err := c.granted(ctx, verb, schema.GroupResource{Group: group, Resource: a.Resource}, members)
		if err != nil {
			return nil, err
		}
		if a.Members == nil && len(authorities) == 1 {
			return g.Of(a.Resource), nil
		}
		parts[i] = authz.Part{Resource: a.Resource, Members: a.Members, Grants: g}
	}
	return parts.Join(time.Now().Add(maxAuthorityAge)), nil
}

// maxAuthorityAge is how long it is relied on by which resource a member serves a
// kind, where members differ, or none serves it.
const maxAuthorityAge = 30 * time.Second

var namespaces = schema.GroupResource{Resource: "namespaces"}

// granted returns what the caller may read of a resource, whatever kind members
// serve under it.
func (c caller) granted(ctx context.Context, verb string, resource schema.GroupResource, members []string) (*Grants, error) {
	view, _ := c.server.view(route.Target{})
	// API servers authorise what is asked of a namespace by its name within it.
	if view.ClusterScoped(resource) && (c.namespace == "" || resource != namespaces) {
		return c.server.authority.ClusterScopedGrants(ctx, c.user, verb, resource, members, c.member)
	}
	return c.server.authority.Grants(ctx, c.user, verb, resource, members, c.member, c.namespace)
}

// Visible implements Caller.
func (c caller) Visible(ctx context.Context, at *aggregate.Snapshot) (members []string, until time.Time, err error) {
	return c.server.authority.Visible(ctx, c.user, membersOf(at))
}

// members are the names of those in the index, in order.
func (s *Server) members() []string { return membersOf(s.options.Index.Snapshot()) }

func membersOf(at *aggregate.Snapshot) []string {
	var names []string
	for m := range at.Members() {
		names = append(names, m.Name)
	}
	return names
}

// dispatch answers a request of an authenticated caller, compressed where that is
// asked for.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if coding := codingOf(r); coding != "" {
		c := &compressor{ResponseWriter: w, encoders: s.encoders, coding: coding}
		s.respond(c, r)
		if err := c.finish(); err != nil {
			s.log.Debug("answer was not read to its end", "path", r.URL.Path, "error", err)
		}
		return
	}
	s.respond(w, r)
}

func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	if err := s.answer(w, r); err != nil {
		fail(w, r, s.log, err)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) error {
	target, _ := route.From(r.Context())
	info, _ := apirequest.RequestInfoFrom(r.Context())
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case reviewed(r, info) != "":
		return s.review(w, r, info)
	case !reading:
		w.Header().Set("Allow", "GET, HEAD")
		return notAllowed(target, info)
	case target.Prefix == "" && (target.Path == openAPIRoot || target.Path == openAPIQuery):
		return s.serveOpenAPI(w, target.Path)
	case target.Prefix == "", target.Member == "" && strings.HasPrefix(target.Path, route.Query+"/"):
		return s.question(w, r, target) // kubectl get --raw stays below its context's prefix
	}
	if info.IsResourceRequest {
		c := s.callerOf(r.Context())
		if err := c.mayRead(r.Context(), info); err != nil {
			return err
		}
		s.count(r, info)
		return s.objects.Serve(w, r, c)
	}
	return s.discover(w, r, target)
}

// mayRead refuses what the caller may not read of the one member that he asks,
// before anything of it is looked up: one that does not exist reads the same.
func (c caller) mayRead(ctx context.Context, info *apirequest.RequestInfo) error {
	if c.member == "" {
		return nil
	}
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	grants, err := c.granted(ctx, info.Verb, gr, nil)
	if err != nil || !grants.Member(c.member).None() {
		return err
	}
	target, _ := route.From(ctx)
	return resources.Forbidden(c.user, target, info, gr)
}

// count labels a request with its resource, if the fleet has it.
func (s *Server) count(r *http.Request, info *apirequest.RequestInfo) {
	view, _ := s.view(route.Target{})
	if known, err := view.Resource(info.APIGroup, info.APIVersion, info.Resource); err == nil {
		if l := labelOf(r.Context()); l != nil {
			l.resource = known.Resource.GroupResource().String()
		}
	}
}

// forbiddenMember is what is said of a member that the caller may read nothing
// of, whether it exists or not.
func forbiddenMember(u user.Info, member string) error {
	return refusal(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("member %q is forbidden: User %q cannot read anything in it, or there is none of this name", member, u.GetName()))
}

// notAllowed says where writes go.
func notAllowed(target route.Target, info *apirequest.RequestInfo) error {
	hint := "ask a member itself, as with kubectl --context"
	if member := route.PlaceOf(target, info).Member; member != "" {
		hint = fmt.Sprintf("ask %s itself, as with kubectl --context", member)
	}
	if !info.IsResourceRequest {
		return refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only GET is answered here: "+hint)
	}
	err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	err.ErrStatus.Message += ": the query API only reads; " + hint
	return err
}

// question answers what is no Kubernetes path.
func (s *Server) question(w http.ResponseWriter, r *http.Request, target route.Target) error {
	name, ok := strings.CutPrefix(target.Path, route.Query+"/")
	q := s.questions[name]
	if !ok || q == nil {
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound,
			"nothing is here: the fleet is at /fleet and, with unambiguous keys, at /flat, a member at /members/<namespace>/<name>, questions at "+route.Query)
	}
	if l := labelOf(r.Context()); l != nil {
		l.resource = "query/" + name
	}
	if !isWatch(r) {
		return q.Answer(w, r, s.callerOf(r.Context()))
	}
	watched, ok := q.(Watchable)
	if !ok {
		return apierrors.NewBadRequest("parameter watch is not supported: " + route.Query + "/" + name + " cannot be watched")
	}
	return watched.Watch(w, r, s.callerOf(r.Context()))
}
