package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

const (
	clusterGroup     = "cluster.x-k8s.io"
	clusterNameLabel = clusterGroup + "/cluster-name"
	secretType       = clusterGroup + "/secret"
	kubeconfigKey    = "value"
)

// Hub is a control plane with Cluster API's CRDs and helpers to act as Cluster
// API's controllers and users do.
type Hub struct {
	*ControlPlane

	version string // of the Cluster API, that is written
	dynamic dynamic.Interface
}

// Cluster describes a Cluster and its kubeconfig Secret.
type Cluster struct {
	Namespace, Name string
	Labels          map[string]string
	// Kubeconfig is the Secret's value; nil makes no Secret.
	Kubeconfig []byte
	Paused     bool
	// Uninitialized leaves the control plane of the Cluster uninitialised.
	Uninitialized bool
}

// install creates the CRDs and waits until they are served.
func (h *Hub) install(ctx context.Context, dir string, opts Options) error {
	var err error
	if h.dynamic, err = dynamic.NewForConfigAndClient(h.DirectRESTConfig(), h.http); err != nil {
		return err
	}
	client, err := apiextensions.NewForConfigAndClient(h.DirectRESTConfig(), h.http)
	if err != nil {
		return err
	}
	for _, name := range append([]string{clusterGroup + "_clusters"}, opts.HubCRDs...) {
		data, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		serve(&crd, opts.ClusterAPI)
		if _, err := client.CustomResourceDefinitions().Create(ctx, &crd, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return poll(ctx, "Clusters to be served", func(ctx context.Context) (bool, error) {
		_, err := h.clusters("").List(ctx, metav1.ListOptions{})
		return err == nil, err
	})
}

// InstallCRDs applies the CRDs of a directory and waits until they are served.
func (h *Hub) InstallCRDs(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("no CRDs in %s", dir), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := h.Apply(ctx, data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		gvr := schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Resource: crd.Spec.Names.Plural}
		if err := poll(ctx, gvr.String()+" to be served", func(ctx context.Context) (bool, error) {
			_, err := h.dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// serve has the CRD converted by nobody, as no webhook runs, and served at one
// version only if requested.
func serve(crd *apiextensionsv1.CustomResourceDefinition, only string) {
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	if only == "" {
		return
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		v.Served, v.Storage = v.Name == only, v.Name == only
	}
}

func (h *Hub) clusters(namespace string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: clusterGroup, Version: h.version, Resource: "clusters"}
	return h.dynamic.Resource(gvr).Namespace(namespace)
}

// Register creates the Cluster, in a namespace that it creates if missing, has
// its status say that the control plane is initialised, and creates the
// kubeconfig Secret, owned by the Cluster.
func (h *Hub) Register(ctx context.Context, c Cluster) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
	_, err := h.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", c.Namespace, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterGroup + "/" + h.version,
		"kind":       "Cluster",
		"spec": map[string]any{
			"paused": c.Paused,
			"clusterNetwork": map[string]any{
				"services": map[string]any{"cidrBlocks": []any{serviceRange}},
				"pods":     map[string]any{"cidrBlocks": []any{podRange}},
			},
		},
	}}
	u.SetNamespace(c.Namespace)
	u.SetName(c.Name)
	u.SetLabels(c.Labels)
	created, err := h.clusters(c.Namespace).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Cluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	if c.Kubeconfig != nil {
		if err := h.createSecret(ctx, created, c.Kubeconfig); err != nil {
			return fmt.Errorf("create kubeconfig Secret of Cluster %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	if c.Uninitialized {
		return nil
	}
	return h.SetInitialized(ctx, c.Namespace, c.Name)
}

func (h *Hub) createSecret(ctx context.Context, owner *unstructured.Unstructured, kubeconfig []byte) error {
	yes := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:   owner.GetName() + "-kubeconfig",
			Labels: map[string]string{clusterNameLabel: owner.GetName()},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Type: secretType,
		Data: map[string][]byte{kubeconfigKey: kubeconfig},
	}
	_, err := h.client.CoreV1().Secrets(owner.GetNamespace()).Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// SetInitialized marks the Cluster's control plane as initialised, as the
// contract version that the hub stores says it.
func (h *Hub) SetInitialized(ctx context.Context, namespace, name string) error {
	return h.update(ctx, namespace, name, h.updateStatus, func(u *unstructured.Unstructured) {
		u.Object["status"] = map[string]any{
			"phase":          "Provisioned",
			"initialization": map[string]any{"infrastructureProvisioned": true, "controlPlaneInitialized": true},
		}
		if h.version == V1Beta1 {
			u.Object["status"] = map[string]any{
				"phase": "Provisioned", "infrastructureReady": true, "controlPlaneReady": true,
				"conditions": []any{map[string]any{
					"type": "ControlPlaneInitialized", "status": "True", "lastTransitionTime": u.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z"),
				}},
			}
		}
	})
}

// SetLabels replaces the Cluster's labels.
func (h *Hub) SetLabels(ctx context.Context, namespace, name string, labels map[string]string) error {
	return h.update(ctx, namespace, name, h.updateMain, func(u *unstructured.Unstructured) { u.SetLabels(labels) })
}

// SetPaused sets the Cluster's spec.paused.
func (h *Hub) SetPaused(ctx context.Context, namespace, name string, paused bool) error {
	return h.update(ctx, namespace, name, h.updateMain, func(u *unstructured.Unstructured) {
		u.Object["spec"].(map[string]any)["paused"] = paused
	})
}

// SetKubeconfig replaces the value of the Cluster's kubeconfig Secret, as a
// rotation does, creating the Secret if the Cluster has none.
func (h *Hub) SetKubeconfig(ctx context.Context, namespace, name string, kubeconfig []byte) error {
	secrets := h.client.CoreV1().Secrets(namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := secrets.Get(ctx, name+"-kubeconfig", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.Data = map[string][]byte{kubeconfigKey: kubeconfig}
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		var owner *unstructured.Unstructured
		if owner, err = h.clusters(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			err = h.createSecret(ctx, owner, kubeconfig)
		}
	}
	if err != nil {
		return fmt.Errorf("set kubeconfig of Cluster %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Unregister deletes the Cluster and its Secret and waits until both are gone,
// which a finalizer on the Cluster delays.
func (h *Hub) Unregister(ctx context.Context, namespace, name string) error {
	secrets := h.client.CoreV1().Secrets(namespace)
	// The Cluster first, as its owner does; the Secret follows by garbage
	// collection, which the hub may lack.
	if err := h.clusters(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete Cluster %s/%s: %w", namespace, name, err)
	}
	if err := secrets.Delete(ctx, name+"-kubeconfig", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete kubeconfig Secret of Cluster %s/%s: %w", namespace, name, err)
	}
	return poll(ctx, "Cluster "+namespace+"/"+name+" to be gone", func(ctx context.Context) (bool, error) {
		_, err := h.clusters(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// updater writes a changed Cluster, its status or the rest.
type updater func(context.Context, *unstructured.Unstructured) error

func (h *Hub) updateMain(ctx context.Context, u *unstructured.Unstructured) error {
	_, err := h.clusters(u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{})
	return err
}

func (h *Hub) updateStatus(ctx context.Context, u *unstructured.Unstructured) error {
	_, err := h.clusters(u.GetNamespace()).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	return err
}

func (h *Hub) update(ctx context.Context, namespace, name string, write updater, change func(*unstructured.Unstructured)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		u, err := h.clusters(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(u)
		return write(ctx, u)
	})
	if err != nil {
		return fmt.Errorf("update Cluster %s/%s: %w", namespace, name, err)
	}
	return nil
}
