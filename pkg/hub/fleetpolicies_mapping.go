package hub

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/defaults"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// toBinding converts a FleetPolicy to a binding of the policy engine. Errors name a field.
func toBinding(fp *v1alpha1.FleetPolicy) (policy.Binding, error) {
	spec := &fp.Spec
	b := policy.Binding{
		Name: fp.Name, Package: spec.Package, Constraint: spec.Constraint, Mode: policy.Mode(spec.Mode),
		Members: toMemberSelector(spec.Members), Visibility: toMemberSelector(spec.Visibility),
		Match: policy.Match{Namespaces: toStrings(spec.Match.Namespaces), Labels: spec.Match.Labels.Meta()},
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
			tolerate = toMemberSelector(*spec.Unknown.Members)
		}
		b.Tolerate = &tolerate
	}
	for i := range spec.Exemptions {
		e := &spec.Exemptions[i]
		x := policy.Exemption{
			Members: toMemberSelector(e.Members), Namespaces: toStrings(e.Namespaces), Names: toStrings(e.Names), Labels: e.Labels.Meta(), Reason: e.Reason,
		}
		if e.Expires != nil {
			x.Expires = e.Expires.Time
		}
		b.Exemptions = append(b.Exemptions, x)
	}
	return b, nil
}

func toMemberSelector(m v1alpha1.MemberSelector) policy.MemberSelector {
	return policy.MemberSelector{Names: toStrings(m.Names), Labels: m.Labels.Meta()}
}

func toStrings[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}

// toEnforcementSpec returns how violations of a FleetPolicy are corrected, whose package has
// a digest. Errors name a field.
func toEnforcementSpec(fp *v1alpha1.FleetPolicy, from Origin, digest string) (enforce.EnforcementSpec, error) {
	spec := &fp.Spec
	generation, digests, err := rolloutGeneration(spec, from.Ceiling, digest)
	if err != nil {
		return enforce.EnforcementSpec{}, err
	}
	t := enforce.EnforcementSpec{
		Mode: policy.Mode(spec.Mode), Force: spec.Force, ActAs: spec.ActAs, Suspend: spec.Suspend,
		Limits: toLimits(spec.Limits), Source: from.Source, Commit: from.Commit, Path: from.Path, Hold: from.Hold, Ceiling: from.Ceiling,
		OverrideGitOps: spec.GitOps == v1alpha1.OverrideGitOps, IgnoreOptOut: spec.OptOut == v1alpha1.IgnoreOptOut,
		Generation: generation, Digests: digests,
	}
	if spec.Limits.MaxAffected.Policy == nil {
		t.Limits.Policy = remediate.Limit{Percent: defaults.PolicyPercent}
	}
	t.Waves = toWaves(spec.Waves)
	if t.Window, err = toWindow(spec.Window); err != nil {
		return t, fmt.Errorf("spec.window: %w", err)
	}
	return t, nil
}

func toWaves(waves []v1alpha1.Wave) (out []enforce.Wave) {
	for _, w := range waves {
		wave := enforce.Wave{
			Name: w.Name, Members: toMemberSelector(w.Members), Soak: durationOr(w.Soak, 0),
			Require: cmp.Or(w.Health.Require, v1alpha1.RequireHealthy), Timeout: durationOr(w.Health.Timeout, defaults.HealthTimeout),
		}
		if w.Health.MaxFailed != nil {
			wave.MaxFailed = int(*w.Health.MaxFailed)
		}
		if e := w.Effect; e != nil {
			wave.Effect = &remediate.EffectGate{Policies: toStrings(e.Policies), Unknown: e.Unknown}
		}
		out = append(out, wave)
	}
	return out
}

// toWindow returns nil for nil: always.
func toWindow(w *v1alpha1.Window) (*remediate.Window, error) {
	if w == nil {
		return nil, nil
	}
	return remediate.NewWindow(w.Schedule, w.Duration.Duration, cmp.Or(w.TimeZone, defaults.TimeZone))
}

// rolloutGeneration returns what a rollout is named by: a digest of all that decides what
// is written, of the package and the spec. Other commits of the source, a FleetPolicy that
// was deleted and made again, suspending it and writing out a default do not begin another
// rollout; other waves of the source's ceiling do. It also returns the digests of what it is
// made from.
func rolloutGeneration(spec *v1alpha1.FleetPolicySpec, ceiling *enforce.Ceiling, digest string) (string, v1alpha1.PlanDigests, error) {
	of := defaults.Without(spec)
	of.Suspend, of.Parameters = false, nil
	var parameters any
	if p := spec.Parameters; p != nil && len(p.Raw) > 0 {
		d := json.NewDecoder(bytes.NewReader(p.Raw))
		d.UseNumber()
		if err := d.Decode(&parameters); err != nil {
			return "", v1alpha1.PlanDigests{}, fmt.Errorf("spec.parameters: %w", err)
		}
	}
	all := []any{digest, parameters, of}          // keys are sorted
	if ceiling != nil && len(ceiling.Waves) > 0 { // which are numbered with the policy's
		all = append(all, ceiling.Waves)
	}
	var digests [3]v1alpha1.Digest
	for n, what := range []any{parameters, all[2:], all} {
		text, err := json.Marshal(what)
		if err != nil {
			return "", v1alpha1.PlanDigests{}, err
		}
		sum := sha256.Sum256(text)
		digests[n] = v1alpha1.Digest(hex.EncodeToString(sum[:]))
	}
	return string(digests[2][:32]), v1alpha1.PlanDigests{Package: v1alpha1.Digest(digest), Parameters: digests[0], Spec: digests[1]}, nil
}

func toLimits(l v1alpha1.Limits) remediate.Limits {
	out := remediate.Limits{
		Window: durationOr(l.Window, defaults.Window),
		Policy: toLimit(l.MaxAffected.Policy), Member: toLimit(l.MaxAffected.Member), Fleet: toLimit(l.MaxAffected.Fleet),
	}
	if l.MaxReversions != nil {
		out.MaxReversions = int(*l.MaxReversions)
	}
	if l.ActionsPerMinute != nil {
		out.PerMinute = int(*l.ActionsPerMinute)
	}
	return out
}

func toLimit(l *v1alpha1.Limit) remediate.Limit {
	var out remediate.Limit
	if l != nil && l.Count != nil {
		out.Count = int(*l.Count)
	}
	if l != nil && l.Percent != nil {
		out.Percent = float64(*l.Percent)
	}
	return out
}

func durationOr(d *metav1.Duration, def time.Duration) time.Duration {
	if d == nil {
		return def
	}
	return d.Duration
}
