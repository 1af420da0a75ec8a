package catalog

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"

	"federator.dev/federator/pkg/aggregate"
)

// View is what the query API serves as of a snapshot, of the fleet or of one member.
type View struct {
	resources     map[schema.GroupVersionResource]*Resource
	kinds         map[aggregate.Kind]*Resource  // at the held version
	sorted        []*Resource                   // in the order of discovery
	clusterScoped map[schema.GroupResource]bool // no member serves it with namespaces
	served        []ServedResource              // by members, collected or not
	heldVersions  map[aggregate.Kind]string     // of the kinds that have a scope
	member        string                        // "": the whole fleet
	definitions   *definitionSet
	fingerprint   string // what a member's View was built from
	catalog       *Catalog

	mu      sync.Mutex
	members map[string]*View // by name; only in the fleet's View
}

// add adds a resource. The first kind at a path wins.
func (v *View) add(r *Resource) {
	if v.resources[r.Resource] != nil {
		return
	}
	v.resources[r.Resource] = r
	v.sorted = append(v.sorted, r)
	gr := r.Resource.GroupResource()
	before, known := v.clusterScoped[gr]
	v.clusterScoped[gr] = !r.Namespaced && len(r.ScopeDiffers) == 0 && (before || !known)
	if r.Resource.GroupVersion().String() == r.Held {
		v.kinds[r.Kind] = r
	}
}

// MissingReason is the reason why a resource is not served.
type MissingReason int

// The reasons.
const (
	NoMember     MissingReason = iota // no member serves it, or the requested one does not
	NotCollected                      // members serve it, but its kind is not collected by configuration
	OtherVersion                      // the kind is served, at other versions
)

// NotServedError is returned for a resource that is not served. It is an
// apierrors.APIStatus: 404.
type NotServedError struct {
	Resource schema.GroupVersionResource
	Member   string // "": the fleet
	Reason   MissingReason
	Versions []string // with OtherVersion: those that are served, e.g. "apps/v1", best first
}

// Error implements error.
func (e *NotServedError) Error() string {
	what := e.Resource.GroupResource().String() + " at " + e.Resource.GroupVersion().String()
	who := "no member serves it"
	if e.Member != "" {
		who = fmt.Sprintf("member %q does not serve it", e.Member)
	}
	switch e.Reason {
	case NotCollected:
		return what + " is not served: members have it, but its kind is not kept by configuration"
	case OtherVersion:
		return what + " is not served: it is at " + strings.Join(e.Versions, ", ")
	}
	return what + " is not served: " + who
}

// Status implements apierrors.APIStatus.
func (e *NotServedError) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: e.Error(),
		Details: &metav1.StatusDetails{Group: e.Resource.Group, Kind: e.Resource.Resource},
	}
}

// Resource returns a resource by its path: group, version and plural. The error is a
// *NotServedError.
func (v *View) Resource(group, version, resource string) (*Resource, error) {
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	if r, ok := v.resources[gvr]; ok {
		return r, nil
	}
	e := &NotServedError{Resource: gvr, Member: v.member}
	for _, r := range v.sorted {
		if r.Resource.GroupResource() == gvr.GroupResource() {
			e.Reason, e.Versions = OtherVersion, append(e.Versions, r.Resource.GroupVersion().String())
		}
	}
	if e.Reason == OtherVersion {
		return nil, e
	}
	for _, s := range v.served {
		if _, kept := v.heldVersions[s.Kind]; !kept && s.Resource.GroupResource() == gvr.GroupResource() {
			e.Reason = NotCollected
		}
	}
	return nil, e
}

// Kind returns a kind's resource at its held version.
func (v *View) Kind(kind aggregate.Kind) (*Resource, bool) {
	r, ok := v.kinds[kind]
	return r, ok
}

// ClusterScoped reports whether objects of a resource have no namespaces, in any member.
func (v *View) ClusterScoped(gr schema.GroupResource) bool { return v.clusterScoped[gr] }

// Resources yields all resources by group, in the order of API servers, by version, most
// stable first, and by plural.
func (v *View) Resources() iter.Seq[*Resource] { return slices.Values(v.sorted) }

// ByName returns a resource at its held version by a name as kubectl accepts it: plural,
// singular, short name or kind, in any case, optionally with ".<group>". Of several the
// first in the order of Resources wins; plurals precede singulars, kinds and short names.
func (v *View) ByName(name string) (*Resource, bool) {
	name = strings.ToLower(name)
	var best *Resource
	rank := 0
	for _, r := range v.sorted {
		if v.kinds[r.Kind] != r {
			continue
		}
		if n := r.nameRank(name); n > rank {
			best, rank = r, n
		}
	}
	return best, best != nil
}

// nameRank ranks how a name, in lower case, refers to the resource; 0: it does not.
func (r *Resource) nameRank(name string) int {
	kind, _ := r.Kind.Split()
	for i, own := range [...]string{r.Resource.Resource, r.Singular, kind} {
		own = strings.ToLower(own)
		if own != "" && (name == own || name == own+"."+r.Resource.Group || name == own+"."+r.Resource.Version+"."+r.Resource.Group) {
			return 4 - i
		}
	}
	for _, short := range r.ShortNames {
		short = strings.ToLower(short)
		if name == short || name == short+"."+r.Resource.Group {
			return 1
		}
	}
	return 0
}

// ForMember returns the view of one member: what it serves, by its own definitions, as of
// the snapshot. A member that is not in the index serves nothing.
func (v *View) ForMember(snapshot *aggregate.Snapshot, name string) *View {
	m, ok := snapshot.Member(name)
	has := map[aggregate.Kind]string{}
	var mark strings.Builder
	for scope := range snapshot.Scopes(name) {
		if isServed(scope) {
			has[scope.Kind] = scope.Version
			mark.WriteString(string(scope.Kind) + "=" + scope.Version + " ")
		}
	}
	mark.WriteString(strings.Join(m.APIs, " "))
	v.mu.Lock()
	defer v.mu.Unlock()
	if mv := v.members[name]; mv != nil && mv.fingerprint == mark.String() {
		return mv
	}
	mv := &View{
		kinds: map[aggregate.Kind]*Resource{}, resources: map[schema.GroupVersionResource]*Resource{}, clusterScoped: map[schema.GroupResource]bool{},
		served: v.served, heldVersions: v.heldVersions, member: name, definitions: v.definitions,
		fingerprint: mark.String(), catalog: v.catalog,
	}
	for _, s := range v.served {
		version, served := has[s.Kind]
		_, listed := slices.BinarySearch(m.APIs, s.Resource.GroupVersion().String())
		if !served || !s.servedBy(name) || !listed && s.Resource.GroupVersion().String() != version {
			continue
		}
		if r := newResource(s.forMember(name), version, v.definitions.of(name, s.Kind)); r != nil {
			mv.add(r)
		}
	}
	slices.SortFunc(mv.sorted, compareResources)
	if ok { // do not cache names that do not exist
		v.members[name] = mv
	}
	return mv
}

// groupOrder are the groups that come first in discovery, in kube-apiserver's order; the
// others follow by name.
var groupOrder = []string{
	"", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
	"autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
	"storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
	"coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
}

func compareGroups(a, b string) int {
	place := func(g string) int {
		if i := slices.Index(groupOrder, g); i >= 0 {
			return i
		}
		return len(groupOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
}

// compareVersions orders versions, or API versions of one group, most stable first.
func compareVersions(a, b string) int {
	return apiversion.CompareKubeAwareVersionStrings(afterSlash(b), afterSlash(a))
}

func afterSlash(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// libraryVersion is the version to report while no member's is known: that of the library
// that prints and converts.
const libraryVersion = "v1.36.0"

// lowestVersion returns the lowest version among the members' API servers, so that clients
// that check the version skew see the largest.
func lowestVersion(snapshot *aggregate.Snapshot, member string) string {
	lowest, text := (*version.Version)(nil), libraryVersion
	for m := range snapshot.Members() {
		if member != "" && m.Name != member {
			continue
		}
		if v, err := version.ParseGeneric(m.Version); err == nil && (lowest == nil || v.LessThan(lowest)) {
			lowest, text = v, m.Version
		}
	}
	return text
}
