package hub

import (
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/remediate"
)

// Health is how objects do, as Argo CD sees it: of what the index holds now.
func Health(index *aggregate.Index) func(aggregate.Ref) remediate.Health {
	return func(ref aggregate.Ref) remediate.Health {
		o, ok := index.Snapshot().Get(ref)
		if !ok {
			return remediate.Healthy // it is gone, as corrections may want
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
			return remediate.Degraded // what it says of itself makes no sense
		case status == nil:
			return remediate.Healthy // its kind has no health
		}
		switch status.Status {
		case health.HealthStatusDegraded, health.HealthStatusMissing:
			return remediate.Degraded
		case health.HealthStatusProgressing, health.HealthStatusUnknown:
			return remediate.Progressing
		}
		return remediate.Healthy // Suspended is as its owner wants it
	}
}
