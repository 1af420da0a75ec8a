package source

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/test/kube"
)

// viewer keeps the views that a source gives.
type viewer struct {
	t    *testing.T
	stop func()

	mu    sync.Mutex
	views [][]clusterinformers.Spec
	last  clusterinformers.View
	wake  trigger.Trigger
}

// watchSource runs a source until the test ends or stop is called, which checks
// that it leaves nothing behind.
func watchSource(t *testing.T, s clusterinformers.Source, err error) *viewer {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	v := &viewer{t: t, wake: trigger.New()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, v.set) }()
	v.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("Run does not return")
		}
		goleak.VerifyNone(t, before)
	})
	t.Cleanup(v.stop)
	return v
}

// partial reports whether the last view was.
func (v *viewer) partial() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last.Partial
}

func (v *viewer) set(view clusterinformers.View) {
	v.mu.Lock()
	v.views, v.last = append(v.views, view.Members), view
	v.mu.Unlock()
	v.wake.Fire()
}

func (v *viewer) all() [][]clusterinformers.Spec {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.views)
}

// await waits for a view for which cond holds, and returns it.
func (v *viewer) await(what string, cond func(view []clusterinformers.Spec) bool) []clusterinformers.Spec {
	v.t.Helper()
	deadline := time.After(45 * time.Second)
	for {
		if all := v.all(); len(all) > 0 && cond(all[len(all)-1]) {
			return all[len(all)-1]
		}
		select {
		case <-v.wake:
		case <-deadline:
			all := v.all()
			for i, view := range all[max(0, len(all)-3):] {
				for _, s := range view {
					v.t.Logf("view -%d: %s uid %q refused %v kubeconfig %d bytes", len(all)-i, s.Name, s.UID, s.Refused, len(s.Kubeconfig))
				}
			}
			v.t.Fatalf("waited in vain: %s (%d views)", what, len(all))
		}
	}
}

// member waits for one member to be as cond wants it.
func (v *viewer) member(name, what string, cond func(clusterinformers.Spec) bool) clusterinformers.Spec {
	v.t.Helper()
	var found clusterinformers.Spec
	v.await(name+": "+what, func(view []clusterinformers.Spec) bool {
		i := slices.IndexFunc(view, func(s clusterinformers.Spec) bool { return s.Name == name })
		if i >= 0 {
			found = view[i]
		}
		return i >= 0 && cond(found)
	})
	return found
}

func followed(s clusterinformers.Spec) bool { return s.Refused == nil && s.Hold == connection.Hold{} }

func paused(s clusterinformers.Spec) bool { return s.Refused == nil && s.Hold.Paused }

func refusedAs(r connection.Reason) func(clusterinformers.Spec) bool {
	return func(s clusterinformers.Spec) bool { return s.Refused != nil && s.Refused.Reason == r }
}

// logs counts the lines of a log by message.
type logs struct {
	slog.Handler
	mu    *sync.Mutex
	lines map[string]int
}

func newLogs(t *testing.T) logs {
	return logs{slog.NewTextHandler(t.Output(), nil), &sync.Mutex{}, map[string]int{}}
}

func (l logs) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	l.lines[r.Message]++
	l.mu.Unlock()
	return l.Handler.Handle(ctx, r)
}

func (l logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logs{l.Handler.WithAttrs(attrs), l.mu, l.lines}
}

func (l logs) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[message]
}

// uidOf returns the UID of a control plane's kube-system.
func uidOf(t *testing.T, c *kube.ControlPlane) string {
	t.Helper()
	var uid string
	await(t, "kube-system exists", 30*time.Second, func() bool {
		ns, err := c.Client().CoreV1().Namespaces().Get(t.Context(), "kube-system", getOptions)
		if err == nil {
			uid = string(ns.UID)
		}
		return uid != ""
	})
	return uid
}

// allowViewing lets service accounts of namespace default read what tells a
// cluster's identity.
func allowViewing(t *testing.T, c kubernetes.Interface, accounts ...string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	for _, a := range accounts {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: a})
	}
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

func noDial(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }

func await(t *testing.T, what string, limit time.Duration, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", limit, what)
		}
	}
}

func readAll(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
