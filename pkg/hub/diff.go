package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// errNotYet is why a commit's difference cannot be told now.
var errNotYet = errors.New("not all that policies read has been listed yet")

// Diff says what a commit would change in the verdicts on the fleet: its policies, and
// its FleetPolicies in place of those that its source brought before. It evaluates on
// one goroutine of the caller, on the newest snapshot that has verdicts.
func (f *FleetPolicies) Diff(ctx context.Context, c policysource.Candidate) (policysource.Difference, error) {
	var out policysource.Difference
	state := f.opts.Loop.State()
	if state == nil || !state.Synced || !f.informer.HasSynced() {
		return out, errNotYet
	}
	bindings := f.bindingsWith(c)
	changes, err := policy.Compare(ctx, state, policy.EngineOptions{Set: c.Set, Bindings: bindings, Parallelism: 1})
	if err != nil {
		return out, err
	}
	for change := range changes.All() {
		d := differenceOf(change)
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
				out.Changed += common(was.Violations, v.Violations)
			}
		}
	}
	return out, nil
}

// bindingsWith are the bindings with a commit in effect.
func (f *FleetPolicies) bindingsWith(c policysource.Candidate) []policy.Binding {
	plan := planOf(c.Source, policysource.Policies{Commit: c.Commit, Tree: c.Tree})
	all := map[string]*v1alpha1.FleetPolicy{}
	for _, fp := range f.list() {
		// Manifests with a mistake are not applied, and prune nothing.
		if fp.Labels[api.SourceKey] != c.Source || len(plan.findings) > 0 {
			all[fp.Name] = fp
		}
	}
	if len(plan.findings) == 0 {
		for _, m := range plan.manifests {
			fp := &v1alpha1.FleetPolicy{}
			if err := json.Unmarshal(m.body, fp); err == nil && all[m.name] == nil { // a name that is taken stays taken
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
	now := time.Now()
	var bindings []policy.Binding
	for _, fp := range all {
		if b, _, why := f.fit(c.Set, fp, origins); why.reason == "" {
			bindings = append(bindings, b.At(now))
		}
	}
	slices.SortFunc(bindings, func(a, b policy.Binding) int { return strings.Compare(a.Name, b.Name) })
	own, _ := policy.DefaultBindings(c.Set, bindings)
	return append(bindings, own...)
}

// differenceOf counts the violations of a verdict that differs, except those that are
// exempt. One that has another text or remedy is one that changed.
func differenceOf(c policy.Change) policysource.Difference {
	var before, after []policy.Violation
	if c.Before != nil {
		before = c.Before.Violations
	}
	if c.After != nil {
		after = c.After.Violations
	}
	n := common(before, after)
	gone, come := counting(before)-n, counting(after)-n
	changed := min(gone, come)
	return policysource.Difference{Appeared: come - changed, Cleared: gone - changed, Changed: changed}
}

func counting(list []policy.Violation) int {
	n := 0
	for _, v := range list {
		if v.Exempt == "" {
			n++
		}
	}
	return n
}

// common counts the violations that two verdicts have, except those that are exempt.
func common(a, b []policy.Violation) int {
	had := map[string]int{}
	for _, v := range a {
		if v.Exempt == "" {
			had[identity(v)]++
		}
	}
	n := 0
	for _, v := range b {
		if k := identity(v); v.Exempt == "" && had[k] > 0 {
			had[k]--
			n++
		}
	}
	return n
}

func identity(v policy.Violation) string {
	remedy, err := json.Marshal(v.Remedy)
	if err != nil {
		panic(err) // references and JSON only
	}
	return fmt.Sprintf("%s\x00%s\x00%s", v.Msg, v.Details, remedy)
}
