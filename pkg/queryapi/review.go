package queryapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/queryapi/internal/authz"
	"federator.dev/federator/pkg/queryapi/internal/flat"
	"federator.dev/federator/pkg/queryapi/internal/panicgroup"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

const (
	accessReviews = "selfsubjectaccessreviews"
	rulesReviews  = "selfsubjectrulesreviews"
	selfReviews   = "selfsubjectreviews"
)

// readVerbs are those that can be granted.
var readVerbs = []string{"get", "list", "watch"}

// reviewKind returns the kind of a self-subject review, "" if the request is none.
func reviewKind(r *http.Request, info *apirequest.RequestInfo) string {
	if r.Method != http.MethodPost || !info.IsResourceRequest || info.APIVersion != "v1" || info.Name != "" || info.Subresource != "" || info.Namespace != "" {
		return ""
	}
	switch (schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}) {
	case schema.GroupResource{Group: authorizationv1.GroupName, Resource: accessReviews}:
		return "SelfSubjectAccessReview"
	case schema.GroupResource{Group: authorizationv1.GroupName, Resource: rulesReviews}:
		return "SelfSubjectRulesReview"
	case schema.GroupResource{Group: authenticationv1.GroupName, Resource: selfReviews}:
		return "SelfSubjectReview"
	}
	return ""
}

// serveReview serves self-subject reviews: who the caller is, and what it may do.
func (s *Server) serveReview(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	if l := labelsOf(r.Context()); l != nil {
		l.setResource(info.Resource)
	}
	if dry := r.URL.Query()["dryRun"]; len(dry) > 0 && !slices.Equal(dry, []string{"All"}) {
		return apierrors.NewBadRequest("dryRun must be All")
	}
	object, err := decodeReview(r)
	if err != nil {
		return err
	}
	var answer runtime.Object
	switch review := object.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		err = s.reviewAccess(r.Context(), review)
		answer = review
	case *authorizationv1.SelfSubjectRulesReview:
		err = s.reviewRules(r.Context(), review)
		answer = review
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo = userInfo(s.callerOf(r.Context()).user)
		answer = review
	}
	if err != nil {
		return err
	}
	gvk := schema.GroupVersionKind{Group: info.APIGroup, Version: info.APIVersion, Kind: reviewKind(r, info)}
	if answer.GetObjectKind().GroupVersionKind().Kind != gvk.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is not an object of %s", info.Resource))
	}
	responsewriters.WriteObjectNegotiated(scheme.Codecs, negotiation.DefaultEndpointRestrictions, gvk.GroupVersion(), w, r, http.StatusCreated, answer, false)
	return nil
}

// userInfo describes a user in a SelfSubjectReview.
func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	if len(u.GetExtra()) > 0 {
		info.Extra = make(map[string]authenticationv1.ExtraValue, len(u.GetExtra()))
	}
	for key, values := range u.GetExtra() {
		info.Extra[key] = values
	}
	return info
}

// decodeReview reads a review, in JSON, YAML or protobuf. The body's size is bounded
// by the chain.
func decodeReview(r *http.Request) (runtime.Object, error) {
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the limit is %d bytes", large.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest("cannot read the body")
	}
	o, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest("the body is not a review: " + truncate(err.Error()))
	}
	o.GetObjectKind().SetGroupVersionKind(*gvk)
	switch o.(type) {
	case *authorizationv1.SelfSubjectAccessReview, *authorizationv1.SelfSubjectRulesReview, *authenticationv1.SelfSubjectReview:
		return o, nil
	}
	return nil, apierrors.NewBadRequest("the body is not a review")
}

// truncate bounds what is quoted from a request.
func truncate(s string) string {
	return clip.Text(s, 200)
}

func (s *Server) reviewAccess(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) error {
	resource, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	review.Status = authorizationv1.SubjectAccessReviewStatus{}
	switch {
	case (resource == nil) == (path == nil):
		return apierrors.NewBadRequest("exactly one of spec.resourceAttributes and spec.nonResourceAttributes is needed")
	case path != nil:
		review.Status.Allowed = path.Verb == "get" && isDiscoveryPath(path.Path)
		return nil
	case !slices.Contains(readVerbs, resource.Verb):
		review.Status.Reason = fmt.Sprintf("the query API is read-only: verb %q is not supported", truncate(resource.Verb))
		return nil
	case resource.Subresource != "":
		review.Status.Reason = "subresources are not served: " + route.MemberHint("")
		return nil
	}
	c := s.callerOf(ctx)
	gr := groupResource(resource)
	if unknown := s.locate(ctx, &c, gr, resource.Namespace, resource.Name); unknown != "" {
		review.Status.Reason = unknown
		return nil
	}
	grants, err := c.grants(ctx, resource.Verb, gr, s.members())
	if err != nil {
		return err
	}
	review.Status.Allowed, review.Status.Reason = s.explain(c, grants)
	return nil
}

// locate narrows the caller's request to what a namespace or name refers to. A flat name
// refers to a member; if it does not, locate returns the reason.
func (s *Server) locate(ctx context.Context, c *caller, gr schema.GroupResource, namespace, name string) (unknown string) {
	target, _ := route.TargetFrom(ctx)
	if !target.Flat() {
		c.namespace = namespace
		return ""
	}
	flatName, what := namespace, "namespace"
	if view, _ := s.view(route.Target{}); view.ClusterScoped(gr) { // kubectl sends the context's namespace anyway
		flatName, what = name, "object"
	}
	if flatName == "" {
		return ""
	}
	member, own, ok := flat.Split(flatName)
	if !ok {
		return fmt.Sprintf("no %s is called %q here: %s", what, truncate(flatName), resources.FlatNamesHint)
	}
	if c.member = member; what == "namespace" {
		c.namespace = own
	}
	return ""
}

// groupResource reads "*" as everything, as in a rule.
func groupResource(r *authorizationv1.ResourceAttributes) schema.GroupResource {
	if r.Resource == "*" || r.Group == "*" {
		return schema.GroupResource{Resource: "*"}
	}
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// explain describes in which members access is granted, and never how many others there are.
func (s *Server) explain(c caller, g *Grants) (bool, string) {
	if c.member != "" {
		reach := g.Member(c.member)
		switch {
		case reach.All:
			return true, "in " + c.member
		case len(reach.Namespaces) > 0:
			return true, fmt.Sprintf("in %d namespaces of %s", len(reach.Namespaces), c.member)
		}
		return false, "not in this member"
	}
	if g.Everything() {
		return true, "in every member"
	}
	var whole, partly int
	for _, m := range g.Members() {
		if g.Member(m).All {
			whole++
		} else {
			partly++
		}
	}
	switch {
	case whole == 0 && partly == 0:
		return false, "in no member"
	case partly == 0:
		return true, fmt.Sprintf("in %d members", whole)
	}
	return true, fmt.Sprintf("in %d members, and in some namespaces of %d more", whole, partly)
}

// isDiscoveryPath reports whether every caller may get a path, below a prefix.
func isDiscoveryPath(path string) bool {
	for _, p := range []string{"/version", "/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// maxRules bounds the resources in a SelfSubjectRulesReview, parallelRules how many are
// reviewed concurrently: each waits for the hub several times. maxReviews bounds the
// SubjectAccessReviews in all, which without grants grow with the number of members; a
// quarter more is for the wildcard resource.
const (
	maxRules      = 500
	parallelRules = 16
	maxReviews    = 2000
)

func (s *Server) reviewRules(ctx context.Context, review *authorizationv1.SelfSubjectRulesReview) error {
	c := s.callerOf(ctx)
	unknown := s.locate(ctx, &c, schema.GroupResource{}, review.Spec.Namespace, "")
	status := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    []authorizationv1.ResourceRule{},
		NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/version", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/healthz", "/livez", "/readyz"}}},
	}
	resources := s.resources()
	if len(resources) > maxRules {
		resources, status.Incomplete = resources[:maxRules], true
		status.EvaluationError = fmt.Sprintf("only the first %d resources were evaluated", maxRules)
	}
	all, _, err := c.allowedVerbs(authz.WithReviewLimit(ctx, maxReviews/4), schema.GroupResource{Resource: "*"})
	if err != nil && !errors.Is(err, authz.ErrTooManyReviews) {
		return err
	}
	if len(all) == len(readVerbs) {
		resources = nil
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{Verbs: all, APIGroups: []string{"*"}, Resources: []string{"*"}})
	}
	rules := make([]authorizationv1.ResourceRule, len(resources))
	some := make([]bool, len(resources))
	var skipped atomic.Int64 // resources that were not evaluated, or not for all verbs
	g, ctx := panicgroup.WithContext(authz.WithReviewLimit(ctx, maxReviews), parallelRules)
	for i, known := range resources {
		g.Go(func() (err error) {
			gr := known.GroupResource
			rules[i] = authorizationv1.ResourceRule{APIGroups: []string{gr.Group}, Resources: []string{gr.Resource}}
			rules[i].Verbs, some[i], err = c.allowedVerbs(ctx, gr)
			if errors.Is(err, authz.ErrTooManyReviews) {
				skipped.Add(1)
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	limited := slices.Contains(some, true)
	for _, rule := range rules {
		if len(rule.Verbs) > 0 {
			status.ResourceRules = append(status.ResourceRules, rule)
		}
	}
	incomplete := func(why string) {
		status.Incomplete = true
		status.EvaluationError = strings.TrimPrefix(status.EvaluationError+"; "+why, "; ")
	}
	if n := skipped.Load(); n > 0 {
		incomplete(fmt.Sprintf("%d resources were not evaluated: they need more SubjectAccessReviews than one review may create", n))
	}
	if limited && c.member == "" {
		incomplete("some rules apply in some members only")
	}
	if unknown != "" { // as for a namespace that does not exist: the rules that apply in all
		incomplete(unknown)
	}
	review.Status = status
	return nil
}

// allowedVerbs returns the verbs that the caller is granted anywhere in the scope of the
// request, and whether one of them is not granted everywhere.
func (c caller) allowedVerbs(ctx context.Context, gr schema.GroupResource) (verbs []string, limited bool, err error) {
	for _, verb := range readVerbs {
		g, err := c.grants(ctx, verb, gr, c.server.members())
		if err != nil {
			return nil, false, err
		}
		if !g.Empty() {
			verbs = append(verbs, verb)
			limited = limited || !g.Everything()
		}
	}
	return verbs, limited, nil
}
