package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"federator.dev/federator/internal/builtin"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/memberclient"
)

// ErrUnchanged is the error of a discovery that would find what the last one found.
var ErrUnchanged = memberclient.ErrUnchanged

// Discover gets what a member serves. last is what Discover returned for this member before, nil for
// nothing; where the member says that its answers to c would be those of the last time, the error is
// ErrUnchanged. Of groups that it cannot list at the moment, such as those of an aggregated API
// server that is down, the last known is kept, and the groups are returned: unavailable is not
// absent. Kinds that contradict themselves or Kubernetes are rejected, with why.
func Discover(ctx context.Context, c *memberclient.Client, last APIResources) (o APIResources, unavailable map[string]bool, rejected map[aggregate.Kind]string, err error) {
	lists, failed, err := c.ServerResources(ctx, last != nil)
	if err != nil {
		return nil, nil, nil, err
	}
	unavailable = map[string]bool{}
	for gv := range failed {
		unavailable[gv.Group] = true
	}
	o = APIResources{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue // a member may write anything
		}
		o.add(gv, l.APIResources)
	}
	o.keepUnavailable(last, failed)
	return o, unavailable, o.rejectContradictions(), nil
}

// MaxKinds bounds what a member can make us follow, maxVersions what it can make all
// look at: the least preferred versions of a kind are not seen.
const (
	MaxKinds    = 5000
	maxVersions = 16
)

// add takes in the resources of one group and version that can be listed and
// watched. Names that no API server would give are left out.
func (o APIResources) add(gv schema.GroupVersion, resources []metav1.APIResource) {
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
		if slices.ContainsFunc(o[kind], func(have APIResource) bool { return have.GVR == gv.WithResource(r.Name) }) || len(o) >= MaxKinds && o[kind] == nil {
			continue
		}
		o[kind] = append(o[kind], APIResource{
			GVR: gv.WithResource(r.Name), GVK: gv.WithKind(r.Kind), Namespaced: r.Namespaced,
			names: names{joinNames([]string{r.SingularName}), joinNames(r.ShortNames), joinNames(r.Categories)},
		})
	}
}

func (o APIResources) keepUnavailable(last APIResources, failed map[schema.GroupVersion]bool) {
	for kind, versions := range last {
		for _, r := range versions {
			if failed[r.GVR.GroupVersion()] && len(o[kind]) < maxVersions && !slices.ContainsFunc(o[kind], r.Same) {
				o[kind] = append(o[kind], r)
			}
		}
	}
}

// rejectContradictions removes what would put an object under a resource
// that is not its kind's, and returns why, by kind: grants are by resource, so a
// kind and its resource are one to one over all versions of a member. Kubernetes'
// own are as package builtin has them. Of custom kinds that contradict each other
// none is believed.
func (o APIResources) rejectContradictions() map[aggregate.Kind]string {
	refused := map[aggregate.Kind]string{}
	claims := map[schema.GroupResource][]aggregate.Kind{}
	for kind, versions := range o {
		for _, r := range versions {
			if owner, taken := builtin.KindOf(r.GVR.GroupResource()); taken && o[owner] == nil {
				refused[owner] = fmt.Sprintf("the member serves %s as %s", r.GVR.GroupResource(), kind)
			}
		}
		versions, why := consistent(kind, versions)
		if why != "" {
			refused[kind] = why
		}
		if len(versions) == 0 {
			delete(o, kind)
			continue
		}
		o[kind] = versions
		of := versions[0].GVR.GroupResource()
		claims[of] = append(claims[of], kind)
	}
	for resource, kinds := range claims {
		if len(kinds) == 1 {
			continue
		}
		slices.Sort(kinds)
		for _, kind := range kinds {
			refused[kind] = fmt.Sprintf("the member serves %s as %s", resource, joinNames(kindStrings(kinds)))
			delete(o, kind)
		}
	}
	return refused
}

// consistent returns the versions of a kind that are of its one resource, and why
// others are not.
func consistent(kind aggregate.Kind, versions []APIResource) ([]APIResource, string) {
	want, isBuiltin := builtin.Resource(kind)
	why := ""
	var kept []APIResource
	for _, r := range versions {
		of := r.GVR.GroupResource()
		owner, taken := builtin.KindOf(of)
		switch {
		case isBuiltin && of != want:
			why = fmt.Sprintf("the member serves it as %s at %s, and not as %s", of, r.GVR.Version, want)
			continue
		case taken && owner != kind:
			why = fmt.Sprintf("the member serves it as %s at %s, which is %s", of, r.GVR.Version, owner)
			continue
		case !isBuiltin && of != versions[0].GVR.GroupResource():
			return nil, fmt.Sprintf("the member serves it as %s and as %s", versions[0].GVR.GroupResource(), of)
		}
		if isBuiltin {
			r.Namespaced = builtin.Namespaced(kind)
		}
		kept = append(kept, r)
	}
	return kept, why
}

func kindStrings(kinds []aggregate.Kind) []string {
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

// validGroupVersion and validNames report what an API server would let be served:
// anything else is meant to be taken for something that it is not, such as kind
// "ClusterRole.rbac.authorization.k8s.io" of the core group.
func validGroupVersion(gv schema.GroupVersion) bool {
	return (gv.Group == "" || len(validation.IsDNS1123Subdomain(gv.Group)) == 0) && len(validation.IsDNS1035Label(gv.Version)) == 0
}

func validNames(r metav1.APIResource) bool {
	return len(validation.IsDNS1035Label(r.Name)) == 0 && len(validation.IsDNS1035Label(strings.ToLower(r.Kind))) == 0
}

// APIResource is how one member serves one kind at one version.
type APIResource struct {
	GVR        schema.GroupVersionResource
	GVK        schema.GroupVersionKind
	Namespaced bool
	names      names
}

// names are what else a resource is called by. Lists are joined with commas:
// resources are compared.
type names struct{ singular, short, categories string }

// Same reports whether two are listed and watched alike, whatever they are called.
func (r APIResource) Same(other APIResource) bool {
	return r.GVR == other.GVR && r.GVK == other.GVK && r.Namespaced == other.Namespaced
}

// APIResources is what one member serves: for each kind its versions, most preferred
// first.
type APIResources map[aggregate.Kind][]APIResource

// GroupVersions returns the groups and versions that are served, sorted.
func (o APIResources) GroupVersions() []string {
	seen := map[schema.GroupVersion]bool{}
	for _, versions := range o {
		for _, r := range versions {
			seen[r.GVR.GroupVersion()] = true
		}
	}
	return sortedStrings(seen)
}

// What a member calls a resource by is bounded.
const (
	maxNames      = 16
	maxNameLength = 253
)

func joinNames(list []string) string {
	var kept []string
	for _, name := range list[:min(len(list), maxNames)] {
		if name != "" && len(name) <= maxNameLength && !strings.Contains(name, ",") {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, ",")
}

func splitNames(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}
