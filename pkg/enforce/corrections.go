package enforce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"federator.dev/federator/api"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate"
	"federator.dev/federator/pkg/tracing"
)

// corrections are the corrections that a policy's verdicts require now.
type corrections struct {
	generation  string
	complete    bool // in this generation every scope has been listed once, or given up on
	subjects    map[policy.Subject][]*remediate.Intent
	targets     map[aggregate.Ref]*target
	elsewhere   map[aggregate.Ref]*target // of targets, those that other processes judge
	count       int                       // of corrections of all subjects
	overCeiling map[policy.Subject]string // subjects with remedies above the ceiling, and why
	protected   map[string]int            // number of corrections of protected targets, by member
	// Of targets that several violations would correct, as far as they were reported.
	contradicting map[aggregate.Ref]string // why they are not written
	deferred      map[aggregate.Ref]int    // remedies for later
	rollout       *remediate.RolloutSpec   // nil: to be made from the spec and the members

	reported      reported
	unread        map[string]bool        // members of which not all is read that the policy reads, as reported
	changed       map[aggregate.Ref]bool // targets, since the last report to the actor
	statusChanged bool                   // EnforcementStatus has changed otherwise
}

// reported is what the actor knows of a policy.
type reported uint8

const (
	reportedUnknown reported = iota // nothing is certain
	reportedNone                    // it has no intents
	reportedAll                     // it has all intents but those changed since
)

// target is corrected by its intents combined.
type target struct {
	intents   []*remediate.Intent // in the order of compareIntents
	protected bool
	basis     policy.Basis // of one that another process judges
}

// compareIntents orders the intents for one target, so that always the same is the first.
func compareIntents(x, y *remediate.Intent) int {
	return cmp.Or(
		cmp.Compare(x.Message, y.Message), cmp.Compare(x.Remedy.Action, y.Remedy.Action), cmp.Compare(x.Subject.String(), y.Subject.String()),
		bytes.Compare(x.Remedy.Patch, y.Remedy.Patch), bytes.Compare(x.Remedy.Object, y.Remedy.Object),
	)
}

// rebuildLocked makes the corrections of a policy from all its verdicts.
func (c *Corrector) rebuildLocked(name string) {
	spec := c.specs[name]
	old := c.bindings[name]
	b := &corrections{
		generation: spec.Generation, subjects: map[policy.Subject][]*remediate.Intent{}, targets: map[aggregate.Ref]*target{},
		elsewhere: map[aggregate.Ref]*target{}, overCeiling: map[policy.Subject]string{}, protected: map[string]int{},
		contradicting: map[aggregate.Ref]string{}, deferred: map[aggregate.Ref]int{},
	}
	if old != nil {
		b.complete = old.complete && old.generation == spec.Generation
		if old.reported == reportedNone {
			b.reported = reportedNone
		}
		c.releaseTargets(old)
	}
	c.bindings[name] = b
	for v := range c.state.Findings(name, "") {
		c.addVerdict(b, spec, &v)
	}
}

// releaseTargets releases the targets of a policy.
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

// replaceSubject replaces the corrections of one subject by those of its present verdict,
// nil for none.
func (c *Corrector) replaceSubject(b *corrections, spec *compiledSpec, subject policy.Subject, now *policy.Verdict) {
	for _, i := range b.subjects[subject] {
		c.removeIntent(b, i)
	}
	delete(b.subjects, subject)
	if _, was := b.overCeiling[subject]; was {
		delete(b.overCeiling, subject)
		b.statusChanged = true
	}
	if now != nil {
		c.addVerdict(b, spec, now)
	}
}

// addVerdict adds the corrections of one verdict: none unless it is Known.
func (c *Corrector) addVerdict(b *corrections, spec *compiledSpec, v *policy.Verdict) {
	former, ok := spec.takes(v.Version)
	if v.State != policy.Known || !ok {
		return
	}
	for i := range v.Violations {
		x := &v.Violations[i]
		if x.Exempt != "" || x.Remedy == nil {
			continue
		}
		member, ok := c.state.Member(x.Remedy.Target.Member)
		if !ok {
			continue // the member does not exist
		}
		if why := spec.overCeiling(x.Remedy, member); why != "" {
			b.overCeiling[v.Subject] = why
			b.statusChanged = true
			continue
		}
		intent := c.newIntent(spec, v, x, former)
		b.subjects[v.Subject] = append(b.subjects[v.Subject], intent)
		c.insertIntent(b, spec, intent)
	}
}

func (c *Corrector) newIntent(spec *compiledSpec, v *policy.Verdict, x *policy.Violation, former bool) *remediate.Intent {
	i := &remediate.Intent{
		Binding: v.Binding, Message: x.Msg, Source: spec.Source, Commit: spec.Commit, Path: spec.Path, Version: v.Version, Former: former,
		Revision: c.state.Snapshot.Revision(), Subject: v.Subject, Remedy: *x.Remedy,
		Force: spec.Force, ActAs: spec.ActAs, OverrideGitOps: spec.OverrideGitOps, IgnoreOptOut: spec.IgnoreOptOut,
	}
	if former {
		f := &spec.Rollout.Former
		i.Source, i.Commit, i.Path = f.Source, f.Commit, f.Path
	}
	i.Cause = c.causeOf(v.Subject)
	if pkg := c.state.Package(v.Binding); pkg != nil {
		i.Package = packagePath(pkg.Name)
	}
	return i
}

// causeOf returns the change that a subject was evaluated for, or the last one of its object; nil where nothing is traced.
func (c *Corrector) causeOf(s policy.Subject) *tracing.Change {
	if c.tracer == nil {
		return nil
	}
	object := func(r aggregate.Ref) tracing.Object {
		return tracing.Object{Member: r.Member, Kind: string(r.Kind), Namespace: r.Namespace, Name: r.Name}
	}
	if c.changes != nil {
		if cause, ok := c.changes.Cause(s); ok {
			return c.tracer.Cause(uint64(cause.Revision), object(cause.Ref))
		}
	}
	revision := c.state.Snapshot.Revision()
	if o, ok := c.state.Snapshot.Get(s.Ref); ok {
		revision = o.Revision()
	}
	return c.tracer.Cause(uint64(revision), object(s.Ref))
}

// packagePath returns the path of a package, without what names the version of a candidate.
func packagePath(name string) string {
	path, _, _ := strings.Cut(name, "@")
	return path
}

// intentFor returns the one intent for a target.
func (b *corrections) intentFor(ref aggregate.Ref, t *target) remediate.Intent {
	delete(b.contradicting, ref)
	delete(b.deferred, ref)
	if len(t.intents) == 1 {
		return *t.intents[0]
	}
	i, deferred := combine(t.intents)
	i.Parts = distinctParts(t.intents)
	if i.Refused != "" {
		b.contradicting[ref] = i.Refused
	}
	if deferred > 0 {
		b.deferred[ref] = deferred
	}
	return i
}

// insertIntent inserts an intent among those for its target.
func (c *Corrector) insertIntent(b *corrections, spec *compiledSpec, i *remediate.Intent) {
	ref := i.Remedy.Target
	t := b.targets[ref]
	if t == nil {
		t = &target{protected: c.isProtected(spec, ref)}
		b.targets[ref] = t
		if !c.state.Judges(ref.Member) {
			t.basis = c.state.Basis(ref, policy.Basis{})
			b.elsewhere[ref] = t
		}
		c.targetCounts[ref]++
	}
	at, _ := slices.BinarySearchFunc(t.intents, i, compareIntents)
	t.intents = slices.Insert(t.intents, at, i)
	b.count++
	b.countProtected(ref, t, 1)
	b.markChanged(ref)
}

// removeIntent removes an intent from those for its target.
func (c *Corrector) removeIntent(b *corrections, i *remediate.Intent) {
	ref := i.Remedy.Target
	t := b.targets[ref]
	at, found := slices.BinarySearchFunc(t.intents, i, compareIntents)
	if !found {
		panic("enforce: removed an intent that its target does not have")
	}
	t.intents = slices.Delete(t.intents, at, at+1)
	b.count--
	b.countProtected(ref, t, -1)
	b.markChanged(ref)
	if len(t.intents) == 0 {
		delete(b.targets, ref)
		delete(b.elsewhere, ref)
		c.releaseTarget(ref)
	}
}

// recheckTarget updates a target whose object has changed.
func (c *Corrector) recheckTarget(b *corrections, spec *compiledSpec, ref aggregate.Ref, t *target) {
	b.countProtected(ref, t, -len(t.intents))
	t.protected = c.isProtected(spec, ref)
	b.countProtected(ref, t, len(t.intents))
	b.markChanged(ref)
}

func (b *corrections) markChanged(ref aggregate.Ref) {
	if b.changed == nil {
		b.changed = map[aggregate.Ref]bool{}
	}
	b.changed[ref] = true
}

// countProtected counts n more intents for a target, if it is protected.
func (b *corrections) countProtected(ref aggregate.Ref, t *target, n int) {
	if !t.protected {
		return
	}
	if b.protected[ref.Member] += n; b.protected[ref.Member] == 0 {
		delete(b.protected, ref.Member)
	}
}

// isProtected reports whether a policy never writes a target, as far as the index knows.
// Before each write the object is read from the member itself. Of one that another process judges it is known by its name only.
func (c *Corrector) isProtected(spec *compiledSpec, target aggregate.Ref) bool {
	if c.actor.Protected(target, nil) != "" {
		return true
	}
	if spec.IgnoreOptOut {
		return false
	}
	o, ok := c.state.Snapshot.Get(target)
	if !ok {
		return false
	}
	body, err := o.AppendBody(nil)
	if err != nil || !bytes.Contains(body, []byte(api.ProtectKey)) && !bytes.ContainsRune(body, '\\') {
		return false // without decoding most: the key is absent unless written with escapes
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(body, &object) == nil && c.actor.Protected(target, object.Metadata.Annotations) != ""
}
