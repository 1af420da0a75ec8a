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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
)

// TestRollbacks_OfPoliciesThatRequireApproval: who may label Actions does not write what people
// have to approve: that takes a Rollback, which says who wants it and has a Plan.
func TestRollbacks_OfPoliciesThatRequireApproval(t *testing.T) {
	h := realHub(t)
	const ns = "rollbacks-test"
	if _, err := h.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := hubConfig()
	d := newDispatcher(t)
	stop, err := hub.NewStop(hub.StopOptions{Config: cfg, Namespace: ns, Dispatcher: d})
	if err != nil {
		t.Fatal(err)
	}
	r, err := hub.NewRollbacks(hub.RollbacksOptions{
		Config: cfg, Dispatcher: d, Stop: stop, IsLeader: func() bool { return true }, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Required: func() (map[string][]v1alpha1.ApprovalRequirement, bool) {
			return map[string][]v1alpha1.ApprovalRequirement{"approved": {{Required: 2}}}, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, run := range []func(context.Context) error{d.Run, stop.Run, r.Run} {
		running.Go(func() {
			if err := run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	client, err := hub.NewRESTClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for policy, want := range map[string]string{"approved": "Refused FleetPolicy approved requires approval", "free": "Failed "} { // nowhere is the member
		name, a := "rollbacks-test-"+policy, &v1alpha1.Action{}
		a.APIVersion, a.Kind, a.Name = v1alpha1.GroupVersion, "Action", name
		a.Spec = v1alpha1.ActionSpec{
			Binding: policy, Package: "acme.hosts", Revision: "1", Verb: v1alpha1.Delete,
			Target: v1alpha1.Target{Member: "fleet/eu-1", APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1"},
		}
		a.Inverse = &v1alpha1.Inverse{Verb: v1alpha1.Apply, Patch: `{"apiVersion":"v1","kind":"Service"}`}
		a.Status = v1alpha1.ActionStatus{Phase: v1alpha1.PhaseSucceeded}
		made := a.DeepCopy()
		if err := client.Post().Resource(v1alpha1.Actions).Body(a).Do(t.Context()).Into(made); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := client.Delete().Resource(v1alpha1.Actions).Name(name).Do(context.WithoutCancel(t.Context())).Error(); err != nil {
				t.Error(err)
			}
		}()
		made.Status = a.Status
		if err := client.Put().Resource(v1alpha1.Actions).Name(name).SubResource("status").Body(made).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, api.RollbackKey, api.RollbackForce) // once it has ended, as people do
		if err := client.Patch(types.MergePatchType).Resource(v1alpha1.Actions).Name(name).Body(label).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		if err := until(func() error {
			now := &v1alpha1.Action{}
			if err := client.Get().Resource(v1alpha1.Actions).Name(name).Do(t.Context()).Into(now); err != nil {
				return err
			}
			if got := now.Annotations[api.RollbackOutcomeKey]; !strings.HasPrefix(got, want) || now.Labels[api.RollbackKey] != "" {
				return fmt.Errorf("outcome %q, labels %v", got, now.Labels)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
}
