package chart

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
)

// receiverKey is the key of events, in the form of Standard Webhooks.
const receiverKey = "whsec_dGhlIGtleSBvZiBhbGwgZXZlbnRz"

// receiver is told of what happens to corrections.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	events []string
	errs   []error
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	hook, keyErr := standardwebhooks.NewWebhook(receiverKey)
	var e struct{ Source, Type, Subject string }
	err = errors.Join(err, keyErr, hook.Verify(body, req.Header), json.Unmarshal(body, &e))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	r.events = append(r.events, e.Source+" "+e.Type+" "+e.Subject)
}

// told returns an error unless an event has come, and all that have come are signed.
func (r *receiver) told(event string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.events, "\n")
	if len(r.errs) > 0 || !strings.Contains(all+"\n", event+"\n") {
		return fmt.Errorf("%w, told:\n%s", errors.Join(append(r.errs, fmt.Errorf("no event %s", event))...), all)
	}
	return nil
}

// notifies makes a Notification of stops.
func notifies(t *testing.T, hub *kube.Hub, r *receiver) {
	t.Helper()
	must(t, hub.Apply(t.Context(), fmt.Appendf(nil, `
apiVersion: federator.dev/v1alpha1
kind: Notification
metadata: {name: stops}
spec:
  webhook: {url: %q, secretRef: {name: chat}, wait: 0s, interval: 0s}
  rules: [{types: [Policy], transitions: [Stopped]}]
`, r.URL)))
}

// stopIsTold stops what there is none of, so that nothing else is disturbed.
func stopIsTold(t *testing.T, hub *kube.Hub, r *receiver) {
	maps := hub.Client().CoreV1().ConfigMaps(system)
	const name = "federator-stop-policy-none"
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"scope": "policy", "name": "none"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, until(t.Context(), func() error { return r.told("/federator/chart dev.federator.stop.began ConfigMap/" + name) }))
	must(t, maps.Delete(t.Context(), name, metav1.DeleteOptions{}))
	must(t, until(t.Context(), func() error { return r.told("/federator/chart dev.federator.stop.ended ConfigMap/" + name) }))
}

// TestRBAC_NoticesAreForReceivers: federator updates no ConfigMap but those of receivers.
func TestRBAC_NoticesAreForReceivers(t *testing.T) {
	for want, args := range map[string][]string{
		"": least(),
		"[federator-notices-chat federator-notices-mail] [get update]": least("--values", "testdata/run.yaml",
			"--set", "notify.receivers[1].name=mail,notify.receivers[1].url=https://mail.example,notify.receivers[1].secretName=mail"),
	} {
		got := ""
		for _, u := range render(t, args...) {
			if u.GetKind() != "Role" || u.GetName() != "system-federator-notices" {
				continue
			}
			for _, r := range into[rbacv1.Role](t, u).Rules {
				got += fmt.Sprintf("%v %v", r.ResourceNames, r.Verbs)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
