package hub

import (
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/remediate"
)

// Health assesses the health of objects as Argo CD does, as they are in the index now.
func Health(index *aggregate.Index) func(remediate.Written) remediate.Health {
	return func(w remediate.Written) remediate.Health { return remediate.Health{Status: healthStatus(index, w)} }
}

func healthStatus(index *aggregate.Index, w remediate.Written) remediate.HealthStatus {
	o, ok := index.Snapshot().Get(w.Target)
	if !ok {
		return remediate.Healthy // deleted, as corrections may require
	}
	body, err := o.AppendBody(nil)
	if err != nil {
		return remediate.Progressing
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(body); err != nil {
		return remediate.Progressing
	}
	status, err := health.GetResourceHealth(&u, nil)
	switch {
	case err != nil:
		return remediate.Degraded // its status is invalid
	case status == nil:
		return remediate.Healthy // its kind has no health check
	}
	switch status.Status {
	case health.HealthStatusDegraded, health.HealthStatusMissing:
		return remediate.Degraded
	case health.HealthStatusProgressing, health.HealthStatusUnknown:
		return remediate.Progressing
	}
	return remediate.Healthy // its owner has suspended it
}
