package clusterinformers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

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

func (a *access) discovery(ctx context.Context) (*discovery.DiscoveryClient, error) {
	client := *a.client
	client.Transport = bound{ctx, client.Transport}
	return discovery.NewDiscoveryClientForConfigAndClient(a.config, &client)
}

// version asks for the API server's version.
func (a *access) version(ctx context.Context) (string, error) {
	d, err := a.discovery(ctx)
	if err != nil {
		return "", err
	}
	info, err := d.ServerVersion()
	if err != nil {
		return "", err
	}
	return clip(info.GitVersion), nil
}

// clusterUID asks for the UID of kube-system, which tells clusters apart.
func (a *access) clusterUID(ctx context.Context) (string, error) {
	c, err := a.rest(corev1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	var ns corev1.Namespace
	if err := c.Get().Resource("namespaces").Name(metav1.NamespaceSystem).MaxRetries(0).Do(ctx).Into(&ns); err != nil {
		return "", err
	}
	return string(ns.UID), nil
}

// discover asks what is served. Of groups that cannot be told at the moment,
// such as those of an aggregated API server that is down, the last known is
// kept, and the groups are returned: silence is not absence.
func (a *access) discover(ctx context.Context, last offer) (o offer, silent map[string]bool, err error) {
	d, err := a.discovery(ctx)
	if err != nil {
		return nil, nil, err
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
		return nil, nil, fmt.Errorf("discovery: %w", err)
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
	return o, silent, nil
}

// maxKinds bounds what a member can make us follow.
const maxKinds = 5000

// add takes in the resources of one group and version that can be listed and
// watched.
func (o offer) add(gv schema.GroupVersion, resources []metav1.APIResource) {
	for _, r := range resources {
		if strings.Contains(r.Name, "/") || r.Kind == "" || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
			continue
		}
		kind := aggregate.MakeKind(r.Kind, gv.Group)
		if slices.ContainsFunc(o[kind], func(have resource) bool { return have.gvr.Version == gv.Version }) || len(o) >= maxKinds && o[kind] == nil {
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
			if failed[r.gvr.GroupVersion()] && !slices.ContainsFunc(o[kind], r.same) {
				o[kind] = append(o[kind], r)
			}
		}
	}
}

func sortedStrings(set map[schema.GroupVersion]bool) []string {
	out := make([]string, 0, len(set))
	for gv := range maps.Keys(set) {
		out = append(out, gv.String())
	}
	slices.Sort(out)
	return out
}
