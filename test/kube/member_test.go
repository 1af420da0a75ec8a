package kube_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/kube/tcpproxy"
)

func TestMember(t *testing.T) {
	f := kube.StartTest(t, kube.Options{NoHub: true, Members: 2})
	t.Run("members", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *kube.Fleet){
			"RBAC forbids whom nobody allowed":                  rbac,
			"another member's CA is refused":                    otherCA,
			"another member's administrator is unauthenticated": otherIdentity,
			"an expired certificate is unauthenticated":         expiredCertificate,
			"a service account's token works until deleted":     token,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, f)
			})
		}
		// These break the other member, one after the other.
		t.Run("faults", func(t *testing.T) {
			t.Parallel()
			t.Run("of the proxy reach clients and heal", func(t *testing.T) { faults(t, f.Members[1]) })
			t.Run("a killed API server comes back with its data", func(t *testing.T) { killAPIServer(t, f.Members[1]) })
			t.Run("a killed etcd comes back with its data", func(t *testing.T) { killEtcd(t, f.Members[1]) })
		})
	})
}

func rbac(t *testing.T, f *kube.Fleet) {
	ctx, m := t.Context(), f.Members[0]
	kubeconfig, err := m.KubeconfigFor("jane", "developers")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	jane := client(t, config)
	_, err = jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane"`) {
		t.Fatalf("list without rights: %v, want 403 for jane", err)
	}
	// Not "view": its rules are aggregated by a controller that does not run.
	_, err = m.Client().RbacV1().Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Client().RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developers-view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "right by the group's binding", func() bool {
		_, err := jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err == nil
	})
}

func otherCA(t *testing.T, f *kube.Fleet) {
	config := f.Members[0].RESTConfig()
	config.CAData = f.Members[1].RESTConfig().CAData
	_, err := client(t, config).Discovery().ServerVersion()
	if err == nil || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
		t.Errorf("call with another CA: %v", err)
	}
}

func otherIdentity(t *testing.T, f *kube.Fleet) {
	config := f.Members[0].RESTConfig()
	other := f.Members[1].RESTConfig()
	config.CertData, config.KeyData = other.CertData, other.KeyData
	_, err := client(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("call as another member's administrator: %v, want 401", err)
	}
}

func expiredCertificate(t *testing.T, f *kube.Fleet) {
	m := f.Members[0]
	cred, err := m.IssueCert("jane", -time.Second, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	_, err = client(t, m.RESTConfigWith(cred)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("call with an expired certificate: %v, want 401", err)
	}
}

func token(t *testing.T, f *kube.Fleet) {
	ctx, m := t.Context(), f.Members[0]
	cred, err := m.IssueToken(ctx, "default", "reader", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(m.KubeconfigWith(cred))
	if err != nil {
		t.Fatal(err)
	}
	reader := client(t, config)
	list := func() error {
		_, err := reader.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:reader") {
		t.Errorf("call with a token: %v, want 403 for the service account", err)
	}
	if err := m.Client().CoreV1().ServiceAccounts("default").Delete(ctx, "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The server remembers a token for ten seconds.
	eventually(t, 20*time.Second, "401 after the account's end", func() bool { return apierrors.IsUnauthorized(list()) })
}

func faults(t *testing.T, m *kube.ControlPlane) {
	for _, mode := range []tcpproxy.Mode{{State: tcpproxy.Cut}, {State: tcpproxy.BlackHole}, {Latency: 2 * time.Second}, {BytesPerSecond: 100}} {
		if err := m.Proxy.Set(mode); err != nil {
			t.Fatal(err)
		}
		if err := probe(t, m); err == nil {
			t.Errorf("a call in mode %+v succeeded", mode)
		}
		if _, err := m.Client().CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Errorf("a direct call in mode %+v: %v", mode, err)
		}
		if err := m.Proxy.Set(tcpproxy.Mode{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "healed call", func() bool { return probe(t, m) == nil })
	}
	m.Proxy.Reset()
	eventually(t, 5*time.Second, "call after a reset", func() bool { return probe(t, m) == nil })
}

// mark writes something and returns its UID.
func mark(t *testing.T, m *kube.ControlPlane, name string) types.UID {
	t.Helper()
	cm, err := m.Client().CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm.UID
}

// marked fails unless what mark wrote is there.
func marked(t *testing.T, m *kube.ControlPlane, name string, uid types.UID) {
	t.Helper()
	eventually(t, 15*time.Second, name+" read back", func() bool {
		cm, err := m.Client().CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && cm.UID == uid
	})
}

func killAPIServer(t *testing.T, m *kube.ControlPlane) {
	uid := mark(t, m, "before-server-kill")
	before := m.APIServer.PID()
	host := m.DirectRESTConfig().Host
	m.APIServer.Kill()
	if m.APIServer.Running() || alive(before) {
		t.Error("the API server outlived Kill")
	}
	if err := probe(t, m); err == nil {
		t.Error("a killed API server answered")
	}
	if err := m.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.APIServer.Start(t.Context()); err == nil {
		t.Error("a second start of a running process succeeded")
	}
	if m.APIServer.PID() == before || m.DirectRESTConfig().Host != host {
		t.Errorf("process %d at %s, want a new one at %s", m.APIServer.PID(), m.DirectRESTConfig().Host, host)
	}
	marked(t, m, "before-server-kill", uid)
}

func killEtcd(t *testing.T, m *kube.ControlPlane) {
	uid := mark(t, m, "before-etcd-kill")
	m.Etcd.Kill()
	m.APIServer.Kill()
	if err := m.Etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	marked(t, m, "before-etcd-kill", uid)
	// Under a living API server too.
	uid = mark(t, m, "before-lone-etcd-kill")
	m.Etcd.Kill()
	if err := m.Etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	marked(t, m, "before-lone-etcd-kill", uid)
}
