package clusterfacts_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/clusterfacts"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// Each contract says in its own way what the class is, and where its conditions are.
func TestOf_ByContract(t *testing.T) {
	ready := []aggregate.Condition{{Type: "Available", Status: "True", Since: "2026-01-02T03:04:05Z"}, {Type: "Ready", Status: "False", Reason: "Rolling", Message: "two of three"}}
	for name, tc := range map[string]struct {
		text string
		want aggregate.Cluster
	}{
		"v1beta2": {
			`
apiVersion: cluster.x-k8s.io/v1beta2
metadata: {annotations: {b: "2", a: "1", kubectl.kubernetes.io/last-applied-configuration: "{}"}}
spec: {paused: true, topology: {classRef: {name: quick, namespace: classes}, version: v1.36.0}}
status:
  conditions:
  - {type: Ready, status: "False", reason: Rolling, message: two of three}
  - {type: Available, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}
  - {type: Ready, status: "True"}
  - {status: "True"}
  - odd
  deprecated: {v1beta1: {conditions: [{type: Old, status: "True"}]}}`,
			aggregate.Cluster{Annotations: []aggregate.Label{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}, Paused: true, Class: "quick", Version: "v1.36.0", Conditions: ready},
		},
		"v1beta1, with the conditions of both": {
			`
apiVersion: cluster.x-k8s.io/v1beta1
metadata: {annotations: {cluster.x-k8s.io/paused: ""}}
spec: {topology: {class: quick, version: v1.36.0}}
status:
  conditions: [{type: Old, status: "True", severity: Info}]
  v1beta2:
    conditions:
    - {type: Available, status: "True", lastTransitionTime: "2026-01-02T03:04:05Z"}
    - {type: Ready, status: "False", reason: Rolling, message: two of three}`,
			aggregate.Cluster{Annotations: []aggregate.Label{{Key: "cluster.x-k8s.io/paused"}}, Paused: true, Class: "quick", Version: "v1.36.0", Conditions: ready},
		},
		"v1beta1, with its own": {
			`
apiVersion: cluster.x-k8s.io/v1beta1
status: {conditions: [{type: Old, status: "True", severity: Info}]}`,
			aggregate.Cluster{Conditions: []aggregate.Condition{{Type: "Old", Status: "True"}}},
		},
		"nothing that is understood": {`
apiVersion: cluster.x-k8s.io/v1beta2
spec: {paused: "maybe", topology: {classRef: quick, version: 1}}
status: {conditions: {type: Ready}}`, aggregate.Cluster{Paused: true}},
	} {
		if got := clusterfacts.Of(parse(t, tc.text)); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got  %+v\nwant %+v", name, got, tc.want)
		}
	}
}

func TestOf_IsBounded(t *testing.T) {
	many := map[string]any{"long": strings.Repeat("x", 5000)}
	var conditions []any
	for i := range 100 {
		many[fmt.Sprintf("a%02d", i)] = strings.Repeat("y", 1000)
		conditions = append(conditions, map[string]any{"type": fmt.Sprint("T", i), "message": strings.Repeat("z", 4000)})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": many}, "status": map[string]any{"conditions": conditions}}}
	c := clusterfacts.Of(u)
	if len(c.Annotations) != 32 || len(c.Conditions) != 32 || len(c.Conditions[0].Message) > 512 {
		t.Errorf("%d annotations, %d conditions, a message of %d bytes", len(c.Annotations), len(c.Conditions), len(c.Conditions[0].Message))
	}
	delete(many, "a40")
	u.SetAnnotations(map[string]string{"long": strings.Repeat("x", 5000), "short": "s"})
	c = clusterfacts.Of(u)
	if want := []aggregate.Label{{Key: "long"}, {Key: "short", Value: "s"}}; !reflect.DeepEqual(c.Annotations, want) {
		t.Errorf("annotations are %+v, want %+v", c.Annotations, want)
	}
}
