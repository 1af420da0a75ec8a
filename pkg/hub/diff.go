package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub/internal/defaults"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// DocumentsWith returns the external documents as they would be with a commit that is not active.
type DocumentsWith func(policysource.Candidate) *policy.External

// errNotSynced says that a commit cannot be compared yet.
var errNotSynced = errors.New("the objects that policies read are still being listed")

// Diff computes how a commit would change the verdicts on the fleet: with its packages,
// and with its FleetPolicies in place of those that its source has applied before. It
// evaluates on the caller's goroutine, on the newest snapshot that has verdicts.
func (f *FleetPolicies) Diff(ctx context.Context, c policysource.Candidate) (policysource.Difference, error) {
	var out policysource.Difference
	state := f.opts.Loop.State()
	if state == nil || !state.Synced || !f.informer.HasSynced() {
		return out, errNotSynced
	}
	bindings := f.candidateBindings(c)
	opts := policy.EngineOptions{Set: c.Set, Bindings: bindings, Parallelism: 1, Clock: f.opts.Clock}
	if f.opts.Documents != nil {
		opts.External = f.opts.Documents(c)
	}
	changes, err := policy.Compare(ctx, state, opts)
	if err != nil {
		return out, err
	}
	seen := map[string]int{} // violations that are counted already, by binding
	for change := range changes.All() {
		d := countDifference(change)
		if change.After != nil {
			seen[change.After.Binding] += d.Appeared + d.Changed
		}
		out.Appeared += d.Appeared
		out.Cleared += d.Cleared
		out.Changed += d.Changed
	}
	for b, severity := range changes.After.Bindings() {
		before, now := changes.Before.Total(b.Name), changes.After.Total(b.Name)
		out.Unknown += max(0, now.Unknown+now.Errors-before.Unknown-before.Errors)
		if p := changes.Before.Package(b.Name); p != nil && p.Severity != severity {
			for v := range changes.After.Findings(b.Name, "") {
				was, _ := changes.Before.Get(b.Name, v.Subject)
				out.Changed += countCommon(was.Violations, v.Violations)
			}
		}
	}
	for _, name := range f.enforcedOtherwise(c) {
		after := changes.After
		if after.Package(name) == nil { // its verdicts stay the same
			after = state
		}
		out.Enforcement += max(1, after.Total(name).Violations-seen[name])
	}
	return out, nil
}

// enforcedOtherwise returns the FleetPolicies of a commit's source that would correct
// violations in another way than now.
func (f *FleetPolicies) enforcedOtherwise(c policysource.Candidate) []string {
	plan := parseManifests(c.Source, policysource.Policies{Commit: c.Commit, Tree: c.Tree})
	if len(plan.findings) > 0 {
		return nil // not applied
	}
	now := map[string]*v1alpha1.FleetPolicy{}
	for _, fp := range f.list() {
		if fp.Labels[api.SourceKey] == c.Source {
			now[fp.Name] = fp
		}
	}
	var out []string
	for _, m := range plan.manifests {
		fp := &v1alpha1.FleetPolicy{}
		if old := now[m.name]; old != nil && json.Unmarshal(m.body, fp) == nil && enforcementText(&old.Spec) != enforcementText(&fp.Spec) {
			out = append(out, m.name)
		}
	}
	return out
}

// enforcementText returns a text of how violations are corrected. It is the same whether or not
// defaults are written out: a commit has not got those of the hub.
func enforcementText(spec *v1alpha1.FleetPolicySpec) string {
	s := defaults.Without(spec)
	text, err := json.Marshal([]any{s.Mode, s.Force, s.ActAs, s.Suspend, s.Members, s.Limits, s.Waves, s.Window, s.Approval, s.OptOut, s.GitOps})
	if err != nil {
		panic(err) // read from JSON
	}
	return string(text)
}

// candidateBindings returns the bindings that would be in effect with a commit.
func (f *FleetPolicies) candidateBindings(c policysource.Candidate) []policy.Binding {
	plan := parseManifests(c.Source, policysource.Policies{Commit: c.Commit, Tree: c.Tree})
	all := map[string]*v1alpha1.FleetPolicy{}
	for _, fp := range f.list() {
		// Invalid manifests are not applied and prune nothing.
		if fp.Labels[api.SourceKey] != c.Source || len(plan.findings) > 0 {
			all[fp.Name] = fp
		}
	}
	if len(plan.findings) == 0 {
		for _, m := range plan.manifests {
			fp := &v1alpha1.FleetPolicy{}
			if err := json.Unmarshal(m.body, fp); err == nil && all[m.name] == nil { // an existing name is not taken over
				all[m.name] = fp
			}
		}
	}
	origins := map[string]Origin{}
	for _, p := range c.Set.Packages {
		origins[p.Name] = Origin{}
		if p.Source == c.Source {
			origins[p.Name] = Origin{Source: c.Source}
		} else {
			origins[p.Name] = f.opts.Library.Origin(p.Name)
		}
	}
	now := f.opts.Clock()
	var bindings []policy.Binding
	for _, fp := range all {
		if b, why := bindingAtOnce(c.Set, fp, origins); why.reason == "" {
			bindings = append(bindings, b.At(now))
		}
	}
	slices.SortFunc(bindings, func(a, b policy.Binding) int { return strings.Compare(a.Name, b.Name) })
	own, _ := policy.DefaultBindings(c.Set, bindings)
	return append(bindings, own...)
}

// countDifference counts the differing violations of a verdict, except exempt ones. A
// violation with another message or remedy counts as changed.
func countDifference(c policy.Change) policysource.Difference {
	var before, after []policy.Violation
	if c.Before != nil {
		before = c.Before.Violations
	}
	if c.After != nil {
		after = c.After.Violations
	}
	n := countCommon(before, after)
	gone, come := countViolations(before)-n, countViolations(after)-n
	changed := min(gone, come)
	return policysource.Difference{Appeared: come - changed, Cleared: gone - changed, Changed: changed}
}

func countViolations(list []policy.Violation) int {
	n := 0
	for _, v := range list {
		if v.Exempt == "" {
			n++
		}
	}
	return n
}

// countCommon counts the violations that two verdicts have in common, except exempt ones.
func countCommon(a, b []policy.Violation) int {
	had := map[string]int{}
	for _, v := range a {
		if v.Exempt == "" {
			had[violationKey(v)]++
		}
	}
	n := 0
	for _, v := range b {
		if k := violationKey(v); v.Exempt == "" && had[k] > 0 {
			had[k]--
			n++
		}
	}
	return n
}

func violationKey(v policy.Violation) string {
	remedy, err := json.Marshal(v.Remedy)
	if err != nil {
		panic(err) // references and JSON only
	}
	return fmt.Sprintf("%s\x00%s\x00%s", v.Msg, v.Details, remedy)
}
