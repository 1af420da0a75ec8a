package source

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
)

// Each contract says in its own way that a control plane is initialised, the
// older one in two ways.
func TestInitialized_ByContract(t *testing.T) {
	condition := func(kind, status string) map[string]any {
		return map[string]any{"conditions": []any{
			"not a condition", map[string]any{"type": "Ready", "status": "False"}, map[string]any{"type": kind, "status": status},
		}}
	}
	byField := map[string]any{"initialization": map[string]any{"controlPlaneInitialized": true}}
	for name, tc := range map[string]struct {
		version string
		status  map[string]any
		want    bool
	}{
		"v1beta1 nothing":                  {"v1beta1", nil, false},
		"v1beta1 ready":                    {"v1beta1", map[string]any{"controlPlaneReady": true}, true},
		"v1beta1 not ready":                {"v1beta1", map[string]any{"controlPlaneReady": false}, false},
		"v1beta1 condition true":           {"v1beta1", condition("ControlPlaneInitialized", "True"), true},
		"v1beta1 condition false":          {"v1beta1", condition("ControlPlaneInitialized", "False"), false},
		"v1beta1 another condition":        {"v1beta1", condition("InfrastructureReady", "True"), false},
		"v1beta1 by the newer field":       {"v1beta1", byField, false},
		"v1beta2 nothing":                  {"v1beta2", nil, false},
		"v1beta2 initialised":              {"v1beta2", byField, true},
		"v1beta2 not initialised":          {"v1beta2", map[string]any{"initialization": map[string]any{"controlPlaneInitialized": false}}, false},
		"v1beta2 by the older condition":   {"v1beta2", condition("ControlPlaneInitialized", "True"), false},
		"v1beta2 by the older field":       {"v1beta2", map[string]any{"controlPlaneReady": true}, false},
		"v1beta2 of an unexpected type":    {"v1beta2", map[string]any{"initialization": "yes"}, false},
		"v1beta1 conditions not in a list": {"v1beta1", map[string]any{"conditions": "yes"}, false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": clusterv1.GroupVersion.Group + "/" + tc.version, "kind": clusterv1.ClusterKind}}
		if tc.status != nil {
			u.Object["status"] = tc.status
		}
		if kept := trimCluster(u); kept.initialized != tc.want {
			t.Errorf("%s: %+v, want %t", name, kept, tc.want)
		}
	}
}

func TestTrimSecret_KeepsOnlyKubeconfigs(t *testing.T) {
	for name, want := range map[string]int{"a-kubeconfig": 1, "a-federator": 1, "federator": 0, "a-ca": 0, "a-etcd": 0, "kubeconfig-a": 0} {
		obj, err := trimSecret(keepKubeconfig)(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: map[string]string{"a": kubeconfigtest.Token}},
			Data:       map[string][]byte{secret.KubeconfigDataName: []byte("value"), "tls.key": []byte(kubeconfigtest.Token)},
		})
		must(t, err)
		kept := obj.(*corev1.Secret)
		if len(kept.Data) != want || kept.Data["tls.key"] != nil || kept.Annotations != nil || kept.Namespace != "n" || kept.Name != name {
			t.Errorf("%s: kept %+v", name, kept)
		}
		if want == 1 && string(kept.Data[secret.KubeconfigDataName]) != "value" {
			t.Errorf("%s: kept %q", name, kept.Data[secret.KubeconfigDataName])
		}
		again, err := trimSecret(keepKubeconfig)(kept)
		if err != nil || string(again.(*corev1.Secret).Data[secret.KubeconfigDataName]) != string(kept.Data[secret.KubeconfigDataName]) {
			t.Errorf("%s: trimmed twice: %+v, %v", name, again, err)
		}
	}
}

// Who paused or froze is the manager that wrote the field last.
func TestTrimCluster_NamesTheManagerOfTheField(t *testing.T) {
	at := func(minute int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": true}}}
	u.SetAnnotations(map[string]string{"federator.dev/freeze-until": "later"})
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "other", Time: at(9), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:pausedUntil":{}}}`)},
		{Manager: "first", Time: at(1), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:paused":{}}}`)},
		{Manager: "last", Time: at(2), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:paused":{}}}`)},
		{Manager: "\x1bfreezer", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:federator.dev/freeze-until":{}}}}`)},
	})
	hold := trimCluster(u).hold
	if !hold.Paused || hold.PausedBy != "last" || hold.Freeze == nil || *hold.Freeze != "later" || hold.FrozenBy != " freezer" {
		t.Errorf("%+v", hold)
	}
	u.Object["spec"] = map[string]any{"paused": "yes"}
	if hold := trimCluster(u).hold; !hold.Paused {
		t.Error("what is not understood does not pause")
	}
	if hold := trimCluster(&unstructured.Unstructured{Object: map[string]any{}}).hold; hold != (connection.Hold{}) {
		t.Errorf("%+v", hold)
	}
}
