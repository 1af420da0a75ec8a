package decode

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// podFixture is a small pod with most of what a decoder can trip over.
var podFixture = corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "cart-7d9f", UID: "6f1c", ResourceVersion: "42", Generation: 3,
		CreationTimestamp: metav1.Unix(1700000000, 0),
		Labels:            map[string]string{"tier": "web", "app": "cart"},
		Annotations:       map[string]string{"note": "<b>&\u2028\"größe\"</b>", "empty": ""},
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "cart", UID: "77", Controller: new(true)}},
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}},
	},
	Spec: corev1.PodSpec{
		NodeName: "node-1",
		Containers: []corev1.Container{{
			Name: "cart", Image: "cart:1",
			Resources:     corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1024Ki"), "cpu": resource.MustParse("0.5")}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}},
		}},
	},
	Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
}
