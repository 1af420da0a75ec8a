// Package offline builds an index from manifests ([Fleet]) and saves and loads snapshots
// of one, without reaching a member.
package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"federator.dev/federator/internal/builtin"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/clusterfacts"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
)

// MemberAnnotation says in a manifest which member the object is of, as
// <namespace>/<name>.
const MemberAnnotation = "federator.dev/member"

// ErrManifest is what is wrong with what an Offline fleet was given.
var ErrManifest = errors.New("invalid manifest")

// Options configure an Offline fleet. The zero value serves.
type Options struct {
	DefaultMember    string // of objects without MemberAnnotation; "" means manifests/default
	DefaultNamespace string // of namespaced objects of the built-in kinds; "" means default
	KeepSecretValues bool
	// AsGiven says that objects without a namespace have none, and that the same object may be
	// given again, as for "gator test".
	AsGiven bool
}

// Fleet is a fleet read from manifests instead of members. What it was given is
// taken for all there is: a kind that a member has no object of is known to be
// empty there. A Cluster of Cluster API makes a member, with its labels and the
// version of its topology; it belongs to no member itself unless annotated. It
// belongs to one goroutine.
type Fleet struct {
	opts       Options
	members    map[string]*fileMember
	namespaced map[aggregate.Kind]bool   // custom kinds, by whether they have namespaces
	plurals    map[aggregate.Kind]string // their resources
	read       int                       // objects, so far
}

type fileMember struct {
	member  aggregate.Member
	objects map[aggregate.Ref]manifest
}

// manifest is one object that was read.
type manifest struct {
	source string // file and document, for messages
	object *unstructured.Unstructured
	order  int      // of all that were added
	again  []int    // the orders in which it was given again
	added  []string // fields of metadata that the object did not have
}

// New returns an empty fleet.
func New(opts Options) (*Fleet, error) {
	opts.DefaultMember = cmp.Or(opts.DefaultMember, "manifests/default")
	opts.DefaultNamespace = cmp.Or(opts.DefaultNamespace, "default")
	o := &Fleet{opts: opts, members: map[string]*fileMember{}, namespaced: map[aggregate.Kind]bool{}, plurals: map[aggregate.Kind]string{}}
	if !validMember(opts.DefaultMember) {
		return nil, fmt.Errorf("%w: member %q is not <namespace>/<name>", ErrManifest, opts.DefaultMember)
	}
	return o, nil
}

// Objects returns how many objects have been added.
func (o *Fleet) Objects() int {
	n := 0
	for _, m := range o.members {
		n += len(m.objects)
	}
	return n
}

// Origin is how an object was given.
type Origin struct {
	Source string   // file and document
	Order  int      // among all that were read
	Again  []int    // when it was given again
	Added  []string // fields of metadata that it did not have
}

// Origin returns how an object was given; the zero Origin if it was not.
func (o *Fleet) Origin(ref aggregate.Ref) Origin {
	m := o.members[ref.Member]
	if m == nil {
		return Origin{}
	}
	of := m.objects[ref]
	return Origin{Source: of.source, Order: of.order, Again: of.again, Added: of.added}
}

// member returns a member of that name, which there may not have been before.
func (o *Fleet) member(name string) *fileMember {
	m := o.members[name]
	if m == nil {
		m = &fileMember{
			member:  aggregate.Member{Name: name, UID: stableUID("member", name)},
			objects: map[aggregate.Ref]manifest{},
		}
		o.members[name] = m
	}
	return m
}

// add adds one object that is no list.
func (o *Fleet) add(m manifest, member string) error {
	gvk := m.object.GroupVersionKind()
	if gvk.Kind == "" || gvk.Version == "" {
		return m.refuse("apiVersion and kind are required")
	}
	annotated := m.object.GetAnnotations()[MemberAnnotation]
	if gvk.GroupKind() == clusterv1.GroupVersion.WithKind(clusterv1.ClusterKind).GroupKind() && annotated == "" {
		return o.addCluster(m)
	}
	kind := aggregate.MakeKind(gvk.Kind, gvk.Group)
	if gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition" {
		o.recordScope(m.object)
	}
	name := cmp.Or(annotated, member, o.opts.DefaultMember)
	if !validMember(name) {
		return m.refuse("member %q is not <namespace>/<name>", name)
	}
	if m.object.GetName() == "" {
		return m.refuse("%s without metadata.name", kind)
	}
	if m.object.GetNamespace() == "" && builtin.Namespaced(kind) && !o.opts.AsGiven {
		m.object.SetNamespace(o.opts.DefaultNamespace)
		m.added = append(m.added, "namespace")
	}
	ref := aggregate.Ref{Member: name, Kind: kind, Namespace: m.object.GetNamespace(), Name: m.object.GetName()}
	if m.object.GetUID() == "" {
		setString(m.object, stableUID(string(kind), ref.String()), "metadata", "uid")
		m.added = append(m.added, "uid")
	}
	if m.object.GetResourceVersion() == "" {
		m.object.SetResourceVersion("1")
		m.added = append(m.added, "resourceVersion")
	}
	m.order = o.read
	o.read++
	objects := o.member(name).objects
	if other, ok := objects[ref]; ok {
		if !o.opts.AsGiven || !reflect.DeepEqual(m.object, other.object) {
			return m.refuse("%s is also in %s", ref, other.source)
		}
		other.again = append(other.again, m.order)
		m = other
	}
	objects[ref] = m
	return nil
}

// addCluster makes a member of a Cluster.
func (o *Fleet) addCluster(m manifest) error {
	c := m.object
	name := cmp.Or(c.GetNamespace(), o.opts.DefaultNamespace) + "/" + c.GetName()
	if !validMember(name) {
		return m.refuse("a Cluster without metadata.name")
	}
	member := &o.member(name).member
	member.Labels, member.Cluster = sortedLabels(c.GetLabels()), clusterfacts.Of(c)
	if uid := c.GetUID(); uid != "" {
		member.UID = string(uid)
	}
	version, _, err := unstructured.NestedString(c.Object, "spec", "topology", "version")
	if err != nil {
		return m.refuse("%v", err)
	}
	member.Version = version
	return nil
}

// recordScope notes whether a custom kind has namespaces, and what its resource is called.
func (o *Fleet) recordScope(crd *unstructured.Unstructured) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")            //nolint:errcheck // A kind unknown stays as it is.
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")     //nolint:errcheck // As above.
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")            //nolint:errcheck // As above.
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural") //nolint:errcheck // As above.
	o.namespaced[aggregate.MakeKind(kind, group)] = scope == "Namespaced"
	o.plurals[aggregate.MakeKind(kind, group)] = plural
}

// Index returns an index of what was added. Scopes of the kinds given are complete
// in every member, as are those of the kinds that any member has objects of.
func (o *Fleet) Index(kinds []aggregate.Kind) (*aggregate.Index, error) {
	if err := o.defaultNamespaces(); err != nil {
		return nil, err
	}
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		return nil, err
	}
	if len(o.members) == 0 {
		o.member(o.opts.DefaultMember)
	}
	every := map[aggregate.Kind]string{}
	for _, kind := range kinds {
		every[kind] = ""
	}
	for _, m := range o.members {
		for ref, man := range m.objects {
			every[ref.Kind] = man.object.GetAPIVersion()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		m := o.members[name]
		if err := index.PutMember(m.member); err != nil {
			return nil, err
		}
		for _, kind := range slices.Sorted(maps.Keys(every)) {
			if err := o.fillScope(index, m, kind, every[kind]); err != nil {
				return nil, err
			}
		}
	}
	return index, nil
}

// defaultNamespaces gives objects of custom kinds their namespace, now that all
// definitions are known.
func (o *Fleet) defaultNamespaces() error {
	if o.opts.AsGiven {
		return nil
	}
	for _, m := range o.members {
		for ref, man := range m.objects {
			if ref.Namespace == "" && o.namespaced[ref.Kind] {
				delete(m.objects, ref)
				ref.Namespace = o.opts.DefaultNamespace
				if other, ok := m.objects[ref]; ok {
					return man.refuse("%s is also in %s", ref, other.source)
				}
				man.object.SetNamespace(ref.Namespace)
				man.added = append(man.added, "namespace")
				m.objects[ref] = man
			}
		}
	}
	return nil
}

// fillScope makes one scope of a member. version is the one that others hold the kind
// at.
func (o *Fleet) fillScope(index *aggregate.Index, m *fileMember, kind aggregate.Kind, version string) error {
	var held []aggregate.Ref
	for ref := range m.objects {
		if ref.Kind == kind {
			held = append(held, ref)
		}
	}
	slices.SortFunc(held, func(a, b aggregate.Ref) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	status := aggregate.Status{State: aggregate.Synced}
	if len(held) == 0 {
		status = aggregate.Status{State: aggregate.NotServed, Reason: "the manifests have none"}
	} else {
		version = m.objects[held[0]].object.GetAPIVersion()
	}
	scope, err := index.OpenScopeAs(m.member.Name, kind, version, o.plurals[kind])
	if err != nil {
		return err
	}
	defer scope.Close()
	items := make([]aggregate.Item, 0, len(held))
	var decoder *decode.Decoder
	for _, ref := range held {
		man := m.objects[ref]
		if v := man.object.GetAPIVersion(); v != version {
			return man.refuse("%s is at %s here and at %s in %s: a member's objects of one kind have one version",
				kind, v, version, m.objects[held[0]].source)
		}
		if decoder == nil {
			if decoder, err = decode.New(man.object.GroupVersionKind(), decode.JSON, o.rules(kind)); err != nil {
				return man.refuse("%v", err)
			}
		}
		item, err := encode(scope, decoder, man)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	_, err = scope.Replace(items, status)
	return err
}

func (o *Fleet) rules(kind aggregate.Kind) decode.Rules {
	return decode.Rules{Redact: !o.opts.KeepSecretValues && decode.Sensitive(kind)}
}

func encode(scope *aggregate.Scope, d *decode.Decoder, m manifest) (aggregate.Item, error) {
	data, err := json.Marshal(m.object.Object)
	if err != nil {
		return aggregate.Item{}, m.refuse("%v", err)
	}
	var rec aggregate.Record
	if err := ignoreUnfit(d.Object(data, &rec)); err != nil {
		return aggregate.Item{}, m.refuse("%v", err)
	}
	return scope.Item(&rec), nil
}

// ignoreUnfit returns no error for an object that decodes though no API server
// would let it in: files are their reader's own, and harm nobody else.
func ignoreUnfit(err error) error {
	if errors.Is(err, decode.ErrUnfit) && !errors.Is(err, decode.ErrMalformed) {
		return nil
	}
	return err
}

func (m manifest) refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrManifest, m.source, fmt.Sprintf(format, args...))
}

// stableUID is the same for the same object in every run.
func stableUID(parts ...string) string {
	data, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings always marshal
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, data).String()
}

func setString(u *unstructured.Unstructured, value string, fields ...string) {
	if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
		panic(err) // metadata has been read as an object
	}
}
