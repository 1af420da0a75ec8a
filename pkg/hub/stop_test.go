package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// nowhere provides no members, for a dispatcher that gets no intents.
type nowhere struct{}

func (nowhere) Client(string, policy.Kind, string) (*remediate.Client, error) {
	return nil, errors.New("no member")
}

func newDispatcher(t *testing.T) *remediate.Dispatcher {
	t.Helper()
	client, err := kubernetes.NewForConfigAndClient(hubConfig(), shared.http)
	if err != nil {
		t.Fatal(err)
	}
	d, err := remediate.New(remediate.Options{Clients: nowhere{}, Hub: client.CoreV1().RESTClient()})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// expectStopped waits until a dispatcher is stopped for a reason, or is not for "".
func expectStopped(t *testing.T, d *remediate.Dispatcher, want string) {
	t.Helper()
	if err := until(func() error {
		if got := d.Stopped(); !strings.Contains(got, want) || (got == "") != (want == "") {
			return fmt.Errorf("stopped %q, want %q", got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStop_HoldsUntilTheConfigMapIsRead: neither before it has been read nor while
// it must not be; and the grant that the chart gives is enough.
func TestStop_HoldsUntilTheConfigMapIsRead(t *testing.T) {
	h := realHub(t)
	client := h.Client()
	const ns = "stop-test"
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := hubConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "acts"}
	d := newDispatcher(t)
	var mu sync.Mutex
	changes := 0
	s, err := hub.NewStop(hub.StopOptions{Config: cfg, Namespace: ns, Dispatcher: d, OnChange: func() {
		mu.Lock()
		changes++
		mu.Unlock()
	}})
	if err != nil {
		t.Fatal(err)
	}
	expectStopped(t, d, "it is not known yet")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	expectStopped(t, d, "forbidden")
	if text, known := s.State(); known || text == "" {
		t.Errorf("state %q, known %t", text, known)
	}

	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{hub.StopName}, Verbs: []string{"get", "list", "watch"}}
	if _, err := client.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "stop"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "stop"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "acts"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectStopped(t, d, "")

	text, made, err := hub.StopAll(t.Context(), client, ns, "ann", "first\nline")
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if !strings.HasPrefix(text, "by ann since 2") || !strings.HasSuffix(text, ": first line") {
		t.Errorf("text %q", text)
	}
	expectStopped(t, d, text)
	if again, made, err := hub.StopAll(t.Context(), client, ns, "bob", "second"); err != nil || made || again != text {
		t.Errorf("stopped twice: %v, %v", made, err)
	}

	// Whoever comes later finds it; another ConfigMap is nothing to it.
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if was, err := hub.ResumeAll(t.Context(), client, ns); err != nil || was != text {
		t.Errorf("resumed %q, %v", was, err)
	}
	expectStopped(t, d, "")
	if was, err := hub.ResumeAll(t.Context(), client, ns); err != nil || was != "" {
		t.Errorf("resumed twice: %q, %v", was, err)
	}

	// With kubectl, without a reason.
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: hub.StopName}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectStopped(t, d, "since 2")
	mu.Lock()
	defer mu.Unlock()
	if changes < 5 {
		t.Errorf("%d changes were reported", changes)
	}
}

// TestNewStop_NewRollbacks_RequireOptions: neither does anything by half.
func TestNewStop_NewRollbacks_RequireOptions(t *testing.T) {
	if _, err := hub.NewStop(hub.StopOptions{Config: &rest.Config{}}); err == nil {
		t.Error("a stop of no dispatcher")
	}
	if _, err := hub.NewRollbacks(hub.RollbacksOptions{Config: &rest.Config{}}); err == nil {
		t.Error("rollbacks without a dispatcher")
	}
}
