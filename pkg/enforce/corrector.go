package enforce

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Actor is who carries corrections out: a remediate.Dispatcher.
type Actor interface {
	// SetIntents says all that a binding wants corrected, one intent for a target.
	SetIntents(binding string, c remediate.RolloutSpec, of remediate.Totals, intents []remediate.Intent, ready bool) error
	// UpdateIntents says how that differs from what was wanted before: intents that are new or
	// other ones, and targets of which nothing is wanted any more.
	UpdateIntents(binding string, c remediate.RolloutSpec, of remediate.Totals, intents []remediate.Intent, gone []policy.Ref, ready bool) error
	ClearIntents(binding string) // it wants nothing now
	RemovePolicy(binding string) // it is gone
}

// Corrector makes corrections of verdicts: what of them a binding's Terms allow. What a
// batch costs follows what it changed, however many corrections are wanted. Its Changed
// is for Options.Changed of a Loop; SetTerms and Standing may be called at any time.
type Corrector struct {
	actor Actor
	log   *slog.Logger

	mu           sync.Mutex // held by Changed and SetTerms, and over what follows
	state        *policy.State
	specs        map[string]*compiledSpec
	bindings     map[string]*corrections
	targetCounts map[aggregate.Ref]int // bindings that have corrections of a target

	statusMu sync.Mutex // over what Standing tells, which waits for no batch
	statuses map[string]EnforcementStatus
}

// EnforcementStatus says what may come of a binding's violations now.
type EnforcementStatus struct {
	Mode              policy.Mode
	ModeReason        string         // Mode is less than is wanted
	Complete          bool           // the whole verdict set has been counted since the policy or its binding changed
	Corrections       int            // corrections
	OverCeiling       int            // remedies that are beyond the source's ceiling
	OverCeilingReason string         // one of them
	Protected         map[string]int // violations of what is never written, by member
}

// NewCorrector returns a corrector without terms: nothing comes of violations.
func NewCorrector(actor Actor, log *slog.Logger) *Corrector {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Corrector{
		actor: actor, log: log, specs: map[string]*compiledSpec{}, bindings: map[string]*corrections{},
		targetCounts: map[aggregate.Ref]int{}, statuses: map[string]EnforcementStatus{},
	}
}

// SetSpecs says what may come of violations, by binding; nothing comes of those of
// others. On an error nothing has changed.
func (c *Corrector) SetSpecs(terms map[string]EnforcementSpec) error {
	next := make(map[string]*compiledSpec, len(terms))
	for name, t := range terms {
		made, err := t.compile()
		if err != nil {
			return fmt.Errorf("binding %q: %w", name, err)
		}
		next[name] = made
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.specs {
		if next[name] == nil {
			c.removeLocked(name)
		}
	}
	was := c.specs
	c.specs = next
	for name, t := range next {
		switch old := was[name]; {
		case old != nil && reflect.DeepEqual(old.EnforcementSpec, t.EnforcementSpec):
			c.specs[name] = old // selectors that are compiled already
		case c.state != nil:
			c.rebuildLocked(name)
			c.dispatchLocked(name)
		default:
			c.publishLocked(name)
		}
	}
	return nil
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

// Status returns how it stands with a binding.
func (c *Corrector) Status(binding string) EnforcementStatus {
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	s, ok := c.statuses[binding]
	if !ok {
		return EnforcementStatus{Mode: policy.Observe}
	}
	return s
}

// publishLocked makes how it stands with a binding what Standing returns.
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
	}
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	c.statuses[name] = s
}

// Changed takes in what a batch did to the verdicts. The batch is nil where policies or
// bindings were exchanged, or all was evaluated anew.
func (c *Corrector) Changed(changes *policy.Changes, batch *aggregate.Batch) {
	if changes.After == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = changes.After
	if membersChanged(changes, batch) {
		for name := range c.specs {
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
	for name := range c.specs {
		b := c.bindings[name]
		switch {
		case b == nil:
			c.rebuildLocked(name)
			c.dispatchLocked(name)
		case len(b.changed) > 0 || b.statusChanged || !b.complete:
			c.dispatchLocked(name)
		}
	}
}

// refreshTargetsLocked takes note of the targets that have changed, in what no policy reads, too: what
// was judged is their present version.
func (c *Corrector) refreshTargetsLocked(changes *policy.Changes, batch *aggregate.Batch) {
	note := func(target aggregate.Ref) {
		if c.targetCounts[target] == 0 {
			return
		}
		for _, b := range c.bindings {
			if t := b.targets[target]; t != nil {
				c.recheckTarget(b, target, t)
			}
		}
	}
	switch {
	case batch != nil:
		if len(c.targetCounts) > 0 {
			for d := range batch.Deltas() {
				note(d.Ref)
			}
		}
	case changes.Before == nil || changes.Before.Snapshot != changes.After.Snapshot:
		for target := range c.targetCounts {
			note(target)
		}
	}
}

// membersChanged reports whether members have come, gone or changed: waves, ceilings and
// denominators.
func membersChanged(changes *policy.Changes, batch *aggregate.Batch) bool {
	if changes.Before == nil {
		return true
	}
	if batch != nil {
		for d := range batch.Members() {
			if d.Before == nil || d.After == nil || !slices.Equal(d.Before.Labels, d.After.Labels) {
				return true
			}
		}
		return false
	}
	if changes.Before.Snapshot == changes.After.Snapshot {
		return false
	}
	before, after := slices.Collect(changes.Before.Snapshot.Members()), slices.Collect(changes.After.Snapshot.Members())
	return !slices.EqualFunc(before, after, func(a, b aggregate.Member) bool {
		return a.Name == b.Name && a.UID == b.UID && slices.Equal(a.Labels, b.Labels)
	})
}

// dispatchLocked tells the actor what a binding wants, or how that has changed.
func (c *Corrector) dispatchLocked(name string) {
	t, b := c.specs[name], c.bindings[name]
	defer c.publishLocked(name)
	if !b.complete && c.state.Synced && c.state.BindingSynced(name) {
		b.complete = true
	}
	mode, _ := t.effectiveMode()
	changed := b.changed
	b.changed, b.statusChanged = nil, false
	if mode == policy.Observe {
		if b.reported != reportedNone {
			c.actor.ClearIntents(name)
		}
		b.reported = reportedNone
		return
	}
	if b.rollout == nil {
		made := t.rolloutSpec(c.state.Snapshot, mode == policy.DryRun)
		b.rollout = &made
	}
	of := remediate.Totals{Members: map[string]int{}}
	for member, n := range c.state.Counts(name) {
		subjects := n.Known + n.Unknown + n.Errors
		of.Fleet += subjects
		of.Members[member] = subjects
	}
	var list []remediate.Intent
	var gone []policy.Ref
	add := func(target aggregate.Ref) {
		if of := b.targets[target]; of != nil {
			list = append(list, c.currentIntent(of.intents[0]))
		} else {
			gone = append(gone, target)
		}
	}
	var err error
	if ready := b.complete && !t.Pause; b.reported == reportedAll {
		for target := range changed {
			add(target)
		}
		err = c.actor.UpdateIntents(name, *b.rollout, of, list, gone, ready)
	} else {
		for target := range b.targets {
			add(target)
		}
		err = c.actor.SetIntents(name, *b.rollout, of, list, ready)
	}
	b.reported = reportedAll
	if err != nil {
		b.reported = reportedUnknown
		c.log.Error("corrections are not carried out", "policy", name, "error", err)
	}
}

// currentIntent returns an intent of its target's present version: the target may have changed
// in what the policy does not read.
func (c *Corrector) currentIntent(i *remediate.Intent) remediate.Intent {
	out := *i
	if o, ok := c.state.Snapshot.Get(i.Remedy.Target); ok {
		out.APIVersion, out.UID, out.ResourceVersion = o.APIVersion(), o.UID(), o.ResourceVersion()
	} else {
		out.UID, out.ResourceVersion = "", ""
	}
	return out
}
