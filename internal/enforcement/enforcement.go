package enforcement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/election"
	"federator.dev/federator/internal/evidence"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/hub/bulkrollback"
	"federator.dev/federator/pkg/hub/externaldocs"
	"federator.dev/federator/pkg/hub/notices"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/tracing"
)

// Members are the members of the fleet.
type Members interface {
	remediate.ClientFactory
	// CheckWritable returns why nothing may be written to a member now.
	CheckWritable(member string) error
	// RequireKinds sets the kinds that are read from all members, for the policies.
	RequireKinds([]policy.Kind)
}

// Options configure an Enforcement.
type Options struct {
	Hub     *rest.Config     // required; any Transport
	Index   *aggregate.Index // of the members' objects; required
	Memory  enforce.Memory   // what of verdicts outlasts the process; nil: nothing
	Members Members          // required
	// Git configures the PolicySources: the policies that are always active, and how remotes
	// are reached. Its Diff and Logger are set by New.
	Git policysource.Options
	// Namespace has the Lease and the ConfigMaps of stops.
	Namespace string
	// Identity is this process's in the election; "" is one of its own.
	Identity string
	// SecretNamespaces are the namespaces in which PolicySources may refer to Secrets.
	SecretNamespaces []string
	// Signers are the users who own the keys that sign commits, as in hub.FleetPoliciesOptions.
	Signers map[string]string
	// Retention and Keep say which Actions are kept, as in remediate.Options.
	Retention time.Duration
	Keep      int
	// MaxActions and MaxActionBytes bound the Actions, as in remediate.Options.
	MaxActions     int
	MaxActionBytes int64
	// Protection is what is never written, as in remediate.Options.
	Protection remediate.Protection
	// Bounds bound writes to all members together; Away returns how many members are out of
	// reach, and how many there are, and is required for Bounds.MaxAway.
	Bounds remediate.Bounds
	// DryRuns bound how often members are asked for policies in mode DryRun.
	DryRuns remediate.DryRunRates
	Away    func() (away, members int)
	// MemberAway returns why it is not known what is in a member now, as in
	// remediate.Options; nil: it always is.
	MemberAway func(member string) error
	// GitOps are the objects of GitOps controllers that are trusted; ServerOf returns the URL
	// of a member's API server, "" unless it is known and no other member's.
	GitOps   []hub.GitOpsTrust
	ServerOf func(member string) string
	// KeepSecretValues is whether the index has values of Secrets and ConfigMaps, as in
	// remediate.Options.
	KeepSecretValues bool
	// Applied and Dropped say what the index holds, as in hub.HealthOptions.
	Applied func(member string, kind policy.Kind) string
	Dropped func(policy.Kind) []string
	// Reports are the OpenReports on the hub; New sets what it wires itself.
	Reports hub.ReportsOptions
	// Receivers are told of what happens to corrections, by events of an Origin, as in
	// notify.Options.
	Receivers []notify.Receiver
	Origin    string
	// Limits bound the evaluation of policies.
	Limits policy.Limits
	// Shards are the processes that share the fleet; nil: this one judges all members.
	Shards *Shards
	// Clock is the time by which exemptions expire, and that windows, limits and Actions go
	// by; nil means time.Now.
	Clock   func() time.Time
	Tracer  *tracing.Tracer       // follows changes and corrections; nil: none
	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none
}

// Enforcement has all components. Its exported fields are for those who serve what they
// know: queries, webhooks.
type Enforcement struct {
	Git     *policysource.Manager
	Sources *hub.PolicySources
	// External are the documents from outside the fleet.
	External *externaldata.Manager
	Loop     *enforce.Loop

	policies   *hub.FleetPolicies
	approvals  *hub.Approvals
	events     *hub.Events
	reports    *hub.Reports
	dispatcher *remediate.Dispatcher
	stop       *hub.Stop
	hub        *rest.Config
	rollbacks  *hub.Rollbacks
	bulk       *bulkrollback.Controller
	gitops     *hub.GitOps
	elector    *election.Elector
	notices    *notices.Source  // nil without receivers
	notifier   *notify.Notifier // nil without receivers
	members    Members
	corrector  *enforce.Corrector
	configMaps *externaldocs.ConfigMaps
	shards     *shards // nil without any
}

// New wires the components. Nothing runs yet.
func New(opts Options) (*Enforcement, error) {
	if opts.Hub == nil || opts.Index == nil || opts.Members == nil {
		return nil, errors.New("enforcement: Hub, Index and Members are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	e := &Enforcement{members: opts.Members}
	git := opts.Git
	git.Diff, git.Shared, git.Logger = e.diff, opts.Shards != nil, opts.Logger
	git.Approved = func(source, commit string) bool { return e.Sources.CommitApproved(source, commit) }
	var err error
	if e.Git, err = policysource.NewManager(git); err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	if err := e.wireExternal(&opts); err != nil {
		return nil, err
	}
	if e.elector, err = election.New(opts.Hub, opts.Namespace, opts.Identity, opts.Logger); err != nil {
		return nil, err
	}
	statuses := rest.CopyConfig(opts.Hub)
	statuses.QPS, statuses.Burst = 50, 100 // client-go's 5 would keep hundreds of FleetPolicies waiting
	e.hub = statuses
	corrector, err := e.wireCorrections(&opts, statuses)
	if err != nil {
		return nil, err
	}
	if err := e.wireNotices(&opts, statuses); err != nil {
		return nil, err
	}
	return e, e.wirePolicies(&opts, statuses, corrector)
}

// RecordLoss records an Event on what describes a member on the hub: an audit has found so many objects of a
// kind that were not held as the member has them.
func (e *Enforcement) RecordLoss(describes *corev1.ObjectReference, kind string, objects int) {
	e.events.RecordLoss(describes, kind, objects)
}

// RecordKept records an Event on this process's Pod, if it has one: nothing of the index is kept on disk, and
// why, or "" where it is again.
func (e *Enforcement) RecordKept(why string) {
	e.events.RecordKept(os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME"), os.Getenv("POD_UID"), why)
}

func (e *Enforcement) isLeader() bool { return e.elector.Lead() == nil }

func (e *Enforcement) trigger() {
	if e.policies != nil {
		e.policies.Trigger()
	}
	if e.approvals != nil {
		e.approvals.Trigger()
	}
}

// wireCorrections wires what writes to members, and what a person stops and undoes it with.
func (e *Enforcement) wireCorrections(opts *Options, statuses *rest.Config) (*enforce.Corrector, error) {
	unbounded := rest.CopyConfig(opts.Hub)
	unbounded.QPS = -1 // limits bound corrections, and the hub its callers
	client, err := kubernetes.NewForConfig(unbounded)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	log := opts.Logger
	e.gitops, err = hub.NewGitOps(hub.GitOpsOptions{
		Index: opts.Index, Trust: opts.GitOps, ServerOf: opts.ServerOf, Changed: e.ownersChanged,
	})
	if err != nil {
		return nil, err
	}
	options := remediate.Options{
		Clients: opts.Members, Hub: client.CoreV1().RESTClient(), Lease: e.elector.Lease, Held: opts.Members.CheckWritable, MemberUID: memberUID(opts.Index), Health: hub.Health(hub.HealthOptions{Index: opts.Index, Applied: opts.Applied, Dropped: opts.Dropped}),
		Retention: opts.Retention, Keep: opts.Keep, MaxActions: opts.MaxActions, MaxActionBytes: opts.MaxActionBytes, Protection: opts.Protection, KeepSecretValues: opts.KeepSecretValues,
		Ceiling: func(source string) string { return e.Sources.CeilingVersion(source) }, Owner: e.gitops.Owner, Bounds: opts.Bounds, DryRuns: opts.DryRuns, Away: opts.Away, MemberAway: opts.MemberAway, Verdicts: e.verdicts, StopAll: func(ctx context.Context, reason string) error { return e.stop.StopAll(ctx, reason) },
		Changed: func(string) { e.trigger() }, Corrected: func(a *remediate.Action) { e.policies.RecordAction(a) }, Clock: opts.Clock, Tracer: opts.Tracer, Logger: log, Metrics: opts.Metrics,
	}
	if opts.Shards != nil {
		if err := e.wireShards(opts, &options); err != nil {
			return nil, err
		}
	}
	if e.dispatcher, err = remediate.New(options); err != nil {
		return nil, err
	}
	if e.events, err = hub.NewEvents(hub.EventsOptions{Config: statuses, IsLeader: e.isLeader, Instance: e.elector.Host, Logger: log}); err != nil {
		return nil, err
	}
	if e.stop, err = hub.NewStop(hub.StopOptions{Config: statuses, Namespace: opts.Namespace, Dispatcher: e.dispatcher, OnChange: func() { e.trigger(); e.notify() }, Events: e.events, Logger: log}); err != nil {
		return nil, err
	}
	if e.rollbacks, err = hub.NewRollbacks(hub.RollbacksOptions{
		Config: statuses, Dispatcher: e.dispatcher, Stop: e.stop, IsLeader: e.isLeader,
		Required: func() (map[string][]v1alpha1.ApprovalRequirement, bool) { return e.policies.Required() }, Logger: log,
	}); err != nil {
		return nil, err
	}
	e.bulk, err = bulkrollback.New(bulkrollback.Options{
		Config: statuses, Actions: unbounded, Dispatcher: e.dispatcher, Approvals: func() bulkrollback.Approvals { return e.approvals }, Lease: e.elector.Lease,
		StopsKnown: func() bool { _, known := e.stop.Active(); return known }, MemberUID: options.MemberUID, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	e.corrector = enforce.NewCorrector(e.dispatcher, log)
	if e.shards != nil {
		e.corrector = enforce.NewCorrector(e.shards.sender, log)
	}
	return e.corrector.WithTracer(opts.Tracer), nil
}

// memberUID returns a function that returns the UID of a member's Cluster, "" for one that
// there is not.
func memberUID(index *aggregate.Index) func(string) string {
	return func(member string) string {
		m, ok := index.Snapshot().Member(member)
		if !ok {
			return ""
		}
		return m.UID
	}
}

// wireNotices wires what tells receivers of what happens to corrections. Without receivers
// nothing is read for it.
func (e *Enforcement) wireNotices(opts *Options, config *rest.Config) (err error) {
	if len(opts.Receivers) == 0 {
		return nil
	}
	if e.notices, err = notices.New(notices.Options{Config: config, Stops: e.stop.Active, Changed: e.notify}); err != nil {
		return err
	}
	e.notifier, err = notify.New(notify.Options{
		Hub: config, Namespace: opts.Namespace, Origin: opts.Origin, Receivers: opts.Receivers, Source: e.notices, IsLeader: e.isLeader, Logger: opts.Logger, Metrics: opts.Metrics,
	})
	return err
}

// notify has receivers told of what is new.
func (e *Enforcement) notify() {
	if e.notifier != nil {
		e.notifier.Trigger()
	}
}

// NewFacts returns a source of what goes on on the hub. It is the caller's to run.
func (e *Enforcement) NewFacts() (*notices.Source, error) {
	return notices.New(notices.Options{Config: e.hub, Stops: e.stop.Active})
}

// Notified returns the FleetPolicies that name a Notification and may, as hub.FleetPolicies does.
func (e *Enforcement) Notified(notification string) map[string]bool {
	return e.policies.Notified(notification)
}

// verdicts returns how many violations and Unknown verdicts a policy has, by member.
func (e *Enforcement) verdicts(name string) map[string]remediate.Verdicts {
	out := map[string]remediate.Verdicts{}
	if state := e.Loop.State(); state != nil {
		for member, n := range state.Counts(name) {
			out[member] = remediate.Verdicts{Violations: n.Violations, Unknown: n.Unknown + n.Errors}
		}
	}
	return out
}

// wirePolicies wires the evaluation of policies, and what says which there are.
func (e *Enforcement) wirePolicies(opts *Options, statuses *rest.Config, corrector *enforce.Corrector) (err error) {
	log := opts.Logger
	set := e.Git.State().Set
	own, _ := policy.DefaultBindings(set, nil)
	changed := func(c *policy.Changes, batch *aggregate.Batch) {
		corrector.Changed(c, batch)
		if e.shards != nil {
			e.shards.Changed(c)
			e.shards.follow(c, batch)
		}
		e.policies.VerdictsChanged(c, batch)
	}
	loop := enforce.Options{
		Index: opts.Index, Memory: opts.Memory, Set: set, Bindings: own, Limits: opts.Limits, Changed: changed, Clock: opts.Clock, Tracer: opts.Tracer, Logger: log, Metrics: opts.Metrics,
	}
	if e.shards != nil {
		loop.Peers, loop.Exports, loop.KeyOwner, loop.Subscribe = e.shards.Told, true, e.shards.KeyOwner, e.shards.Subscribe
	}
	e.Loop, err = enforce.New(loop)
	if err != nil {
		return err
	}
	reserved := make([]string, 0, len(opts.Git.Base))
	for _, s := range opts.Git.Base {
		reserved = append(reserved, s.Name)
	}
	var verdicts func(string) (hub.FleetVerdicts, error)
	var found func(policy, of string) (evidence.Part, error)
	var ofCommit func(source, of string) (evidence.Commit, error)
	if e.shards != nil {
		verdicts, found, ofCommit = e.shards.fleetVerdicts, e.shards.facts.Evidence, e.shards.facts.CommitEvidence
	}
	e.Sources, err = hub.NewPolicySources(hub.PolicySourcesOptions{
		Config: statuses, Manager: e.Git, External: e.External, Namespace: opts.Namespace, SecretNamespaces: opts.SecretNamespaces, ReservedNames: reserved, IsLeader: e.isLeader, OnChange: e.trigger,
		Approved: func(source, commit string) remediate.Approved { return e.approvals.Commit(source, commit) },
		State:    e.Loop.State, Evidence: ofCommit, Events: e.events, Logger: log,
	})
	if err != nil {
		return err
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(e.Sources.Metrics()); err != nil {
			return fmt.Errorf("policy sources: metrics: %w", err)
		}
	}
	e.approvals, err = hub.NewApprovals(hub.ApprovalsOptions{
		Config: statuses, Namespace: opts.Namespace, Dispatcher: e.dispatcher, IsLeader: e.isLeader, Logger: log,
		Required: func() (map[string][]v1alpha1.ApprovalRequirement, bool) { return e.policies.Required() }, OnChange: func() { e.policies.Trigger() },
		Commits: e.Sources.WideCommits, OnCommits: e.Sources.Trigger, Signers: opts.Signers,
		Rollbacks: e.bulk.Plans, OnRollbacks: e.bulk.Trigger, Shadows: func() []hub.ShadowVersion { return e.policies.Shadows() },
	})
	if err != nil {
		return err
	}
	e.policies, err = hub.NewFleetPolicies(hub.FleetPoliciesOptions{
		Config: statuses, Library: e.Sources, Loop: e.Loop, Corrector: corrector, Dispatcher: e.dispatcher, IsLeader: e.isLeader,
		Documents: e.documentsWith, Verdicts: verdicts, Evidence: found, Proofs: e.approvals, Signers: opts.Signers, Events: e.events, Clock: opts.Clock, Logger: log,
	})
	if err != nil {
		return err
	}
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(e.policies.Metrics()); err != nil {
			return fmt.Errorf("policies: metrics: %w", err)
		}
	}
	reports := opts.Reports
	reports.Config, reports.Loop, reports.Library, reports.IsLeader, reports.Logger = statuses, e.Loop, e.Sources, e.isLeader, log
	if e.shards != nil {
		reports.Fleet = e.shards.reportsFleet
	}
	e.reports, err = hub.NewReports(reports)
	return err
}

// Lease returns until when this process leads at least, or an error if it does not.
func (e *Enforcement) Lease() (until time.Time, err error) { return e.elector.Lease() }

// Run runs all components until the context ends or one of them does. The lease is
// released after all of them have ended, so that another process can take over at once.
func (e *Enforcement) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leased, release := context.WithCancel(context.WithoutCancel(ctx))
	var election, wg sync.WaitGroup
	election.Go(func() {
		if err := e.elector.Run(leased); leased.Err() == nil {
			cancel(fmt.Errorf("%w: %w", component.ErrEnded, err))
		}
	})
	components := []func(context.Context) error{
		e.Git.Run, e.stop.Run, e.evaluate, e.dispatcher.Run, e.gitops.Run, e.rollbacks.Run, e.bulk.Run, e.Sources.Run, e.policies.Run, e.approvals.Run, e.events.Run, e.reports.Run, e.requireKinds,
		e.External.Run, e.configMaps.Run, e.followCommits, e.followExternal,
	}
	if e.shards != nil {
		components = append(components, e.shards.receiver.Run, e.shards.facts.Run)
	}
	if e.notifier != nil {
		components = append(components, e.notices.Run, e.notifier.Run)
	}
	for _, runComponent := range components {
		wg.Go(func() {
			if err := runComponent(ctx); ctx.Err() == nil {
				cancel(fmt.Errorf("%w: %w", component.ErrEnded, err))
			}
		})
	}
	wg.Wait()
	release()
	election.Wait()
	return context.Cause(ctx)
}

// requireKinds keeps the members synced with the kinds that the active policies need.
func (e *Enforcement) requireKinds(ctx context.Context) error {
	for {
		set, replaced := e.Sources.Policies()
		kinds := slices.Concat(RequiredKinds(set), e.gitops.Kinds())
		slices.Sort(kinds)
		e.members.RequireKinds(slices.Compact(kinds))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-replaced:
		}
	}
}

// RequiredKinds are the kinds that policies read, and those that their remedies write: what
// was written is healthy only where that is seen.
func RequiredKinds(set *policy.Set) []policy.Kind {
	refs, _ := set.Kinds()
	kinds := KindNames(refs)
	for _, p := range set.Packages {
		for _, r := range p.Remedies {
			kinds = append(kinds, r.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// KindNames are kinds without their versions, each once.
func KindNames(refs []policy.KindRef) []policy.Kind {
	kinds := make([]policy.Kind, 0, len(refs))
	for _, k := range refs {
		kinds = append(kinds, k.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
