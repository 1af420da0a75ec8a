package remediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/bounds"
	"federator.dev/federator/pkg/remediate/internal/dryrun"
	"federator.dev/federator/pkg/remediate/internal/hubclient"
	"federator.dev/federator/pkg/remediate/internal/ledger"
	"federator.dev/federator/pkg/remediate/internal/planstore"
	"federator.dev/federator/pkg/remediate/internal/quota"
	"federator.dev/federator/pkg/tracing"
)

// ErrNoHalt is returned for the acknowledgement of a halt that does not exist.
var ErrNoHalt = errors.New("no such halt")

// ErrNotNow is returned for a write or a rollback that may be done later: another process
// is the leader, its actions in doubt are being resolved, the member is held, the target is
// being written, or all actions are stopped.
var ErrNotNow = errors.New("not written now")

// Options configure a Dispatcher.
type Options struct {
	Clients ClientFactory // required
	// Hub is any REST client of the hub, where Actions are recorded: its paths are not
	// used. Required.
	Hub rest.Interface
	// Lease is called right before each write: its error prevents the write, which ends at
	// the time that Lease returns; zero is no such time. nil: this process is the only one
	// that acts.
	Lease func() (until time.Time, err error)
	// Held returns why nothing may be written to a member now, nil when it may be: its
	// Cluster is paused, for example. It is called right before each write. Corrections and
	// waves wait until the member is no longer held. nil: no member is held.
	Held func(member string) error
	// MemberUID returns the UID of a member's Cluster, "" for one that there is not: what was
	// written in a member is not rolled back in another one of the same name. nil: none has.
	MemberUID func(member string) string
	// MemberAway returns why it is not known what is in a member now, nil when it is: it does
	// not answer, for example. Waves wait for such members. nil: none is away.
	MemberAway func(member string) error
	// Verdicts returns how many violations and Unknown verdicts a policy has, by member, for
	// gates on the effects of waves; nil if that is not known now: waves wait. nil: those of policies that correct.
	Verdicts func(policy string) map[string]Verdicts
	// Incomplete returns why not all is known that a policy's intents follow from, beyond what SetIntents was told, ""
	// if it is. It is called right before each write as well, under a lock: it must not block, or call back. nil: all is.
	Incomplete func(policy string) string
	// Health returns the health of what was written; nil: all is Healthy. Healths returns that of several at once, in their
	// order, instead of Health; nil: they are asked for one by one.
	Health  func(Written) Health
	Healths func([]Written) []Health
	// Protection is what is never written, in addition to what never is anywhere.
	Protection Protection
	// KeepSecretValues is whether policies see values of Secrets and ConfigMaps. Unless they
	// do, remedies that carry such values are refused, and those of ConfigMaps are not
	// recorded either.
	KeepSecretValues bool
	// Owner returns whether a GitOps controller manages a target. It is called before each
	// correction and right before each write; OwnersChanged is called when it may return
	// something else. Of a Ref of a member alone it says whether that is known there. nil:
	// none manages any.
	Owner func(policy.Ref) Ownership
	// Ceiling returns which ceiling a source has now: a text that another ceiling does not
	// have, "" for none. It is called right before each write: nothing is written for a policy
	// whose RolloutSpec has another one. nil: sources have none.
	Ceiling func(source string) string
	// DryRuns bound how often members are asked for policies that only try their corrections.
	// Zero rates are 100 a second, and 20 of one member.
	DryRuns DryRunRates
	// Bounds bound the writes to all members together. StopAll records that everything is to
	// stop until a person resumes, because too many corrections failed, and returns once
	// SetStops has been called with that. Away returns how many members of the fleet are out
	// of reach, and how many there are. Both are required for the bounds that need them.
	Bounds  Bounds
	StopAll func(ctx context.Context, reason string) error
	Away    func() (away, members int)
	// Fleet bounds the targets of all policies together, within FleetWindow (an hour
	// by default).
	Fleet       Limit
	FleetWindow time.Duration
	// MemberConcurrency is how many corrections of one member run at once. 0 means 4.
	MemberConcurrency int
	// MaxReversions is how often a target may be corrected within the policy's window, and
	// violate the policy again, before the policy is halted, where its Limits do not say. 0
	// means 5.
	MaxReversions int
	// RetryAfter is when a Failed correction is retried. 0 means 5 minutes.
	RetryAfter time.Duration
	// Retention is how long Actions that have ended are kept; those that were written, at
	// least as long as any window of limits. The newest, as many as Keep says, are never
	// deleted. 0 deletes none.
	Retention time.Duration
	Keep      int
	// MaxActions is how many Actions there may be, and MaxActionBytes how many bytes they may
	// have together. While there are as many, no correction begins. They need a Retention. 0
	// bounds nothing.
	MaxActions     int
	MaxActionBytes int64
	// Changed is called when a policy's Status may have changed. It must not call back. May
	// be nil.
	Changed func(binding string)
	// Corrected is called with each correction and rollback that has ended. It must not
	// block, call back, or change the Action. May be nil.
	Corrected func(*Action)
	// Clock is the time that windows, limits and Actions go by; nil: time.Now. Leases end by
	// time.Now, whatever it says.
	Clock   func() time.Time
	Tracer  *tracing.Tracer       // follows corrections; nil: none
	Logger  *slog.Logger          // nil: none
	Metrics prometheus.Registerer // nil: none

	quota *quota.Quota
}

// Dispatcher carries out the intents of policies, each within its RolloutSpec. Policies
// have the names of their bindings. Its methods are safe for concurrent use.
type Dispatcher struct {
	opts      Options
	journal   journal
	states    stateStore
	plans     planstore.Store
	exec      *executor
	pacer     *dryrun.Pacer
	metrics   *metrics
	triggered trigger.Trigger
	failed    trigger.Trigger // failing is not ""

	mu        sync.Mutex
	bounds    *bounds.Gate
	failing   string // why everything is to be stopped, until that is recorded; "" when it is not
	stops     Stops
	policies  map[string]*policyState
	ledger    *ledger.Ledger
	busy      map[policy.Ref]bool                   // targets that are being written
	inflight  map[string]int                        // corrections and rollbacks that run, by member
	waits     map[string]int                        // rollbacks that wait until they may run, by member
	epoch     int                                   // how often this process has begun to lead, or may have
	recovered bool                                  // all that lasts has been read since
	foreign   bool                                  // it is read again, since somebody else has written some of it
	foreignAt time.Time                             // when that was last so
	readDelay time.Duration                         // before it is read again
	makes     map[*freezeRequest]context.CancelFunc // Plans that are being made
	held      time.Time                             // until when the lease is known to be held; zero: as long as Lease says
	nextSweep time.Time                             // of the health of what was written
}

// New returns a Dispatcher that does nothing before Run.
func New(opts Options) (*Dispatcher, error) {
	if opts.Hub == nil {
		return nil, errors.New("remediate: Hub is required")
	}
	if opts.Retention < 0 || opts.Keep < 0 {
		return nil, fmt.Errorf("remediate: negative retention %v or keep %d", opts.Retention, opts.Keep)
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	most := quota.Usage{Actions: opts.MaxActions, Bytes: opts.MaxActionBytes}
	if err := most.Validate(); err != nil {
		return nil, fmt.Errorf("remediate: %w", err)
	}
	if most != (quota.Usage{}) && opts.Retention == 0 {
		return nil, errors.New("remediate: bounds of Actions need a Retention: without one nothing makes room")
	}
	if most.Actions > 0 && opts.Keep >= most.Actions {
		return nil, fmt.Errorf("remediate: %d Actions are kept of at most %d: nothing makes room", opts.Keep, most.Actions)
	}
	opts.quota = quota.New(most)
	return newDispatcher(opts, newHubJournal(opts.Hub, opts.Clock).within(opts.quota), hubStates{hubClient{opts.Hub}}, planstore.Store{Hub: hubclient.Client{REST: opts.Hub}})
}

func newDispatcher(opts Options, j journal, states stateStore, plans planstore.Store) (*Dispatcher, error) {
	if opts.Clients == nil {
		return nil, errors.New("remediate: Clients is required")
	}
	if opts.Fleet.Count < 0 || opts.Fleet.Percent < 0 || opts.FleetWindow < 0 || opts.MemberConcurrency < 0 || opts.MaxReversions < 0 || opts.RetryAfter < 0 {
		return nil, errors.New("remediate: negative limit")
	}
	if err := opts.validateBounds(); err != nil {
		return nil, err
	}
	if err := opts.DryRuns.Validate(); err != nil {
		return nil, fmt.Errorf("remediate: %w", err)
	}
	if err := opts.Protection.Validate(); err != nil {
		return nil, fmt.Errorf("remediate: protection: %w", err)
	}
	opts.FleetWindow = cmp.Or(opts.FleetWindow, time.Hour)
	opts.MemberConcurrency = cmp.Or(opts.MemberConcurrency, 4)
	opts.MaxReversions = cmp.Or(opts.MaxReversions, 5)
	opts.RetryAfter = cmp.Or(opts.RetryAfter, 5*time.Minute)
	if opts.Held == nil {
		opts.Held = func(string) error { return nil }
	}
	if opts.MemberAway == nil {
		opts.MemberAway = func(string) error { return nil }
	}
	if opts.Health == nil {
		opts.Health = func(Written) Health { return Health{Status: Healthy} }
	}
	if opts.Incomplete == nil {
		opts.Incomplete = func(string) string { return "" }
	}
	if opts.Changed == nil {
		opts.Changed = func(string) {}
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.quota == nil {
		opts.quota = quota.New(quota.Usage{})
	}
	d := &Dispatcher{
		opts: opts, journal: j, states: states, plans: plans, triggered: trigger.New(), policies: map[string]*policyState{},
		ledger: ledger.New(opts.FleetWindow), busy: map[policy.Ref]bool{}, inflight: map[string]int{}, waits: map[string]int{}, makes: map[*freezeRequest]context.CancelFunc{},
		bounds: bounds.New(opts.Bounds), failed: trigger.New(), pacer: dryrun.NewPacer(opts.DryRuns.OrDefault()),
	}
	if opts.Verdicts == nil {
		d.opts.Verdicts = d.verdicts
	}
	d.metrics = newMetrics(d)
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(d.metrics); err != nil {
			return nil, fmt.Errorf("remediate: metrics: %w", err)
		}
	}
	d.exec = &executor{
		clients: opts.Clients, journal: j, clock: opts.Clock, keepsValues: opts.KeepSecretValues, protection: opts.Protection, owner: d.opts.owner,
		checkWrite: d.admitWrite, checkMember: d.checkMember, onResolved: d.resolved,
	}
	return d, nil
}

// corrected reports an action that has ended.
func (d *Dispatcher) corrected(a *Action) {
	d.metrics.countEnded(a)
	if d.opts.Corrected != nil {
		d.opts.Corrected(a)
	}
}

// trigger starts a plan.
func (d *Dispatcher) trigger() {
	d.triggered.Fire()
}

// SetIntents sets all intents of a policy, one for each target, instead of those it had.
// ready says that all verdicts of the policy have been counted: nothing is written before.
func (d *Dispatcher) SetIntents(binding string, spec RolloutSpec, totals Totals, intents []Intent, ready bool) error {
	named := d.nameIntents(spec.DryRun, intents)
	return d.update(binding, spec, totals, ready, func(s *policyState, now time.Time) {
		keep := make(map[policy.Ref]bool, len(named))
		for _, i := range named {
			if target := i.Remedy.Target; !keep[target] {
				keep[target] = true
				s.set(i, now)
			}
		}
		for target := range s.intents {
			if !keep[target] {
				s.unset(target, now)
			}
		}
	})
}

// UpdateIntents changes the intents of a policy: it adds or replaces these, and removes
// those for the targets that are gone. Its cost follows what it changes.
func (d *Dispatcher) UpdateIntents(binding string, spec RolloutSpec, totals Totals, intents []Intent, gone []policy.Ref, ready bool) error {
	named := d.nameIntents(spec.DryRun, intents)
	return d.update(binding, spec, totals, ready, func(s *policyState, now time.Time) {
		for _, target := range gone {
			s.unset(target, now)
		}
		for _, i := range named {
			s.set(i, now)
		}
	})
}

// nameIntents hashes the names of intents, and what Plans have of them, if all of them are to be
// planned. It asks who manages their targets. None of that is done under the lock.
func (d *Dispatcher) nameIntents(plan bool, intents []Intent) []*desiredIntent {
	named := make([]*desiredIntent, 0, len(intents))
	for n := range intents {
		i := intents[n]
		if i.Subject == (policy.Subject{}) {
			i.Subject = policy.Subject{Ref: i.Remedy.Target}
		}
		owner, err := d.opts.owner(&i)
		named = append(named, &desiredIntent{Intent: &i, name: i.actionName(), managed: owner != "" || err != nil})
		if plan {
			named[n].key()
		}
	}
	return named
}

func (d *Dispatcher) update(binding string, spec RolloutSpec, totals Totals, ready bool, change func(*policyState, time.Time)) error {
	if err := spec.validate(); err != nil {
		return fmt.Errorf("policy %q: %w", binding, err)
	}
	spec.Limits.Window = cmp.Or(spec.Limits.Window, time.Hour)
	d.mu.Lock()
	now := d.opts.Clock()
	s := d.policyLocked(binding)
	other := s.spec.DryRun != spec.DryRun || len(s.formers) > 0 && !s.spec.replacesAlike(&spec)
	window := s.removed || s.spec.Limits.Window != spec.Limits.Window
	s.spec, s.totals, s.ready, s.removed = spec, totals, ready, false
	if spec.Replaces == nil && !spec.DryRun {
		s.own = ownWaves{known: true, generation: spec.Generation, waves: spec.Waves}
	}
	d.ledger.SetWindow(binding, spec.Limits.Window, now)
	if window {
		s.showForWindow(now)
	}
	change(s, now)
	if other {
		for target := range s.intents {
			s.updateDue(target, now)
		}
	}
	d.mu.Unlock()
	d.trigger()
	return nil
}

func (d *Dispatcher) policyLocked(binding string) *policyState {
	s := d.policies[binding]
	if s == nil {
		s = newPolicyState(binding, d.ledger)
		d.policies[binding] = s
	}
	return s
}

// ClearIntents removes the intents of a policy at once. What it has written stays counted,
// and a halt stays, for when it has intents again.
func (d *Dispatcher) ClearIntents(binding string) {
	d.mu.Lock()
	if s := d.policies[binding]; s != nil {
		s.unsetAll(d.opts.Clock())
	}
	d.mu.Unlock()
	d.trigger()
}

// RemovePolicy removes a policy. What it has written stays counted, and so do its halts and
// the progress of its waves, for when there is such a policy again.
func (d *Dispatcher) RemovePolicy(binding string) {
	d.mu.Lock()
	if s := d.policies[binding]; s != nil {
		s.unsetAll(d.opts.Clock())
		s.removed = true
		s.plans = slices.DeleteFunc(s.plans, func(p *plan) bool { return p.Purpose == v1alpha1.PlanDryRun })
	}
	d.mu.Unlock()
	d.metrics.removePolicy(binding)
	d.trigger()
}

// SetStops sets what is stopped, instead of what was. It does not undo a write that is
// under way.
func (d *Dispatcher) SetStops(stops Stops) {
	stops = stops.clone()
	d.mu.Lock()
	d.stops = stops
	d.mu.Unlock()
	d.trigger()
}

// Stopped returns why nothing is written for any policy, "" when writes may be done.
func (d *Dispatcher) Stopped() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stops.All
}

// Status returns the status of a policy's corrections. Of one that is removed, there is one
// while it is halted, and else only what it has required.
func (d *Dispatcher) Status(binding string) (st Status, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.policies[binding]
	if s == nil {
		return Status{Restored: d.recovered}, false
	}
	if s.removed && len(s.halts) == 0 {
		return Status{Restored: d.recovered, Approval: s.approval.DeepCopy()}, false
	}
	st = Status{
		Halts: slices.Clone(s.halts), Waiting: s.waiting, Budget: slices.Clone(s.usage), Wave: s.waveStatus(), Pending: s.pending,
		Phases: maps.Clone(s.outcomes.phases), Restored: d.recovered, Acknowledged: s.acknowledged,
	}
	if len(s.halts) > 0 {
		st.Halted = s.halts[0]
	}
	st.Approval, st.DryRun = s.approval.DeepCopy(), s.dryRunStatus()
	for _, p := range s.plans {
		if p.Purpose == v1alpha1.PlanDryRun {
			continue // nobody approves it
		}
		info := p.PlanInfo
		info.Written = p.recordedWritten
		st.Plans = append(st.Plans, info)
	}
	return st, true
}
