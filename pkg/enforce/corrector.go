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
	// Want says all that a binding wants corrected, one intent for a target.
	Want(binding string, c remediate.Contract, of remediate.Denominators, intents []remediate.Intent, ready bool) error
	// Change says how that differs from what was wanted before: intents that are new or
	// other ones, and targets of which nothing is wanted any more.
	Change(binding string, c remediate.Contract, of remediate.Denominators, intents []remediate.Intent, gone []policy.Ref, ready bool) error
	Drop(binding string)   // it wants nothing now
	Forget(binding string) // it is gone
}

// Corrector makes corrections of verdicts: what of them a binding's Terms allow. What a
// batch costs follows what it changed, however many corrections are wanted. Its Changed
// is for Options.Changed of a Loop; SetTerms and Standing may be called at any time.
type Corrector struct {
	actor Actor
	log   *slog.Logger

	work     sync.Mutex // held by Changed and SetTerms, and over what follows
	state    *policy.State
	terms    map[string]*compiled
	bindings map[string]*corrections
	targeted map[aggregate.Ref]int // bindings that have corrections of a target

	mu    sync.Mutex // over what Standing tells, which waits for no batch
	stand map[string]Standing
}

// Standing says what may come of a binding's violations now.
type Standing struct {
	Mode      policy.Mode
	Why       string         // Mode is less than is wanted
	Counted   bool           // the whole verdict set has been counted since the policy or its binding changed
	Wanted    int            // corrections
	Beyond    int            // remedies that are beyond the source's ceiling
	BeyondWhy string         // one of them
	Protected map[string]int // violations of what is never written, by member
}

// NewCorrector returns a corrector without terms: nothing comes of violations.
func NewCorrector(actor Actor, log *slog.Logger) *Corrector {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Corrector{
		actor: actor, log: log, terms: map[string]*compiled{}, bindings: map[string]*corrections{},
		targeted: map[aggregate.Ref]int{}, stand: map[string]Standing{},
	}
}

// SetTerms says what may come of violations, by binding; nothing comes of those of
// others. On an error nothing has changed.
func (c *Corrector) SetTerms(terms map[string]Terms) error {
	next := make(map[string]*compiled, len(terms))
	for name, t := range terms {
		made, err := t.compile()
		if err != nil {
			return fmt.Errorf("binding %q: %w", name, err)
		}
		next[name] = made
	}
	c.work.Lock()
	defer c.work.Unlock()
	for name := range c.terms {
		if next[name] == nil {
			c.drop(name)
		}
	}
	was := c.terms
	c.terms = next
	for name, t := range next {
		switch old := was[name]; {
		case old != nil && reflect.DeepEqual(old.Terms, t.Terms):
			c.terms[name] = old // selectors that are compiled already
		case c.state != nil:
			c.renew(name)
			c.want(name)
		default:
			c.publish(name)
		}
	}
	return nil
}

func (c *Corrector) drop(name string) {
	if b := c.bindings[name]; b != nil {
		c.release(b)
		delete(c.bindings, name)
		c.actor.Forget(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stand, name)
}

// Standing returns how it stands with a binding.
func (c *Corrector) Standing(binding string) Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.stand[binding]
	if !ok {
		return Standing{Mode: policy.Observe}
	}
	return s
}

// publish makes how it stands with a binding what Standing returns.
func (c *Corrector) publish(name string) {
	s := Standing{Protected: map[string]int{}}
	s.Mode, s.Why = c.terms[name].mode()
	if b := c.bindings[name]; b != nil {
		s.Counted, s.Wanted, s.Beyond = b.counted, b.wanted, len(b.beyond)
		for _, why := range b.beyond {
			s.BeyondWhy = why
			break
		}
		for m, n := range b.protected {
			s.Protected[m] = n
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stand[name] = s
}

// Changed takes in what a batch did to the verdicts. The batch is nil where policies or
// bindings were exchanged, or all was evaluated anew.
func (c *Corrector) Changed(changes *policy.Changes, batch *aggregate.Batch) {
	if changes.After == nil {
		return
	}
	c.work.Lock()
	defer c.work.Unlock()
	c.state = changes.After
	if moved(changes, batch) {
		for name := range c.terms {
			c.renew(name)
			c.want(name)
		}
		return
	}
	for change := range changes.All() {
		v := change.After
		if v == nil {
			v = change.Before
		}
		if b := c.bindings[v.Binding]; b != nil {
			c.take(b, c.terms[v.Binding], v.Subject, change.After)
		}
	}
	c.refresh(changes, batch)
	for name := range c.terms {
		b := c.bindings[name]
		switch {
		case b == nil:
			c.renew(name)
			c.want(name)
		case len(b.changed) > 0 || b.other || !b.counted:
			c.want(name)
		}
	}
}

// refresh takes note of the targets that have changed, in what no policy reads, too: what
// was judged is their present version.
func (c *Corrector) refresh(changes *policy.Changes, batch *aggregate.Batch) {
	note := func(target aggregate.Ref) {
		if c.targeted[target] == 0 {
			return
		}
		for _, b := range c.bindings {
			if t := b.targets[target]; t != nil {
				c.look(b, target, t)
			}
		}
	}
	switch {
	case batch != nil:
		if len(c.targeted) > 0 {
			for d := range batch.Deltas() {
				note(d.Ref)
			}
		}
	case changes.Before == nil || changes.Before.Snapshot != changes.After.Snapshot:
		for target := range c.targeted {
			note(target)
		}
	}
}

// moved reports whether members have come, gone or changed: waves, ceilings and
// denominators.
func moved(changes *policy.Changes, batch *aggregate.Batch) bool {
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

// want tells the actor what a binding wants, or how that has changed.
func (c *Corrector) want(name string) {
	t, b := c.terms[name], c.bindings[name]
	defer c.publish(name)
	if !b.counted && c.state.Synced && c.state.Settled(name) {
		b.counted = true
	}
	mode, _ := t.mode()
	changed := b.changed
	b.changed, b.other = nil, false
	if mode == policy.Observe {
		if b.told != toldNothing {
			c.actor.Drop(name)
		}
		b.told = toldNothing
		return
	}
	if b.contract == nil {
		made := t.contract(c.state.Snapshot, mode == policy.DryRun)
		b.contract = &made
	}
	of := remediate.Denominators{Members: map[string]int{}}
	for member, n := range c.state.Counts(name) {
		subjects := n.Known + n.Unknown + n.Errors
		of.Total += subjects
		of.Members[member] = subjects
	}
	var list []remediate.Intent
	var gone []policy.Ref
	add := func(target aggregate.Ref) {
		if of := b.targets[target]; of != nil {
			list = append(list, c.present(of.intents[0]))
		} else {
			gone = append(gone, target)
		}
	}
	var err error
	if ready := b.counted && !t.Pause; b.told == toldAll {
		for target := range changed {
			add(target)
		}
		err = c.actor.Change(name, *b.contract, of, list, gone, ready)
	} else {
		for target := range b.targets {
			add(target)
		}
		err = c.actor.Want(name, *b.contract, of, list, ready)
	}
	b.told = toldAll
	if err != nil {
		b.told = toldUnknown
		c.log.Error("corrections are not carried out", "policy", name, "error", err)
	}
}

// present returns an intent of its target's present version: the target may have changed
// in what the policy does not read.
func (c *Corrector) present(i *remediate.Intent) remediate.Intent {
	out := *i
	if o, ok := c.state.Snapshot.Get(i.Remedy.Target); ok {
		out.APIVersion, out.UID, out.ResourceVersion = o.APIVersion(), o.UID(), o.ResourceVersion()
	} else {
		out.UID, out.ResourceVersion = "", ""
	}
	return out
}
