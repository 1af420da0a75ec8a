package enforce

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/tracing"
)

// Actor carries out corrections: a remediate.Dispatcher.
type Actor interface {
	// SetIntents sets all intents of a policy, one for each target.
	SetIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, intents []remediate.Intent, ready bool) error
	// UpdateIntents changes them: intents that are new or different, and targets that have
	// none any more.
	UpdateIntents(binding string, spec remediate.RolloutSpec, totals remediate.Totals, intents []remediate.Intent, gone []policy.Ref, ready bool) error
	ClearIntents(binding string) // the policy has none now
	RemovePolicy(binding string) // the policy is gone
	// Protected returns why a target is never written, "" if it may be.
	Protected(target policy.Ref, annotations map[string]string) string
}

// Corrector makes corrections of verdicts, as far as the EnforcementSpec of a policy allows.
// The cost of a batch follows what it changed, however many corrections there are. Its
// Changed is for Options.Changed of a Loop; SetSpecs and Status may be called at any time.
type Corrector struct {
	actor  Actor
	log    *slog.Logger
	tracer *tracing.Tracer // nil: no intent has a cause

	mu           sync.Mutex
	state        *policy.State
	changes      *policy.Changes // that are being applied; nil: none
	specs        map[string]*compiledSpec
	bindings     map[string]*corrections
	targetCounts map[aggregate.Ref]int // policies that have corrections of a target

	statusMu sync.Mutex // separate, so that Status does not wait for a batch
	statuses map[string]EnforcementStatus
}

// EnforcementStatus says what is done about the violations of a policy now.
type EnforcementStatus struct {
	Mode              policy.Mode
	ModeReason        string         // why Mode is lower than that of the spec
	Complete          bool           // all verdicts have been counted since the policy or its package changed
	Corrections       int            // how many the verdicts require
	OverCeiling       int            // remedies above the source's ceiling
	OverCeilingReason string         // of one of them
	Contradicting     int            // targets that are not written: their remedies contradict each other
	Contradiction     string         // of one of them
	Deferred          int            // remedies that follow another one of the same target
	Protected         map[string]int // corrections of protected targets, by member
}

// NewCorrector returns a corrector without specs: violations are only reported.
func NewCorrector(actor Actor, log *slog.Logger) *Corrector {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Corrector{
		actor: actor, log: log, specs: map[string]*compiledSpec{}, bindings: map[string]*corrections{},
		targetCounts: map[aggregate.Ref]int{}, statuses: map[string]EnforcementStatus{},
	}
}

// WithTracer has intents name the changes that they come of. It is called before anything else.
func (c *Corrector) WithTracer(t *tracing.Tracer) *Corrector {
	c.tracer = t
	return c
}

// SetSpecs sets the specs of all policies, by binding; violations of bindings without a
// spec are only reported. After an error nothing has changed.
func (c *Corrector) SetSpecs(specs map[string]EnforcementSpec) error {
	next := make(map[string]*compiledSpec, len(specs))
	for name, spec := range specs {
		compiled, err := spec.compile()
		if err != nil {
			return fmt.Errorf("policy %q: %w", name, err)
		}
		next[name] = compiled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range sortedNames(c.specs) {
		if next[name] == nil {
			c.removeLocked(name)
		}
	}
	was := c.specs
	c.specs = next
	for _, name := range sortedNames(next) {
		spec := next[name]
		switch old := was[name]; {
		case old != nil && reflect.DeepEqual(old.EnforcementSpec, spec.EnforcementSpec):
			c.specs[name] = old // whose selectors are compiled already
		case c.state != nil:
			c.rebuildLocked(name)
			c.dispatchLocked(name)
		default:
			c.publishLocked(name)
		}
	}
	return nil
}

// sortedNames returns the policies in one order: what the actor is told does not depend on
// that of a map.
func sortedNames(specs map[string]*compiledSpec) []string {
	return slices.Sorted(maps.Keys(specs))
}

func (c *Corrector) removeLocked(name string) {
	if b := c.bindings[name]; b != nil {
		c.releaseTargets(b)
		delete(c.bindings, name)
		c.actor.RemovePolicy(name)
	}
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	delete(c.statuses, name)
}

// Status returns the status of a policy.
func (c *Corrector) Status(binding string) EnforcementStatus {
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	s, ok := c.statuses[binding]
	if !ok {
		return EnforcementStatus{Mode: policy.Observe}
	}
	return s
}

// publishLocked updates what Status returns.
func (c *Corrector) publishLocked(name string) {
	s := EnforcementStatus{Protected: map[string]int{}}
	s.Mode, s.ModeReason = c.specs[name].effectiveMode()
	if b := c.bindings[name]; b != nil {
		s.Complete, s.Corrections, s.OverCeiling = b.complete, b.count, len(b.overCeiling)
		for _, why := range b.overCeiling {
			s.OverCeilingReason = why
			break
		}
		for m, n := range b.protected {
			s.Protected[m] = n
		}
		s.Contradicting = len(b.contradicting)
		for _, why := range b.contradicting {
			if s.Contradiction == "" || why < s.Contradiction {
				s.Contradiction = why
			}
		}
		for _, n := range b.deferred {
			s.Deferred += n
		}
	}
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	c.statuses[name] = s
}

// Changed applies the changes of the verdicts by a batch. The batch is nil where policies
// or bindings were replaced, or everything was re-evaluated.
func (c *Corrector) Changed(changes *policy.Changes, batch *aggregate.Batch) {
	if changes.After == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.changes = changes.After, changes
	defer func() { c.changes = nil }()
	if membersChanged(changes, batch) {
		for _, name := range sortedNames(c.specs) {
			c.rebuildLocked(name)
			c.dispatchLocked(name)
		}
		return
	}
	for change := range changes.All() {
		v := change.After
		if v == nil {
			v = change.Before
		}
		if b := c.bindings[v.Binding]; b != nil {
			c.replaceSubject(b, c.specs[v.Binding], v.Subject, change.After)
		}
	}
	c.refreshTargetsLocked(changes, batch)
	c.refreshElsewhereLocked()
	for _, name := range sortedNames(c.specs) {
		b := c.bindings[name]
		switch {
		case b == nil:
			c.rebuildLocked(name)
			c.dispatchLocked(name)
		case len(b.changed) > 0 || b.statusChanged || !b.complete || !maps.Equal(b.unread, c.state.Unread(name)) || b.rollout != nil && b.rollout.External != c.state.ExternalDigest(name):
			c.dispatchLocked(name)
		}
	}
}

// refreshTargetsLocked updates the targets that have changed, also in what no policy reads:
// intents name the present version.
func (c *Corrector) refreshTargetsLocked(changes *policy.Changes, batch *aggregate.Batch) {
	refresh := func(target aggregate.Ref) {
		if c.targetCounts[target] == 0 {
			return
		}
		for name, b := range c.bindings {
			if t := b.targets[target]; t != nil {
				c.recheckTarget(b, c.specs[name], target, t)
			}
		}
	}
	switch {
	case batch != nil:
		if len(c.targetCounts) > 0 {
			for d := range batch.Deltas() {
				refresh(d.Ref)
			}
		}
	case changes.Before == nil || changes.Before.Snapshot != changes.After.Snapshot:
		for target := range c.targetCounts {
			refresh(target)
		}
	}
}

// membersChanged reports whether members have joined, left or changed: waves, ceilings and
// totals depend on them.
func membersChanged(changes *policy.Changes, batch *aggregate.Batch) bool {
	if changes.Before == nil || toldMembersChanged(changes.Before, changes.After) {
		return true
	}
	if batch != nil {
		for d := range batch.Members() {
			if d.Before == nil || d.After == nil || d.Before.Role != d.After.Role || !slices.Equal(d.Before.Labels, d.After.Labels) {
				return true
			}
		}
		return false
	}
	if changes.Before.Snapshot == changes.After.Snapshot {
		return false
	}
	before, after := slices.Collect(changes.Before.Snapshot.Members()), slices.Collect(changes.After.Snapshot.Members())
	return !slices.EqualFunc(before, after, func(a, b aggregate.Member) bool { return sameForCorrections(&a, &b) })
}

// dispatchLocked gives the actor the intents of a policy, or what has changed of them.
func (c *Corrector) dispatchLocked(name string) {
	spec, b := c.specs[name], c.bindings[name]
	defer c.publishLocked(name)
	// While policies are replaced the state may be of those before.
	if !b.complete && !spec.Pause && c.state.Synced && c.state.BindingSynced(name) {
		b.complete = true
	}
	mode, _ := spec.effectiveMode()
	changed := b.changed
	b.changed, b.statusChanged = nil, false
	b.unread = c.state.Unread(name)
	if mode == policy.Observe {
		if b.reported != reportedNone {
			c.actor.ClearIntents(name)
		}
		b.reported = reportedNone
		return
	}
	if b.rollout == nil {
		rollout := spec.rolloutSpec(c.state.Snapshot, mode == policy.DryRun)
		b.rollout = &rollout
	}
	if digest := c.state.ExternalDigest(name); digest != b.rollout.External {
		rollout := *b.rollout // that of before is the actor's
		rollout.External = digest
		b.rollout = &rollout
	}
	totals := remediate.Totals{Members: map[string]int{}, Violations: map[string]int{}, Unknown: map[string]int{}, Unread: b.unread}
	for member, n := range c.state.Counts(name) {
		subjects := n.Known + n.Unknown + n.Errors
		totals.Fleet += subjects
		totals.Members[member], totals.Violations[member], totals.Unknown[member] = subjects, n.Violations, n.Unknown+n.Errors
	}
	var intents []remediate.Intent
	var gone []policy.Ref
	add := func(target aggregate.Ref) {
		if t := b.targets[target]; t != nil {
			intents = append(intents, c.currentIntent(b.intentFor(target, t), t))
		} else {
			delete(b.contradicting, target)
			delete(b.deferred, target)
			gone = append(gone, target)
		}
	}
	var err error
	if ready := b.complete && !spec.Pause; b.reported == reportedAll {
		for target := range changed {
			add(target)
		}
		err = c.actor.UpdateIntents(name, *b.rollout, totals, intents, gone, ready)
	} else {
		for target := range b.targets {
			add(target)
		}
		err = c.actor.SetIntents(name, *b.rollout, totals, intents, ready)
	}
	b.reported = reportedAll
	if err != nil {
		b.reported = reportedUnknown
		c.log.Error("setting intents failed", "policy", name, "error", err)
	}
}

// currentIntent returns an intent with the present version of its target, which may have
// changed in what the policy does not read; of one that another process judges, with what is known of it.
func (c *Corrector) currentIntent(out remediate.Intent, t *target) remediate.Intent {
	if out.Basis = t.basis.Text; out.Basis == "" {
		describeTarget(c.state, out.Remedy.Target, &out)
	}
	return out
}
