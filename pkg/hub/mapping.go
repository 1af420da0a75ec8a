package hub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// bindingOf is a FleetPolicy as the policy engine takes it. Errors name a field.
func bindingOf(fp *v1alpha1.FleetPolicy) (policy.Binding, error) {
	spec := &fp.Spec
	b := policy.Binding{
		Name: fp.Name, Package: spec.Package, Mode: policy.Mode(spec.Mode),
		Members: members(spec.Members), Visibility: members(spec.Visibility),
		Match: policy.Match{Namespaces: texts(spec.Match.Namespaces), Labels: spec.Match.Labels.Meta()},
	}
	for _, k := range spec.Match.Kinds {
		b.Match.Kinds = append(b.Match.Kinds, aggregate.Kind(k))
	}
	if spec.Parameters != nil && len(spec.Parameters.Raw) > 0 {
		if err := json.Unmarshal(spec.Parameters.Raw, &b.Parameters); err != nil {
			return b, fmt.Errorf("spec.parameters: %w", err)
		}
	}
	if spec.Unknown.Mode == v1alpha1.Tolerate {
		tolerate := policy.MemberSelector{}
		if spec.Unknown.Members != nil {
			tolerate = members(*spec.Unknown.Members)
		}
		b.Tolerate = &tolerate
	}
	for i := range spec.Exemptions {
		e := &spec.Exemptions[i]
		x := policy.Exemption{
			Members: members(e.Members), Namespaces: texts(e.Namespaces), Names: texts(e.Names), Labels: e.Labels.Meta(), Reason: e.Reason,
		}
		if e.Expires != nil {
			x.Expires = e.Expires.Time
		}
		b.Exemptions = append(b.Exemptions, x)
	}
	return b, nil
}

func members(m v1alpha1.MemberSelector) policy.MemberSelector {
	return policy.MemberSelector{Names: texts(m.Names), Labels: m.Labels.Meta()}
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}

// termsOf are what may come of a FleetPolicy's violations. Errors name a field.
func termsOf(fp *v1alpha1.FleetPolicy, from Origin) (enforce.EnforcementSpec, error) {
	spec := &fp.Spec
	t := enforce.EnforcementSpec{
		Mode: policy.Mode(spec.Mode), Force: spec.Force, ActAs: spec.ActAs, Suspend: spec.Suspend,
		Limits: limits(spec.Limits), Source: from.Source, Commit: from.Commit, Path: from.Path, Hold: from.Hold, Ceiling: from.Ceiling,
		Generation: fmt.Sprintf("%s/%d/%s", fp.UID, fp.Generation, from.Commit),
	}
	for _, w := range spec.Waves {
		t.Waves = append(t.Waves, enforce.Wave{
			Name: w.Name, Members: members(w.Members), Soak: duration(w.Soak, 0),
			Require: cmp.Or(w.Health.Require, v1alpha1.RequireHealthy), Timeout: duration(w.Health.Timeout, 10*time.Minute),
		})
	}
	if w := spec.Window; w != nil {
		zone := w.TimeZone
		if zone == "" {
			zone = "UTC"
		}
		var err error
		if t.Window, err = remediate.NewWindow(w.Schedule, w.Duration.Duration, zone); err != nil {
			return t, fmt.Errorf("spec.window: %w", err)
		}
	}
	return t, nil
}

func limits(l v1alpha1.Limits) remediate.Limits {
	out := remediate.Limits{
		Window: duration(l.Window, time.Hour),
		Policy: limit(l.MaxAffected.Policy), Member: limit(l.MaxAffected.Member), Fleet: limit(l.MaxAffected.Fleet),
	}
	if l.ActionsPerMinute != nil {
		out.PerMinute = int(*l.ActionsPerMinute)
	}
	return out
}

func limit(l *v1alpha1.Limit) remediate.Limit {
	var out remediate.Limit
	if l != nil && l.Count != nil {
		out.Count = int(*l.Count)
	}
	if l != nil && l.Percent != nil {
		out.Percent = float64(*l.Percent)
	}
	return out
}

func duration(d *metav1.Duration, def time.Duration) time.Duration {
	if d == nil {
		return def
	}
	return d.Duration
}
