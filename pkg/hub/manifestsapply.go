package hub

import (
	"context"
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

// Bounds of how soon FleetPolicies that could not be applied are tried again.
const (
	leastApplyBackoff = 5 * time.Second
	mostApplyBackoff  = 5 * time.Minute
)

// applied is what came of a commit's FleetPolicies.
type applied struct {
	mark     string // of what it came of
	commit   string
	reason   string // "" is all well
	message  string
	findings []policy.Finding
	synced   int
	failed   int
	pruned   int
	kept     int
	hold     bool // nothing may come of the source's policies
	retry    bool // it may pass by itself
	failures int  // in a row
	next     time.Time
}

// manager is the field manager of a source's FleetPolicies.
func manager(source string) string { return "federator/source/" + source }

// yield forgets what was applied: another process leads, and may apply something else.
func (s *Sources) yield() {
	clear(s.results)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.settled)
	clear(s.moved)
}

// applyAll applies the FleetPolicies of all commits that are active and the newest, as
// far as something about them has changed.
func (s *Sources) applyAll(ctx context.Context, list []*v1alpha1.PolicySource, state *policysource.State) {
	s.mu.Lock()
	moved := s.moved
	s.moved = map[string]bool{}
	s.mu.Unlock()
	for name := range moved {
		if fp := s.cached(name); fp != nil && s.ours[name] == fp.ResourceVersion {
			delete(moved, name) // it was us
		}
	}
	here := map[string]bool{}
	for _, ps := range list {
		if ctx.Err() != nil {
			return
		}
		p, ok := state.Policies[ps.Name]
		if !ok || !p.Current || state.Status[ps.Name].Generation != ps.Generation || s.faults[ps.Name].reason != "" {
			continue // what is observed only stays as it is
		}
		here[ps.Name] = true
		if pl := s.plans[ps.Name]; pl == nil || pl.commit != p.Commit.Hash || s.results[ps.Name] == nil {
			s.plans[ps.Name] = planOf(ps.Name, p)
		}
		mark := fmt.Sprintf("%s %d %s %s", ps.UID, ps.Generation, p.Commit.Hash, ps.Annotations[api.PruneKey])
		last := s.results[ps.Name]
		if last != nil && last.mark == mark && !s.concerned(ps.Name, moved) && (!last.retry || time.Now().Before(last.next)) {
			continue
		}
		next := s.apply(ctx, ps, s.plans[ps.Name])
		if ctx.Err() != nil {
			return
		}
		s.conclude(ps, next, last, mark)
	}
	for name := range s.plans {
		if _, ok := state.Policies[name]; !ok && !here[name] {
			delete(s.plans, name)
			delete(s.results, name)
			s.mu.Lock()
			delete(s.settled, name)
			s.mu.Unlock()
		}
	}
}

// conclude publishes what came of a source's FleetPolicies.
func (s *Sources) conclude(ps *v1alpha1.PolicySource, next, last *applied, mark string) {
	next.mark = mark
	if next.retry {
		if last != nil && last.commit == next.commit {
			next.failures = last.failures + 1
		}
		next.next = time.Now().Add(min(leastApplyBackoff<<min(next.failures, 10), mostApplyBackoff))
	}
	if old := ps.Status.FleetPolicies; last != nil && last.commit == next.commit {
		next.pruned += last.pruned
	} else if last == nil && old != nil && string(old.Commit) == next.commit {
		next.pruned += int(old.Pruned)
	}
	if next.reason != "" && (last == nil || last.reason != next.reason || last.commit != next.commit) {
		s.opts.Logger.Warn("FleetPolicies are not applied", "source", ps.Name, "commit", next.commit, "reason", next.reason, "message", next.message)
	}
	s.results[ps.Name] = next
	done := settled{commit: next.commit}
	if next.hold {
		done.hold = fmt.Sprintf("the FleetPolicies of source %q are not those of commit %s: %s", ps.Name, next.commit, next.reason)
	}
	s.mu.Lock()
	changed := s.settled[ps.Name] != done
	s.settled[ps.Name] = done
	s.mu.Unlock()
	if changed {
		s.opts.Changed()
	}
}

// concerned says whether FleetPolicies that have changed are, or were, of a source.
func (s *Sources) concerned(source string, moved map[string]bool) bool {
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

func (s *Sources) cached(name string) *v1alpha1.FleetPolicy {
	o, _, _ := s.policies.GetStore().GetByKey(name)
	fp, _ := o.(*v1alpha1.FleetPolicy)
	return fp
}

// apply makes the FleetPolicies on the hub those of a plan: all of them are tried first,
// and nothing is written if one is refused.
func (s *Sources) apply(ctx context.Context, ps *v1alpha1.PolicySource, pl *plan) *applied {
	out := &applied{commit: pl.commit}
	if len(pl.findings) > 0 {
		return out.refuse(pl.findings)
	}
	live, err := s.fleetPolicies(ctx)
	if err != nil {
		return out.fail("Unreachable", "the FleetPolicies of the hub cannot be listed: "+err.Error(), true)
	}
	var changes []manifest
	var refused []policy.Finding
	tried := map[string]error{}
	for _, m := range pl.manifests {
		now := live[m.name]
		if now != nil && now.Labels[api.SourceKey] != ps.Name {
			tried[m.name] = &takenError{now.Labels[api.SourceKey]}
			continue
		}
		then, err := s.patch(ctx, ps.Name, m, true)
		switch {
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			refused = append(refused, policy.Finding{Code: "manifest", Severity: policy.SeverityError, File: m.file, Line: m.line, Message: err.Error()})
		case err != nil:
			tried[m.name] = err
		case now == nil || !manages(now, ps.Name) || !same(now, then):
			changes = append(changes, m)
		default:
			s.ours[m.name] = now.ResourceVersion
		}
	}
	if len(refused) > 0 {
		return out.refuse(refused)
	}
	for _, m := range changes {
		if !s.opts.Lead() {
			return out.fail("NotLeading", "another process leads", true)
		}
		fp, err := s.patch(ctx, ps.Name, m, false)
		if err != nil {
			tried[m.name] = err
			continue
		}
		s.ours[m.name] = fp.ResourceVersion
		s.opts.Logger.Info("FleetPolicy applied", "policy", m.name, "source", ps.Name, "commit", pl.commit)
	}
	out.synced, out.failed = len(pl.manifests)-len(tried), len(tried)
	for _, m := range pl.manifests {
		if err := tried[m.name]; err != nil {
			out.because(m, err)
		}
	}
	stale := staleOf(live, ps.Name, pl)
	if out.failed > 0 {
		out.kept = len(stale)
		return out
	}
	return s.prune(ctx, ps, stale, out)
}

// takenError says that a FleetPolicy is another's.
type takenError struct{ by string }

func (e *takenError) Error() string {
	if e.by == "" {
		return "it is on the hub already, and was not applied by a source"
	}
	return fmt.Sprintf("it is on the hub already, applied by source %q", e.by)
}

// because notes why a FleetPolicy is not applied: the first reason is told.
func (a *applied) because(m manifest, err error) {
	reason := "Failed"
	var taken *takenError
	switch {
	case errors.As(err, &taken):
		reason = "NameTaken"
	case contended(err):
		reason = "Contended"
	default:
		a.hold = true // what the hub has is not known
	}
	a.retry = true
	finding := policy.Finding{Code: "manifest", Severity: policy.SeverityError, File: m.file, Line: m.line, Message: fmt.Sprintf("FleetPolicy %q: %v", m.name, err)}
	a.findings = append(a.findings, finding)
	if a.reason == "" {
		a.reason, a.message = reason, finding.String()
	}
}

// contended says that other field managers own what was to be applied.
func contended(err error) bool {
	return apierrors.IsConflict(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

func (a *applied) refuse(findings []policy.Finding) *applied {
	a.findings, a.hold = findings, true
	a.reason, a.message = "Refused", findings[0].String()
	return a
}

func (a *applied) fail(reason, message string, retry bool) *applied {
	a.reason, a.message, a.hold, a.retry = reason, message, true, retry
	return a
}

// prune deletes what a source has applied and has no longer, unless that is too much.
func (s *Sources) prune(ctx context.Context, ps *v1alpha1.PolicySource, stale []*v1alpha1.FleetPolicy, out *applied) *applied {
	most := 1
	if ps.Spec.MaxPrune != nil {
		most = int(*ps.Spec.MaxPrune)
	}
	if len(stale) > most && ps.Annotations[api.PruneKey] != out.commit {
		out.kept = len(stale)
		return out.fail("TooManyPrunes", fmt.Sprintf("commit %s deletes %d FleetPolicies (%s); at most %d may be deleted: if this is meant, annotate the PolicySource with %s=%s",
			out.commit, len(stale), names(stale), most, api.PruneKey, out.commit), false)
	}
	for _, fp := range stale {
		if !s.opts.Lead() {
			return out.fail("NotLeading", "another process leads", true)
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
			out.fail("NotPruned", fmt.Sprintf("FleetPolicy %q cannot be deleted: %v", fp.Name, err), true)
		}
	}
	return out
}

// names lists the first of some FleetPolicies.
func names(list []*v1alpha1.FleetPolicy) string {
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

// staleOf returns what a source has applied and a plan does not have, by name.
func staleOf(live map[string]*v1alpha1.FleetPolicy, source string, pl *plan) []*v1alpha1.FleetPolicy {
	wanted := map[string]bool{}
	for _, m := range pl.manifests {
		wanted[m.name] = true
	}
	var out []*v1alpha1.FleetPolicy
	for name, fp := range live {
		if !wanted[name] && fp.DeletionTimestamp == nil && fp.Labels[api.SourceKey] == source && manages(fp, source) {
			out = append(out, fp)
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.FleetPolicy) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// manages says whether a source has applied a FleetPolicy.
func manages(fp *v1alpha1.FleetPolicy, source string) bool {
	return slices.ContainsFunc(fp.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == manager(source) && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == ""
	})
}

// same says whether applying has, or would have, changed nothing.
func same(now, then *v1alpha1.FleetPolicy) bool {
	return now.UID == then.UID && equality.Semantic.DeepEqual(now.Spec, then.Spec) &&
		equality.Semantic.DeepEqual(now.Labels, then.Labels) && equality.Semantic.DeepEqual(now.Annotations, then.Annotations)
}

// fleetPolicies are those that the hub has now, by name.
func (s *Sources) fleetPolicies(ctx context.Context) (map[string]*v1alpha1.FleetPolicy, error) {
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

// patch applies a manifest, or tries to.
func (s *Sources) patch(ctx context.Context, source string, m manifest, dryRun bool) (*v1alpha1.FleetPolicy, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	opts := &metav1.PatchOptions{FieldManager: manager(source), FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	out := &v1alpha1.FleetPolicy{}
	err := s.client.rest.Patch(types.ApplyPatchType).Resource(v1alpha1.FleetPolicies).Name(m.name).VersionedParams(opts, s.client.codec).Body(m.body).Do(ctx).Into(out)
	return out, err
}
