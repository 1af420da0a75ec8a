package defaults

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// Defaults of fields that are not enumerations.
const (
	Window        = time.Hour
	PolicyPercent = 10 // of limits.maxAffected.policy
	MaxReversions = 5
	HealthTimeout = 10 * time.Minute
	TimeZone      = "UTC"
	Approvals     = 1
	ValidFor      = 24 * time.Hour
)

// Without returns a copy in which a field that has its default is not set: a FleetPolicy
// means the same whether its author has written it out or the API server has added it. A
// field that a newer CRD adds with a default changes nothing.
func Without(spec *v1alpha1.FleetPolicySpec) *v1alpha1.FleetPolicySpec {
	s := spec.DeepCopy()
	unset(&s.Mode, v1alpha1.Observe)
	unset(&s.Unknown.Mode, v1alpha1.Strict)
	unset(&s.OptOut, v1alpha1.HonorOptOut)
	unset(&s.GitOps, v1alpha1.RespectGitOps)
	unsetDuration(&s.Limits.Window, Window)
	unsetNumber(&s.Limits.MaxReversions, MaxReversions)
	if p := s.Limits.MaxAffected.Policy; p != nil && p.Count == nil && p.Percent != nil && *p.Percent == PolicyPercent {
		s.Limits.MaxAffected.Policy = nil
	}
	for i := range s.Waves {
		w := &s.Waves[i]
		unsetDuration(&w.Soak, 0)
		unset(&w.Health.Require, v1alpha1.RequireHealthy)
		unsetDuration(&w.Health.Timeout, HealthTimeout)
		unsetNumber(&w.Health.MaxFailed, 0)
	}
	if s.Window != nil {
		unset(&s.Window.TimeZone, TimeZone)
	}
	if s.Approval != nil {
		unset(&s.Approval.Required, Approvals)
		unsetDuration(&s.Approval.ValidFor, ValidFor)
	}
	return s
}

func unset[T comparable](field *T, def T) {
	if *field == def {
		*field = *new(T)
	}
}

func unsetNumber(field **int32, def int32) {
	if *field != nil && **field == def {
		*field = nil
	}
}

func unsetDuration(field **metav1.Duration, def time.Duration) {
	if *field != nil && (*field).Duration == def {
		*field = nil
	}
}
