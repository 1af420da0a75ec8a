package hub_test

import (
	"fmt"
	"testing"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/remediate"
)

func TestHealth_OfObjectsInTheIndex(t *testing.T) {
	index, err := aggregate.New(aggregate.Options{Revisions: aggregate.Block(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := index.PutMember(aggregate.Member{Name: "fleet/a", UID: "a"}); err != nil {
		t.Fatal(err)
	}
	scope, err := index.OpenScope("fleet/a", "Deployment.apps", "apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	of := hub.Health(index)
	for i, c := range []struct {
		status string
		want   remediate.HealthStatus
	}{
		{`{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"availableReplicas":2}`, remediate.Healthy},
		{`{"observedGeneration":1,"replicas":2,"updatedReplicas":1,"availableReplicas":1}`, remediate.Progressing},
		{`{"observedGeneration":1,"conditions":[{"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded","message":"x"}]}`, remediate.Degraded},
	} {
		scope.Upsert(scope.Item(&aggregate.Record{Namespace: "shop", Name: "web", UID: "1", ResourceVersion: fmt.Sprint(i), Body: fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"generation":1,"name":"web","namespace":"shop"},"spec":{"replicas":2},"status":%s}`, c.status)}))
		if _, err := scope.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := of(remediate.Written{Target: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}).Status; got != c.want {
			t.Errorf("%s: %v, want %v", c.status, got, c.want)
		}
	}
	if got := of(remediate.Written{Target: aggregate.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "gone"}}).Status; got != remediate.Healthy {
		t.Errorf("what is gone: %v", got)
	}
}
