package hub

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/defaults"
	"federator.dev/federator/pkg/hub/internal/versions"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// toBinding converts a FleetPolicy to a binding of the policy engine. Errors name a field.
func toBinding(fp *v1alpha1.FleetPolicy) (policy.Binding, error) {
	spec := &fp.Spec
	b := policy.Binding{
		Name: fp.Name, Package: spec.Package, Constraint: spec.Constraint, Mode: policy.Mode(spec.Mode),
		Members: ToMemberSelector(spec.Members), Visibility: ToMemberSelector(spec.Visibility),
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
			tolerate = ToMemberSelector(*spec.Unknown.Members)
		}
		b.Tolerate = &tolerate
	}
	for i := range spec.Exemptions {
		e := &spec.Exemptions[i]
		x := policy.Exemption{
			Members: ToMemberSelector(e.Members), Namespaces: toStrings(e.Namespaces), Names: toStrings(e.Names), Labels: e.Labels.Meta(), Reason: e.Reason,
		}
		if e.Expires != nil {
			x.Expires = e.Expires.Time
		}
		b.Exemptions = append(b.Exemptions, x)
	}
	return b, nil
}

// rolling is which versions a FleetPolicy has, and how they roll out.
type rolling struct {
	versions.Plan

	rollout *v1alpha1.VersionRollout // nil: they do not
	waves   []v1alpha1.Wave          // of the policy's corrections, in which they do
	refused string                   // why the next version can be in effect nowhere, "" if it can
}

// rollingOf returns which versions a FleetPolicy has, or why it has none. Without a library all
// that is in the set is in effect at once.
func rollingOf(set *policy.Set, fp *v1alpha1.FleetPolicy, origins map[string]Origin, library Library) (*rolling, policyProblem) {
	p := versions.Policy{Parameters: fp.Spec.Parameters, Status: fp.Status.Rollout}
	from, active := origins[fp.Spec.Package]
	if active {
		p.Active = versions.Package{Name: fp.Spec.Package, Digest: v1alpha1.Digest(set.Digest(fp.Spec.Package))}
		p.Unsettled = from.Hold != ""
	}
	if name := set.Candidate(fp.Spec.Package); name != "" {
		p.Candidate = versions.Package{Name: name, Digest: v1alpha1.Digest(set.Digest(name))}
		if !active {
			from = origins[name]
			active = from.Source != ""
		}
	}
	for _, name := range set.Former(fp.Spec.Package) {
		p.Replaced = append(p.Replaced, versions.Package{Name: name, Digest: v1alpha1.Digest(set.Digest(name))})
	}
	switch {
	case !active:
		return nil, policyProblem{"NoPackage", fmt.Sprintf("no active package is named %q", fp.Spec.Package)}
	case fp.Spec.Source != "" && fp.Spec.Source != from.Source:
		return nil, policyProblem{"OtherSource", fmt.Sprintf("package %q comes from source %q, not from %q", fp.Spec.Package, from.Source, fp.Spec.Source)}
	}
	var ofSource *v1alpha1.VersionRollout
	if from.Source != "" && library != nil {
		ofSource, p.TakenBack = library.SourceRollout(from.Source), library.TakenBack(from.Source)
	}
	out := &rolling{waves: versions.Waves(&fp.Spec, ofSource)}
	if library != nil {
		out.rollout = versions.Rollout(&fp.Spec, ofSource)
		if parameters, ok := library.CandidateParameters(fp); ok {
			p.Manifest = &versions.Manifest{Parameters: parameters}
		}
	}
	p.Rollout = out.rollout
	var err error
	if out.Plan, err = versions.Decide(&p); err != nil {
		return nil, policyProblem{"Invalid", err.Error()}
	}
	if out.InEffect() == nil { // the package is new, and was taken back
		return nil, policyProblem{"NoPackage", fmt.Sprintf("no active package is named %q", fp.Spec.Package)}
	}
	return out, policyProblem{}
}

// mark changes whenever what is configured of the versions may.
func (r *rolling) mark(origins map[string]Origin) string {
	if r == nil {
		return ""
	}
	mark := fmt.Sprint(" ", r.Phase, r.Waves, r.TakenBack())
	for _, v := range []*versions.Version{r.Former, r.Next} {
		if v != nil {
			mark += " " + string(v.Digest)
		}
	}
	of := []any{r.waves}
	if r.Next != nil {
		of = append(of, origins[r.Next.Package])
	}
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return mark + string(text)
}

// compared names what evidence on the versions follows from: all processes that judge the same have the same name for it.
func (r *rolling) compared(fp *v1alpha1.FleetPolicy) string {
	former := v1alpha1.Digest("none")
	if r.Former != nil {
		former = r.Former.Digest
	}
	return fmt.Sprintf("%s/%d/%s/%s", fp.UID, fp.Generation, former, r.Next.Digest)
}

// origin returns where a version's package was read from: what its source allows is what it
// allows the active one.
func (r *rolling) origin(fp *v1alpha1.FleetPolicy, v *versions.Version, origins map[string]Origin) Origin {
	from, active := origins[fp.Spec.Package]
	of := origins[v.Package]
	if active && v.Package != fp.Spec.Package {
		from.Commit, from.Path, from.Signer, from.Commits = of.Commit, of.Path, of.Signer, of.Commits
		return from
	}
	return of
}

// maxParameters is how many bytes of parameters a version may have that rolls out: the status has those
// that are in effect, and the hub stores no more than 1.5 MiB of both.
const maxParameters = 256 << 10

// versionBinding returns the binding of one version of a FleetPolicy.
func (r *rolling) versionBinding(set *policy.Set, fp *v1alpha1.FleetPolicy, v *versions.Version) (policy.Binding, error) {
	if p := v.Parameters; r.rollout != nil && p != nil && len(p.Raw) > maxParameters {
		return policy.Binding{}, fmt.Errorf("spec.parameters: %d bytes, at most %d may be of a policy whose versions roll out", len(p.Raw), maxParameters)
	}
	of := *fp
	of.Spec.Package, of.Spec.Parameters = v.Package, v.Parameters
	b, err := toBinding(&of)
	if err != nil {
		return b, err
	}
	resolved, err := policy.ValidateBindings(set, []policy.Binding{b})
	if err != nil {
		return b, err
	}
	b = resolved[0]
	b.Version = v.Short()
	return b, nil
}

// binding returns the binding of all versions, with the waves of the ceiling and of the policy.
func (r *rolling) binding(set *policy.Set, fp *v1alpha1.FleetPolicy, ceiling, own []enforce.Wave) (policy.Binding, error) {
	if r.Former == nil {
		return r.versionBinding(set, fp, r.Next)
	}
	b, err := r.versionBinding(set, fp, r.Former)
	if err != nil || r.Next == nil {
		return b, err
	}
	next, err := r.versionBinding(set, fp, r.Next)
	if err != nil {
		r.refused = "it is not valid: " + clip.Text(err.Error(), maxText)
		return b, nil
	}
	switch r.Phase {
	case v1alpha1.RolloutTakenBack:
	case v1alpha1.RolloutPromoted:
		b.Next = &policy.Next{Binding: next, Members: []policy.MemberSelector{{}}, Whole: true}
	case v1alpha1.RolloutWaves:
		b.Next = &policy.Next{Binding: next, Members: versions.Members(selectors(ceiling), selectors(own), r.Waves), Whole: r.Waves >= versions.Count(len(ceiling), len(own))}
		if len(b.Next.Members) == 0 { // the waves were removed, and nothing is written until it is promoted
			b.Next.Members = []policy.MemberSelector{{}}
		}
	default:
		b.Next = &policy.Next{Binding: next}
	}
	return b, nil
}

func selectors(waves []enforce.Wave) (out []policy.MemberSelector) {
	for i := range waves {
		out = append(out, waves[i].Members)
	}
	return out
}

// spec returns how violations are corrected of the version that is in effect, and of the former
// one where it is not.
func (r *rolling) spec(fp *v1alpha1.FleetPolicy, origins map[string]Origin) (enforce.EnforcementSpec, error) {
	of := *fp
	of.Spec.Waves, of.Spec.Rollout = r.waves, nil
	specOf := func(v *versions.Version) (enforce.EnforcementSpec, error) {
		of.Spec.Parameters = v.Parameters
		t, err := toEnforcementSpec(&of, r.origin(fp, v, origins), string(v.Digests.Package))
		t.Version = v.Short()
		return t, err
	}
	t, err := specOf(r.InEffect())
	if err != nil || r.Next == nil {
		return t, err
	}
	switch {
	case r.Phase == v1alpha1.RolloutTakenBack:
		t.Hold = cmp.Or(t.Hold, r.TakenBack())
	case r.First() && r.Phase == v1alpha1.RolloutShadow:
		t.Hold = cmp.Or(t.Hold, fmt.Sprintf("version %s is in shadow", r.Next.Short()))
	case r.Phase == v1alpha1.RolloutWaves && !r.First():
		former, err := specOf(r.Former)
		if err != nil {
			return t, err
		}
		t.Rollout = &enforce.VersionRollout{
			Former: enforce.FormerVersion{
				Version: former.Version, Generation: former.Generation, Source: former.Source, Commit: former.Commit, Path: former.Path,
			},
			Promoted: r.Waves,
		}
		if len(t.Waves) == 0 && (t.Ceiling == nil || len(t.Ceiling.Waves) == 0) {
			t.Hold = cmp.Or(t.Hold, fmt.Sprintf("version %s has no waves any more, and waits for complete evidence", r.Next.Short()))
		}
	}
	return t, nil
}

// bindingFor returns the binding of a FleetPolicy and how it is enforced, or why it has none.
func bindingFor(set *policy.Set, fp *v1alpha1.FleetPolicy, r *rolling, origins map[string]Origin) (policy.Binding, enforce.EnforcementSpec, policyProblem) {
	t, err := r.spec(fp, origins)
	var b policy.Binding
	if err == nil {
		var ceiling []enforce.Wave
		if t.Ceiling != nil {
			ceiling = t.Ceiling.Waves
		}
		b, err = r.binding(set, fp, ceiling, t.Waves)
	}
	if err == nil && r.refused != "" { // the last good state is observed
		held := *r
		held.Phase, held.Message = v1alpha1.RolloutTakenBack, r.refused
		t, err = held.spec(fp, origins)
	}
	if err != nil {
		return b, t, policyProblem{"Invalid", err.Error()}
	}
	return b, t, policyProblem{}
}

// bindingAtOnce returns the binding of a FleetPolicy whose version in the set is in effect
// everywhere, or why it has none.
func bindingAtOnce(set *policy.Set, fp *v1alpha1.FleetPolicy, origins map[string]Origin) (policy.Binding, policyProblem) {
	r, why := rollingOf(set, fp, origins, nil)
	if r == nil {
		return policy.Binding{}, why
	}
	b, _, why := bindingFor(set, fp, r, origins)
	return b, why
}

// defaultBindings returns the bindings of packages that no FleetPolicy binds, with what is to take their place, and of
// those that commits add: they are judged, so that there is evidence.
func defaultBindings(set *policy.Set, bindings []policy.Binding) []policy.Binding {
	own, _ := policy.DefaultBindings(set, bindings)
	besideDefaults(set, own)
	first := policy.FirstBindings(set, slices.Concat(bindings, own))
	for i := range first {
		first[i].Version = versions.Short(v1alpha1.Digest(set.Digest(first[i].Package)))
	}
	return append(own, first...)
}

// besideDefaults has the candidates of packages that have no FleetPolicy judged beside those, so
// that there is evidence. One that does not do without parameters is not.
func besideDefaults(set *policy.Set, bindings []policy.Binding) {
	for i := range bindings {
		b := &bindings[i]
		name := set.Candidate(b.Package)
		if name == "" || b.Next != nil {
			continue
		}
		next := *b
		next.Package, next.Parameters, next.Version = name, nil, versions.Short(v1alpha1.Digest(set.Digest(name)))
		if resolved, err := policy.ValidateBindings(set, []policy.Binding{next}); err == nil {
			b.Next = &policy.Next{Binding: resolved[0]}
		}
	}
}

// ToMemberSelector converts a selector of members.
func ToMemberSelector(m v1alpha1.MemberSelector) policy.MemberSelector {
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
			Name: w.Name, Members: ToMemberSelector(w.Members), Soak: durationOr(w.Soak, 0),
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
// was deleted and made again, suspending it, writing out a default, whom it notifies and how its
// versions roll out do not begin another rollout; other waves of the source's ceiling do. It also returns the
// digests of what it is made from.
func rolloutGeneration(spec *v1alpha1.FleetPolicySpec, ceiling *enforce.Ceiling, digest string) (string, v1alpha1.PlanDigests, error) {
	of := defaults.Without(spec)
	of.Suspend, of.Parameters, of.Rollout, of.Notifications = false, nil, nil, nil
	parameters, parametersDigest, err := versions.Parameters(spec.Parameters)
	if err != nil {
		return "", v1alpha1.PlanDigests{}, err
	}
	all := []any{digest, parameters, of}          // keys are sorted
	if ceiling != nil && len(ceiling.Waves) > 0 { // which are numbered with the policy's
		all = append(all, ceiling.Waves)
	}
	var digests [2]v1alpha1.Digest
	for n, what := range []any{all[2:], all} {
		text, err := json.Marshal(what)
		if err != nil {
			return "", v1alpha1.PlanDigests{}, err
		}
		sum := sha256.Sum256(text)
		digests[n] = v1alpha1.Digest(hex.EncodeToString(sum[:]))
	}
	return string(digests[1][:32]), v1alpha1.PlanDigests{Package: v1alpha1.Digest(digest), Parameters: parametersDigest, Spec: digests[0]}, nil
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

func toOrigin(from *Origin) *v1alpha1.Origin {
	return &v1alpha1.Origin{Source: from.Source, Commit: v1alpha1.CommitHash(from.Commit), Path: clip.Text(from.Path, maxText)}
}

func toWaveStatus(w *remediate.WaveStatus) *v1alpha1.WaveStatus {
	if w == nil {
		return nil
	}
	since := metav1.NewTime(w.Since)
	return &v1alpha1.WaveStatus{
		Name: w.Name, Number: int32(w.Number), Of: int32(w.Of), Phase: w.Phase, Since: &since, Unhealthy: int32(w.Unhealthy), // Small numbers.
	}
}

// toBudgets converts the usage of limits, those with the least remaining first.
func toBudgets(list []remediate.BudgetUsage) []v1alpha1.Budget {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b remediate.BudgetUsage) int {
		return cmp.Or(cmp.Compare(a.Max-a.Targets, b.Max-b.Targets), cmp.Compare(a.Scope, b.Scope))
	})
	var out []v1alpha1.Budget
	for _, s := range list[:min(len(list), maxBudgets)] {
		out = append(out, toBudget(s))
	}
	return out
}

func toBudget(s remediate.BudgetUsage) v1alpha1.Budget {
	b := v1alpha1.Budget{Scope: v1alpha1.MemberScope, Member: s.Scope, Targets: int64(s.Targets), Allowed: int64(s.Max), Denominator: int64(s.Denominator)}
	switch s.Scope {
	case "policy":
		b.Scope, b.Member = v1alpha1.PolicyScope, ""
	case "fleet":
		b.Scope, b.Member = v1alpha1.FleetScope, ""
	}
	return b
}

func toHalt(h *remediate.Halt) *v1alpha1.Halt {
	if h == nil {
		return nil
	}
	out := &v1alpha1.Halt{ID: h.ID, Reason: h.Reason, Message: clip.Text(h.Message, maxText), Since: metav1.NewTime(h.Since)}
	if h.Over != nil {
		over := toBudget(*h.Over)
		out.Over = &over
	}
	return out
}
