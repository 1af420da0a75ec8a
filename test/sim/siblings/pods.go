package siblings

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/test/sim"
)

// replicas is how many pods one owner has.
const replicas = 10

// Pods are n pods, by ordinal.
type Pods struct {
	n, nodes  int
	seed      uint64
	templates []podTemplate
}

var _ sim.Source = (*Pods)(nil)

type podTemplate struct {
	*corev1.Pod
	base      string // of the names of owner and pods
	ownerKind string // of the controller, "" without one
}

func newPodTemplate(p *corev1.Pod) podTemplate {
	t := podTemplate{Pod: p, base: strings.TrimRight(p.GenerateName, "-")}
	if t.base == "" {
		t.base = p.Name
	}
	if owner := metav1.GetControllerOf(p); owner != nil {
		t.ownerKind = owner.Kind
		if owner.Kind != "Node" {
			t.base = owner.Name
		}
	}
	t.base = strings.TrimSuffix(t.base, "-"+p.Labels["pod-template-hash"])
	return t
}

// A group is the pods of one owner.
type group struct {
	*podTemplate
	hash string
	name string // of the owner
	uid  types.UID
}

func (p *Pods) group(i int) group {
	r := chance(p.seed, forGroup, i/replicas)
	g := group{podTemplate: &p.templates[r.IntN(len(p.templates))]}
	g.hash, g.uid = templateHash(r), uid(r)
	g.name = g.base + "-" + g.hash[:5]
	if g.ownerKind == "ReplicaSet" {
		g.name = g.base + "-" + g.hash
	}
	return g
}

// Len is the number of pods.
func (p *Pods) Len() int { return p.n }

// Name is the pod's namespace and name.
func (p *Pods) Name(i int) (namespace, name string) {
	g := p.group(i)
	return g.Namespace, p.name(i, g)
}

func (p *Pods) name(i int, g group) string { return g.name + "-" + suffix(i, p.seed) }

// Object is Pod, as sim wants it.
func (p *Pods) Object(i int) sim.Object { return p.Pod(i) }

// Node is the name of the node that the pod runs on.
func (p *Pods) Node(i int) string { return nodeName(p.seed, p.node(i)) }

func (p *Pods) node(i int) int { return int(chance(p.seed, forPod, i).Uint64N(uint64(p.nodes))) }

// Pod makes the pod with ordinal i.
func (p *Pods) Pod(i int) *corev1.Pod {
	g := p.group(i)
	r := chance(p.seed, forPod, i)
	node := int(r.Uint64N(uint64(p.nodes)))
	was := g.Pod
	pod := was.DeepCopy()
	pod.Name = p.name(i, g)
	if pod.GenerateName != "" {
		pod.GenerateName = g.name + "-"
	}
	pod.UID = uid(r)
	pod.ResourceVersion = resourceVersion(i)
	pod.SelfLink = ""
	moved := shiftTo(birth(r), was.CreationTimestamp)
	moved.move(&pod.CreationTimestamp)
	relabel(pod.Labels, g)
	from, to := []string{string(was.UID)}, []string{string(pod.UID)}
	for j := range pod.OwnerReferences {
		o := &pod.OwnerReferences[j]
		if o.Controller == nil || !*o.Controller {
			continue
		}
		from, to = append(from, string(o.UID)), append(to, string(g.uid))
		o.UID, o.Name = g.uid, g.name
		if o.Kind == "Node" {
			o.Name = nodeName(p.seed, node)
		}
	}
	if pod.Spec.NodeName != "" {
		pod.Spec.NodeName = nodeName(p.seed, node)
	}
	if token := tokenVolume(&pod.Spec); token != "" {
		name := tokenPrefix + suffix(i, p.seed+1)
		from, to = append(from, token), append(to, name)
		renameVolume(&pod.Spec, token, name)
	}
	ip := podIP(node, i)
	if was.Spec.HostNetwork {
		ip = nodeIP(node)
	}
	if was.Status.PodIP != "" {
		from, to = append(from, was.Status.PodIP), append(to, ip)
	}
	if was.Status.HostIP != "" {
		from, to = append(from, was.Status.HostIP), append(to, nodeIP(node))
	}
	place(&pod.Status, ip, nodeIP(node))
	age(&pod.Status, moved, func() string { return hexDigits(r, 64) })
	for j := range pod.ManagedFields {
		m := &pod.ManagedFields[j]
		moved.move(m.Time)
		if m.FieldsV1 != nil {
			raw := m.FieldsV1.Raw
			for k := range from {
				// In a key such as k:{"uid":"…"}, which is quoted once more.
				if old := []byte(`"` + from[k] + `\"`); bytes.Contains(raw, old) {
					raw = bytes.ReplaceAll(raw, old, []byte(`"`+to[k]+`\"`))
				}
			}
			m.FieldsV1 = &metav1.FieldsV1{Raw: raw}
		}
	}
	return pod
}

// JSON is the pod as an API server sends it.
func (p *Pods) JSON(i int) ([]byte, error) {
	pod := p.Pod(i)
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	return json.Marshal(pod)
}

func relabel(labels map[string]string, g group) {
	for key, value := range map[string]string{
		"pod-template-hash": g.hash, "controller-revision-hash": g.hash,
		"controller-uid": string(g.uid), "batch.kubernetes.io/controller-uid": string(g.uid),
		"job-name": g.name, "batch.kubernetes.io/job-name": g.name,
	} {
		if _, ok := labels[key]; ok {
			labels[key] = value
		}
	}
}

// tokenPrefix starts the random name of a projected service account volume.
const tokenPrefix = "kube-api-access-"

func tokenVolume(spec *corev1.PodSpec) string {
	for i := range spec.Volumes {
		if name := spec.Volumes[i].Name; strings.HasPrefix(name, tokenPrefix) {
			return name
		}
	}
	return ""
}

func renameVolume(spec *corev1.PodSpec, from, to string) {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == from {
			spec.Volumes[i].Name = to
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				if m := &containers[i].VolumeMounts[j]; m.Name == from {
					m.Name = to
				}
			}
		}
	}
}

func place(s *corev1.PodStatus, ip, host string) {
	if s.PodIP != "" {
		s.PodIP = ip
	}
	for i := range s.PodIPs[:min(len(s.PodIPs), 1)] {
		s.PodIPs[i].IP = ip
	}
	if s.HostIP != "" {
		s.HostIP = host
	}
	for i := range s.HostIPs[:min(len(s.HostIPs), 1)] {
		s.HostIPs[i].IP = host
	}
}

// age moves the times of a status and gives its containers IDs of their own.
func age(s *corev1.PodStatus, moved shift, id func() string) {
	moved.move(s.StartTime)
	for i := range s.Conditions {
		moved.move(&s.Conditions[i].LastTransitionTime)
		moved.move(&s.Conditions[i].LastProbeTime)
	}
	for _, containers := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range containers {
			c := &containers[i]
			if runtime, _, ok := strings.Cut(c.ContainerID, "://"); ok {
				c.ContainerID = runtime + "://" + id()
			}
			for _, state := range []*corev1.ContainerState{&c.State, &c.LastTerminationState} {
				if state.Running != nil {
					moved.move(&state.Running.StartedAt)
				}
				if t := state.Terminated; t != nil {
					moved.move(&t.StartedAt)
					moved.move(&t.FinishedAt)
					if runtime, _, ok := strings.Cut(t.ContainerID, "://"); ok {
						t.ContainerID = runtime + "://" + id()
					}
				}
			}
		}
	}
}

// Touch changes a pod as a kubelet does after its nth restart.
func Touch(pod *corev1.Pod, n int) {
	now := metav1.NewTime(epoch.AddDate(0, 4, 0).Add(time.Duration(n) * time.Second))
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		c.RestartCount = int32(n)
		if c.State.Running != nil {
			c.State.Running.StartedAt = now
		}
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			c.LastTransitionTime = now
		}
	}
}

// Stamp is the label by which [StampNow] says when, in nanoseconds since 1970.
const Stamp = "sim.federator.dev/at"

// StampNow labels a pod with the present time.
func StampNow(pod *corev1.Pod) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[Stamp] = strconv.FormatInt(time.Now().UnixNano(), 10)
}
