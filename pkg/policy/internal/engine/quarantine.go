package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy/internal/module"
	"federator.dev/federator/pkg/policy/internal/quarantine"
	"federator.dev/federator/pkg/policy/internal/verdict"
)

func isQuarantined(b *boundBinding, s verdict.Subject) bool {
	_, why := b.quarantined(s)
	return why != ""
}

// maxRetries is how often a subject that exceeded the budget is evaluated again without
// a change.
const maxRetries = 3

// countRetry counts that x exceeded the budget, or forgets it.
func countRetry[T comparable](overran map[T]int, x T, over bool) map[T]int {
	if over {
		if overran == nil {
			overran = map[T]int{}
		}
		overran[x]++
		return overran
	}
	delete(overran, x)
	return overran
}

// retrying reports whether subjects that exceeded the budget are to be evaluated again.
func (b *boundBinding) retrying() bool {
	for _, tries := range b.retries {
		if tries <= maxRetries {
			return true
		}
	}
	return false
}

// chargedMember is the member to which the cost of an evaluation is charged: that of the
// subject, or the one that contributed most to a key.
func (b *boundBinding) chargedMember(s verdict.Subject) string {
	if b.pkg.Subject != module.ViewSubject {
		return s.Ref.Member
	}
	sizes, worst := map[string]int64{}, ""
	for e := range b.view.Entries(s.Key) {
		m := e.Object.Ref.Member
		if sizes[m] += e.Size(); worst == "" || sizes[m] > sizes[worst] {
			worst = m
		}
	}
	return worst
}

// quarantined returns the member whose quarantine withholds an evaluation, and why; ""
// if none does.
func (b *boundBinding) quarantined(s verdict.Subject) (member, why string) {
	if !b.scores.NonEmpty() {
		return "", ""
	}
	member = b.chargedMember(s)
	return member, b.scores.Reason(member)
}

// endQuarantines ends expired quarantines and marks what they withheld. Contributions
// are evaluated at once.
func (r *pass) endQuarantines() error {
	now := r.e.opts.Clock()
	for _, v := range r.e.views {
		members := v.scores.Expire(now)
		if len(members) == 0 {
			continue
		}
		var list []aggregate.Object
		for ref := range v.Withheld(members) {
			if o, ok := r.after.Get(ref); ok {
				list = append(list, o)
			}
		}
		if err := r.fill(v, list); err != nil {
			return err
		}
	}
	for _, b := range r.e.bindings {
		members := b.scores.Expire(now)
		if len(members) == 0 {
			continue
		}
		for s := range b.Quarantined(members) {
			if b.pkg.Subject == module.ObjectSubject {
				r.markObject(b, s.Ref)
			} else {
				r.markSubject(b, s)
			}
		}
	}
	return nil
}

// KeptQuarantine is a quarantine of a binding or view, as it outlasts a process.
type KeptQuarantine struct {
	Of     string `json:"of"`
	Digest string `json:"digest"` // of its rules
	quarantine.Kept
}

// restoreQuarantines restores those that an earlier process has left of bindings and views which are new
// to this one.
func (e *Engine) restoreQuarantines(bound []*boundBinding, views []*view) {
	if e.opts.Memory == nil {
		return
	}
	restore := func(of, digest string, scores *quarantine.Scores) {
		for _, k := range e.opts.Memory.Quarantines(of, digest) {
			scores.Restore(k.Kept, e.opts.Clock()) // also of members that are not known yet
		}
	}
	for _, v := range views {
		restore(v.owner(), e.fingerprints[v.Pkg.Name], v.scores)
	}
	for _, b := range bound {
		restore(b.owner(), e.digest(b), &b.scores)
	}
}

// Quarantines returns what is to outlast the process. It belongs to the goroutine of Apply.
func (e *Engine) Quarantines() []KeptQuarantine {
	var out []KeptQuarantine
	now := e.opts.Clock()
	for _, v := range e.views {
		for _, k := range v.scores.Kept(now) {
			out = append(out, KeptQuarantine{v.owner(), e.fingerprints[v.Pkg.Name], k})
		}
	}
	for _, b := range e.bindings {
		for _, k := range b.scores.Kept(now) {
			out = append(out, KeptQuarantine{b.owner(), e.digest(b), k})
		}
	}
	return out
}

func (v *view) owner() string { return "view " + v.Pkg.Name + " " + v.Def.Name }

func (b *boundBinding) owner() string {
	if b.former != nil {
		return "next binding " + b.Name
	}
	return "binding " + b.Name
}

// digest returns a digest of all that the verdicts of a binding follow from, objects aside.
func (e *Engine) digest(b *boundBinding) string {
	if b.digest == "" {
		own := b.Binding
		own.Mode, own.Package = "", b.pkg.Path()
		spec, err := json.Marshal(own)
		if err != nil {
			panic(err) // it was read from JSON
		}
		sum := sha256.Sum256(append([]byte(e.set.Digest(b.Package)), spec...))
		b.digest = hex.EncodeToString(sum[:])
	}
	return b.digest
}
