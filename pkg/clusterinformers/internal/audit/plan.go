package audit

import (
	"time"

	"federator.dev/federator/pkg/aggregate"
)

// Plan says how often scopes are audited.
type Plan struct {
	Interval  time.Duration // of every scope
	FirstTier time.Duration // of kinds that decide on security, and of those that policies read
}

// Scope is what a Plan knows of a scope.
type Scope struct {
	First   bool      // it is in the first tier
	Proved  time.Time // when it was last known to be equal
	Resumed bool      // it continues what another process has held, and was never proved
	Changes int       // since Proved
	Objects int
	Spread  float64 // of [0, 1): where in the last half of its interval it is due
	// Took is how long its last audit took: it proves what was held when it began, so that it is to begin
	// earlier by that.
	Took time.Duration
	// NotBefore delays what could not be audited.
	NotBefore time.Time
}

// A scope is due between earliest and latest of its interval: the rest is for its turn to come.
const (
	earliest = 0.5
	latest   = 0.85
)

// busyChanges is how many changes a scope must have had, at least, to have changed much.
const busyChanges = 100

// interval is how often a scope is audited.
func (p Plan) interval(s *Scope) time.Duration {
	switch {
	case s.First:
		return min(p.FirstTier, p.Interval)
	case s.Changes >= max(busyChanges, s.Objects):
		return p.Interval / 2
	}
	return p.Interval
}

// Due returns when a scope is due.
func (p Plan) Due(s Scope) time.Time {
	due := s.Proved
	if !s.Resumed {
		interval := p.interval(&s)
		interval -= min(s.Took, interval*3/4)
		due = due.Add(time.Duration(float64(interval) * (earliest + (latest-earliest)*s.Spread)))
	}
	if due.Before(s.NotBefore) {
		return s.NotBefore
	}
	return due
}

// Next returns the scope whose turn is next, and when; -1 without any. Those that were resumed come
// first, of the others those that are late for the most of their intervals: so the first tier comes before
// others that are as late, and is not all that is audited where the budget is not enough.
func (p Plan) Next(scopes []Scope, now time.Time) (next int, due time.Time) {
	next = -1
	var best float64
	for n, s := range scopes {
		at := p.Due(s)
		if at.After(now) {
			if next < 0 || due.After(now) && at.Before(due) {
				next, due = n, at
			}
			continue
		}
		late := float64(now.Sub(at)) / float64(max(p.interval(&s), 1))
		if s.Resumed {
			late += 1e9
		}
		if next < 0 || due.After(now) || late > best {
			next, due, best = n, at, late
		}
	}
	return next, due
}

// securityKinds decide on who may do what, on what is admitted and on what reaches what.
var securityKinds = map[aggregate.Kind]bool{
	"Secret": true, "ServiceAccount": true, "Namespace": true, "ResourceQuota": true, "LimitRange": true,
	"Role.rbac.authorization.k8s.io": true, "RoleBinding.rbac.authorization.k8s.io": true,
	"ClusterRole.rbac.authorization.k8s.io": true, "ClusterRoleBinding.rbac.authorization.k8s.io": true,
	"NetworkPolicy.networking.k8s.io":                               true,
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io":   true,
	"MutatingWebhookConfiguration.admissionregistration.k8s.io":     true,
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io":        true,
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": true,
	"MutatingAdmissionPolicy.admissionregistration.k8s.io":          true,
	"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io":   true,
	"CustomResourceDefinition.apiextensions.k8s.io":                 true,
	"APIService.apiregistration.k8s.io":                             true,
	"CertificateSigningRequest.certificates.k8s.io":                 true,
	"FlowSchema.flowcontrol.apiserver.k8s.io":                       true,
	"PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io":       true,
}

// Security reports whether a kind decides on security.
func Security(kind aggregate.Kind) bool { return securityKinds[kind] }
