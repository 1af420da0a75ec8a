package actions

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

func TestFindNamespace_IsWhereFederatorRuns(t *testing.T) {
	lease := func(namespace, name string) runtime.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	deployment := func(namespace, app string) runtime.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x", Labels: map[string]string{"app.kubernetes.io/name": app}}}
	}
	for _, test := range []struct {
		name      string
		given     string
		objects   []runtime.Object
		forbidden bool
		want, err string
	}{
		{"as given", "mine", []runtime.Object{lease("platform", "federator")}, false, "mine", ""},
		{"the Lease's", "", []runtime.Object{lease("kube-system", "scheduler"), lease("platform", "federator"), lease("platform", "federator-revisions")}, false, "platform", ""},
		{"the Deployment's before it has led", "", []runtime.Object{deployment("platform", "federator"), deployment("shop", "web")}, false, "platform", ""},
		{"the Lease's rather than a Deployment's", "", []runtime.Object{lease("platform", "federator"), deployment("old", "federator")}, false, "platform", ""},
		{"none yet", "", nil, false, "federator", ""},
		{"two", "", []runtime.Object{lease("a", "federator"), lease("b", "federator")}, false, "", "several namespaces, a, b: name one with --namespace"},
		{"not allowed to list, the default", "", []runtime.Object{lease("federator", "federator")}, true, "federator", ""},
		{"not allowed to list, another usual one", "", []runtime.Object{lease("federator-system", "federator")}, true, "federator-system", ""},
		{"not allowed to list, elsewhere", "", []runtime.Object{lease("platform", "federator")}, true, "", "name it with --namespace"},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			if test.forbidden {
				client.PrependReactor("list", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", nil)
				})
			}
			got, err := (&hubClient{client}).findNamespace(t.Context(), test.given)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}
