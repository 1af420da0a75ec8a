package clitest

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/sim"
)

// Fleet starts simulated members and returns them with a kubeconfig of a
// context for each.
func Fleet(t *testing.T, n int) (members []*sim.Member, kubeconfig string) {
	t.Helper()
	f, err := sim.New(sim.Options{Members: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	config := clientcmdapi.NewConfig()
	for _, m := range f.Members() {
		m.AddTo(config)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return f.Members(), kubeconfig
}

// RealFleet starts real control planes and returns them with a kubeconfig of a
// context for each: one, two, …
func RealFleet(t *testing.T, names ...string) (members []*kube.ControlPlane, kubeconfig string) {
	t.Helper()
	f := kube.StartTest(t, kube.Options{NoHub: true, Members: len(names)})
	merged := clientcmdapi.NewConfig()
	for i, m := range f.Members {
		c, err := clientcmd.Load(m.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		current := c.Contexts[c.CurrentContext]
		merged.Clusters[names[i]] = c.Clusters[current.Cluster]
		merged.AuthInfos[names[i]] = c.AuthInfos[current.AuthInfo]
		merged.Contexts[names[i]] = &clientcmdapi.Context{Cluster: names[i], AuthInfo: names[i]}
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*merged, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return f.Members, kubeconfig
}

// Ingress is a manifest of one host.
func Ingress(name, host string) []byte {
	return []byte(strings.NewReplacer("NAME", name, "HOST", host).Replace(`apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: NAME, namespace: default}
spec:
  rules:
  - host: HOST
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`))
}

// ConfigMap returns an empty ConfigMap of namespace default.
func ConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
}

// CreateConfigMaps creates ConfigMaps in a member.
func CreateConfigMaps(t *testing.T, m *sim.Member, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := m.Create(ConfigMap(name)); err != nil {
			t.Fatal(err)
		}
	}
}
