package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
)

// namespace of the Clusters on the hub.
const namespace = "acme"

// sites are the names of the Clusters. One has a dot, which no namespace may have.
var sites = []string{"eu-1", "us-1", "ap.1"}

// home is the site whose objects clients ask for by name.
const home = "eu-1"

// manifests are of all members alike. %[1]s is the site, which the objects carry for
// the tests to distinguish them.
const manifests = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.harbour.example}
spec:
  group: harbour.example
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList, shortNames: [bt], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Length, type: integer, jsonPath: .spec.length}
    schema:
      openAPIV3Schema:
        type: object
        description: A boat.
        properties:
          spec: {type: object, description: What it is like., properties: {length: {type: integer, description: In metres.}, berth: {type: string}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: shop}}
---
apiVersion: v1
kind: Namespace
metadata: {name: depot}
---
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {site: "%[1]s", kubernetes.io/hostname: node-1}}
spec: {podCIDR: 10.1.0.0/24}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {level: info, site: "%[1]s"}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: shop}
stringData: {password: "of-%[1]s"}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk-1}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: shop, name: data}
  hostPath: {path: /data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: disk-1, resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disks.example
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sees-pods}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sees-pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sees-pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
---
apiVersion: harbour.example/v1
kind: Boat
metadata: {name: gull, namespace: shop, labels: {site: "%[1]s"}}
spec: {length: 7, berth: "%[1]s"}
`

// hubManifests let bob read pods of all members, as on each of them.
const hubManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + namespace + `}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sees-pods}
rules: [{apiGroups: [members.federator.dev], resources: [pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sees-pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sees-pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
`

// settings is an object as the home site has it.
const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: info, site: ` + home + `}}`

// chart is the smallest that Helm installs.
var chart = map[string]string{
	"Chart.yaml":              "apiVersion: v2\nname: greeting\nversion: 1.2.3\nappVersion: \"4.5\"\n",
	"templates/greeting.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\ndata: {text: hello}\n",
}

// fill makes the objects of a site.
func fill(ctx context.Context, c *kube.ControlPlane, site string) error {
	if err := c.Apply(ctx, fmt.Appendf(nil, manifests, site)); err != nil {
		return err
	}
	errs := []error{deploy(ctx, c, site, "web"), deploy(ctx, c, site, "db"), ready(ctx, c), bind(ctx, c)}
	return errors.Join(errs...)
}

var epoch = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// deploy makes a Deployment with its ReplicaSet, Pods and an Event each, as the
// controllers would that members of the test do without.
func deploy(ctx context.Context, c *kube.ControlPlane, site, name string) error {
	labels := map[string]string{"app": name, "site": site}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: name, Image: "registry.example/" + name + ":" + site}},
		},
	}
	apps, core := c.Client().AppsV1(), c.Client().CoreV1()
	d, err := apps.Deployments("shop").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", LastUpdateTime: epoch, LastTransitionTime: epoch}},
	}
	if _, err := apps.Deployments("shop").UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		return err
	}
	rs, err := apps.ReplicaSets("shop").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-1", Labels: labels, Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2)), Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	rs.Status = appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, ObservedGeneration: rs.Generation}
	if _, err := apps.ReplicaSets("shop").UpdateStatus(ctx, rs, metav1.UpdateOptions{}); err != nil {
		return err
	}
	for i := range 2 {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", name, i), Labels: labels,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			},
			Spec: template.Spec,
		}
		if err := run(ctx, c, pod); err != nil {
			return err
		}
	}
	_, err = core.Pods("shop").List(ctx, metav1.ListOptions{})
	return err
}

// run makes a Pod that runs, and an Event of it.
func run(ctx context.Context, c *kube.ControlPlane, pod *corev1.Pod) error {
	core := c.Client().CoreV1()
	pod, err := core.Pods("shop").Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &epoch, PodIP: "10.1.0.7", PodIPs: []corev1.PodIP{{IP: "10.1.0.7"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: epoch}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Ready: true, Started: new(true), Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: epoch}},
		}},
	}
	if _, err := core.Pods("shop").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = core.Events("shop").Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name + ".started"},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: pod.Name, UID: pod.UID, FieldPath: "spec.containers{" + pod.Spec.Containers[0].Name + "}",
		},
		Type: corev1.EventTypeNormal, Reason: "Started", Message: "Started container from " + pod.Spec.Containers[0].Image,
		Source: corev1.EventSource{Component: "kubelet", Host: "node-1"}, Count: 1,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
	return err
}

// ready says that the node is.
func ready(ctx context.Context, c *kube.ControlPlane) error {
	nodes := c.Client().CoreV1().Nodes()
	n, err := nodes.Get(ctx, "node-1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: epoch, LastTransitionTime: epoch}}
	n.Status.NodeInfo.KubeletVersion = "v1.36.3"
	_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

// bind says that volume and claim are.
func bind(ctx context.Context, c *kube.ControlPlane) error {
	core := c.Client().CoreV1()
	pv, err := core.PersistentVolumes().Get(ctx, "disk-1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	pv.Status.Phase = corev1.VolumeBound
	if _, err := core.PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{}); err != nil {
		return err
	}
	pvc, err := core.PersistentVolumeClaims("shop").Get(ctx, "data", metav1.GetOptions{})
	if err != nil {
		return err
	}
	pvc.Status.Phase = corev1.ClaimBound
	_, err = core.PersistentVolumeClaims("shop").UpdateStatus(ctx, pvc, metav1.UpdateOptions{})
	return err
}

// writeChart writes the chart into a directory.
func writeChart(dir string) error {
	for name, text := range chart {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(strings.TrimLeft(text, "\n")), 0o600); err != nil {
			return err
		}
	}
	return nil
}
