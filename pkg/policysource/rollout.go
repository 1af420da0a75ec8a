package policysource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/policy"
)

// rolloutTerms say how the newest commit of a source rolls out.
type rolloutTerms struct {
	rollout                     bool
	promoted                    string
	takenBack, takenBackMessage string
	begun                       string
	active                      string // that is active on the hub, or was before a restart
}

func termsOf(s Source) rolloutTerms {
	return rolloutTerms{s.Rollout, s.Promoted, s.TakenBack, s.TakenBackMessage, s.Begun, s.LastGood}
}

// setTerms has the runner act on other terms.
func (r *runner) setTerms(t rolloutTerms) {
	if was := r.terms.Swap(&t); *was != t {
		r.changed.Fire()
	}
}

// reconsider decides again on the pending commit, without a look at the remote.
func (r *runner) reconsider(ctx context.Context) {
	if r.pending == nil || r.m.slots.Acquire(ctx, 1) != nil {
		return
	}
	defer r.m.slots.Release(1)
	failures := r.failures
	r.evaluate(ctx, func(*Status, time.Duration) {})
	r.failures = failures // of the remote, which has not been asked
}

// decide returns what becomes of the pending commit, whose gates were run with st.
func (r *runner) decide(st *State, terms *rolloutTerms) *gateResult {
	v := r.result
	if v.phase != Active {
		return v
	}
	c := &v.candidate
	if pkg, owner := st.takenByCandidate(c); pkg != "" {
		return v.instead(rejection(Compile, "PackageTaken", "commit %s: package %s is that of a commit of source %q, which rolls out", c.Commit.Hash, pkg, owner))
	}
	// Whatever asks for rollouts now: what was taken back was found to be wrong.
	if terms.takenBack == c.Commit.Hash {
		return v.instead(rejection(Rollout, ReasonTakenBack, "commit %s was taken back: %s", c.Commit.Hash, shorten(terms.takenBackMessage)))
	}
	if !terms.rollout {
		return v
	}
	if terms.promoted == c.Commit.Hash || terms.active == c.Commit.Hash {
		return v.warnOfOthers(st.Set)
	}
	p, replaces := st.Policies[r.spec.Name]
	differ := differing(st.Set, c.Set, r.spec.Name)
	if !replaces && terms.active == "" || len(differ) == 0 { // the first commit of the source
		return v
	}
	v = v.warnOfOthers(st.Set)
	stays := "commit " + p.Commit.Hash + " stays active until then"
	if !replaces {
		stays = "commit " + terms.active + ", which was active, cannot be read any more"
	}
	out := v.instead(rejection(Rollout, ReasonInRollout, "commit %s passes all gates and rolls out: %s", c.Commit.Hash, stays))
	out.rollingOut = &RollingOut{Commit: c.Commit, Line: r.line, Set: c.Set, Packages: differ, Tree: c.Tree}
	return out
}

// warnOfOthers returns the result with a warning where policies of other sources read views that the commit changes: they take those
// at once when it becomes active, and nobody has judged it before.
func (v *gateResult) warnOfOthers(active *policy.Set) *gateResult {
	const named = 10
	c := &v.candidate
	var uses []string
	for _, p := range c.Set.Packages {
		if was := active.Package(p.Name); p.Source == c.Source || was == nil || was.Source != p.Source || active.Digest(p.Name) == c.Set.Digest(p.Name) {
			continue
		}
		uses = append(uses, p.Name)
	}
	if len(uses) == 0 {
		return v
	}
	more := ""
	if n := len(uses) - named; n > 0 {
		uses, more = uses[:named], fmt.Sprintf(" and %d more", n)
	}
	out := *v
	out.findings = limitFindings(append([]policy.Finding{{
		Code: "rollout-others", Severity: policy.SeverityWarning,
		Message: fmt.Sprintf("packages of other sources read views that the commit changes, and take these at once when it is active, without a rollout: %s%s", strings.Join(uses, ", "), more),
	}}, v.findings...))
	return &out
}

// instead returns another result for a candidate that has passed the gates.
func (v *gateResult) instead(of *gateResult) *gateResult {
	of.candidate, of.findings, of.diff = v.candidate, v.findings, v.diff
	return of
}

// rollOut makes the pending commit a candidate, beside the active one. That goes on to be
// enforced: the newest commit is good so far. A commit of another repository, or that other
// keys have signed, does not.
func (r *runner) rollOut(st *State, v *gateResult, note func(*Status)) bool {
	name := r.spec.Name
	candidates := maps.Clone(st.Candidates)
	next := *v.rollingOut
	if !r.m.opts.Shared {
		next.Former = candidates[name].replaces(next.Commit.Hash)
	}
	candidates[name] = next
	same := r.m.sameOrigin(r.source)
	var before, after Status
	if !r.m.publish(st, st.Set, candidates, func(out *State) {
		before, after = out.set(name, func(s *Status, p *Policies) {
			v.applyTo(s)
			s.Line = r.line
			p.Current = same
			note(s)
		})
	}) {
		return false
	}
	r.m.opts.logChange(before, after)
	return true
}

// withdraw is update for a source of which no commit rolls out any more. Only who runs the source, or
// has ended that, may call it.
func (m *Manager) withdraw(name string, change func(*Status, *Policies)) {
	for {
		st := m.State()
		if _, ok := st.Candidates[name]; !ok {
			m.update(name, change)
			return
		}
		var before, after Status
		if m.publish(st, st.Set, st.without(name), func(out *State) { before, after = out.set(name, change) }) {
			m.opts.logChange(before, after)
			return
		}
	}
}

// without returns the candidates of all sources but one.
func (s *State) without(source string) map[string]RollingOut {
	if _, ok := s.Candidates[source]; !ok {
		return s.Candidates
	}
	out := maps.Clone(s.Candidates)
	delete(out, source)
	return out
}

// takenByCandidate returns a package of a candidate that another source's candidate has, too,
// and that source.
func (s *State) takenByCandidate(c *Candidate) (pkg, owner string) {
	for _, source := range slices.Sorted(maps.Keys(s.Candidates)) {
		if source == c.Source {
			continue
		}
		other := s.Candidates[source]
		for _, pkg := range other.Packages {
			if theirs, ours := other.Set.Package(pkg), c.Set.Package(pkg); theirs != nil && ours != nil && ours.Source == c.Source {
				return pkg, source
			}
		}
	}
	return "", ""
}

// besides returns a set with the packages of candidates beside it.
func besides(set *policy.Set, candidates map[string]RollingOut) *policy.Set {
	if len(candidates) == 0 {
		return set
	}
	var list []policy.Candidate
	for _, source := range slices.Sorted(maps.Keys(candidates)) {
		c := policy.Candidate{Source: source, Set: candidates[source].Set}
		for _, former := range candidates[source].Former {
			c.Former = append(c.Former, former.Set)
		}
		list = append(list, c)
	}
	return policy.Beside(set, list)
}

// differing returns the packages of a source that are not the same in two sets, or are not applied in
// the same way, by name.
func differing(active, candidate *policy.Set, source string) []string {
	names := slices.Concat(packages(active, source), packages(candidate, source))
	slices.Sort(names)
	beside := policy.Beside(active, []policy.Candidate{{Source: source, Set: candidate}})
	return slices.DeleteFunc(slices.Compact(names), func(pkg string) bool {
		return active.Digest(pkg) == candidate.Digest(pkg) && beside.Candidate(pkg) == ""
	})
}
