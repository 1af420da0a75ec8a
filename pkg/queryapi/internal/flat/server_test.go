package flat_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/flat"
	"federator.dev/federator/test/kube"
)

// The kinds that are known to have no namespaces are those of an API server.
func TestTable_ClusterScopedKindsAreThoseOfAnAPIServer(t *testing.T) {
	c := kube.StartTest(t, kube.Options{NoHub: true, Members: 1}).Members[0]
	_, lists, err := c.Client().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	keys := flat.NewKeys("", true, nobody)
	seen := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || strings.HasSuffix(r.Kind, "Review") {
				continue
			}
			seen++
			if kind := aggregate.MakeKind(r.Kind, gv.Group); keys.ClusterScoped(kind) == r.Namespaced {
				t.Errorf("%s is namespaced %t on the server, and otherwise here", kind, r.Namespaced)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d resources were seen", seen)
	}
}
