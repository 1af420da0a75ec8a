package clusterinformers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/aggregate"
)

// libraryMinor is the minor version of the Kubernetes types that protobuf is
// decoded by: that of k8s.io/api in go.mod.
const libraryMinor = 36

func newerThanLibrary(v string) bool {
	parsed, err := utilversion.ParseGeneric(v)
	return err != nil || parsed.Major() != 1 || parsed.Minor() > libraryMinor
}

// bound carries a context into the discovery client, which takes none.
type bound struct {
	ctx  context.Context //nolint:containedctx // lives for one call of the discovery client
	base http.RoundTripper
}

// RoundTrip sends a request under the bound context.
func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.base.RoundTrip(r.WithContext(b.ctx))
}

func (a *access) discovery(ctx context.Context) (*discovery.DiscoveryClient, *failures, error) {
	client := *a.client
	failed := &failures{base: bound{ctx, client.Transport}}
	failed.left.Store(maxDiscovery)
	client.Transport = failed
	d, err := discovery.NewDiscoveryClientForConfigAndClient(a.config, &client)
	return d, failed, err
}

// version asks for the API server's version, "" where it does not tell.
func (a *access) version(ctx context.Context) (string, error) {
	c, err := a.rest(corev1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	const path = "/version"
	body, err := c.Get().AbsPath(path).MaxRetries(0).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil // not every server has it, or tells everybody: all is JSON then
	case err != nil:
		return "", requestError(path, err)
	}
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", &answerError{fmt.Errorf("GET %s: the answer is not an API server's: %w", path, err)}
	}
	return clip(info.GitVersion), nil
}

// clusterUID asks for the UID of kube-system, which tells clusters apart. The answer
// is not older than a resourceVersion, unless that is "".
func (a *access) clusterUID(ctx context.Context, notOlder string) (string, error) {
	c, err := a.rest(corev1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	const path = "/api/v1/namespaces/" + metav1.NamespaceSystem
	meta, err := metadataOf(ctx, c.Get().Resource("namespaces").Name(metav1.NamespaceSystem).
		VersionedParams(&metav1.GetOptions{ResourceVersion: notOlder}, scheme.ParameterCodec), path)
	return meta.UID, err
}

// identityMeta is what is asked of an answer. What else it says may be anything.
type identityMeta struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// metadataOf reads the metadata of an object or list. The error of an answer that has
// none is an *answerError, which says what is malformed.
func metadataOf(ctx context.Context, req *rest.Request, path string) (identityMeta, error) {
	result := req.SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // with the causes that a Status names, which Raw's has not
		return identityMeta{}, requestError(path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return identityMeta{}, requestError(path, err)
	}
	var answer struct {
		Metadata identityMeta `json:"metadata"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return identityMeta{}, &answerError{fmt.Errorf("GET %s: the answer is malformed: %w", path, err)}
	}
	return answer.Metadata, nil
}

// discover asks what is served. Of groups that cannot be told at the moment,
// such as those of an aggregated API server that is down, the last known is
// kept, and the groups are returned: silence is not absence. Kinds that
// contradict themselves or Kubernetes are not in the offer, but in refused.
func (a *access) discover(ctx context.Context, last offer) (o offer, silent map[string]bool, refused map[aggregate.Kind]string, err error) {
	d, requests, err := a.discovery(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	_, lists, err := d.ServerGroupsAndResources()
	failed := map[schema.GroupVersion]bool{}
	silent = map[string]bool{}
	var partial *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &partial):
		for gv := range partial.Groups {
			failed[gv], silent[gv.Group] = true, true
		}
	case err != nil:
		return nil, nil, nil, fmt.Errorf("discovery: %w", requests.name(err))
	}
	o = offer{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue // a member may write anything
		}
		o.add(gv, l.APIResources)
	}
	o.keep(last, failed)
	return o, silent, o.refuse(), nil
}

// maxKinds bounds what a member can make us follow, maxVersions what it can make all
// look at: the least preferred versions of a kind are not seen.
const (
	maxKinds    = 5000
	maxVersions = 16
)

// add takes in the resources of one group and version that can be listed and
// watched. Names that no API server would give are left out.
func (o offer) add(gv schema.GroupVersion, resources []metav1.APIResource) {
	if !validGroupVersion(gv) {
		return
	}
	for _, r := range resources {
		if strings.Contains(r.Name, "/") || !validNames(r) || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			continue
		}
		kind := aggregate.MakeKind(r.Kind, gv.Group)
		if len(o[kind]) >= maxVersions {
			continue
		}
		if slices.ContainsFunc(o[kind], func(have resource) bool { return have.gvr == gv.WithResource(r.Name) }) || len(o) >= maxKinds && o[kind] == nil {
			continue
		}
		o[kind] = append(o[kind], resource{
			gvr: gv.WithResource(r.Name), gvk: gv.WithKind(r.Kind), namespaced: r.Namespaced,
			names: names{together([]string{r.SingularName}), together(r.ShortNames), together(r.Categories)},
		})
	}
}

func (o offer) keep(last offer, failed map[schema.GroupVersion]bool) {
	for kind, versions := range last {
		for _, r := range versions {
			if failed[r.gvr.GroupVersion()] && len(o[kind]) < maxVersions && !slices.ContainsFunc(o[kind], r.same) {
				o[kind] = append(o[kind], r)
			}
		}
	}
}

// refuse takes out of the offer what would have an object stand under a resource
// that is not its kind's, and returns why, by kind: grants are by resource, so a
// kind and its resource are one to one over all versions of a member. Kubernetes'
// own are as builtinResources has them. Of custom kinds that contradict each other
// none is believed.
func (o offer) refuse() map[aggregate.Kind]string {
	refused := map[aggregate.Kind]string{}
	claims := map[schema.GroupResource][]aggregate.Kind{}
	for kind, versions := range o {
		for _, r := range versions {
			if owner, taken := builtinKinds[r.gvr.GroupResource()]; taken && o[owner] == nil {
				refused[owner] = fmt.Sprintf("the member serves %s as %s", r.gvr.GroupResource(), kind)
			}
		}
		versions, why := believable(kind, versions)
		if why != "" {
			refused[kind] = why
		}
		if len(versions) == 0 {
			delete(o, kind)
			continue
		}
		o[kind] = versions
		of := versions[0].gvr.GroupResource()
		claims[of] = append(claims[of], kind)
	}
	for resource, kinds := range claims {
		if len(kinds) == 1 {
			continue
		}
		slices.Sort(kinds)
		for _, kind := range kinds {
			refused[kind] = fmt.Sprintf("the member serves %s as %s", resource, together(stringsOf(kinds)))
			delete(o, kind)
		}
	}
	return refused
}

// believable returns the versions of a kind that are of its one resource, and why
// others are not.
func believable(kind aggregate.Kind, versions []resource) ([]resource, string) {
	want, builtin := builtinResources[kind]
	why := ""
	var kept []resource
	for _, r := range versions {
		of := r.gvr.GroupResource()
		owner, taken := builtinKinds[of]
		switch {
		case builtin && of != want:
			why = fmt.Sprintf("the member serves it as %s at %s, and not as %s", of, r.gvr.Version, want)
			continue
		case taken && owner != kind:
			why = fmt.Sprintf("the member serves it as %s at %s, which is %s", of, r.gvr.Version, owner)
			continue
		case !builtin && of != versions[0].gvr.GroupResource():
			return nil, fmt.Sprintf("the member serves it as %s and as %s", versions[0].gvr.GroupResource(), of)
		}
		if builtin {
			r.namespaced = !clusterScoped[kind]
		}
		kept = append(kept, r)
	}
	return kept, why
}

func stringsOf(kinds []aggregate.Kind) []string {
	out := make([]string, len(kinds))
	for i, kind := range kinds {
		out[i] = string(kind)
	}
	return out
}

func sortedStrings(set map[schema.GroupVersion]bool) []string {
	out := make([]string, 0, len(set))
	for gv := range maps.Keys(set) {
		out = append(out, gv.String())
	}
	slices.Sort(out)
	return out
}
