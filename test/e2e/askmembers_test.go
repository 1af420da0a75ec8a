package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/queryapi"
)

// TestAskMembers_GrantsWhatTheHubDoesNot has a member's own RBAC let a caller
// read one namespace of it, by a name that only federator gives out.
func TestAskMembers_GrantsWhatTheHubDoesNot(t *testing.T) {
	r := newQueryRig(t, "ask-members", 2)
	if err := r.api.stop(); err != nil {
		t.Fatal(err)
	}
	r.story.api = nil
	for _, c := range r.members {
		err := c.Apply(t.Context(), []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: theirs}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: in, namespace: theirs}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: out, namespace: default}
`))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.members[0].Apply(t.Context(), []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: theirs}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: theirs}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "hub:ann"}]
`)); err != nil {
		t.Fatal(err)
	}
	r.exact(t)
	api, err := serveQueries(r.story.fed, r.story.hub, t.TempDir(), func(o *queryapi.Options) {
		o.Authorization.Members, o.Authorization.UserPrefix = r.story.fed.manager, "hub:"
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.stop(); err != nil {
			t.Error(err)
		}
	})
	as := func(user string) kubernetes.Interface {
		config, err := api.config("fleet", user)
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	var list *corev1.ConfigMapList
	err = until(t.Context(), patience, func() (err error) {
		list, err = as("ann").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, cm := range list.Items {
		if cm.Namespace != "theirs" || cm.Annotations["federator.dev/member"] != r.names[0] {
			t.Errorf("%s/%s of %s is shown", cm.Namespace, cm.Name, cm.Annotations["federator.dev/member"])
		}
	}
	if len(list.Items) == 0 {
		t.Error("nothing is shown")
	}
	// The same name without the prefix, and somebody else, are nobody there.
	for _, user := range []string{"hub:ann", "bob"} {
		if _, err := as(user).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want Forbidden", user, err)
		}
	}
	if _, err := as("ann").CoreV1().Secrets("theirs").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: %v, want Forbidden", err)
	}
}
