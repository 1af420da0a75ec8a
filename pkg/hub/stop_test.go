package hub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	d, err := remediate.New(remediate.Options{Clients: nowhere{}, Hub: client.CoreV1().RESTClient(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
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
	if stops, known := s.State(); known || stops.All == "" {
		t.Errorf("state %+v, known %t", stops, known)
	}

	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create"}}
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

	text, made, err := hub.CreateStop(t.Context(), client, ns, hub.StopScope{}, "ann", "first\nline")
	if err != nil || !made {
		t.Fatal(made, err)
	}
	if !strings.HasPrefix(text, "by ann since 2") || !strings.HasSuffix(text, ": first line") {
		t.Errorf("text %q", text)
	}
	expectStopped(t, d, text)
	if again, made, err := hub.CreateStop(t.Context(), client, ns, hub.StopScope{}, "bob", "second"); err != nil || made || again != text {
		t.Errorf("stopped twice: %v, %v", made, err)
	}

	// A later process finds it; other ConfigMaps are ignored.
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if was, err := hub.DeleteStop(t.Context(), client, ns, hub.StopScope{}); err != nil || was != text {
		t.Errorf("resumed %q, %v", was, err)
	}
	expectStopped(t, d, "")
	if was, err := hub.DeleteStop(t.Context(), client, ns, hub.StopScope{}); err != nil || was != "" {
		t.Errorf("resumed twice: %q, %v", was, err)
	}

	// Federator itself, which returns once it holds.
	if err := s.StopAll(t.Context(), "too many failed"); err != nil || !strings.Contains(d.Stopped(), "by federator since") || !strings.Contains(d.Stopped(), "too many failed") {
		t.Errorf("stopped %q, %v", d.Stopped(), err)
	}
	if err := s.StopAll(t.Context(), "again"); err != nil || !strings.Contains(d.Stopped(), "too many failed") {
		t.Errorf("stopped twice: %q, %v", d.Stopped(), err)
	}
	if _, err := hub.DeleteStop(t.Context(), client, ns, hub.StopScope{}); err != nil {
		t.Fatal(err)
	}
	expectStopped(t, d, "")

	// With kubectl, without a reason.
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: hub.StopName}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectStopped(t, d, "since 2")
	if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), hub.StopName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectStopped(t, d, "")
	stopsByScope(t, client, ns, d)
	mu.Lock()
	defer mu.Unlock()
	if changes < 5 {
		t.Errorf("%d changes were reported", changes)
	}
}

// stopsByScope: each holds what it names and nothing else, and what is malformed holds
// everything and says so.
func stopsByScope(t *testing.T, client kubernetes.Interface, ns string, d *remediate.Dispatcher) {
	t.Helper()
	long := strings.Repeat("a", 250)
	for _, of := range []hub.StopScope{{Scope: hub.StopPolicy, Name: "tier"}, {Scope: hub.StopMember, Name: "fleet/eu.1"}, {Scope: hub.StopSource, Name: "git"}, {Scope: hub.StopPolicy, Name: long}} {
		text, made, err := hub.CreateStop(t.Context(), client, ns, of, "ann", "broken")
		if err != nil || !made {
			t.Fatal(of, made, err)
		}
		policyName, source, member := "other", "other", "fleet/other"
		switch of.Scope {
		case hub.StopPolicy:
			policyName = of.Name
		case hub.StopMember:
			member = of.Name
		case hub.StopSource:
			source = of.Name
		}
		expectHeld(t, d, policyName, source, member, text)
		if got := d.StoppedFor("other", "other", "fleet/other"); got != "" {
			t.Errorf("%s holds others: %q", of, got)
		}
		if d.Stopped() != "" {
			t.Errorf("%s stops everything", of)
		}
		if was, err := hub.DeleteStop(t.Context(), client, ns, of); err != nil || was != text {
			t.Errorf("%s: resumed %q, %v", of, was, err)
		}
		expectHeld(t, d, policyName, source, member, "")
	}
	for name, m := range map[string]*corev1.ConfigMap{
		"no scope":     {ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-policy-tier"}},
		"wrong scope":  {ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-x"}, Data: map[string]string{"scope": "cluster", "name": "x"}},
		"no name":      {ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-policy-"}, Data: map[string]string{"scope": "policy"}},
		"another name": {ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-policy-a"}, Data: map[string]string{"scope": "policy", "name": "b"}},
		"no namespace": {ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-member-eu-1"}, Data: map[string]string{"scope": "member", "name": "eu-1"}},
		"labelled":     {ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"federator.dev/stop": "policy"}}},
	} {
		m.Name = strings.TrimSuffix(m.Name, "-")
		if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectStopped(t, d, "ConfigMap "+m.Name+" is malformed")
		if err := client.CoreV1().ConfigMaps(ns).Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(name, err)
		}
		expectStopped(t, d, "")
	}
	// With kubectl, which makes no labels.
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "federator-stop-member-fleet.eu-1"}, Data: map[string]string{"scope": "member", "name": "fleet/eu-1"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectHeld(t, d, "any", "", "fleet/eu-1", "since 2")
	if d.Stopped() != "" {
		t.Errorf("stopped: %q", d.Stopped())
	}
}

// expectHeld waits until a stop holds writes for a reason, or none does for "".
func expectHeld(t *testing.T, d *remediate.Dispatcher, policyName, source, member, want string) {
	t.Helper()
	if err := until(func() error {
		if got := d.StoppedFor(policyName, source, member); !strings.Contains(got, want) || (got == "") != (want == "") {
			return fmt.Errorf("held %q, want %q", got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestStopScope_NamesAreValidatedAndNeverShared(t *testing.T) {
	names := map[string]hub.StopScope{}
	for _, of := range []hub.StopScope{
		{},
		{Scope: hub.StopPolicy, Name: "a"},
		{Scope: hub.StopPolicy, Name: "a.b"},
		{Scope: hub.StopMember, Name: "a/b"},
		{Scope: hub.StopMember, Name: "a/b.c"},
		{Scope: hub.StopSource, Name: "a"},
		{Scope: hub.StopPolicy, Name: strings.Repeat("a", 240) + "b"},
		{Scope: hub.StopPolicy, Name: strings.Repeat("a", 240) + "c"},
	} {
		if err := of.Validate(); err != nil {
			t.Errorf("%s: %v", of, err)
		}
		name := of.ConfigMap()
		if other, taken := names[name]; taken || len(name) > 253 {
			t.Errorf("%s and %s are both %s", of, other, name)
		}
		names[name] = of
	}
	for _, of := range []hub.StopScope{
		{Name: "a"},
		{Scope: hub.StopPolicy},
		{Scope: hub.StopMember, Name: "a"},
		{Scope: hub.StopMember, Name: "a/"},
		{Scope: hub.StopMember, Name: "a/b/c"},
		{Scope: "cluster", Name: "a"},
		{Scope: hub.StopSource, Name: "a/b"},
	} {
		if of.Validate() == nil {
			t.Errorf("%+v is valid", of)
		}
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
