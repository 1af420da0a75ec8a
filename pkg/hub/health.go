package hub

import (
	"errors"
	"fmt"
	"strings"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// HealthOptions configure Health. Index is required.
type HealthOptions struct {
	Index *aggregate.Index
	// Applied returns the resourceVersion up to which the index has what a member serves of a
	// kind, "" when not known. nil: it is never known, and follows from objects alone.
	Applied func(member string, kind policy.Kind) string
	// Dropped returns the fields of a kind that the index does not hold. nil: it holds all.
	Dropped func(policy.Kind) []string
}

// Health assesses the health of what was written as Argo CD does, as it is in the index now.
// It is Unknown where the index does not show the state after the write.
func Health(opts HealthOptions) func(remediate.Written) remediate.Health {
	if opts.Applied == nil {
		opts.Applied = func(string, policy.Kind) string { return "" }
	}
	if opts.Dropped == nil {
		opts.Dropped = func(policy.Kind) []string { return nil }
	}
	return opts.assess
}

func unknownHealth(format string, args ...any) remediate.Health {
	return remediate.Health{Status: remediate.Unknown, Why: fmt.Sprintf(format, args...)}
}

func (o *HealthOptions) assess(w remediate.Written) remediate.Health {
	// Before the snapshot, which then has at least as much.
	applied := o.Applied(w.Target.Member, w.Target.Kind)
	snapshot := o.Index.Snapshot()
	scope, _ := snapshot.Scope(w.Target.Member, w.Target.Kind)
	switch scope.Status.State {
	case aggregate.Synced, aggregate.Partial:
	case aggregate.NotServed:
		return remediate.Health{Status: remediate.Healthy, Why: "its kind is not served any more"}
	default:
		return unknownHealth("%s of %s is %s, not Synced", w.Target.Kind, w.Target.Member, scope.Status.State)
	}
	object, ok := snapshot.Get(w.Target)
	if !ok {
		return absentHealth(w, &scope, reached(snapshot, w, applied))
	}
	version := object.ResourceVersion()
	if w.ResourceVersion != "" && version != w.ResourceVersion {
		switch order, err := resourceversion.CompareResourceVersion(version, w.ResourceVersion); {
		case err != nil:
			return unknownHealth("whether version %q is that of the write, %q, cannot be told", version, w.ResourceVersion)
		case order < 0:
			return unknownHealth("the index has version %s, older than the write's, %s", version, w.ResourceVersion)
		}
	}
	body, err := object.AppendBody(nil)
	var u unstructured.Unstructured
	if err = errors.Join(err, u.UnmarshalJSON(body)); err != nil {
		return unknownHealth("the object cannot be read: %v", err)
	}
	if w.Deleted && u.GetDeletionTimestamp() == nil && w.ResourceVersion == "" {
		// It may have been made again, or the index is behind.
		if order, err := resourceversion.CompareResourceVersion(applied, version); err != nil || order <= 0 {
			return unknownHealth("the index does not show the deletion yet")
		}
	}
	if health.GetHealthCheckFunc(u.GroupVersionKind()) != nil {
		for _, field := range o.Dropped(w.Target.Kind) {
			if showsHealth(field) {
				return unknownHealth("field %s is not kept: a rule of the kind drops it", field)
			}
		}
	}
	return objectHealth(&u)
}

// absentHealth is the health of a target that the index does not have.
func absentHealth(w remediate.Written, scope *aggregate.ScopeInfo, reached bool) remediate.Health {
	switch {
	case w.Deleted || reached && scope.Status.State == aggregate.Synced:
		return remediate.Health{Status: remediate.Healthy, Why: "it is gone"}
	case !reached:
		return unknownHealth("the index has not reached the write's version, %s", w.ResourceVersion)
	}
	return unknownHealth("it is not kept: %s", scope.Status.Reason)
}

// reached reports whether the index has what the member served at the version of a write.
func reached(s *aggregate.Snapshot, w remediate.Written, applied string) bool {
	if w.ResourceVersion == "" {
		return true // nothing says how far it must be
	}
	if order, err := resourceversion.CompareResourceVersion(applied, w.ResourceVersion); err == nil && order >= 0 {
		return true
	}
	list, err := s.List(aggregate.Query{Kind: w.Target.Kind, Members: []string{w.Target.Member}})
	if err != nil {
		return false
	}
	for o := range list { // any newer object of the kind was read after the write
		if order, err := resourceversion.CompareResourceVersion(o.ResourceVersion(), w.ResourceVersion); err == nil && order >= 0 {
			return true
		}
	}
	return false
}

// showsHealth reports whether health checks may read a field: any of spec and status, but
// not what a template of Pods has.
func showsHealth(field string) bool {
	top, rest, _ := strings.Cut(field, ".")
	return top == "status" || top == "spec" && !strings.HasPrefix(rest, "template.")
}

func objectHealth(u *unstructured.Unstructured) remediate.Health {
	found, err := health.GetResourceHealth(u, nil)
	switch {
	case err != nil:
		return remediate.Health{Status: remediate.Degraded, Why: "its status is invalid: " + err.Error()}
	case found == nil:
		return remediate.Health{Status: remediate.Healthy} // its kind has no health check
	}
	out := remediate.Health{Status: remediate.Healthy, Why: found.Message} // also if its owner has suspended it
	switch found.Status {
	case health.HealthStatusDegraded, health.HealthStatusMissing:
		out.Status = remediate.Degraded
	case health.HealthStatusProgressing:
		out.Status = remediate.Progressing
	case health.HealthStatusUnknown:
		out.Status = remediate.Unknown
	}
	return out
}
