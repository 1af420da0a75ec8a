package queryapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/queries"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// caller is the user of a request, and the members that it targets.
type caller struct {
	server    *Server
	user      user.Info
	member    string // "": all
	namespace string // "": all
}

// callerOf returns the caller of an authenticated request.
func (s *Server) callerOf(ctx context.Context) caller {
	u, ok := apirequest.UserFrom(ctx)
	if !ok {
		panic("queryapi: a request without a user")
	}
	c := caller{server: s, user: u}
	target, _ := route.TargetFrom(ctx)
	c.member = target.Member
	if info, ok := apirequest.RequestInfoFrom(ctx); ok {
		place := route.LocationOf(target, info)
		c.member, c.namespace = place.Member, place.Namespace
	}
	return c
}

// User implements Caller.
func (c caller) User() user.Info { return c.user }

// Grants implements Caller.
func (c caller) Grants(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot) (*Grants, error) {
	return c.GrantsIn(ctx, verb, kind, at, answered(ctx, at))
}

// answered are the members of a snapshot that a request is about: in a part, those that the process
// answers for.
func answered(ctx context.Context, at *aggregate.Snapshot) []string {
	ask := part.From(ctx)
	if ask == nil {
		return membersOf(at)
	}
	return ask.Members(at)
}

// GrantsIn implements Caller.
func (c caller) GrantsIn(ctx context.Context, verb string, kind aggregate.Kind, at *aggregate.Snapshot, members []string) (*Grants, error) {
	if kind == queries.EveryKind {
		return c.server.authorizer.ClusterScopedGrants(ctx, c.user, verb, schema.GroupResource{Resource: "*"}, members, c.member)
	}
	resources := c.server.catalog.AuthorizationResources(at, kind)
	_, group := kind.Split()
	grants := make([]authz.ResourceGrants, len(resources))
	for i, r := range resources {
		g, err := c.grants(ctx, verb, schema.GroupResource{Group: group, Resource: r.Resource}, members)
		if err != nil {
			return nil, err
		}
		if r.Members == nil && len(resources) == 1 {
			return g.ServedAs(r.Resource), nil
		}
		grants[i] = authz.ResourceGrants{Resource: r.Resource, Members: r.Members, Grants: g}
	}
	return authz.Join(grants, time.Now().Add(maxResourceAge)), nil
}

// maxResourceAge bounds the age of grants that depend on the resource under which members
// serve a kind, where members differ or none serves it.
const maxResourceAge = 30 * time.Second

var namespaces = schema.GroupResource{Resource: "namespaces"}

// grants returns what the caller may read of a resource, whatever kind members serve
// under it.
func (c caller) grants(ctx context.Context, verb string, resource schema.GroupResource, members []string) (*Grants, error) {
	view, _ := c.server.view(route.Target{})
	// API servers authorize a request for one Namespace within that namespace.
	if view.ClusterScoped(resource) && (c.namespace == "" || resource != namespaces) {
		return c.server.authorizer.ClusterScopedGrants(ctx, c.user, verb, resource, members, c.member)
	}
	return c.server.authorizer.Grants(ctx, c.user, verb, resource, members, c.member, c.namespace)
}

// Visible implements Caller.
func (c caller) Visible(ctx context.Context, at *aggregate.Snapshot) (members []string, until time.Time, err error) {
	return c.VisibleIn(ctx, membersOf(at))
}

// VisibleIn implements Caller.
func (c caller) VisibleIn(ctx context.Context, members []string) (visible []string, until time.Time, err error) {
	return c.server.authorizer.Visible(ctx, c.user, members)
}

// HubAllows implements Caller.
func (c caller) HubAllows(ctx context.Context, verb, resource string) (bool, error) {
	return c.HubAllowsNamed(ctx, verb, resource, "")
}

// HubAllowsNamed implements Caller.
func (c caller) HubAllowsNamed(ctx context.Context, verb, resource, name string) (bool, error) {
	gr := schema.ParseGroupResource(resource)
	if !strings.Contains(resource, ".") {
		gr.Group = api.GroupName
	}
	return c.server.authorizer.HubAllows(ctx, c.user, verb, gr, name)
}

// members are the names of those of the fleet, in order.
func (s *Server) members() []string {
	if s.shared != nil {
		return slices.Sorted(maps.Keys(s.options.Peers.Assignment().Judges))
	}
	return membersOf(s.options.Index.Snapshot())
}

func membersOf(at *aggregate.Snapshot) []string {
	var names []string
	for m := range at.Members() {
		names = append(names, m.Name)
	}
	return names
}

// dispatch serves a request of an authenticated caller, compressed where accepted.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if coding := negotiateCoding(r); coding != "" {
		c := &compressor{ResponseWriter: w, encoders: s.encoders, coding: coding}
		s.serveOrFail(c, r)
		if err := c.finish(); err != nil {
			s.log.Debug("query API: client did not read the response", "path", r.URL.Path, "error", err)
		}
		return
	}
	s.serveOrFail(w, r)
}

func (s *Server) serveOrFail(w http.ResponseWriter, r *http.Request) {
	if err := s.serveRequest(w, r); err != nil {
		writeError(w, r, s.log, err)
	}
}

func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) error {
	target, _ := route.TargetFrom(r.Context())
	info, _ := apirequest.RequestInfoFrom(r.Context())
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case reviewKind(r, info) != "":
		return s.serveReview(w, r, info)
	case s.options.UI != nil && strings.HasPrefix(r.URL.Path, uiRelay):
		return s.serveRelay(w, r)
	case s.options.MCP != nil && r.URL.Path == mcpPath:
		return s.serveMCP(w, r)
	case s.poster(r) != nil:
		return s.servePost(w, r, target)
	case !reading:
		w.Header().Set("Allow", "GET, HEAD")
		return methodNotAllowed(target, info)
	case target.Prefix == "" && (target.Path == openAPIRoot || target.Path == openAPIQuery):
		return s.serveOpenAPI(w, target.Path)
	case s.shared != nil && s.isQuery(target):
		if served, err := s.serveShared(w, r, target, info); served {
			return err
		}
		return s.serveQuery(w, r, target)
	case target.Prefix == "", target.Member == "" && strings.HasPrefix(target.Path, route.Query+"/"):
		return s.serveQuery(w, r, target) // kubectl get --raw stays below its context's prefix
	}
	if served, err := s.serveShared(w, r, target, info); served {
		return err
	}
	return s.serveOwn(w, r, target, info)
}

// serveOwn serves the Kubernetes API from what this process has.
func (s *Server) serveOwn(w http.ResponseWriter, r *http.Request, target route.Target, info *apirequest.RequestInfo) error {
	if info.IsResourceRequest {
		c := s.callerOf(r.Context())
		if err := c.checkAccess(r.Context(), info); err != nil {
			return err
		}
		s.labelResource(r, info)
		return s.objects.Serve(w, r, c)
	}
	return s.serveDiscovery(w, r, target)
}

// checkAccess refuses what the caller may not read of the one member of the request, before
// anything is looked up: a member that does not exist gets the same response.
func (c caller) checkAccess(ctx context.Context, info *apirequest.RequestInfo) error {
	if c.member == "" {
		return nil
	}
	gr := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	grants, err := c.grants(ctx, info.Verb, gr, nil)
	if err != nil || !grants.Member(c.member).Empty() {
		return err
	}
	target, _ := route.TargetFrom(ctx)
	return resources.Forbidden(c.user, target, info, gr)
}

// labelResource labels a request with its resource, if the fleet serves it.
func (s *Server) labelResource(r *http.Request, info *apirequest.RequestInfo) {
	view, _ := s.view(route.Target{})
	if known, err := view.Resource(info.APIGroup, info.APIVersion, info.Resource); err == nil {
		if l := labelsOf(r.Context()); l != nil {
			l.setResource(known.Resource.GroupResource().String())
		}
	}
}

// memberForbidden is the error for a member in which the caller may read nothing, whether it
// exists or not.
func memberForbidden(u user.Info, member string) error {
	return newStatusError(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("member %q is forbidden: User %q cannot read anything in it, or it does not exist", member, u.GetName()))
}

// methodNotAllowed is the error of writes; it says where to send them.
func methodNotAllowed(target route.Target, info *apirequest.RequestInfo) error {
	hint := route.MemberHint(route.LocationOf(target, info).Member)
	if !info.IsResourceRequest {
		return newStatusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "only GET is supported: "+hint)
	}
	err := apierrors.NewMethodNotSupported(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}, info.Verb)
	err.ErrStatus.Message += ": the query API is read-only; " + hint
	return err
}

// serveQuery serves paths outside the Kubernetes API.
func (s *Server) serveQuery(w http.ResponseWriter, r *http.Request, target route.Target) error {
	path, ok := strings.CutPrefix(target.Path, route.Query+"/")
	name, q := s.findQuery(r, path)
	if !ok || q == nil {
		return newStatusError(http.StatusNotFound, metav1.StatusReasonNotFound,
			"nothing is served here: the fleet is at /fleet and, with unambiguous keys, at /flat, a member at /members/<namespace>/<name>, queries at "+route.Query)
	}
	if l := labelsOf(r.Context()); l != nil {
		l.setResource("query/" + name)
	}
	if !isWatch(r) {
		return q.Serve(w, r, s.callerOf(r.Context()))
	}
	watched, ok := q.(Watchable)
	if !ok {
		return apierrors.NewBadRequest("parameter watch is not supported: " + route.Query + "/" + name + " cannot be watched")
	}
	return watched.Watch(w, r, s.callerOf(r.Context()))
}

// servePost serves a request for a Poster.
func (s *Server) servePost(w http.ResponseWriter, r *http.Request, target route.Target) error {
	name, _ := s.findQuery(r, strings.TrimPrefix(target.Path, route.Query+"/"))
	if l := labelsOf(r.Context()); l != nil {
		l.setResource("query/" + name)
	}
	if s.shared != nil {
		return s.postShared(w, r, name)
	}
	return s.poster(r).Post(w, r, s.callerOf(r.Context()))
}

// findQuery returns the query that serves a path below /query/v1, and its name; nil if there is
// none. It sets the request's path value.
func (s *Server) findQuery(r *http.Request, path string) (string, Query) {
	name, value := s.queryNameAt(path)
	if _, parameter := splitQueryName(name); parameter != "" {
		r.SetPathValue(parameter, value)
	}
	return name, s.queries[name]
}

// queryAt returns the query that serves a path below /query/v1, nil if there is none.
func (s *Server) queryAt(path string) Query {
	name, _ := s.queryNameAt(path)
	return s.queries[name]
}

// queryNameAt returns the name of the query that serves a path below /query/v1, "" if there is
// none, and the path's value.
func (s *Server) queryNameAt(path string) (name, value string) {
	head, value, below := strings.Cut(path, "/")
	if !below {
		return path, ""
	}
	for name := range s.queries {
		if base, parameter := splitQueryName(name); base == head && parameter != "" && value != "" && !strings.Contains(value, "/") {
			return name, value
		}
	}
	return "", ""
}

// splitQueryName splits the name of a query, such as plans/{policy}, into what its paths begin
// with and the name of its path value; "" without one.
func splitQueryName(name string) (base, parameter string) {
	base, parameter, _ = strings.Cut(name, "/")
	return base, strings.Trim(parameter, "{}")
}
