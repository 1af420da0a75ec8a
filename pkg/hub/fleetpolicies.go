package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/internal/lineage"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub/internal/notified"
	"federator.dev/federator/pkg/hub/internal/statuses"
	"federator.dev/federator/pkg/hub/internal/versionlog"
	"federator.dev/federator/pkg/hub/internal/versions"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Origin is where a package was read from, and what its source allows.
type Origin struct {
	Source, Commit, Path string       // empty for a package that is built into federator
	Signer               string       // the owner of the trusted key that signed the commit, "" if none has
	Commits              lineage.Line // that lead to Commit; their signers are owners of trusted keys
	// Hold says why violations may not be corrected now, such as a newer commit that
	// does not compile; "" if they may.
	Hold    string
	Ceiling *enforce.Ceiling // nil: none
	// Approval is what the ceiling requires in addition to a policy's own; nil: nothing.
	Approval *v1alpha1.ApprovalRequirement
}

// Library provides the active packages. Its methods are safe for concurrent use.
type Library interface {
	// Policies returns the packages, and a channel that is closed when they are replaced.
	Policies() (*policy.Set, <-chan struct{})
	// Origin returns where a package was read from.
	Origin(pkg string) Origin
	// AppliedAs returns the commits that lead to the manifest that a FleetPolicy is, and who has
	// signed the last one or its tag, "" if nobody has; false if the FleetPolicy is anything
	// else, or that is not known.
	AppliedAs(fp *v1alpha1.FleetPolicy) (commits lineage.Line, signer string, exactly bool)
	// SourceRollout returns how commits of a source roll out, nil if they do not.
	SourceRollout(source string) *v1alpha1.VersionRollout
	// ShadowApproved reports whether people have approved that the shadow of a commit ends.
	ShadowApproved(source, commit string) bool
	// TakenBack returns why the newest commit of a source was taken back, "" if it was not.
	TakenBack(source string) string
	// MayNotify returns which Notifications a FleetPolicy may name, and why no others: those of the ceiling that its
	// source has now; any, if its package is built into federator.
	MayNotify(fp *v1alpha1.FleetPolicy) (allowed []string, why string)
	// CandidateParameters returns the parameters that the commit which rolls out is to give a FleetPolicy once it is
	// active; false if it leaves them as they are.
	CandidateParameters(fp *v1alpha1.FleetPolicy) (*runtime.RawExtension, bool)
}

// Proofs say what the hub proves of people. Its methods are safe for concurrent use.
type Proofs interface {
	// Unproven returns why it is not proven who creates Approvals, "" if it is.
	Unproven() string
	// AuthorsSince returns since when the hub proves who changes FleetPolicies, zero if it does
	// not, and when it was asked, zero if that is not known. What was seen since is not known.
	AuthorsSince() (since, asked time.Time)
	// Request has the hub asked soon, as of now. It does not block.
	Request()
	// VersionApproved reports whether people have approved, since a time, that the shadow of a version ends, or that it begins
	// again, and when the last of them did, by the hub's clock.
	VersionApproved(policy string, version v1alpha1.Digest, since time.Time) (last time.Time, ok bool)
}

// FleetPoliciesOptions configure FleetPolicies. All but Documents, Proofs, Signers, Events and Logger are required.
type FleetPoliciesOptions struct {
	Config     *rest.Config // of the hub
	Library    Library
	Loop       *enforce.Loop
	Documents  DocumentsWith // nil: those of the verdicts
	Corrector  *enforce.Corrector
	Dispatcher *remediate.Dispatcher
	IsLeader   func() bool      // whether this process writes statuses
	Clock      func() time.Time // of exemptions, as the Loop's; nil: time.Now
	Proofs     Proofs           // nil: nothing is proven
	// Verdicts returns the verdicts of a policy on the whole fleet, where other processes judge members, too; its error
	// says why they are not known. nil: this process judges all.
	Verdicts func(policy string) (FleetVerdicts, error)
	// Evidence returns what all of them find of the versions of a policy, which of names, or why that is not known. Each tells
	// the others what FleetPolicies.Evidence returns. nil: this process judges all.
	Evidence func(policy, of string) (evidence.Part, error)
	// Signers are the users of the hub who own the keys that sign commits, by fingerprint:
	// SHA256:… of an SSH key, PGP:… of a PGP key.
	Signers map[string]string
	Events  *Events // nil: none
	Logger  *slog.Logger
}

// FleetPolicies configures the policy engine and the corrector from the FleetPolicies on
// the hub, and writes their statuses. Packages without a FleetPolicy observe all members.
type FleetPolicies struct {
	opts      FleetPoliciesOptions
	client    *client
	informer  cache.SharedIndexInformer
	triggered trigger.Trigger

	// The following fields are used by Run only.
	configured string // fingerprint of the last configuration
	specs      map[string]enforce.EnforcementSpec
	terms      map[string]remediate.ApprovalTerms // of the last configuration
	authors    map[types.UID]*authorProof
	problems   map[string]policyProblem // of FleetPolicies that are not in effect, by name
	ignored    map[string]string        // ids of halts whose acknowledgement does nothing, by name
	versions   *versionlog.Log
	rollings   map[string]*rolling // which versions there are, by name
	origins    map[string]Origin   // of their packages
	evidence   versions.Evidence

	// Statuses are written beside Run: what people want takes effect while the hub is slow.
	statuses *statuses.Writer[dueStatus]

	mu       sync.Mutex // guards the following fields
	recorder statusRecorder
	written  map[types.UID]writtenPolicy // last, by the FleetPolicy's UID
	shadows  []ShadowVersion

	notified notified.Index
	said     atomic.Pointer[map[string]evidence.Statement] // of the versions that roll out, by policy
}

// dueStatus is a status that is to be written.
type dueStatus struct {
	of   *v1alpha1.FleetPolicy
	next *v1alpha1.FleetPolicyStatus
}

// writtenPolicy is when a status was written, and over which resourceVersion.
type writtenPolicy struct {
	at   time.Time
	over string
	// Where the hub has not stored what it was sent, as an older CRD has it drop fields that it does not
	// know, what it was sent and what it has stored.
	sent, stored *v1alpha1.FleetPolicyStatus
}

// policyProblem is why a FleetPolicy is not in effect.
type policyProblem struct{ reason, message string }

// NewFleetPolicies returns FleetPolicies; nothing happens before Run.
func NewFleetPolicies(opts FleetPoliciesOptions) (*FleetPolicies, error) {
	if opts.Config == nil || opts.Library == nil || opts.Loop == nil || opts.Corrector == nil || opts.Dispatcher == nil || opts.IsLeader == nil {
		return nil, errors.New("FleetPolicies: Config, Library, Loop, Corrector, Dispatcher and IsLeader are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	c, err := newClient(opts.Config)
	if err != nil {
		return nil, err
	}
	f := &FleetPolicies{
		opts: opts, client: c, triggered: trigger.New(), problems: map[string]policyProblem{}, ignored: map[string]string{}, authors: map[types.UID]*authorProof{},
		versions: versionlog.New(), recorder: statusRecorder{opts.Events, map[types.UID]*v1alpha1.FleetPolicyStatus{}}, written: map[types.UID]writtenPolicy{},
	}
	f.statuses = statuses.NewWriter(f.writeStatus)
	f.informer = c.informer(v1alpha1.FleetPolicies, &v1alpha1.FleetPolicyList{}, &v1alpha1.FleetPolicy{})
	trigger := func(any) { f.Trigger() }
	_, err = f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: trigger, UpdateFunc: func(_, now any) { trigger(now) }, DeleteFunc: trigger,
	})
	return f, err
}

// Trigger has Run update the statuses soon. It does not block.
func (f *FleetPolicies) Trigger() {
	f.triggered.Fire()
}

// statusInterval is how often statuses are updated without a trigger.
const statusInterval = time.Second

// Run watches the hub until the context ends, and returns when all goroutines that it
// started have ended.
func (f *FleetPolicies) Run(ctx context.Context) error {
	var informers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	informers.Go(func() { f.informer.RunWithContext(ctx) })
	defer informers.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
		return context.Cause(ctx)
	}
	informers.Go(func() { f.statuses.Run(ctx) })
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		set, replaced := f.opts.Library.Policies()
		policies := f.list() // once: statuses are about what is bound
		f.notified.Set(policies, f.opts.Library.MayNotify)
		f.bind(ctx, set, policies)
		f.acknowledgeHalts(policies)
		f.setStatuses(policies)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.triggered:
		case <-replaced:
		case <-tick.C:
		}
	}
}

// list returns the FleetPolicies, by name.
func (f *FleetPolicies) list() []*v1alpha1.FleetPolicy {
	return listed[*v1alpha1.FleetPolicy](f.informer)
}

// bind configures the loop and the corrector from the FleetPolicies, if anything has
// changed. An invalid FleetPolicy does not affect others.
func (f *FleetPolicies) bind(ctx context.Context, set *policy.Set, policies []*v1alpha1.FleetPolicy) {
	origins := f.originsOf(set, policies)
	rollings, problems := map[string]*rolling{}, map[string]policyProblem{}
	mark := fingerprint(set, policies, origins)
	for _, fp := range policies {
		r, why := rollingOf(set, fp, origins, f.opts.Library)
		if mark += r.mark(origins) + why.message; r == nil {
			problems[fp.Name] = why
			continue
		}
		rollings[fp.Name] = r
	}
	terms := f.approvalTerms(policies, origins, rollings)
	if now, _ := f.opts.Library.Policies(); now != set {
		return // origins, and what commits roll out, may be of the next one: Run is told
	}
	if mark == f.configured {
		for name, r := range rollings {
			if was := f.rollings[name]; was != nil {
				r.refused = was.refused
			}
		}
		f.rollings = rollings
		f.setTerms(terms)
		return
	}
	specs := map[string]enforce.EnforcementSpec{}
	var bindings []policy.Binding
	for _, fp := range policies {
		if rollings[fp.Name] == nil {
			continue
		}
		b, t, why := bindingFor(set, fp, rollings[fp.Name], origins)
		if why.reason != "" {
			problems[fp.Name] = why
			continue
		}
		bindings, specs[fp.Name] = append(bindings, b), t
	}
	own := defaultBindings(set, bindings)
	// Corrections pause until verdicts have been counted with the new policies.
	before := withTerms(specs, terms)
	for name, t := range before {
		t.Pause = true
		before[name] = t
	}
	err := f.opts.Corrector.SetSpecs(before)
	if err == nil {
		f.versions.Configure(versionsOf(policies, specs, rollings))
		err = f.opts.Loop.Configure(ctx, set, append(bindings, own...))
		f.versions.Configured(err == nil)
	}
	if err == nil {
		err = f.opts.Corrector.SetSpecs(withTerms(specs, terms))
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		f.opts.Logger.Error("configuring the policies failed", "error", err)
		return
	}
	f.configured, f.problems, f.specs, f.terms, f.rollings, f.origins = mark, problems, specs, terms, rollings, origins
}

// originsOf returns where packages were read from: those of the set, and candidates.
func (f *FleetPolicies) originsOf(set *policy.Set, policies []*v1alpha1.FleetPolicy) map[string]Origin {
	origins := map[string]Origin{}
	for _, p := range set.Packages {
		origins[p.Name] = f.opts.Library.Origin(p.Name)
	}
	for _, fp := range policies {
		if name := set.Candidate(fp.Spec.Package); name != "" {
			origins[name] = f.opts.Library.Origin(name)
		}
	}
	return origins
}

// versionsOf returns the policies that are to be in effect.
func versionsOf(policies []*v1alpha1.FleetPolicy, specs map[string]enforce.EnforcementSpec, rollings map[string]*rolling) map[string]versionlog.Policy {
	out := make(map[string]versionlog.Policy, len(specs))
	for _, fp := range policies {
		r := rollings[fp.Name]
		if _, ok := specs[fp.Name]; !ok || r.Everywhere() == nil {
			continue
		}
		out[fp.Name] = versionlog.Policy{UID: fp.UID, Digests: r.Everywhere().Digests, Partly: r.Next != nil && r.Phase == v1alpha1.RolloutWaves}
	}
	return out
}

// setTerms tells the corrector who must approve what, and who has changed it. Nothing is
// evaluated again therefore.
func (f *FleetPolicies) setTerms(terms map[string]remediate.ApprovalTerms) {
	if reflect.DeepEqual(terms, f.terms) {
		return
	}
	if err := f.opts.Corrector.SetSpecs(withTerms(f.specs, terms)); err != nil {
		f.opts.Logger.Error("configuring approval failed", "error", err)
		return
	}
	f.terms = terms
}

// fingerprint returns a text that changes whenever the bindings may.
func fingerprint(set *policy.Set, policies []*v1alpha1.FleetPolicy, origins map[string]Origin) string {
	mark := fmt.Sprintf("%p", set)
	for _, fp := range policies {
		origin, err := json.Marshal(origins[fp.Spec.Package]) // pointees, not addresses
		if err != nil {
			panic(err) // strings only
		}
		mark += fmt.Sprintf(" %s/%d/%s", fp.UID, fp.Generation, origin)
	}
	return mark
}

// setStatuses has the statuses written that have changed.
func (f *FleetPolicies) setStatuses(policies []*v1alpha1.FleetPolicy) {
	state := f.opts.Loop.State()
	if state != nil && (f.opts.Evidence != nil || f.opts.IsLeader()) { // whichever of several leads needs that of all
		f.compare(state, policies)
	}
	if state == nil || !f.opts.IsLeader() {
		f.versions.Prune(nil) // the leader notes what takes effect
		f.statuses.Set(nil)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.shadows = nil
		return
	}
	here := uidsOf(policies)
	due := map[string]dueStatus{}
	shadows := f.shadowsOf(policies, time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shadows = shadows
	maps.DeleteFunc(f.written, func(uid types.UID, _ writtenPolicy) bool { return !here[uid] })
	f.recorder.prune(here)
	f.versions.Prune(here)
	for _, fp := range policies {
		next := f.statusOf(fp, state)
		if last := f.written[fp.UID]; last.due(fp, next, time.Now()) {
			due[fp.Name] = dueStatus{fp, next}
		}
	}
	f.statuses.Set(due)
}

// compare has the evidence renewed on the versions that roll out.
func (f *FleetPolicies) compare(state *policy.State, policies []*v1alpha1.FleetPolicy) {
	var list []versions.Compared
	for _, fp := range policies {
		if r := f.rollings[fp.Name]; r != nil && r.Next != nil && r.refused == "" && (r.Phase == v1alpha1.RolloutShadow || r.Phase == v1alpha1.RolloutWaves) {
			list = append(list, versions.Compared{UID: fp.UID, Name: fp.Name, Version: r.Next.Short(), First: r.First(), Of: r.compared(fp)})
		}
	}
	f.evidence.Update(state, list, time.Now)
	said := make(map[string]evidence.Statement, len(list))
	for i := range list {
		if s := f.evidence.Of(list[i].UID); s != nil {
			said[list[i].Name] = *s
		}
	}
	f.said.Store(&said)
}

// Evidence returns what this process finds of the versions that roll out, by policy; nil before it has compared any. It may
// be called by any goroutine.
func (f *FleetPolicies) Evidence() map[string]evidence.Statement {
	if said := f.said.Load(); said != nil {
		return *said
	}
	return nil
}

// Notified returns the names of the FleetPolicies that name a Notification and may; nil before the FleetPolicies are known.
// It may be called by any goroutine, and what it returns must not be changed.
func (f *FleetPolicies) Notified(notification string) map[string]bool {
	return f.notified.Policies(notification)
}

// writeStatus writes a status, unless one was written over the same version of the FleetPolicy.
func (f *FleetPolicies) writeStatus(ctx context.Context, s dueStatus) error {
	f.mu.Lock()
	last := f.written[s.of.UID]
	f.mu.Unlock()
	if last.over == s.of.ResourceVersion || !f.opts.IsLeader() {
		return nil
	}
	update := s.of.DeepCopy()
	update.ManagedFields = nil
	update.Status = *s.next
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var now v1alpha1.FleetPolicy
	err := f.client.rest.Put().Resource(v1alpha1.FleetPolicies).Name(s.of.Name).SubResource("status").
		VersionedParams(&metav1.UpdateOptions{FieldManager: "federator"}, f.client.codec).Body(update).Do(ctx).Into(&now)
	if err != nil {
		f.opts.Logger.Debug("writing a status failed", "policy", s.of.Name, "error", err) // retried at the next tick
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	over := s.of.ResourceVersion
	if now.ResourceVersion == over {
		over = "" // it came to what there was: no other version follows
	}
	written := writtenPolicy{at: time.Now(), over: over}
	if !sameStatus(s.next, &now.Status) {
		written.sent, written.stored = s.next, &now.Status
	}
	f.written[s.of.UID] = written
	f.recorder.record(s.of, s.next)
	return nil
}

// uidsOf returns the UIDs of FleetPolicies.
func uidsOf(policies []*v1alpha1.FleetPolicy) map[types.UID]bool {
	out := make(map[types.UID]bool, len(policies))
	for _, fp := range policies {
		out[fp.UID] = true
	}
	return out
}

// VerdictsChanged is to be called with each change of verdicts by the Loop, on its goroutine.
func (f *FleetPolicies) VerdictsChanged(c *policy.Changes, batch *aggregate.Batch) {
	f.versions.Observe(c, batch)
}

// RecordAction records an Event about an Action that has ended. It does not block.
func (f *FleetPolicies) RecordAction(a *remediate.Action) {
	o, ok, err := f.informer.GetStore().GetByKey(a.Binding)
	if fp, is := o.(*v1alpha1.FleetPolicy); ok && is && err == nil {
		f.opts.Events.recordAction(fp, a)
	}
}
