package siblings

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/sim"
)

// Nodes are n nodes, by ordinal.
type Nodes struct {
	n         int
	seed      uint64
	templates []*corev1.Node
}

var _ sim.Source = (*Nodes)(nil)

func nodeName(seed uint64, i int) string { return "worker-" + suffix(i, seed) }

// Len is the number of nodes.
func (n *Nodes) Len() int { return n.n }

// Name is the node's name.
func (n *Nodes) Name(i int) (namespace, name string) { return "", nodeName(n.seed, i) }

// Object is Node, as sim wants it.
func (n *Nodes) Object(i int) sim.Object { return n.Node(i) }

// Node makes the node with ordinal i.
func (n *Nodes) Node(i int) *corev1.Node {
	r := chance(n.seed, forNode, i)
	was := n.templates[r.IntN(len(n.templates))]
	node := was.DeepCopy()
	node.Name = nodeName(n.seed, i)
	node.UID = uid(r)
	node.ResourceVersion = resourceVersion(i)
	node.SelfLink = ""
	moved := shiftTo(birth(r), was.CreationTimestamp)
	moved.move(&node.CreationTimestamp)
	if _, ok := node.Labels[corev1.LabelHostname]; ok {
		node.Labels[corev1.LabelHostname] = node.Name
	}
	for j := range node.Status.Addresses {
		switch a := &node.Status.Addresses[j]; a.Type {
		case corev1.NodeInternalIP:
			a.Address = nodeIP(i)
		case corev1.NodeHostName:
			a.Address = node.Name
		}
	}
	if node.Spec.PodCIDR != "" {
		node.Spec.PodCIDR = fmt.Sprintf("10.%d.%d.0/24", 128|i>>8&127, i&255)
		node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
	}
	if node.Spec.ProviderID != "" {
		node.Spec.ProviderID = "sim:///zone-a/i-" + hexDigits(r, 16)
	}
	node.Status.NodeInfo.MachineID = hexDigits(r, 32)
	node.Status.NodeInfo.SystemUUID = string(uid(r))
	node.Status.NodeInfo.BootID = string(uid(r))
	for j := range node.Status.Conditions {
		moved.move(&node.Status.Conditions[j].LastHeartbeatTime)
		moved.move(&node.Status.Conditions[j].LastTransitionTime)
	}
	for j := range node.ManagedFields {
		moved.move(node.ManagedFields[j].Time)
	}
	return node
}

// JSON is the node as an API server sends it.
func (n *Nodes) JSON(i int) ([]byte, error) {
	node := n.Node(i)
	node.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	return json.Marshal(node)
}
