package sim

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var (
	verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}

	aggregated = []string{"g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"}
)

// serveDiscovery answers below /api and /apis, aggregated where the client takes that.
func (m *Member) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	kinds := slices.Clone(m.kinds)
	m.mu.Unlock()
	path := strings.Trim(r.URL.Path, "/")
	parts := strings.Split(path, "/")
	if len(parts) == 1 {
		core := parts[0] == "api"
		kinds = slices.DeleteFunc(kinds, func(k Kind) bool { return (k.Group == "") != core })
		if acceptsAggregated(r) {
			writeAggregated(w, r, kinds)
			return
		}
	}
	var body any
	switch {
	case path == "api":
		body = &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: m.address}},
		}
	case path == "apis":
		body = &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: apiGroups(kinds)}
	case parts[0] == "apis" && len(parts) == 2:
		groups := apiGroups(kinds)
		if i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == parts[1] }); i >= 0 {
			groups[i].TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			body = &groups[i]
		}
	case parts[0] == "api" && len(parts) == 2:
		body = resourceList(kinds, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3:
		body = resourceList(kinds, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	if list, ok := body.(*metav1.APIResourceList); body == nil || ok && list == nil {
		writeError(w, r, notServed(schema.GroupResource{}))
		return
	}
	writeBody(w, r, http.StatusOK, runtime.ContentTypeJSON, mustJSON(body))
}

func acceptsAggregated(r *http.Request) bool {
	for entry := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		params := strings.Split(strings.ReplaceAll(entry, " ", ""), ";")
		if params[0] == runtime.ContentTypeJSON && !slices.ContainsFunc(aggregated, func(p string) bool { return !slices.Contains(params, p) }) {
			return true
		}
	}
	return false
}

func writeAggregated(w http.ResponseWriter, r *http.Request, kinds []Kind) {
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for _, g := range apiGroups(kinds) {
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		for _, v := range g.Versions {
			served := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			for _, k := range kinds {
				if k.Group == g.Name && serves(k, v.Version) {
					served.Resources = append(served.Resources, aggregatedResource(k, v.Version))
				}
			}
			group.Versions = append(group.Versions, served)
		}
		list.Items = append(list.Items, group)
	}
	body := mustJSON(list)
	etag := fmt.Sprintf("%q", fmt.Sprintf("%X", sha256.Sum256(body)))
	w.Header().Set("ETag", etag)
	w.Header().Add("Vary", "Accept")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeBody(w, r, http.StatusOK, runtime.ContentTypeJSON+";"+strings.Join(aggregated, ";"), body)
}

func aggregatedResource(k Kind, version string) apidiscoveryv2.APIResourceDiscovery {
	scope := apidiscoveryv2.ScopeCluster
	if k.Namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	return apidiscoveryv2.APIResourceDiscovery{
		Resource:         k.Resource,
		ResponseKind:     &metav1.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Kind},
		Scope:            scope,
		SingularResource: strings.ToLower(k.Kind),
		Verbs:            verbs,
		ShortNames:       k.ShortNames,
	}
}

// apiGroups lists the groups in order of first appearance, "" included if there.
func apiGroups(kinds []Kind) []metav1.APIGroup {
	var groups []metav1.APIGroup
	for _, k := range kinds {
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == k.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, metav1.APIGroup{Name: k.Group})
		}
		for _, v := range k.Versions {
			gv := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: k.Group, Version: v}.String(), Version: v}
			if !slices.Contains(groups[i].Versions, gv) {
				groups[i].Versions = append(groups[i].Versions, gv)
			}
		}
	}
	for i := range groups {
		slices.SortStableFunc(groups[i].Versions, func(a, b metav1.GroupVersionForDiscovery) int {
			return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
		})
		groups[i].PreferredVersion = groups[i].Versions[0]
	}
	return groups
}

func resourceList(kinds []Kind, gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range kinds {
		if k.Group == gv.Group && serves(k, gv.Version) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource, SingularName: strings.ToLower(k.Kind), Namespaced: k.Namespaced,
				Kind: k.Kind, Verbs: verbs, ShortNames: k.ShortNames,
			})
		}
	}
	if list.APIResources == nil {
		return nil
	}
	return list
}
