package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
)

// requestTimeout bounds each request to the hub.
const requestTimeout = 10 * time.Second

// Backoff after FleetPolicies could not be applied.
const (
	minApplyBackoff = 5 * time.Second
	maxApplyBackoff = 5 * time.Minute
)

// applyResult is the outcome of applying a commit's FleetPolicies.
type applyResult struct {
	fingerprint string // of the inputs
	commit      string
	reason      string // "": success
	message     string
	findings    []policy.Finding
	synced      int
	failed      int
	pruned      int
	kept        int
	hold        bool // the source's policies may not be enforced
	retry       bool // the failure may be transient
	failures    int  // in a row
	retryAt     time.Time
}

// fieldManager returns the field manager of a source's FleetPolicies.
func fieldManager(source string) string { return "federator/source/" + source }

// resetApplied forgets what was applied: another process leads and may apply other commits.
func (s *PolicySources) resetApplied() {
	clear(s.results)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.applied)
	clear(s.changed)
	clear(s.exact)
}

// applyAll applies the FleetPolicies of all active commits that are the newest of their
// source, if anything about them has changed.
func (s *PolicySources) applyAll(ctx context.Context, list []*v1alpha1.PolicySource, state *policysource.State) {
	s.mu.Lock()
	moved := s.changed
	s.changed = map[string]bool{}
	s.mu.Unlock()
	for name := range moved {
		if fp := s.cached(name); fp != nil && s.appliedVersions[name] == fp.ResourceVersion {
			delete(moved, name) // our own write
		}
	}
	here := map[string]bool{}
	for _, ps := range list {
		if ctx.Err() != nil {
			return
		}
		p, ok := state.Policies[ps.Name]
		if !ok || !p.Current || state.Status[ps.Name].Generation != ps.Generation || s.problems[ps.Name].reason != "" {
			continue // what is only observed is not changed
		}
		here[ps.Name] = true
		if pl := s.plans[ps.Name]; pl == nil || pl.commit != p.Commit.Hash || s.results[ps.Name] == nil {
			s.plans[ps.Name] = parseManifests(ps.Name, p)
		}
		mark := fmt.Sprintf("%s %d %s %s", ps.UID, ps.Generation, p.Commit.Hash, ps.Annotations[api.PruneKey])
		last := s.results[ps.Name]
		if last != nil && last.fingerprint == mark && !s.affects(ps.Name, moved) && (!last.retry || time.Now().Before(last.retryAt)) {
			continue
		}
		next := s.apply(ctx, ps, s.plans[ps.Name])
		if ctx.Err() != nil {
			return
		}
		s.publishResult(ps, next, last, mark)
	}
	for name := range s.plans {
		if _, ok := state.Policies[name]; !ok && !here[name] {
			delete(s.plans, name)
			delete(s.results, name)
			s.mu.Lock()
			delete(s.applied, name)
			s.mu.Unlock()
		}
	}
}

// publishResult publishes the outcome of applying a source's FleetPolicies.
func (s *PolicySources) publishResult(ps *v1alpha1.PolicySource, next, last *applyResult, mark string) {
	next.fingerprint = mark
	if next.retry {
		if last != nil && last.commit == next.commit {
			next.failures = last.failures + 1
		}
		next.retryAt = time.Now().Add(min(minApplyBackoff<<min(next.failures, 10), maxApplyBackoff))
	}
	if old := ps.Status.FleetPolicies; last != nil && last.commit == next.commit {
		next.pruned += last.pruned
	} else if last == nil && old != nil && string(old.Commit) == next.commit {
		next.pruned += int(old.Pruned)
	}
	if next.reason != "" && (last == nil || last.reason != next.reason || last.commit != next.commit) {
		s.opts.Logger.Warn("applying FleetPolicies failed", "source", ps.Name, "commit", next.commit, "reason", next.reason, "message", next.message)
	}
	s.results[ps.Name] = next
	done := appliedCommit{commit: next.commit}
	if next.hold {
		done.hold = fmt.Sprintf("the FleetPolicies of source %q could not be applied for commit %s: %s", ps.Name, next.commit, next.reason)
	}
	s.mu.Lock()
	changed := s.applied[ps.Name] != done
	s.applied[ps.Name] = done
	s.mu.Unlock()
	if changed {
		s.opts.OnChange()
	}
}

// affects reports whether any of the changed FleetPolicies belongs, or belonged, to a source.
func (s *PolicySources) affects(source string, moved map[string]bool) bool {
	for name := range moved {
		if _, ok := slices.BinarySearchFunc(s.plans[source].manifests, name, func(m manifest, name string) int { return strings.Compare(m.name, name) }); ok {
			return true
		}
		if fp := s.cached(name); fp != nil && fp.Labels[api.SourceKey] == source {
			return true
		}
	}
	return false
}

func (s *PolicySources) cached(name string) *v1alpha1.FleetPolicy {
	o, _, _ := s.policies.GetStore().GetByKey(name)
	fp, _ := o.(*v1alpha1.FleetPolicy)
	return fp
}

// apply applies a plan to the hub: all manifests are tried as dry runs first, and nothing
// is written if one is invalid.
func (s *PolicySources) apply(ctx context.Context, ps *v1alpha1.PolicySource, pl *plan) *applyResult {
	out := &applyResult{commit: pl.commit}
	if len(pl.findings) > 0 {
		return out.reject(pl.findings)
	}
	live, err := s.listFleetPolicies(ctx)
	if err != nil {
		return out.fail("Unreachable", "listing FleetPolicies failed: "+err.Error(), true)
	}
	var changes []manifest
	var refused []policy.Finding
	tried := map[string]error{}
	for _, m := range pl.manifests {
		now := live[m.name]
		if now != nil && now.Labels[api.SourceKey] != ps.Name {
			tried[m.name] = &nameTakenError{now.Labels[api.SourceKey]}
			continue
		}
		then, err := s.applyManifest(ctx, ps.Name, m, true)
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			refused = append(refused, policy.Finding{Code: "manifest", Severity: policy.SeverityError, File: m.file, Line: m.line, Message: err.Error()})
		case err != nil:
			tried[m.name] = err
		case now == nil || !appliedBy(now, ps.Name) || !unchanged(now, then):
			changes = append(changes, m)
		default:
			s.appliedVersions[m.name] = now.ResourceVersion
			s.noteExact(now, ps.Name, pl)
		}
	}
	if len(refused) > 0 {
		return out.reject(refused)
	}
	for _, m := range changes {
		if !s.opts.IsLeader() {
			return out.fail("NotLeading", "another process is the leader", true)
		}
		fp, err := s.applyManifest(ctx, ps.Name, m, false)
		if err != nil {
			tried[m.name] = err
			continue
		}
		s.appliedVersions[m.name] = fp.ResourceVersion
		s.noteExact(fp, ps.Name, pl)
		s.opts.Logger.Info("FleetPolicy applied", "policy", m.name, "source", ps.Name, "commit", pl.commit)
	}
	out.synced, out.failed = len(pl.manifests)-len(tried), len(tried)
	for _, m := range pl.manifests {
		if err := tried[m.name]; err != nil {
			out.addFailure(m, err)
		}
	}
	stale := stalePolicies(live, ps.Name, pl)
	if out.failed > 0 {
		out.kept = len(stale)
		return out
	}
	return s.prune(ctx, ps, stale, out)
}

// nameTakenError says that a FleetPolicy of the name was not applied by the source.
type nameTakenError struct{ by string }

func (e *nameTakenError) Error() string {
	if e.by == "" {
		return "it already exists on the hub and was not applied by a source"
	}
	return fmt.Sprintf("it already exists on the hub, applied by source %q", e.by)
}

// addFailure records why a FleetPolicy was not applied; the first reason is reported.
func (a *applyResult) addFailure(m manifest, err error) {
	reason := "Failed"
	var taken *nameTakenError
	switch {
	case errors.As(err, &taken):
		reason = "NameTaken"
	case isConflict(err):
		reason = "Contended"
	default:
		a.hold = true // the state on the hub is unknown
	}
	a.retry = true
	finding := policy.Finding{Code: "manifest", Severity: policy.SeverityError, File: m.file, Line: m.line, Message: fmt.Sprintf("FleetPolicy %q: %v", m.name, err)}
	a.findings = append(a.findings, finding)
	if a.reason == "" {
		a.reason, a.message = reason, finding.String()
	}
}

// isConflict reports whether other field managers own fields to be applied.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

func (a *applyResult) reject(findings []policy.Finding) *applyResult {
	a.findings, a.hold = findings, true
	a.reason, a.message = "Refused", findings[0].String()
	return a
}

func (a *applyResult) fail(reason, message string, retry bool) *applyResult {
	a.reason, a.message, a.hold, a.retry = reason, message, true, retry
	return a
}

// prune deletes the FleetPolicies of a source that are no longer in it, within the limit.
func (s *PolicySources) prune(ctx context.Context, ps *v1alpha1.PolicySource, stale []*v1alpha1.FleetPolicy, out *applyResult) *applyResult {
	limit := 1
	if ps.Spec.MaxPrune != nil {
		limit = int(*ps.Spec.MaxPrune)
	}
	if len(stale) > limit && ps.Annotations[api.PruneKey] != out.commit {
		out.kept = len(stale)
		return out.fail("TooManyPrunes", fmt.Sprintf("commit %s deletes %d FleetPolicies (%s), but at most %d are allowed: to allow it, annotate the PolicySource with %s=%s",
			out.commit, len(stale), joinNames(stale), limit, api.PruneKey, out.commit), false)
	}
	for _, fp := range stale {
		if !s.opts.IsLeader() {
			return out.fail("NotLeading", "another process is the leader", true)
		}
		reqCtx, cancel := context.WithTimeout(ctx, requestTimeout)
		err := s.client.rest.Delete().Resource(v1alpha1.FleetPolicies).Name(fp.Name).Body(&metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &fp.UID},
		}).Do(reqCtx).Error()
		cancel()
		switch {
		case err == nil:
			out.pruned++
			s.opts.Logger.Info("FleetPolicy pruned", "policy", fp.Name, "source", ps.Name, "commit", out.commit)
		case !apierrors.IsNotFound(err):
			out.kept++
			out.fail("NotPruned", fmt.Sprintf("deleting FleetPolicy %q failed: %v", fp.Name, err), true)
		}
	}
	return out
}

// joinNames lists the names of the first FleetPolicies.
func joinNames(list []*v1alpha1.FleetPolicy) string {
	var out []string
	for i, fp := range list {
		if i == 5 {
			out = append(out, "...")
			break
		}
		out = append(out, fp.Name)
	}
	return strings.Join(out, ", ")
}

// stalePolicies returns the FleetPolicies that a source has applied and that are not in a
// plan, by name.
func stalePolicies(live map[string]*v1alpha1.FleetPolicy, source string, pl *plan) []*v1alpha1.FleetPolicy {
	wanted := map[string]bool{}
	for _, m := range pl.manifests {
		wanted[m.name] = true
	}
	var out []*v1alpha1.FleetPolicy
	for name, fp := range live {
		if !wanted[name] && fp.DeletionTimestamp == nil && fp.Labels[api.SourceKey] == source && appliedBy(fp, source) {
			out = append(out, fp)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.FleetPolicy) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// appliedBy reports whether a source has applied a FleetPolicy.
func appliedBy(fp *v1alpha1.FleetPolicy, source string) bool {
	return slices.ContainsFunc(fp.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == fieldManager(source) && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == ""
	})
}

// onlyAppliedBy reports whether a source has applied the spec of a FleetPolicy, and nobody else
// owns a field of it.
func onlyAppliedBy(fp *v1alpha1.FleetPolicy, source string) bool {
	return appliedBy(fp, source) && !slices.ContainsFunc(fp.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return (m.Manager != fieldManager(source) || m.Operation != metav1.ManagedFieldsOperationApply) && ownsSpec(&m)
	})
}

// parametersOfOthers reports whether somebody else than a source owns parameters of a FleetPolicy, or may.
func parametersOfOthers(fp *v1alpha1.FleetPolicy, source string) bool {
	return slices.ContainsFunc(fp.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		if m.Subresource != "" || m.Manager == fieldManager(source) && m.Operation == metav1.ManagedFieldsOperationApply {
			return false
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			return true
		}
		_, owns := fields.Spec["f:parameters"]
		return owns
	})
}

// unchanged reports whether applying has, or would have, changed nothing.
func unchanged(now, then *v1alpha1.FleetPolicy) bool {
	return now.UID == then.UID && equality.Semantic.DeepEqual(now.Spec, then.Spec) &&
		equality.Semantic.DeepEqual(now.Labels, then.Labels) && equality.Semantic.DeepEqual(now.Annotations, then.Annotations)
}

// listFleetPolicies returns the FleetPolicies on the hub, by name.
func (s *PolicySources) listFleetPolicies(ctx context.Context) (map[string]*v1alpha1.FleetPolicy, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var list v1alpha1.FleetPolicyList
	if err := s.client.rest.Get().Resource(v1alpha1.FleetPolicies).Do(ctx).Into(&list); err != nil {
		return nil, err
	}
	out := map[string]*v1alpha1.FleetPolicy{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out, nil
}

// applyManifest applies a manifest, or tries it as a dry run.
func (s *PolicySources) applyManifest(ctx context.Context, source string, m manifest, dryRun bool) (*v1alpha1.FleetPolicy, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	opts := &metav1.PatchOptions{FieldManager: fieldManager(source), FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	out := &v1alpha1.FleetPolicy{}
	err := s.client.rest.Patch(types.ApplyPatchType).Resource(v1alpha1.FleetPolicies).Name(m.name).VersionedParams(opts, s.client.codec).Body(m.body).Do(ctx).Into(out)
	return out, err
}
