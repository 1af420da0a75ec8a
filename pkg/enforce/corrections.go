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
	generation  string
	complete    bool // of the generation: every scope was settled once
	subjects    map[policy.Subject][]*remediate.Intent
	targets     map[aggregate.Ref]*target
	count       int                       // corrections, of all subjects
	overCeiling map[policy.Subject]string // remedies that are beyond the ceiling
	protected   map[string]int            // violations whose remedies are never carried out, by member
	rollout     *remediate.RolloutSpec    // of the terms and members; nil: to be made

	reported      reported
	changed       map[aggregate.Ref]bool // targets, since the actor was told
	statusChanged bool                   // what Standing tells, beside them
}

// reported is what the actor knows of a binding.
type reported uint8

const (
	reportedUnknown reported = iota // of this generation of corrections, or of none
	reportedNone                    // that it wants nothing
	reportedAll
)

// target is what may be corrected: by the first of its intents.
type target struct {
	intents   []*remediate.Intent // sorted by precedence
	protected bool
}

// compareIntents is the order of intents for one target: of several the first counts, always
// the same.
func compareIntents(x, y *remediate.Intent) int {
	return cmp.Or(
		cmp.Compare(x.Message, y.Message), cmp.Compare(x.Remedy.Action, y.Remedy.Action), cmp.Compare(x.Subject.String(), y.Subject.String()),
		bytes.Compare(x.Remedy.Patch, y.Remedy.Patch), bytes.Compare(x.Remedy.Object, y.Remedy.Object),
	)
}

// rebuildLocked makes the corrections of a binding from all its verdicts.
func (c *Corrector) rebuildLocked(name string) {
	t := c.specs[name]
	old := c.bindings[name]
	b := &corrections{
		generation: t.Generation, subjects: map[policy.Subject][]*remediate.Intent{}, targets: map[aggregate.Ref]*target{},
		overCeiling: map[policy.Subject]string{}, protected: map[string]int{},
	}
	if old != nil {
		b.complete = old.complete && old.generation == t.Generation
		if old.reported == reportedNone {
			b.reported = reportedNone
		}
		c.releaseTargets(old)
	}
	c.bindings[name] = b
	for v := range c.state.Findings(name, "") {
		c.addVerdict(b, t, &v)
	}
}

// releaseTargets takes leave of a binding's targets.
func (c *Corrector) releaseTargets(b *corrections) {
	for ref := range b.targets {
		c.releaseTarget(ref)
	}
}

func (c *Corrector) releaseTarget(ref aggregate.Ref) {
	if c.targetCounts[ref]--; c.targetCounts[ref] == 0 {
		delete(c.targetCounts, ref)
	}
}

// replaceSubject exchanges the corrections of one subject for those of its verdict now, nil for
// none.
func (c *Corrector) replaceSubject(b *corrections, t *compiledSpec, subject policy.Subject, now *policy.Verdict) {
	for _, i := range b.subjects[subject] {
		c.removeIntent(b, i)
	}
	delete(b.subjects, subject)
	if _, was := b.overCeiling[subject]; was {
		delete(b.overCeiling, subject)
		b.statusChanged = true
	}
	if now != nil {
		c.addVerdict(b, t, now)
	}
}

// addVerdict makes the corrections of one verdict: none of one that is not Known.
func (c *Corrector) addVerdict(b *corrections, t *compiledSpec, v *policy.Verdict) {
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
		if why := t.overCeiling(x.Remedy, member); why != "" {
			b.overCeiling[v.Subject] = why
			b.statusChanged = true
			continue
		}
		made := c.newIntent(t, v, x)
		b.subjects[v.Subject] = append(b.subjects[v.Subject], made)
		c.insertIntent(b, made)
	}
}

func (c *Corrector) newIntent(t *compiledSpec, v *policy.Verdict, x *policy.Violation) *remediate.Intent {
	mode, _ := t.effectiveMode()
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

// insertIntent puts an intent in its place among those for its target.
func (c *Corrector) insertIntent(b *corrections, i *remediate.Intent) {
	ref := i.Remedy.Target
	t := b.targets[ref]
	if t == nil {
		t = &target{protected: c.isProtected(ref)}
		b.targets[ref] = t
		c.targetCounts[ref]++
	}
	at, _ := slices.BinarySearchFunc(t.intents, i, compareIntents)
	t.intents = slices.Insert(t.intents, at, i)
	b.count++
	b.countProtected(ref, t, 1)
	b.markChanged(ref)
}

// removeIntent takes an intent out from among those for its target.
func (c *Corrector) removeIntent(b *corrections, i *remediate.Intent) {
	ref := i.Remedy.Target
	t := b.targets[ref]
	at, found := slices.BinarySearchFunc(t.intents, i, compareIntents)
	if !found {
		panic("enforce: an intent is not among those for its target")
	}
	t.intents = slices.Delete(t.intents, at, at+1)
	b.count--
	b.countProtected(ref, t, -1)
	b.markChanged(ref)
	if len(t.intents) == 0 {
		delete(b.targets, ref)
		c.releaseTarget(ref)
	}
}

// recheckTarget takes in that a target is another object than before.
func (c *Corrector) recheckTarget(b *corrections, ref aggregate.Ref, t *target) {
	b.countProtected(ref, t, -len(t.intents))
	t.protected = c.isProtected(ref)
	b.countProtected(ref, t, len(t.intents))
	b.markChanged(ref)
}

func (b *corrections) markChanged(ref aggregate.Ref) {
	if b.changed == nil {
		b.changed = map[aggregate.Ref]bool{}
	}
	b.changed[ref] = true
}

// countProtected counts so many more intents for a target that is protected.
func (b *corrections) countProtected(ref aggregate.Ref, t *target, n int) {
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
