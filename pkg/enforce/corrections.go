package enforce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
)

// corrections are what a binding's verdicts ask for now.
type corrections struct {
	generation string
	counted    bool // of the generation: every scope was settled once
	subjects   map[policy.Subject][]*remediate.Intent
	targets    map[aggregate.Ref]*target
	wanted     int                       // corrections, of all subjects
	beyond     map[policy.Subject]string // remedies that are beyond the ceiling
	protected  map[string]int            // violations whose remedies are never carried out, by member
	contract   *remediate.Contract       // of the terms and members; nil: to be made

	told    told
	changed map[aggregate.Ref]bool // targets, since the actor was told
	other   bool                   // what Standing tells, beside them
}

// told is what the actor knows of a binding.
type told uint8

const (
	toldUnknown told = iota // of this generation of corrections, or of none
	toldNothing             // that it wants nothing
	toldAll
)

// target is what may be corrected: by the first of its intents.
type target struct {
	intents   []*remediate.Intent // sorted by precedence
	protected bool
}

// precedence is the order of intents for one target: of several the first counts, always
// the same.
func precedence(x, y *remediate.Intent) int {
	return cmp.Or(
		cmp.Compare(x.Message, y.Message), cmp.Compare(x.Remedy.Action, y.Remedy.Action), cmp.Compare(x.Subject.String(), y.Subject.String()),
		bytes.Compare(x.Remedy.Patch, y.Remedy.Patch), bytes.Compare(x.Remedy.Object, y.Remedy.Object),
	)
}

// renew makes the corrections of a binding from all its verdicts.
func (c *Corrector) renew(name string) {
	t := c.terms[name]
	old := c.bindings[name]
	b := &corrections{
		generation: t.Generation, subjects: map[policy.Subject][]*remediate.Intent{}, targets: map[aggregate.Ref]*target{},
		beyond: map[policy.Subject]string{}, protected: map[string]int{},
	}
	if old != nil {
		b.counted = old.counted && old.generation == t.Generation
		if old.told == toldNothing {
			b.told = toldNothing
		}
		c.release(old)
	}
	c.bindings[name] = b
	for v := range c.state.Findings(name, "") {
		c.add(b, t, &v)
	}
}

// release takes leave of a binding's targets.
func (c *Corrector) release(b *corrections) {
	for ref := range b.targets {
		c.untarget(ref)
	}
}

func (c *Corrector) untarget(ref aggregate.Ref) {
	if c.targeted[ref]--; c.targeted[ref] == 0 {
		delete(c.targeted, ref)
	}
}

// take exchanges the corrections of one subject for those of its verdict now, nil for
// none.
func (c *Corrector) take(b *corrections, t *compiled, subject policy.Subject, now *policy.Verdict) {
	for _, i := range b.subjects[subject] {
		c.remove(b, i)
	}
	delete(b.subjects, subject)
	if _, was := b.beyond[subject]; was {
		delete(b.beyond, subject)
		b.other = true
	}
	if now != nil {
		c.add(b, t, now)
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
			b.other = true
			continue
		}
		made := c.intent(t, v, x)
		b.subjects[v.Subject] = append(b.subjects[v.Subject], made)
		c.insert(b, made)
	}
}

func (c *Corrector) intent(t *compiled, v *policy.Verdict, x *policy.Violation) *remediate.Intent {
	mode, _ := t.mode()
	i := &remediate.Intent{
		Binding: v.Binding, Message: x.Msg, Source: t.Source, Commit: t.Commit, Path: t.Path,
		Revision: c.state.Snapshot.Revision(), Subject: v.Subject, Remedy: *x.Remedy,
		DryRun: mode == policy.DryRun, Force: t.Force, ActAs: t.ActAs,
	}
	if pkg := c.state.Package(v.Binding); pkg != nil {
		i.Package = pkg.Name
	}
	return i
}

// insert puts an intent in its place among those for its target.
func (c *Corrector) insert(b *corrections, i *remediate.Intent) {
	ref := i.Remedy.Target
	t := b.targets[ref]
	if t == nil {
		t = &target{protected: c.isProtected(ref)}
		b.targets[ref] = t
		c.targeted[ref]++
	}
	at, _ := slices.BinarySearchFunc(t.intents, i, precedence)
	t.intents = slices.Insert(t.intents, at, i)
	b.wanted++
	b.protect(ref, t, 1)
	b.change(ref)
}

// remove takes an intent out from among those for its target.
func (c *Corrector) remove(b *corrections, i *remediate.Intent) {
	ref := i.Remedy.Target
	t := b.targets[ref]
	at, found := slices.BinarySearchFunc(t.intents, i, precedence)
	if !found {
		panic("enforce: an intent is not among those for its target")
	}
	t.intents = slices.Delete(t.intents, at, at+1)
	b.wanted--
	b.protect(ref, t, -1)
	b.change(ref)
	if len(t.intents) == 0 {
		delete(b.targets, ref)
		c.untarget(ref)
	}
}

// look takes in that a target is another object than before.
func (c *Corrector) look(b *corrections, ref aggregate.Ref, t *target) {
	b.protect(ref, t, -len(t.intents))
	t.protected = c.isProtected(ref)
	b.protect(ref, t, len(t.intents))
	b.change(ref)
}

func (b *corrections) change(ref aggregate.Ref) {
	if b.changed == nil {
		b.changed = map[aggregate.Ref]bool{}
	}
	b.changed[ref] = true
}

// protect counts so many more intents for a target that is protected.
func (b *corrections) protect(ref aggregate.Ref, t *target, n int) {
	if !t.protected {
		return
	}
	if b.protected[ref.Member] += n; b.protected[ref.Member] == 0 {
		delete(b.protected, ref.Member)
	}
}

// isProtected reports whether a target is never written, as far as the index knows: the
// member itself is asked before each write.
func (c *Corrector) isProtected(target aggregate.Ref) bool {
	if remediate.Protected(target, nil) != "" {
		return true
	}
	o, ok := c.state.Snapshot.Get(target)
	if !ok {
		return false
	}
	body, err := o.AppendBody(nil)
	if err != nil || !bytes.Contains(body, []byte(api.ProtectKey)) && !bytes.ContainsRune(body, '\\') {
		return false // most are not decoded: the key could only be written with escapes
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(body, &object) == nil && remediate.Protected(target, object.Metadata.Annotations) != ""
}
