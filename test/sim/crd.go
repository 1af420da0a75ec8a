package sim

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

var (
	crdResource       = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	namespaceResource = schema.GroupResource{Resource: "namespaces"}
)

// AddKind serves one more kind, or other versions of one that is served: then, as with a
// real server, its watches end and its history is forgotten. Objects stay.
func (m *Member) AddKind(k Kind) error {
	if err := k.validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addKind(k)
	return nil
}

// RemoveKind stops serving a kind and forgets its objects; their deletions are still sent.
func (m *Member) RemoveKind(kind schema.GroupResource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeKind(kind)
}

// addKind needs m.mu.
func (m *Member) addKind(k Kind) {
	gr := k.GroupResource()
	old := m.tables[gr]
	if old == nil {
		m.tables[gr] = newTable(k, m.opts.History, m.rv)
		m.kinds = append(m.kinds, k)
		return
	}
	m.kinds[slices.IndexFunc(m.kinds, func(o Kind) bool { return o.GroupResource() == gr })] = k
	// Requests under way hold the old table: it must not change under them.
	next := newTable(k, m.opts.History, m.rv)
	next.objects = *old.objects.Copy()
	m.tables[gr] = next
	old.removed = true
	old.dropWatches()
}

// removeKind needs m.mu.
func (m *Member) removeKind(gr schema.GroupResource) {
	t := m.tables[gr]
	if t == nil {
		return
	}
	for _, it := range t.objects.Values() {
		m.rv++
		t.commit(event{rv: m.rv, prev: it})
	}
	t.removed = true
	t.dropWatches()
	delete(m.tables, gr)
	m.kinds = slices.DeleteFunc(m.kinds, func(k Kind) bool { return k.GroupResource() == gr })
}

// seed creates what every cluster has from the start.
func (m *Member) seed() error {
	if m.tables[namespaceResource] == nil {
		return nil
	}
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if err := m.Create(ns); err != nil {
			return err
		}
	}
	return nil
}

// establish fills in the status that the API server's controllers write.
func establish(obj Object) error {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return errors.New("a CustomResourceDefinition must be given as its Go type")
	}
	if len(crd.Spec.Versions) == 0 || crd.Spec.Names.Plural == "" || crd.Name != crd.Spec.Names.Plural+"."+crd.Spec.Group {
		return fmt.Errorf("CustomResourceDefinition %q needs versions and the name <plural>.<group>", crd.Name)
	}
	if crd.Spec.Names.ListKind == "" {
		crd.Spec.Names.ListKind = crd.Spec.Names.Kind + "List"
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	if len(crd.Status.Conditions) == 0 {
		for _, c := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
			crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
				Type: c, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: crd.CreationTimestamp,
			})
		}
	}
	crd.Status.StoredVersions = nil
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			crd.Status.StoredVersions = []string{v.Name}
		}
	}
	return nil
}

// installCRD serves what a CustomResourceDefinition defines. It needs m.mu.
func (m *Member) installCRD(obj Object) error {
	crd := obj.(*apiextensionsv1.CustomResourceDefinition) // establish has looked
	k := Kind{
		Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind, Resource: crd.Spec.Names.Plural,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, ShortNames: crd.Spec.Names.ShortNames,
	}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			k.Versions = append(k.Versions, v.Name)
		}
	}
	slices.SortFunc(k.Versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	if len(k.Versions) == 0 {
		m.removeKind(k.GroupResource())
		return nil
	}
	if old := m.tables[k.GroupResource()]; old != nil && equalKinds(old.kind, k) {
		return nil
	}
	if _, err := goTypes.New(schema.GroupVersionKind{Group: k.Group, Version: k.Versions[0], Kind: k.Kind}); !runtime.IsNotRegisteredError(err) {
		return apierrors.NewBadRequest(fmt.Sprintf("%s is a built-in kind", k.GroupResource()))
	}
	m.addKind(k)
	return nil
}

func (m *Member) removeCRD(obj Object) {
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		m.removeKind(schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural})
	}
}

func equalKinds(a, b Kind) bool {
	return a.Kind == b.Kind && a.Namespaced == b.Namespaced &&
		slices.Equal(a.Versions, b.Versions) && slices.Equal(a.ShortNames, b.ShortNames)
}

// table finds the table of a kind that is served.
func (m *Member) table(gr schema.GroupResource) (*table, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.tables[gr]; t != nil {
		return t, nil
	}
	return nil, notServed(gr)
}

// tableFor finds the table of an object's kind.
func (m *Member) tableFor(obj Object) (*table, error) {
	gk, err := kindOf(obj)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kinds {
		if k.Group == gk.Group && k.Kind == gk.Kind {
			return m.tables[k.GroupResource()], nil
		}
	}
	return nil, fmt.Errorf("sim: member %q does not serve %s", m.name, gk)
}

func notServed(gr schema.GroupResource) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{Group: gr.Group, Kind: gr.Resource},
	}}
}
