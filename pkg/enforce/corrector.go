package enforce

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// Actor is who carries corrections out: a remediate.Dispatcher.
type Actor interface {
	Want(binding string, c remediate.Contract, of remediate.Denominators, intents []remediate.Intent, ready bool) error
	Drop(binding string)   // it wants nothing now
	Forget(binding string) // it is gone
}

// Corrector makes corrections of verdicts: what of them a binding's Terms allow. Its
// Changed is for Options.Changed of a Loop; SetTerms may be called at any time.
type Corrector struct {
	actor Actor
	log   *slog.Logger

	mu       sync.Mutex
	state    *policy.State
	terms    map[string]*compiled
	bindings map[string]*corrections
}

// corrections are what a binding's verdicts ask for now.
type corrections struct {
	generation string
	counted    bool // of the generation: every scope was settled once
	intents    map[policy.Subject][]remediate.Intent
	beyond     map[policy.Subject]string // remedies that are beyond the ceiling
	protected  map[string]int            // violations whose remedies are never carried out, by member
	versions   map[aggregate.Ref]string  // of targets, as the actor knows them
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
	return &Corrector{actor: actor, log: log, terms: map[string]*compiled{}, bindings: map[string]*corrections{}}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.bindings {
		if next[name] == nil {
			c.drop(name)
		}
	}
	c.terms = next
	if c.state != nil {
		for name := range next {
			c.renew(name)
			c.want(name)
		}
	}
	return nil
}

func (c *Corrector) drop(name string) {
	delete(c.bindings, name)
	c.actor.Forget(name)
}

// Standing returns how it stands with a binding.
func (c *Corrector) Standing(binding string) Standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.terms[binding]
	if t == nil {
		return Standing{Mode: policy.Observe}
	}
	s := Standing{Protected: map[string]int{}}
	s.Mode, s.Why = t.mode()
	if b := c.bindings[binding]; b != nil {
		s.Counted, s.Beyond = b.counted, len(b.beyond)
		for _, list := range b.intents {
			s.Wanted += len(list)
		}
		for _, why := range b.beyond {
			s.BeyondWhy = why
			break
		}
		for m, n := range b.protected {
			s.Protected[m] = n
		}
	}
	return s
}

// Changed takes in what a batch did to the verdicts.
func (c *Corrector) Changed(changes *policy.Changes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = changes.After
	touched := map[string]bool{}
	for change := range changes.All() {
		v := change.After
		if v == nil {
			v = change.Before
		}
		if b := c.bindings[v.Binding]; b != nil {
			c.take(b, c.terms[v.Binding], v.Binding, v.Subject)
			touched[v.Binding] = true
		}
	}
	moved := c.moved(changes)
	for name := range c.terms {
		b := c.bindings[name]
		switch {
		case b == nil:
			c.renew(name)
			c.want(name)
		case touched[name] || !b.counted || moved || c.outdated(b):
			c.want(name)
		}
	}
}

// moved reports whether members have come, gone or changed: waves and denominators.
func (c *Corrector) moved(changes *policy.Changes) bool {
	if changes.Before == nil {
		return true
	}
	var before, after []string
	for m := range changes.Before.Snapshot.Members() {
		before = append(before, m.Name+fmt.Sprint(m.Labels))
	}
	for m := range changes.After.Snapshot.Members() {
		after = append(after, m.Name+fmt.Sprint(m.Labels))
	}
	return fmt.Sprint(before) != fmt.Sprint(after)
}

// outdated reports whether a target of the binding has another version than the actor
// knows.
func (c *Corrector) outdated(b *corrections) bool {
	for target, known := range b.versions {
		version := " "
		if o, ok := c.state.Snapshot.Get(target); ok {
			version = o.UID() + " " + o.ResourceVersion()
		}
		if version != known {
			return true
		}
	}
	return false
}

// renew makes the corrections of a binding from all its verdicts.
func (c *Corrector) renew(name string) {
	t := c.terms[name]
	old := c.bindings[name]
	b := &corrections{generation: t.Generation, intents: map[policy.Subject][]remediate.Intent{}, beyond: map[policy.Subject]string{}, protected: map[string]int{}}
	b.counted = old != nil && old.counted && old.generation == t.Generation
	c.bindings[name] = b
	for v := range c.state.Findings(name, "") {
		c.add(b, t, &v)
	}
}

// take exchanges the corrections of one subject.
func (c *Corrector) take(b *corrections, t *compiled, binding string, subject policy.Subject) {
	delete(b.intents, subject)
	delete(b.beyond, subject)
	if v, ok := c.state.Get(binding, subject); ok {
		c.add(b, t, &v)
	}
}

// add makes the corrections of one verdict: none of one that is not Known.
func (c *Corrector) add(b *corrections, t *compiled, v *policy.Verdict) {
	if v.State != policy.Known {
		return
	}
	for i := range v.Violations {
		x := &v.Violations[i]
		if x.Exempt != "" || x.Remedy == nil {
			continue
		}
		member, ok := c.state.Snapshot.Member(x.Remedy.Target.Member)
		if !ok {
			continue // it names a member that is not there
		}
		if why := t.beyond(x.Remedy, member); why != "" {
			b.beyond[v.Subject] = why
			continue
		}
		b.intents[v.Subject] = append(b.intents[v.Subject], c.intent(t, v, x))
	}
}

func (c *Corrector) intent(t *compiled, v *policy.Verdict, x *policy.Violation) remediate.Intent {
	mode, _ := t.mode()
	i := remediate.Intent{
		Binding: v.Binding, Message: x.Msg, Source: t.Source, Commit: t.Commit, Path: t.Path,
		Revision: c.state.Snapshot.Revision(), Subject: v.Subject, Remedy: *x.Remedy,
		DryRun: mode == policy.DryRun, Force: t.Force, ActAs: t.ActAs,
	}
	if pkg := c.state.Package(v.Binding); pkg != nil {
		i.Package = pkg.Name
	}
	if o, ok := c.state.Snapshot.Get(x.Remedy.Target); ok {
		i.APIVersion, i.UID, i.ResourceVersion = o.APIVersion(), o.UID(), o.ResourceVersion()
	}
	return i
}

// want tells the actor what a binding wants.
func (c *Corrector) want(name string) {
	t, b := c.terms[name], c.bindings[name]
	if !b.counted && c.state.Synced && c.state.Settled(name) {
		b.counted = true
	}
	mode, _ := t.mode()
	c.countProtected(b)
	if mode == policy.Observe {
		b.versions = nil
		c.actor.Drop(name)
		return
	}
	var list []remediate.Intent
	b.versions = map[aggregate.Ref]string{}
	for _, of := range b.intents {
		for _, i := range of {
			// The target may have changed in what the policy does not read: what was
			// judged is its present version.
			if o, ok := c.state.Snapshot.Get(i.Remedy.Target); ok {
				i.APIVersion, i.UID, i.ResourceVersion = o.APIVersion(), o.UID(), o.ResourceVersion()
			} else {
				i.UID, i.ResourceVersion = "", ""
			}
			b.versions[i.Remedy.Target] = i.UID + " " + i.ResourceVersion
			i.DryRun = mode == policy.DryRun
			list = append(list, i)
		}
	}
	// Of several for one target the first counts, always the same.
	slices.SortFunc(list, func(x, y remediate.Intent) int {
		return cmp.Or(cmp.Compare(x.Remedy.Target.String(), y.Remedy.Target.String()), cmp.Compare(x.Message, y.Message),
			cmp.Compare(x.Remedy.Action, y.Remedy.Action), cmp.Compare(x.Subject.String(), y.Subject.String()),
			cmp.Compare(string(x.Remedy.Patch)+string(x.Remedy.Object), string(y.Remedy.Patch)+string(y.Remedy.Object)))
	})
	of := remediate.Denominators{Members: map[string]int{}}
	for member, n := range c.state.Counts(name) {
		subjects := n.Known + n.Unknown + n.Errors
		of.Total += subjects
		of.Members[member] = subjects
	}
	if err := c.actor.Want(name, t.contract(c.state.Snapshot, mode == policy.DryRun), of, list, b.counted && !t.Pause); err != nil {
		c.log.Error("corrections are not carried out", "policy", name, "err", err)
	}
}

// countProtected counts violations of what is never written.
func (c *Corrector) countProtected(b *corrections) {
	b.protected = map[string]int{}
	for _, list := range b.intents {
		for _, i := range list {
			if remediate.Protected(i.Remedy.Target, annotations(c.state.Snapshot, i.Remedy.Target)) != "" {
				b.protected[i.Remedy.Target.Member]++
			}
		}
	}
}

// annotations returns an object's, as the index has them.
func annotations(s *aggregate.Snapshot, target aggregate.Ref) map[string]string {
	o, ok := s.Get(target)
	if !ok {
		return nil
	}
	body, err := o.AppendBody(nil)
	if err != nil {
		return nil
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(body, &object) != nil {
		return nil // the member itself is asked before each write
	}
	return object.Metadata.Annotations
}
