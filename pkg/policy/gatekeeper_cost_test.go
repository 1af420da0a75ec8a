package policy_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// inventoryChanges are a delta for each of the templates that read data.inventory.
var inventoryChanges = []struct {
	binding string
	kinds   []aggregate.Kind // of which the member has many
	object  func(i int) map[string]any
	change  op
}{
	{"K8sUniqueIngressHost/unique-ingress-host", []aggregate.Kind{"Ingress.networking.k8s.io"}, func(i int) map[string]any { return ingress(fmt.Sprint("h", i)) },
		putIn("fleet/a", "Ingress.networking.k8s.io", "shop", "o1", ingress("h2"))},
	{"K8sUniqueServiceSelector/unique-service-selector", []aggregate.Kind{"Service"}, func(i int) map[string]any {
		return map[string]any{"spec": map[string]any{"selector": map[string]any{"app": fmt.Sprint(i)}}}
	}, putIn("fleet/a", "Service", "shop", "o1", map[string]any{"spec": map[string]any{"selector": map[string]any{"app": "2"}}})},
	{"K8sStorageClass/storageclass", []aggregate.Kind{"PersistentVolumeClaim"}, func(int) map[string]any {
		return map[string]any{"spec": map[string]any{"storageClassName": "fast"}}
	}, putIn("fleet/a", "StorageClass.storage.k8s.io", "", "other", map[string]any{})},
	{"K8sPodDisruptionBudget/pod-distruption-budget", []aggregate.Kind{"Deployment.apps"}, func(int) map[string]any {
		return map[string]any{"spec": map[string]any{"replicas": 3, "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}}}
	}, putIn("fleet/a", "PodDisruptionBudget.policy", "other", "p", map[string]any{"spec": map[string]any{"maxUnavailable": 1}})},
	{"K8sHorizontalPodAutoscaler/horizontal-pod-autoscaler", []aggregate.Kind{"Deployment.apps", "HorizontalPodAutoscaler.autoscaling"}, func(i int) map[string]any {
		return map[string]any{"spec": map[string]any{"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": map[string]any{"kind": "Deployment", "name": fmt.Sprint("o", i)}}}
	}, op{Do: "delete", Member: "fleet/a", Kind: "Deployment.apps", NS: "shop", Name: "o1"}},
}

// TestGatekeeper_DeltaCostDoesNotFollowTheMembersSize applies one delta to members with few
// and with many objects.
func TestGatekeeper_DeltaCostDoesNotFollowTheMembersSize(t *testing.T) {
	t.Parallel()
	set := loadFiles(t, gatekeeperFiles(t)...)
	all, _ := policy.DefaultBindings(set, nil)
	for _, test := range inventoryChanges {
		t.Run(test.binding, func(t *testing.T) {
			t.Parallel()
			var bindings []policy.Binding
			for _, b := range all {
				if b.Name == test.binding {
					bindings = append(bindings, b)
				}
			}
			costs := map[int]int64{}
			for _, n := range []int{50, 1000} {
				w := gatekeeperWorld(t)
				mustDo(t, w, putIn("fleet/a", "StorageClass.storage.k8s.io", "", "fast", map[string]any{}))
				for _, kind := range test.kinds {
					for i := range n {
						mustDo(t, w, putIn("fleet/a", kind, "shop", fmt.Sprint("o", i), test.object(i)))
					}
				}
				e, cursor := engineOn(t, w, policy.EngineOptions{Set: set, Bindings: bindings, Parallelism: 1})
				before := e.Stats()
				mustDo(t, w, test.change)
				apply(t, e, cursor)
				after := e.Stats()
				costs[n] = after.Evaluations - before.Evaluations + after.Reads - before.Reads
				if h, _ := e.State().Health(test.binding); h.WideReads > 0 {
					t.Errorf("%d objects: %d wide reads", n, h.WideReads)
				}
			}
			if costs[1000] > costs[50]+5 {
				t.Errorf("evaluations and reads of one delta: %v", costs)
			}
		})
	}
}
