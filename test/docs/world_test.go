package docs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/test/kube"
)

// members are the clusters of the hub.
var members = []struct{ name, env string }{{"eu-1", "prod"}, {"us-1", "test"}}

// onHub is what is on the hub beside federator's CRDs: its namespace, and Ann, who may
// read workloads of all members.
const onHub = `
apiVersion: v1
kind: Namespace
metadata: {name: federator}
---
apiVersion: v1
kind: Namespace
metadata: {name: teams}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ann, namespace: teams}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fleet-reader}
rules:
- apiGroups: [members.federator.dev]
  resources: [configmaps, deployments.apps, replicasets.apps, ingresses.networking.k8s.io, namespaces, nodes, pods, services]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ann-reads-the-fleet}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fleet-reader}
subjects:
- {kind: ServiceAccount, name: ann, namespace: teams}
`

// shop is what each member runs. There are no controllers: what they would make is below.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app: web, tier: critical}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example/shop/web:1.4.2
        envFrom: [{configMapRef: {name: web}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {log.level: info}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  rules:
  - host: shop.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`

// children are the ReplicaSet and the Pods of the Deployment.
const children = `
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-5d4f8c7b6
  namespace: shop
  labels: {app: web}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: %[1]s, controller: true}]
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "registry.example/shop/web:1.4.2"}]}}
`

const pod = `
apiVersion: v1
kind: Pod
metadata:
  name: web-5d4f8c7b6-%[1]s
  namespace: shop
  labels: {app: web}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4f8c7b6, uid: %[2]s, controller: true}]
spec:
  nodeName: worker-1
  serviceAccountName: default
  automountServiceAccountToken: false
  containers: [{name: web, image: "registry.example/shop/web:1.4.2", envFrom: [{configMapRef: {name: web}}]}]
`

// populate prepares the hub and its members.
func (s *stage) populate(ctx context.Context) error {
	hub := s.fleet.Hub
	err := errors.Join(hub.InstallCRDs(ctx, filepath.Join(root, "charts/federator/crds")), hub.Apply(ctx, []byte(onHub)))
	for i, m := range members {
		c := s.fleet.Members[i]
		err = errors.Join(err, deploy(ctx, c), hub.Register(ctx, kube.Cluster{
			Namespace: "fleet", Name: m.name, Kubeconfig: c.Kubeconfig(), Labels: map[string]string{"env": m.env},
		}))
	}
	return err
}

// deploy deploys the shop on a member.
func deploy(ctx context.Context, c *kube.ControlPlane) error {
	if err := c.Apply(ctx, []byte(shop)); err != nil {
		return err
	}
	apps, core := c.Client().AppsV1(), c.Client().CoreV1()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := core.ServiceAccounts("shop").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	d, err := apps.Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, fmt.Appendf(nil, children, d.UID)); err != nil {
		return err
	}
	rs, err := apps.ReplicaSets("shop").Get(ctx, "web-5d4f8c7b6", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, name := range []string{"x7k2p", "z9q4m"} {
		if err := c.Apply(ctx, fmt.Appendf(nil, pod, name, rs.UID)); err != nil {
			return err
		}
		running := []byte(`{"status":{"phase":"Running","containerStatuses":[{"name":"web","ready":true,"restartCount":0,"image":"web","imageID":"","state":{"running":{}}}]}}`)
		if _, err := core.Pods("shop").Patch(ctx, "web-5d4f8c7b6-"+name, types.StrategicMergePatchType, running, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes what documents leave on the hub, and makes members as they were.
func (s *stage) sweep(ctx context.Context) error {
	var errs []error
	for _, path := range []string{
		"/apis/federator.dev/v1alpha1/fleetpolicies", "/apis/federator.dev/v1alpha1/policysources", "/apis/federator.dev/v1alpha1/actions",
		"/api/v1/namespaces/federator/configmaps",
	} {
		errs = append(errs, s.fleet.Hub.Client().CoreV1().RESTClient().Delete().AbsPath(path).Do(ctx).Error())
	}
	for _, c := range s.fleet.Members {
		errs = append(errs, c.Apply(ctx, []byte(shop)))
	}
	uninstall := exec.CommandContext(ctx, filepath.Join(s.bin, "helm"), "uninstall", "federator", "--namespace", "federator", "--ignore-not-found")
	uninstall.Env = []string{"HOME=" + s.dir, "KUBECONFIG=" + s.fleet.Hub.KubeconfigFile()}
	if out, err := uninstall.CombinedOutput(); err != nil {
		errs = append(errs, fmt.Errorf("helm uninstall: %w\n%s", err, out))
	}
	return errors.Join(errs...)
}
