package hostile

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

// markedKind is a kind whose objects are marked.
type markedKind struct {
	path, resource, group string
	kind                  aggregate.Kind
	object                func(metav1.ObjectMeta) sim.Object
}

// grant is the resource as grants have it.
func (k markedKind) grant() string {
	if k.group == "" {
		return k.resource
	}
	return k.resource + "." + k.group
}

var markedKinds = []markedKind{
	{"/api/v1", "configmaps", "", "ConfigMap", func(m metav1.ObjectMeta) sim.Object {
		return &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"key": "value"}}
	}},
	{"/api/v1", "secrets", "", "Secret", func(m metav1.ObjectMeta) sim.Object {
		return &corev1.Secret{ObjectMeta: m, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{m.Name: []byte("value")}}
	}},
	{"/api/v1", "services", "", "Service", func(m metav1.ObjectMeta) sim.Object {
		return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}, Selector: map[string]string{"app": "x"}}}
	}},
	{"/api/v1", "serviceaccounts", "", "ServiceAccount", func(m metav1.ObjectMeta) sim.Object {
		return &corev1.ServiceAccount{ObjectMeta: m}
	}},
	{"/api/v1", "pods", "", "Pod", func(m metav1.ObjectMeta) sim.Object {
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}},
	{"/apis/apps/v1", "deployments", "apps", "Deployment.apps", func(m metav1.ObjectMeta) sim.Object {
		labels := map[string]string{"app": "x"}
		return &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}, {Name: "d", Image: "i"}}}},
		}}
	}},
	{"/apis/networking.k8s.io/v1", "ingresses", "networking.k8s.io", "Ingress.networking.k8s.io", func(m metav1.ObjectMeta) sim.Object {
		exact := networkingv1.PathTypePrefix
		rule := func(host string) networkingv1.IngressRule {
			return networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: &exact, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}}}}
		}
		return &networkingv1.Ingress{ObjectMeta: m, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{
			rule(m.Name + ".example.org"), rule("goodshare-" + m.Namespace + ".example.org"),
		}}}
	}},
}

var deployments = markedKinds[5]

// Members that are honest, and how their objects are marked. What leads to the same
// servers through a proxy has other marks.
var honest = []string{"good/sim", "good/real"}

var tags = map[string]string{"good/sim": "gsim", "good/real": "grea"}

// disguise gives a server's objects the marks of a hostile member.
func disguise(b []byte) []byte {
	for from, to := range map[string]string{"gsim": "esim", "grea": "erea", "goodshare": "evilshare"} {
		b = bytes.ReplaceAll(b, []byte(from), []byte(to))
	}
	return b
}

// mark is in the names of the objects of one kind in one member, and in nothing else.
func mark(member string, k markedKind) string {
	return fmt.Sprintf("mark-%s-%s", tags[member], k.resource)
}

var markedNamespaces = []string{"ns0", "ns1", "ns2"}

// marked makes the objects of a member. Two in three are bad, as policies have it; the
// same names are in all members only for pods.
func marked(member string, create func(sim.Object) error) error {
	for _, k := range markedKinds {
		for n, ns := range markedNamespaces {
			for i := range 3 {
				meta := metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("%s-%s-%d", mark(member, k), ns, i), Labels: map[string]string{"l": mark(member, k)}}
				if (n+i)%3 != 0 {
					meta.Labels["bad"] = "true"
				}
				if err := create(k.object(meta)); err != nil {
					return fmt.Errorf("%s %s: %w", k.kind, meta.Name, err)
				}
			}
		}
	}
	return nil
}

// fillReal makes marked objects in a real member.
func fillReal(ctx context.Context, c *kube.ControlPlane) error {
	for _, ns := range markedNamespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		if _, err := c.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	create := metav1.CreateOptions{}
	return marked("good/real", func(o sim.Object) (err error) {
		client, ns := c.Client(), o.GetNamespace()
		switch o := o.(type) {
		case *corev1.ConfigMap:
			_, err = client.CoreV1().ConfigMaps(ns).Create(ctx, o, create)
		case *corev1.Secret:
			_, err = client.CoreV1().Secrets(ns).Create(ctx, o, create)
		case *corev1.Service:
			_, err = client.CoreV1().Services(ns).Create(ctx, o, create)
		case *corev1.ServiceAccount:
			_, err = client.CoreV1().ServiceAccounts(ns).Create(ctx, o, create)
		case *corev1.Pod:
			_, err = client.CoreV1().Pods(ns).Create(ctx, o, create)
		case *appsv1.Deployment:
			_, err = client.AppsV1().Deployments(ns).Create(ctx, o, create)
		case *networkingv1.Ingress:
			_, err = client.NetworkingV1().Ingresses(ns).Create(ctx, o, create)
		default:
			err = fmt.Errorf("%T is not known", o)
		}
		return err
	})
}

// fillSimulated makes marked objects in a simulated member.
func fillSimulated(m *sim.Member) error {
	for _, ns := range markedNamespaces {
		if err := m.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil && !strings.Contains(err.Error(), "exists") {
			return err
		}
	}
	return marked("good/sim", m.Create)
}
