package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// BulkOptions says how [BulkPods] writes. The zero value is ready to use.
type BulkOptions struct {
	// Prefix begins the names of the namespaces: <prefix>-1, <prefix>-2, …;
	// empty means "bulk". Pods of an earlier call with the same prefix are in
	// the way.
	Prefix string
	// Namespaces is the number of namespaces; 0 means 10.
	Namespaces int
	// Direct writes into etcd in storage encoding, some six times faster than
	// the API. One pod still goes through the API: the others are its
	// siblings, managedFields included.
	Direct bool
	// Parallel is the number of writers; 0 means 16.
	Parallel int
}

// podsPerSet is the number of pods that share a ReplicaSet.
const podsPerSet = 20

// BulkPods writes n running pods that look like those of Deployments, with two
// field managers (kube-controller-manager wrote the spec, kubelet the status),
// and verifies by a LIST that the API server has them. The member must run no
// controllers: they would delete pods whose ReplicaSet and Node do not exist.
func BulkPods(ctx context.Context, c *ControlPlane, n int, opts BulkOptions) error {
	if c.ControllerManager != nil {
		return errors.New("bulk pods need a member without controllers")
	}
	if opts.Prefix == "" {
		opts.Prefix = "bulk"
	}
	if opts.Namespaces == 0 {
		opts.Namespaces = 10
	}
	if opts.Parallel == 0 {
		opts.Parallel = 16
	}
	for i := range opts.Namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", opts.Prefix, i+1)}}
		_, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s: create namespace: %w", c.Name, err)
		}
	}
	write := c.createPods
	if opts.Direct {
		write = c.storePods
	}
	if err := write(ctx, n, opts); err != nil {
		return fmt.Errorf("%s: write pods: %w", c.Name, err)
	}
	found := 0
	for i := range opts.Namespaces {
		count, err := c.countPods(ctx, fmt.Sprintf("%s-%d", opts.Prefix, i+1))
		if err != nil {
			return fmt.Errorf("%s: list pods: %w", c.Name, err)
		}
		found += count
	}
	if found != n {
		return fmt.Errorf("%s: %d pods written, %d listed", c.Name, n, found)
	}
	return nil
}

// countPods counts without fetching: one item and the number of the others.
func (c *ControlPlane) countPods(ctx context.Context, namespace string) (int, error) {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	count := len(list.Items)
	if list.RemainingItemCount != nil {
		count += int(*list.RemainingItemCount)
	}
	return count, nil
}

// createPods writes through the API.
func (c *ControlPlane) createPods(ctx context.Context, n int, opts BulkOptions) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(opts.Parallel)
	sets := replicaSets(n)
	for i := range n {
		g.Go(func() error {
			_, err := c.createPod(ctx, sibling(newPod(), i, sets[i/podsPerSet], opts))
			return err
		})
	}
	return g.Wait()
}

func (c *ControlPlane) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	pods := c.client.CoreV1().Pods(pod.Namespace)
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	created.Status = pod.Status
	return pods.UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"})
}

// storePods writes one pod through the API and its siblings into etcd.
func (c *ControlPlane) storePods(ctx context.Context, n int, opts BulkOptions) error {
	if n == 0 {
		return nil
	}
	sets := replicaSets(n)
	first, err := c.createPod(ctx, sibling(newPod(), 0, sets[0], opts))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(opts.Parallel)
	for i := 1; i < n; i++ {
		g.Go(func() error {
			pod := sibling(first.DeepCopy(), i, sets[i/podsPerSet], opts)
			pod.ResourceVersion = "" // etcd's revision is it
			pod.UID = uuid.NewUUID()
			return c.putStored(ctx, corev1.SchemeGroupVersion, "pods", pod.Namespace, pod.Name, pod)
		})
	}
	return g.Wait()
}

// replicaSets returns the UIDs of the owners of n pods.
func replicaSets(n int) []types.UID {
	uids := make([]types.UID, (n+podsPerSet-1)/podsPerSet)
	for i := range uids {
		uids[i] = uuid.NewUUID()
	}
	return uids
}

// sibling changes base, in place, into the i-th pod: what differs between the
// pods of a fleet differs, in managedFields too, where keys hold values.
func sibling(base *corev1.Pod, i int, set types.UID, opts BulkOptions) *corev1.Pod {
	app := fmt.Sprintf("app-%d", i/podsPerSet)
	hash := fmt.Sprintf("%010x", uint64(i/podsPerSet+1)*0x9e3779b97f4a7c15>>24)
	ip := fmt.Sprintf("10.%d.%d.%d", 128+i>>16&127, i>>8&255, i&255)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	oldSet, oldIP := base.OwnerReferences[0].UID, base.Status.PodIP

	base.Namespace = fmt.Sprintf("%s-%d", opts.Prefix, i%opts.Namespaces+1)
	base.GenerateName = app + "-" + hash + "-"
	base.Name = base.GenerateName + fmt.Sprintf("%05x", i)
	base.CreationTimestamp = now
	base.Labels["app"], base.Labels["pod-template-hash"] = app, hash
	base.OwnerReferences[0].Name, base.OwnerReferences[0].UID = app+"-"+hash, set
	base.Spec.NodeName = fmt.Sprintf("node-%d", i/100%5000)
	base.Spec.Containers[0].Image = fmt.Sprintf("registry.example.com/%s:1.%d.0", app, i/podsPerSet%50)

	base.Status.PodIP, base.Status.PodIPs[0].IP = ip, ip
	host := fmt.Sprintf("10.0.%d.%d", i/100%5000/250, i/100%250+1)
	base.Status.HostIP, base.Status.HostIPs[0].IP = host, host
	base.Status.StartTime = &now
	for j := range base.Status.Conditions {
		base.Status.Conditions[j].LastTransitionTime = now
	}
	for j := range base.Status.ContainerStatuses {
		s := &base.Status.ContainerStatuses[j]
		s.Image = base.Spec.Containers[j].Image
		s.ContainerID = "containerd://" + strings.ReplaceAll(string(uuid.NewUUID()+uuid.NewUUID()), "-", "")
		s.State.Running.StartedAt = now
	}
	for j := range base.ManagedFields {
		m := &base.ManagedFields[j]
		m.Time = &now
		m.FieldsV1.Raw = bytes.ReplaceAll(m.FieldsV1.Raw, []byte(oldSet), []byte(set))
		m.FieldsV1.Raw = bytes.ReplaceAll(m.FieldsV1.Raw, []byte(`"`+oldIP+`\"`), []byte(`"`+ip+`\"`))
	}
	return base
}

// newPod returns a running pod as a Deployment and a kubelet make it, of which
// sibling fills in the rest.
func newPod() *corev1.Pod {
	yes, no := true, false
	grace, uid := int64(30), int64(10001)
	expiry := int64(3607)
	cpu := func(c, m string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c), corev1.ResourceMemory: resource.MustParse(m)}
	}
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: "HTTP"}},
			PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}
	token := corev1.VolumeMount{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	env := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	status := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: name, Ready: true, Started: &yes,
			ImageID: "registry.example.com/image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			State:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}
	}
	condition := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{"tier": "backend", "app.kubernetes.io/managed-by": "Helm", "environment": "production"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "checksum/config": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "default", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &uid, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "app",
				Ports: []corev1.ContainerPort{
					{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP},
				},
				Env:             []corev1.EnvVar{env("POD_NAME", "metadata.name"), env("POD_NAMESPACE", "metadata.namespace"), {Name: "LOG_LEVEL", Value: "info"}},
				Resources:       corev1.ResourceRequirements{Requests: cpu("100m", "128Mi"), Limits: cpu("1", "256Mi")},
				ReadinessProbe:  probe("/ready"),
				LivenessProbe:   probe("/live"),
				VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"}, token},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}, {
				Name: "proxy", Image: "registry.example.com/mesh/proxy:v1.31.4", Args: []string{"--config", "/etc/proxy/config.yaml"},
				Resources:    corev1.ResourceRequirements{Requests: cpu("50m", "64Mi")},
				VolumeMounts: []corev1.VolumeMount{token},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app-config"}}}},
				{Name: token.Name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &expiry, Path: "token"}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				}}}},
			},
		},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			QOSClass:          corev1.PodQOSBurstable,
			HostIPs:           []corev1.HostIP{{}},
			PodIPs:            []corev1.PodIP{{}},
			Conditions:        []corev1.PodCondition{condition(corev1.PodScheduled), condition(corev1.PodReadyToStartContainers), condition(corev1.PodInitialized), condition(corev1.ContainersReady), condition(corev1.PodReady)},
			ContainerStatuses: []corev1.ContainerStatus{status("app"), status("proxy")},
		},
	}
}
