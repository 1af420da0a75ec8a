package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/sourcerollout"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
	"federator.dev/federator/pkg/remediate"
)

// PolicySourcesOptions configure PolicySources. Config, Manager and IsLeader are required.
type PolicySourcesOptions struct {
	Config *rest.Config // of the hub
	// Manager fetches the repositories. The caller runs it.
	Manager *policysource.Manager
	// External reads the documents from outside the fleet that PolicySources name, with Secrets of Namespace, which is one of
	// SecretNamespaces or has none for them. The caller runs it. nil: there are no documents.
	External  *externaldata.Manager
	Namespace string
	// SecretNamespaces are the namespaces in which PolicySources may refer to Secrets. If
	// empty, they may not refer to any.
	SecretNamespaces []string
	// ReservedNames are not allowed for PolicySources: those of the Manager's Base.
	ReservedNames []string
	// Approved returns what the Approvals of a commit that waits for them amount to. nil:
	// nothing.
	Approved func(source, commit string) remediate.Approved
	// State returns the verdicts, by which packages without a FleetPolicy roll out: nil while there are none.
	// If it is not set, they take their place at once.
	State    func() *policy.State
	IsLeader func() bool // whether this process writes to the hub
	// Evidence returns what all processes find of what a commit changes that has no FleetPolicy, which of names, or why that
	// is not known, where others judge members, too. Each tells the others what PolicySources.Evidence returns. nil: this
	// process judges all.
	Evidence func(source, of string) (evidence.Commit, error)
	// OnChange is called when the results of Origin may have changed other than by a new
	// state of the Manager. It must not block. May be nil.
	OnChange func()
	Events   *Events      // nil: none
	Logger   *slog.Logger // nil is none
}

// PolicySources configures the Manager from the PolicySources on the hub, applies the
// FleetPolicies in their repositories, and writes their statuses. It implements Library.
type PolicySources struct {
	opts      PolicySourcesOptions
	client    *client
	secrets   *secretWatcher
	sources   cache.SharedIndexInformer
	policies  cache.SharedIndexInformer
	triggered trigger.Trigger

	// The following fields are used by Run only.
	configured      []policysource.Source    // last, to the Manager
	documents       []externaldata.Source    // last, to External
	syncRequests    map[string]syncRequest   // by UID
	written         map[string]writtenStatus // by name
	plans           map[string]*plan         // of active commits, by source
	appliedVersions map[string]string        // resourceVersions of FleetPolicies as applied, by name
	results         map[string]*applyResult  // by source
	problems        map[string]problem       // by source
	evidence        map[string]seenEvidence  // by source

	mu      sync.Mutex
	pushed  map[string]bool          // sources that a webhook reported a push to, by name
	changed map[string]bool          // FleetPolicies that have changed since they were applied, by name
	applied map[string]appliedCommit // outcome for the FleetPolicies of active commits, by source
	exact   map[string]exactPolicy   // FleetPolicies that are as their manifest, by name

	manifests map[string]candidateManifests // of the commits that roll out, by source

	approved map[string]approvedCommit // commits that were checked again because they are approved, by source

	said atomic.Pointer[map[string]evidence.Commit] // of the commits that roll out, by source
}

// exactPolicy is a version of a FleetPolicy that is as a manifest of a commit.
type exactPolicy struct {
	uid        types.UID
	generation int64
	source     string
	signer     string       // of the commit, or its tag
	commits    lineage.Line // that lead to it
}

// approvedCommit is a commit that people have approved.
type approvedCommit struct {
	hash  string
	given []v1alpha1.GivenApproval
}

// appliedCommit is the commit whose FleetPolicies were applied, and why its policies may
// not be enforced anyway, if so.
type appliedCommit struct{ commit, hold string }

var _ Library = (*PolicySources)(nil)

// NewPolicySources returns PolicySources; nothing happens before Run.
func NewPolicySources(opts PolicySourcesOptions) (*PolicySources, error) {
	if opts.Config == nil || opts.Manager == nil || opts.IsLeader == nil {
		return nil, errors.New("PolicySources: Config, Manager and IsLeader are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.OnChange == nil {
		opts.OnChange = func() {}
	}
	if opts.Approved == nil {
		opts.Approved = func(string, string) remediate.Approved { return remediate.Approved{} }
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	core, err := corev1.NewForConfig(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	s := &PolicySources{
		opts: opts, client: c, triggered: trigger.New(),
		syncRequests: map[string]syncRequest{}, written: map[string]writtenStatus{}, plans: map[string]*plan{}, appliedVersions: map[string]string{},
		results: map[string]*applyResult{}, problems: map[string]problem{}, evidence: map[string]seenEvidence{}, pushed: map[string]bool{}, changed: map[string]bool{}, applied: map[string]appliedCommit{},
		exact: map[string]exactPolicy{}, approved: map[string]approvedCommit{}, manifests: map[string]candidateManifests{},
	}
	s.secrets = newSecretWatcher(core, opts.SecretNamespaces, s.trigger)
	s.sources = c.informer(v1alpha1.PolicySources, &v1alpha1.PolicySourceList{}, &v1alpha1.PolicySource{})
	s.policies = c.informer(v1alpha1.FleetPolicies, &v1alpha1.FleetPolicyList{}, &v1alpha1.FleetPolicy{})
	changed := func(any) {
		s.trigger()
		s.opts.OnChange() // the ceiling may be another
	}
	if _, err = s.sources.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(was, now any) {
			a, _ := was.(*v1alpha1.PolicySource)
			b, _ := now.(*v1alpha1.PolicySource)
			if s.trigger(); a == nil || b == nil || a.UID != b.UID || a.Generation != b.Generation || !reflect.DeepEqual(a.Status.Rollout, b.Status.Rollout) {
				s.opts.OnChange()
			}
		}, DeleteFunc: changed,
	}); err != nil {
		return nil, err
	}
	_, err = s.policies.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.policyChanged, UpdateFunc: s.policyUpdated, DeleteFunc: s.policyChanged})
	return s, err
}

func (s *PolicySources) trigger() {
	s.triggered.Fire()
}

// policyUpdated handles a changed FleetPolicy; changes of the status are ignored.
func (s *PolicySources) policyUpdated(was, now any) {
	a, _ := was.(*v1alpha1.FleetPolicy)
	b, _ := now.(*v1alpha1.FleetPolicy)
	if a == nil || b == nil || a.UID == b.UID && a.Generation == b.Generation &&
		reflect.DeepEqual(a.Labels, b.Labels) && reflect.DeepEqual(a.Annotations, b.Annotations) {
		return
	}
	s.policyChanged(was)
	s.policyChanged(now)
}

func (s *PolicySources) policyChanged(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	fp, ok := o.(*v1alpha1.FleetPolicy)
	if !ok {
		return
	}
	s.mu.Lock()
	s.changed[fp.Name] = true
	s.mu.Unlock()
	s.trigger()
}

// Run watches the hub until the context ends, and returns when all goroutines that it
// started have ended.
func (s *PolicySources) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var informers sync.WaitGroup
	informers.Go(func() { s.sources.RunWithContext(ctx) })
	informers.Go(func() { s.policies.RunWithContext(ctx) })
	defer informers.Wait()
	defer s.secrets.stop()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), s.sources.HasSynced, s.policies.HasSynced) {
		return context.Cause(ctx)
	}
	tick := time.NewTicker(statusInterval / 5) // statuses whose write was deferred are written soon after
	defer tick.Stop()
	for {
		state, documents := s.opts.Manager.State(), s.documentsReplaced()
		list := s.list()
		s.configure(ctx, list, state)
		s.announcePushes(ctx)
		s.syncRequested(list, state)
		s.syncApproved(list, state)
		if s.opts.Evidence != nil {
			s.compare(list, state)
		}
		if s.opts.IsLeader() {
			s.applyAll(ctx, list, state)
			s.writeStatuses(ctx, list, state)
		} else {
			s.resetApplied()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.triggered:
		case <-state.Replaced():
		case <-documents:
		case <-tick.C:
		}
	}
}

// list returns the PolicySources, by name.
func (s *PolicySources) list() []*v1alpha1.PolicySource {
	return listed[*v1alpha1.PolicySource](s.sources)
}

// fleetPolicies returns the FleetPolicies, by name.
func (s *PolicySources) fleetPolicies() []*v1alpha1.FleetPolicy {
	return listed[*v1alpha1.FleetPolicy](s.policies)
}

// configure passes the PolicySources to the Manager, if they have changed.
func (s *PolicySources) configure(ctx context.Context, list []*v1alpha1.PolicySource, state *policysource.State) {
	policies := s.fleetPolicies()
	named := map[secretName]bool{}
	for _, ps := range list {
		for _, ref := range slices.Concat(secretsOf(ps), s.documentSecrets(ps)) {
			named[ref] = true
		}
	}
	s.secrets.watchOnly(ctx, named)
	s.configureDocuments(list)
	var sources []policysource.Source
	s.problems = map[string]problem{}
	for _, ps := range list {
		if slices.Contains(s.opts.ReservedNames, ps.Name) {
			s.problems[ps.Name] = problem{"NameReserved", fmt.Sprintf("the name %q is reserved for policies of federator's configuration: rename the PolicySource", ps.Name)}
			continue
		}
		// After a restart, its packages are what they were, and not active yet.
		packages := slices.Concat(ps.Status.Packages, state.Policies[ps.Name].Packages)
		src, bad := toSource(ps, ps.Spec.Rollout != nil || sourcerollout.Asks(ps.Name, packages, policies), s.secrets.get)
		if bad.reason != "" {
			s.problems[ps.Name] = bad
			src.Problem = bad.message
		}
		sources = append(sources, src)
	}
	if s.configured != nil && reflect.DeepEqual(s.configured, sources) {
		return
	}
	if err := s.opts.Manager.SetSources(sources); err != nil {
		s.opts.Logger.Error("configuring the policy sources failed", "error", err)
		return
	}
	s.configured = append([]policysource.Source{}, sources...)
}

// Policies returns the active packages of all sources, with those that roll out beside them, and
// a channel that is closed when anything about them has changed.
func (s *PolicySources) Policies() (*policy.Set, <-chan struct{}) {
	st := s.opts.Manager.State()
	return st.Beside, st.Replaced()
}

// SourceRollout returns spec.rollout of a PolicySource, nil if it has none.
func (s *PolicySources) SourceRollout(source string) *v1alpha1.VersionRollout {
	if ps := s.source(source); ps != nil {
		return ps.Spec.Rollout
	}
	return nil
}

// TakenBack returns why the newest commit of a source was taken back, "" if it was not.
func (s *PolicySources) TakenBack(source string) string {
	if st := s.opts.Manager.State().Status[source]; st.Reason == policysource.ReasonTakenBack {
		return st.Message
	}
	return ""
}

// source returns a PolicySource, nil if there is none of that name.
func (s *PolicySources) source(name string) *v1alpha1.PolicySource {
	o, _, _ := s.sources.GetStore().GetByKey(name)
	ps, _ := o.(*v1alpha1.PolicySource)
	return ps
}

// Trigger has Run look at what is approved soon. It does not block.
func (s *PolicySources) Trigger() { s.trigger() }

// current reports whether a source's policies may be enforced: its newest known commit is
// active and, if this process leads, the commit's FleetPolicies are applied. If not, the
// text says why.
func (s *PolicySources) current(st *policysource.State, source string) (bool, string) {
	p, ok := st.Policies[source]
	if !ok {
		return false, fmt.Sprintf("no commit of source %q is active", source)
	}
	if !p.Current {
		why := st.Status[source].Reason
		if why == policysource.ReasonTakenBack {
			why = st.Status[source].Message
		}
		return false, fmt.Sprintf("the newest commit of source %q is not active: %s", source, why)
	}
	if !s.opts.IsLeader() {
		return true, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch done := s.applied[source]; {
	case done.commit != p.Commit.Hash:
		return false, fmt.Sprintf("the FleetPolicies of source %q are not applied yet", source)
	case done.hold != "":
		return false, done.hold
	}
	return true, ""
}

// Origin returns where a package was read from, which is active or rolls out. A package that is
// built into federator, or is neither, has no source.
func (s *PolicySources) Origin(pkg string) Origin {
	st := s.opts.Manager.State()
	p := st.Beside.Package(pkg)
	if p == nil {
		return Origin{}
	}
	from, ok := st.Policies[p.Source]
	if !ok {
		return Origin{}
	}
	commit, line := from.Commit, from.Line
	if next, ok := st.Candidates[p.Source]; ok && st.Set.Package(pkg) == nil {
		commit, line = next.Commit, next.Line
		for _, former := range next.Former {
			if st.Beside.Candidate(p.Path()) != pkg && st.Beside.Digest(pkg) == former.Set.Digest(p.Path()) {
				commit, line = former.Commit, former.Line
			}
		}
	}
	out := Origin{
		Source: p.Source, Commit: commit.Hash, Signer: commit.Signer, Commits: line, Path: path.Join(commit.Path, strings.TrimPrefix(p.File, p.Source+"/")),
		Ceiling: &enforce.Ceiling{Mode: policy.Observe},
	}
	_, out.Hold = s.current(st, p.Source)
	ps := s.source(p.Source)
	if ps == nil {
		out.Hold = fmt.Sprintf("PolicySource %q does not exist", p.Source)
		return out
	}
	ceiling, err := toCeiling(ps)
	if err != nil {
		out.Hold = cmp.Or(out.Hold, err.Error())
	}
	out.Ceiling, out.Approval = &ceiling, ps.Spec.Ceiling.Approval
	return out
}

// CeilingVersion names the ceiling that a source has now, "" if there is no such
// PolicySource. Another ceiling has another name.
func (s *PolicySources) CeilingVersion(source string) string {
	if ps := s.source(source); ps != nil {
		return ceilingVersion(ps)
	}
	return ""
}

// AppliedAs returns the commits that lead to the manifest that a FleetPolicy is, and who has
// signed the last one or its tag, "" if nobody has; false if it is anything else, or that is not
// known: fields that somebody else has set are of nobody's commit.
func (s *PolicySources) AppliedAs(fp *v1alpha1.FleetPolicy) (commits lineage.Line, signer string, exactly bool) {
	s.mu.Lock()
	is, ok := s.exact[fp.Name]
	s.mu.Unlock()
	return is.commits, is.signer, ok && is.uid == fp.UID && is.generation == fp.Generation && onlyAppliedBy(fp, is.source)
}

// noteExact notes that a FleetPolicy is as the manifest of a commit of a source.
func (s *PolicySources) noteExact(fp *v1alpha1.FleetPolicy, source string, pl *plan) {
	is := exactPolicy{fp.UID, fp.Generation, source, pl.signer, pl.commits}
	s.mu.Lock()
	was := s.exact[fp.Name]
	changed := was.uid != is.uid || was.generation != is.generation || was.source != source || was.signer != is.signer || !slices.Equal(was.commits, is.commits)
	s.exact[fp.Name] = is
	s.mu.Unlock()
	if changed {
		s.opts.OnChange()
	}
}

// syncRequest is what triggers a check of a repository when it changes.
type syncRequest struct {
	sync   string              // the annotation
	push   time.Time           // status.lastPush
	rolled v1alpha1.CommitHash // of status.rollout
}

// syncRequested checks the repositories of sources whose sync was requested, or of which the leader has seen a commit that
// rolls out. New sources are checked anyway.
func (s *PolicySources) syncRequested(list []*v1alpha1.PolicySource, state *policysource.State) {
	all := map[string]syncRequest{}
	for _, ps := range list {
		uid, now := string(ps.UID), syncRequest{sync: ps.Annotations[api.SyncKey]}
		if ps.Status.LastPush != nil {
			now.push = ps.Status.LastPush.Time
		}
		if r := ps.Status.Rollout; r != nil {
			now.rolled = r.Commit
		}
		before, known := s.syncRequests[uid]
		all[uid] = now
		newest := state.Status[ps.Name].Newest
		behind := before.rolled != now.rolled && now.rolled != "" && (newest == nil || newest.Hash != string(now.rolled))
		if !known || (before.sync == now.sync || now.sync == "") && before.push.Equal(now.push) && !behind {
			continue
		}
		s.syncSource(ps.Name)
		s.syncDocuments(ps.Name)
	}
	s.syncRequests = all
}

func (s *PolicySources) syncSource(name string) {
	if err := s.opts.Manager.Sync(name); err != nil && !errors.Is(err, policysource.ErrUnknownSource) {
		s.opts.Logger.Warn("syncing a policy source failed", "source", name, "error", err)
	}
}

// RecordPush records a push to the repositories of some sources in their statuses, so that
// each process checks them: the leader is often not the process that a webhook has called.
// It does not block.
func (s *PolicySources) RecordPush(sources []string) {
	s.mu.Lock()
	for _, name := range sources {
		s.pushed[name] = true
	}
	s.mu.Unlock()
	s.trigger()
}

// announcePushes writes pushes that webhooks have reported to this process to the hub. If
// that fails, only this process checks the repositories.
func (s *PolicySources) announcePushes(ctx context.Context) {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.pushed))
	clear(s.pushed)
	s.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		patch := fmt.Appendf(nil, `{"status":{"lastPush":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		err := s.client.rest.Patch(types.MergePatchType).Resource(v1alpha1.PolicySources).Name(name).SubResource("status").
			VersionedParams(&metav1.PatchOptions{FieldManager: "federator"}, s.client.codec).Body(patch).Do(ctx).Error()
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			s.opts.Logger.Warn("recording a push on the hub failed", "source", name, "error", err)
			s.syncSource(name)
		}
	}
}
