package kube_test

import (
	"bytes"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"federator.dev/federator/test/kube"
)

func clusters(t *testing.T, h *kube.Hub, version string) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(h.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: version, Resource: "clusters"}).Namespace("fleet")
}

func get(t *testing.T, r dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := r.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestHub_ActsAsClusterAPI(t *testing.T) {
	h := kube.StartTest(t, kube.Options{HubCRDs: []string{"cluster.x-k8s.io_machines"}}).Hub
	t.Run("through a Cluster's life", func(t *testing.T) { clusterLife(t, h) })
	t.Run("a Cluster without kubeconfig gets one later", func(t *testing.T) { lateKubeconfig(t, h) })
	t.Run("further CRDs are served", func(t *testing.T) {
		eventually(t, 10*time.Second, "Machines", func() bool {
			_, err := h.Client().Discovery().RESTClient().Get().AbsPath("/apis/cluster.x-k8s.io/v1beta2/machines").DoRaw(t.Context())
			return err == nil
		})
	})
}

func clusterLife(t *testing.T, h *kube.Hub) {
	ctx := t.Context()
	err := h.Register(ctx, kube.Cluster{Namespace: "fleet", Name: "eu-1", Labels: map[string]string{"region": "eu"}, Kubeconfig: []byte("one")})
	if err != nil {
		t.Fatal(err)
	}
	r := clusters(t, h, kube.V1Beta2)
	u := get(t, r, "eu-1")
	if ok, _, _ := unstructured.NestedBool(u.Object, "status", "initialization", "controlPlaneInitialized"); !ok {
		t.Errorf("status %v, want an initialised control plane", u.Object["status"])
	}
	if u.GetLabels()["region"] != "eu" {
		t.Errorf("labels %v", u.GetLabels())
	}
	secrets := h.Client().CoreV1().Secrets("fleet")
	s, err := secrets.Get(ctx, "eu-1-kubeconfig", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Type != "cluster.x-k8s.io/secret" || s.Labels["cluster.x-k8s.io/cluster-name"] != "eu-1" ||
		!bytes.Equal(s.Data["value"], []byte("one")) || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != u.GetUID() {
		t.Errorf("secret %+v", s)
	}
	if get(t, clusters(t, h, kube.V1Beta1), "eu-1").GetUID() != u.GetUID() {
		t.Error("v1beta1 is not served")
	}

	if err := h.SetPaused(ctx, "fleet", "eu-1", true); err != nil {
		t.Fatal(err)
	}
	if err := h.SetLabels(ctx, "fleet", "eu-1", map[string]string{"region": "us"}); err != nil {
		t.Fatal(err)
	}
	if err := h.SetKubeconfig(ctx, "fleet", "eu-1", []byte("two")); err != nil {
		t.Fatal(err)
	}
	u = get(t, r, "eu-1")
	if paused, _, _ := unstructured.NestedBool(u.Object, "spec", "paused"); !paused || u.GetLabels()["region"] != "us" {
		t.Errorf("spec %v, labels %v", u.Object["spec"], u.GetLabels())
	}
	if s, err = secrets.Get(ctx, "eu-1-kubeconfig", metav1.GetOptions{}); err != nil || string(s.Data["value"]) != "two" {
		t.Errorf("rotated kubeconfig %q, %v", s.Data["value"], err)
	}

	if err := h.Unregister(ctx, "fleet", "eu-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, "eu-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Cluster after Unregister: %v", err)
	}
	if _, err := secrets.Get(ctx, "eu-1-kubeconfig", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Secret after Unregister: %v", err)
	}
}

func lateKubeconfig(t *testing.T, h *kube.Hub) {
	ctx := t.Context()
	if err := h.Register(ctx, kube.Cluster{Namespace: "fleet", Name: "new", Uninitialized: true, Paused: true}); err != nil {
		t.Fatal(err)
	}
	u := get(t, clusters(t, h, kube.V1Beta2), "new")
	if u.Object["status"] != nil {
		t.Errorf("status %v, want none", u.Object["status"])
	}
	secrets := h.Client().CoreV1().Secrets("fleet")
	if _, err := secrets.Get(ctx, "new-kubeconfig", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Secret: %v, want none", err)
	}
	if err := h.SetKubeconfig(ctx, "fleet", "new", []byte("k")); err != nil {
		t.Fatal(err)
	}
	if err := h.SetInitialized(ctx, "fleet", "new"); err != nil {
		t.Fatal(err)
	}
	s, err := secrets.Get(ctx, "new-kubeconfig", metav1.GetOptions{})
	if err != nil || s.OwnerReferences[0].UID != u.GetUID() {
		t.Errorf("Secret %+v, %v", s, err)
	}
}

func TestHub_ServesTheOldContractOnly(t *testing.T) {
	ctx := t.Context()
	h := kube.StartTest(t, kube.Options{ClusterAPI: kube.V1Beta1, HubControllers: true}).Hub
	if err := h.Register(ctx, kube.Cluster{Namespace: "fleet", Name: "old", Kubeconfig: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	u := get(t, clusters(t, h, kube.V1Beta1), "old")
	if ok, _, _ := unstructured.NestedBool(u.Object, "status", "controlPlaneReady"); !ok {
		t.Errorf("status %v, want a ready control plane", u.Object["status"])
	}
	if _, err := clusters(t, h, kube.V1Beta2).Get(ctx, "old", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("v1beta2: %v, want it not served", err)
	}
	// With a controller manager the owner's end is the Secret's.
	if err := clusters(t, h, kube.V1Beta1).Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "garbage collection of the Secret", func() bool {
		_, err := h.Client().CoreV1().Secrets("fleet").Get(ctx, "old-kubeconfig", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
