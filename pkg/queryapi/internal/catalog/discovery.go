package catalog

import (
	"encoding/json"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strconv"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	apidiscoveryconversion "k8s.io/apiserver/pkg/apis/apidiscovery/v2"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// unaggregatedCodecs encodes the unaggregated documents, aggregates the aggregated ones.
var (
	unaggregatedCodecs = serializer.NewCodecFactory(unaggregatedScheme())
	aggregatedCodecs   = serializer.NewCodecFactory(aggregatedScheme())
)

func unaggregatedScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.APIVersions{}, &metav1.APIGroup{}, &metav1.APIGroupList{}, &metav1.APIResourceList{}, &metav1.Status{})
	return scheme
}

func aggregatedScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(apidiscoveryv2.AddToScheme(scheme))
	utilruntime.Must(apidiscoveryv2beta1.AddToScheme(scheme))
	utilruntime.Must(apidiscoveryconversion.RegisterConversions(scheme))
	return scheme
}

// readVerbs are the verbs of every collected resource.
var readVerbs = metav1.Verbs{"get", "list", "watch"}

// reviewResource is a resource of reviews, which are created and not stored.
type reviewResource struct {
	version schema.GroupVersion
	metav1.APIResource
}

// reviews, by group.
var reviews = []reviewResource{
	{authenticationVersion, metav1.APIResource{Name: "selfsubjectreviews", SingularName: "selfsubjectreview", Kind: "SelfSubjectReview", Verbs: metav1.Verbs{"create"}}},
	{authorizationVersion, metav1.APIResource{Name: "selfsubjectaccessreviews", SingularName: "selfsubjectaccessreview", Kind: "SelfSubjectAccessReview", Verbs: metav1.Verbs{"create"}}},
	{authorizationVersion, metav1.APIResource{Name: "selfsubjectrulesreviews", SingularName: "selfsubjectrulesreview", Kind: "SelfSubjectRulesReview", Verbs: metav1.Verbs{"create"}}},
}

var (
	authenticationVersion = schema.GroupVersion{Group: "authentication.k8s.io", Version: "v1"}
	authorizationVersion  = schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}
)

// ServeDiscovery serves discovery: /, /version, /api and /apis with everything below that is
// not a resource, /openapi, and /healthz, /livez and /readyz. Documents are as in
// kube-apiserver, discovery in JSON, YAML or protobuf, aggregated or not, by the Accept
// header. Errors are *apierrors.StatusError, without anything written.
func (v *View) ServeDiscovery(w http.ResponseWriter, r *http.Request, snapshot *aggregate.Snapshot, target route.Target) error {
	parts := strings.Split(strings.Trim(target.Path, "/"), "/")
	switch {
	case target.Path == "/" || target.Path == "":
		return writeJSON(w, metav1.RootPaths{Paths: v.rootPaths()})
	case target.Path == "/version":
		return writeJSON(w, versionInfo(lowestVersion(snapshot, target.Member)))
	case isHealth(parts):
		return serveHealth(w, r, parts)
	case target.Path == "/openapi/v2":
		return v.serveOpenAPIv2(w, r)
	case parts[0] == "openapi":
		return v.serveOpenAPI(w, r, target)
	case parts[0] == "api" && len(parts) == 1:
		return v.serveRoot(w, r, true)
	case parts[0] == "apis" && len(parts) == 1:
		return v.serveRoot(w, r, false)
	case parts[0] == "api" && len(parts) == 2:
		return v.serveVersion(w, r, target, schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 2:
		return v.serveGroup(w, r, target, parts[1])
	case parts[0] == "apis" && len(parts) == 3:
		return v.serveVersion(w, r, target, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return notFound(target)
}

func notFound(target route.Target) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("nothing is served at %q", target.Path),
		Details: &metav1.StatusDetails{},
	}}
}

func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client may be gone
	return nil
}

// versionInfo returns the response of /version for a version.
func versionInfo(text string) apiversion.Info {
	info := apiversion.Info{
		GitVersion: text, GitTreeState: "clean", Compiler: goruntime.Compiler, GoVersion: goruntime.Version(),
		Platform: goruntime.GOOS + "/" + goruntime.GOARCH,
	}
	if parsed, err := version.ParseGeneric(text); err == nil {
		info.Major, info.Minor = fmt.Sprint(parsed.Major()), fmt.Sprint(parsed.Minor())
	}
	return info
}

func (v *View) rootPaths() []string {
	paths := []string{"/api"}
	last := ""
	for _, g := range v.groupVersions() {
		if g.group == "" {
			for _, version := range g.versions {
				paths = append(paths, "/api/"+version)
			}
			paths = append(paths, "/apis")
			continue
		}
		if g.group != last {
			paths = append(paths, "/apis/"+g.group)
			last = g.group
		}
		for _, version := range g.versions {
			paths = append(paths, "/apis/"+g.group+"/"+version)
		}
	}
	return append(paths, "/healthz", "/healthz/ping", "/livez", "/livez/ping", "/openapi/v2", "/openapi/v3", "/readyz", "/readyz/ping", "/version")
}

// groupVersions is a group and its versions, most stable first.
type groupVersions struct {
	group    string
	versions []string
}

// groupVersions returns the groups in the order of discovery, always with the core group and
// those of the reviews.
func (v *View) groupVersions() []groupVersions {
	out := []groupVersions{{"", []string{"v1"}}}
	add := func(gv schema.GroupVersion) {
		g := &out[len(out)-1]
		if g.group != gv.Group {
			out = append(out, groupVersions{gv.Group, []string{gv.Version}})
		} else if g.versions[len(g.versions)-1] != gv.Version {
			g.versions = append(g.versions, gv.Version)
		}
	}
	versions := []schema.GroupVersion{authenticationVersion, authorizationVersion}
	for _, r := range v.sorted {
		for len(versions) > 0 && compareGroups(r.Resource.Group, versions[0].Group) >= 0 {
			add(versions[0])
			versions = versions[1:]
		}
		add(r.Resource.GroupVersion())
	}
	for _, gv := range versions {
		add(gv)
	}
	return out
}

// serveRoot serves /api and /apis.
func (v *View) serveRoot(w http.ResponseWriter, r *http.Request, core bool) error {
	w.Header().Add("Vary", "Accept")
	media, _ := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), aggregatedCodecs.SupportedMediaTypes(), discoveryRestrictions{})
	if (discoveryRestrictions{}).AllowsMediaTypeTransform("", "", media.Convert) {
		return v.writeAggregated(w, r, core, media.Convert.GroupVersion())
	}
	if core {
		writeNegotiated(w, r, &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: v.groupVersions()[0].versions,
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
		})
		return nil
	}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, g := range v.groupVersions()[1:] {
		list.Groups = append(list.Groups, g.apiGroup())
	}
	writeNegotiated(w, r, list)
	return nil
}

// discoveryRestrictions also allows aggregated discovery at its beta version, which
// kube-apiserver has dropped: the content is the same.
type discoveryRestrictions struct{}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (discoveryRestrictions) AllowsMediaTypeTransform(_, _ string, gvk *schema.GroupVersionKind) bool {
	return gvk != nil && gvk.Kind == "APIGroupDiscoveryList" &&
		(gvk.GroupVersion() == apidiscoveryv2.SchemeGroupVersion || gvk.GroupVersion() == apidiscoveryv2beta1.SchemeGroupVersion)
}

// AllowsServerVersion implements negotiation.EndpointRestrictions.
func (discoveryRestrictions) AllowsServerVersion(string) bool { return false }

// AllowsStreamSchema implements negotiation.EndpointRestrictions.
func (discoveryRestrictions) AllowsStreamSchema(s string) bool { return s == "watch" }

func (v *View) writeAggregated(w http.ResponseWriter, r *http.Request, core bool, version schema.GroupVersion) error {
	list := v.aggregated(core)
	encoded, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	etag := strconv.Quote(etagOf(string(encoded)))
	w.Header().Set("Etag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	responsewriters.WriteObjectNegotiated(aggregatedCodecs, discoveryRestrictions{}, version, w, r, http.StatusOK, list, true)
	return nil
}

func writeNegotiated(w http.ResponseWriter, r *http.Request, object runtime.Object) {
	responsewriters.WriteObjectNegotiated(unaggregatedCodecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, object, false)
}

func (g groupVersions) apiGroup() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.group}
	for _, version := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.group + "/" + version, Version: version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func (v *View) serveGroup(w http.ResponseWriter, r *http.Request, target route.Target, name string) error {
	for _, g := range v.groupVersions()[1:] {
		if g.group == name {
			group := g.apiGroup()
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			writeNegotiated(w, r, &group)
			return nil
		}
	}
	return notFound(target)
}

func (v *View) serveVersion(w http.ResponseWriter, r *http.Request, target route.Target, gv schema.GroupVersion) error {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
	}
	for _, r := range v.sorted {
		if r.Resource.GroupVersion() != gv {
			continue
		}
		kind, _ := r.Kind.Split()
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.Resource.Resource, SingularName: r.singular(), Namespaced: r.Namespaced, Kind: kind,
			Verbs: readVerbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for _, review := range reviews {
		if review.version == gv {
			list.APIResources = append(list.APIResources, review.APIResource)
		}
	}
	if len(list.APIResources) == 0 && gv != (schema.GroupVersion{Version: "v1"}) {
		return notFound(target)
	}
	writeNegotiated(w, r, list)
	return nil
}

// singular is the resource's own, or its kind in lower case, as in API servers.
func (r *Resource) singular() string {
	if r.Singular != "" {
		return r.Singular
	}
	kind, _ := r.Kind.Split()
	return strings.ToLower(kind)
}

// aggregated returns the aggregated document of the core group or of the others.
func (v *View) aggregated(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{}}
	for _, g := range v.groupVersions() {
		if (g.group == "") != core {
			continue
		}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.group}}
		for _, version := range g.versions {
			item.Versions = append(item.Versions, v.aggregatedVersion(schema.GroupVersion{Group: g.group, Version: version}))
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func (v *View) aggregatedVersion(gv schema.GroupVersion) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{
		Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: []apidiscoveryv2.APIResourceDiscovery{},
	}
	for _, r := range v.sorted {
		if r.Resource.GroupVersion() != gv {
			continue
		}
		kind := metav1.GroupVersionKind(r.GroupVersionKind())
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Resource.Resource, ResponseKind: &kind, Scope: scope, SingularResource: r.singular(),
			Verbs: readVerbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for _, review := range reviews {
		if review.version != gv {
			continue
		}
		out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: review.Name, ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: review.Kind},
			Scope: apidiscoveryv2.ScopeCluster, SingularResource: review.SingularName, Verbs: review.Verbs,
		})
	}
	return out
}
