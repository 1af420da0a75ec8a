package kube

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

var (
	//go:embed workloads.yaml
	workloadsYAML string
	//go:embed workloads-crd.yaml
	workloadsCRD []byte
)

// teams are the namespaces of the first applications.
func teams() []string {
	return []string{"shop", "payments", "search", "catalog", "identity", "billing"}
}

// Workloads applies n applications, a namespace each, of 19 kinds that users
// write, and waits until the cluster has made the rest of them: on a cluster
// with controllers that means ready ReplicaSets, Pods, EndpointSlices and a
// completed Job. It may be called again: applying is idempotent.
func Workloads(ctx context.Context, c *ControlPlane, n int) error {
	if err := c.Apply(ctx, workloadsCRD); err != nil {
		return err
	}
	manifest, err := template.New("workloads").Parse(workloadsYAML)
	if err != nil {
		return err
	}
	var namespaces []string
	for i := range n {
		namespace := "team-" + strconv.Itoa(i+1)
		if t := teams(); i < len(t) {
			namespace = t[i]
		}
		namespaces = append(namespaces, namespace)
		var b bytes.Buffer
		if err := manifest.Execute(&b, namespace); err != nil {
			return err
		}
		if err := c.Apply(ctx, b.Bytes()); err != nil {
			return err
		}
	}
	if c.ControllerManager == nil {
		return nil
	}
	for _, namespace := range namespaces {
		if err := c.awaitWorkloads(ctx, namespace); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// Apply server-side applies a stream of YAML documents as an administrator,
// field manager "kubectl", in their order; it waits for a kind that is not
// served yet, as after its CRD.
func (c *ControlPlane) Apply(ctx context.Context, manifests []byte) error {
	client, err := dynamic.NewForConfigAndClient(c.DirectRESTConfig(), c.http)
	if err != nil {
		return err
	}
	var mapper meta.RESTMapper
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		u := new(unstructured.Unstructured)
		if err := dec.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decode manifest: %w", err)
		}
		if len(u.Object) == 0 {
			continue // a document of comments
		}
		what := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		err := poll(ctx, what+" to be applied", func(ctx context.Context) (bool, error) {
			if mapper == nil {
				groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
				if err != nil {
					return false, err
				}
				mapper = restmapper.NewDiscoveryRESTMapper(groups)
			}
			err := applyOne(ctx, client, mapper, u)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				mapper = nil // look again: it may be served by now
				return false, err
			}
			return true, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
}

func applyOne(ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper, u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = client.Resource(mapping.Resource).Namespace(u.GetNamespace())
	}
	_, err = resource.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl", Force: true})
	return err
}

// awaitWorkloads waits until the controllers have made one application real.
func (c *ControlPlane) awaitWorkloads(ctx context.Context, namespace string) error {
	return poll(ctx, "workloads in "+namespace, func(ctx context.Context) (bool, error) {
		apps, get := c.client.AppsV1(), metav1.GetOptions{}
		deployment, err1 := apps.Deployments(namespace).Get(ctx, "web", get)
		set, err2 := apps.StatefulSets(namespace).Get(ctx, "db", get)
		daemons, err3 := apps.DaemonSets(namespace).Get(ctx, "log-agent", get)
		job, err4 := c.client.BatchV1().Jobs(namespace).Get(ctx, "migrate", get)
		slices, err5 := c.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return false, err
		}
		if ready(deployment, set, daemons, job, slices.Items) {
			return true, nil
		}
		return false, fmt.Errorf("deployment %d/3, statefulset %d/2, daemonset %d/%d, job %d, %d endpoint slices",
			deployment.Status.AvailableReplicas, set.Status.ReadyReplicas, daemons.Status.NumberReady,
			daemons.Status.DesiredNumberScheduled, job.Status.Succeeded, len(slices.Items))
	})
}

func ready(d *appsv1.Deployment, s *appsv1.StatefulSet, ds *appsv1.DaemonSet, j *batchv1.Job, slices []discoveryv1.EndpointSlice) bool {
	return d.Status.AvailableReplicas == *d.Spec.Replicas && s.Status.ReadyReplicas == *s.Spec.Replicas &&
		ds.Status.DesiredNumberScheduled > 0 && ds.Status.NumberReady == ds.Status.DesiredNumberScheduled &&
		j.Status.Succeeded > 0 && len(slices) > 0 && len(slices[0].Endpoints) == int(*d.Spec.Replicas)
}
