package policy_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/internal/module"
)

// step is ops that reach the engine as one batch, or what replaces its policies.
type step struct {
	Ops       []op
	Passes    int64 // seconds before it, which are negative where the clock is set back
	Configure bool
	Set       int
	Bindings  []policy.Binding
	Reset     bool
	Documents *worldDocuments // from outside, from now on; nil: as before
}

// history is what happens to a fleet and to the policies about it.
type history struct {
	Seed  uint64
	Start int64  // of the clock
	Steps []step // the first one's policies are the engine's first
}

func (h *history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d:\n", h.Seed)
	for i, s := range h.Steps {
		fmt.Fprintf(&b, "step %d, after %d s:\n", i, s.Passes)
		for _, o := range s.Ops {
			fmt.Fprintf(&b, "  %s\n", o)
		}
		if s.Reset {
			b.WriteString("  reset\n")
		}
		b.WriteString(s.Documents.line())
		if s.Configure {
			text, _ := canonical(s.Bindings)
			fmt.Fprintf(&b, "  policies %d, bindings %s\n", s.Set, text)
		}
	}
	return b.String()
}

func randomSelector(r *rand.Rand) policy.MemberSelector {
	switch r.IntN(6) {
	case 0:
		return policy.MemberSelector{Names: []string{pick(r, "fleet/a", "fleet/[ab]", "fleet/nobody", "*/c")}}
	case 1:
		return policy.MemberSelector{Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"region": pick(r, "eu", "us")}}}
	}
	return policy.MemberSelector{}
}

// randomBinding returns a binding of a package.
func (l *land) binding(r *rand.Rand, pkg *policy.Package) policy.Binding {
	b := policy.Binding{Name: pkg.Name, Package: pkg.Name, Members: randomSelector(r), Visibility: randomSelector(r)}
	if r.IntN(5) == 0 {
		s := randomSelector(r)
		b.Tolerate = &s
	}
	objects := pkg.Subject == module.ObjectSubject
	switch r.IntN(6) {
	case 0:
		b.Match.Namespaces = []string{pick(r, "shop", "p*", "")}
	case 1:
		b.Match.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"owner": pick(r, "shop", "pay")}}
	}
	if pkg.Subject == module.MemberSubject {
		b.Match = policy.Match{} // which is refused
	}
	if r.IntN(4) == 0 {
		e := policy.Exemption{Reason: "agreed"}
		if pkg.Subject != module.ViewSubject {
			e.Members = randomSelector(r)
		}
		switch n := r.IntN(4); {
		case n == 0:
			e.Names = []string{pick(r, "web", "shop", "fleet/a", "*")}
		case n == 1 && objects:
			e.Namespaces = []string{"shop"}
		case n == 2 && objects:
			e.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "shop"}}
		}
		b.Exemptions = []policy.Exemption{e}
	}
	if _, required := pkg.Parameters.Resolve(nil); len(required) > 0 || pkg.Parameters != nil && r.IntN(2) == 0 {
		b.Parameters = l.parameters(r, pkg)
	}
	return b
}

// bindings bind the policies that a history is about: some, so that it is quick.
func (l *land) bindings(r *rand.Rand, set *policy.Set, chosen []string) []policy.Binding {
	var bindings []policy.Binding
	for _, name := range chosen {
		pkg := set.Package(name)
		if pkg == nil || r.IntN(6) == 0 {
			continue
		}
		b := l.binding(r, pkg)
		bindings = append(bindings, b)
		if r.IntN(6) == 0 {
			b = l.binding(r, pkg)
			b.Name += ".again"
			bindings = append(bindings, b)
		}
	}
	return bindings
}

// happening is an op, and what comes with it.
func (l *land) happening(r *rand.Rand) []op {
	ops := []op{l.op(r)}
	if o := ops[0]; o.Do == "join" { // with what a member has
		ops = append(ops, l.open(o.Member, func() aggregate.State { return aggregate.Synced })...)
	}
	return ops
}

func (l *land) history(seed uint64, sets []policySet) *history {
	if l.write != nil {
		return l.write(seed)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	h := &history{Seed: seed, Start: cmp.Or(l.start, worldStart)}
	at := r.IntN(len(sets))
	var chosen []string
	for _, p := range sets[at].set.Packages {
		if len(l.packages) == 0 || slices.Contains(l.packages, p.Name) {
			chosen = append(chosen, p.Name)
		}
	}
	r.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:min(len(chosen), 2+r.IntN(3))]
	h.Steps = append(h.Steps, step{Ops: l.populate(r), Configure: true, Set: at, Bindings: l.bindings(r, sets[at].set, chosen)})
	for range 2 + r.IntN(6) {
		var s step
		ops := 1 + r.IntN(3)
		if l.passes != nil {
			s.Passes = l.passes(r)
			ops *= r.IntN(2) // or only time passes
		}
		for range ops {
			s.Ops = append(s.Ops, l.happening(r)...)
		}
		if r.IntN(12) == 0 {
			s.Ops = append(s.Ops, l.crowd(r)...)
		}
		l.outside(r, &s)
		switch r.IntN(12) {
		case 0:
			if len(sets) == 3 { // variants of one
				at = r.IntN(len(sets))
			}
			s.Configure, s.Set, s.Bindings = true, at, l.bindings(r, sets[at].set, chosen)
		case 1:
			s.Reset = true
		}
		h.Steps = append(h.Steps, s)
	}
	return h
}

// differs is a difference between the engine and the oracle.
var errDiffers = errors.New("the engine differs")

// play lets a history happen and holds the engine to the oracle after each step.
func (h *history) play(ctx context.Context, sets []policySet, oracles []*oracle, seen *tally) error {
	w, err := newWorld()
	if err != nil {
		return err
	}
	first := h.Steps[0]
	set, bindings := first.Set, first.Bindings
	clock, now := h.Start, moment{}
	engine, err := policy.NewEngine(policy.EngineOptions{
		Set: sets[set].set, Bindings: bindings, Parallelism: 1, Limits: oracleLimits,
		Clock: func() time.Time { return time.Unix(clock, 0) },
	})
	if err != nil {
		return err
	}
	defer func() { seen.shared.Add(engine.Stats().Memoized) }()
	cursor := w.index.Cursor(nil)
	reported := map[string]textVerdict{}
	found, recorded := since{}, map[string]map[policy.Seen]bool{}
	for i, s := range h.Steps {
		clock += s.Passes
		for _, o := range s.Ops {
			if err := w.do(o); err != nil {
				return fmt.Errorf("step %d: %s: %w", i, o, err)
			}
		}
		batch, some := cursor.Poll()
		var all []*policy.Changes
		pass := func(changes *policy.Changes, err error) error {
			if err != nil || changes == nil {
				return err
			}
			all = append(all, changes)
			record(recorded, changes)
			return found.follow(engine.State(), bindings, recorded)
		}
		switch {
		case !some && i > 0 && !s.Reset:
			err = pass(h.advance(ctx, engine, oracles[set], bindings, now, clock))
		case engine.State() == nil || s.Reset:
			err = pass(engine.Reset(ctx, w.index.Snapshot(), nil))
		default:
			err = pass(engine.Apply(ctx, batch, nil))
		}
		if err == nil && s.Documents != nil {
			now.documents = s.Documents
			err = pass(engine.SetExternal(ctx, s.Documents.external()))
		}
		if err == nil && s.Configure && i > 0 {
			set, bindings = s.Set, s.Bindings
			err = pass(h.configure(ctx, engine, sets[set].set, bindings, len(all) > 0))
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		for _, changes := range all {
			applyChanges(reported, changes)
		}
		if len(all) > 0 {
			now = now.at(clock)
		}
		if got := engine.State().AsOf.Unix(); got != now.asOf {
			return fmt.Errorf("step %d: %w: it is as of %d, not %d", i, errDiffers, got, now.asOf)
		}
		former, next, err := oracles[set].versions(ctx, w.index.Snapshot(), bindings, now)
		if err != nil {
			return fmt.Errorf("step %d: oracle: %w", i, err)
		}
		want := inEffect(w.index.Snapshot(), bindings, former, next)
		seen.add(want)
		if err := agreeOnVersions(engine.State(), bindings, former, next); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err := agree(engine.State(), bindings, want, reported); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func textOf(v policy.Verdict) textVerdict {
	if v.State == policy.Error {
		return textVerdict{state: v.State}
	}
	var texts []string
	for _, x := range v.Violations {
		m := map[string]any{"msg": x.Msg}
		if x.Details != nil {
			m["details"] = x.Details
		}
		if x.Exempt != "" {
			m["exempt"] = x.Exempt
		}
		if r := x.Remedy; r != nil {
			remedy := map[string]any{"action": r.Action, "target": refJSON(r.Target)}
			if r.Object != nil {
				remedy["object"] = r.Object
			}
			if r.Patch != nil {
				remedy["patch"] = r.Patch
			}
			m["remedy"] = remedy
		}
		text, err := canonical(m)
		if err != nil {
			return textVerdict{policy.Error, err.Error()}
		}
		texts = append(texts, string(text))
	}
	slices.Sort(texts)
	return textVerdict{v.State, strings.Join(texts, "\n")}
}

// applyChanges applies changes to the verdicts reported so far.
func applyChanges(reported map[string]textVerdict, changes *policy.Changes) {
	for c := range changes.All() {
		v := c.After
		if v == nil {
			delete(reported, c.Before.Binding+" | "+c.Before.Subject.String())
			continue
		}
		at := v.Binding + " | " + v.Subject.String()
		if delete(reported, at); !v.Clean() {
			reported[at] = textOf(*v)
		}
	}
}

// agree holds a state to what the oracle says, and to the changes it has reported.
func agree(s *policy.State, bindings []policy.Binding, want, reported map[string]textVerdict) error {
	got, unclean := map[string]textVerdict{}, map[string]textVerdict{}
	for _, b := range bindings {
		var counts policy.Counts
		for v := range s.Verdicts(b.Name, "") {
			at := v.Binding + " | " + v.Subject.String()
			got[at] = textOf(v)
			if !v.Clean() {
				unclean[at] = got[at]
			}
			switch v.State {
			case policy.Known:
				counts.Known++
			case policy.Unknown:
				counts.Unknown++
			case policy.Error:
				counts.Errors++
			}
			for _, x := range v.Violations {
				if x.Exempt != "" {
					counts.Exempt++
				} else {
					counts.Violations++
				}
			}
			if one, ok := s.Get(b.Name, v.Subject); !ok || textOf(one) != got[at] {
				return fmt.Errorf("%w: Get of %s is %v", errDiffers, at, one)
			}
		}
		if total := s.Total(b.Name); total != counts {
			return fmt.Errorf("%w: %s counts %+v, it has %+v", errDiffers, b.Name, total, counts)
		}
		for v := range s.Findings(b.Name, "") {
			delete(unclean, v.Binding+" | "+v.Subject.String())
		}
		for at, v := range unclean {
			if v.violations != "" {
				return fmt.Errorf("%w: %s is not among the findings", errDiffers, at)
			}
		}
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("%w:\n%s", errDiffers, difference(got, want))
	}
	for at, v := range got {
		if clean := v.state != policy.Error && v.violations == ""; clean {
			delete(got, at)
		}
	}
	if reported == nil {
		return nil
	}
	// An Error of all verdicts of a binding is reported once, as its health.
	maps.DeleteFunc(reported, func(_ string, v textVerdict) bool { return v.state == policy.Error })
	maps.DeleteFunc(got, func(_ string, v textVerdict) bool { return v.state == policy.Error })
	if !maps.Equal(got, reported) {
		return fmt.Errorf("%w: by its changes:\n%s", errDiffers, difference(reported, got))
	}
	return nil
}

func difference(got, want map[string]textVerdict) string {
	var b strings.Builder
	keys := slices.Sorted(maps.Keys(want))
	for k := range got {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		g, inGot := got[k]
		w, inWant := want[k]
		if g != w || inGot != inWant {
			fmt.Fprintf(&b, "%s:\n got %v %v %s\nwant %v %v %s\n", k, inGot, g.state, g.violations, inWant, w.state, w.violations)
		}
	}
	return b.String()
}

func number(t *testing.T, name string, def int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// playAll plays random histories in parallel, the same in every run, so that a
// change is blamed for what it breaks only. FEDERATOR_HISTORIES plays as many others,
// FEDERATOR_SEED one.
func (l *land) playAll(t *testing.T, n int, setsOf func(seed uint64) ([]policySet, []*oracle)) {
	t.Helper()
	if testing.Short() {
		n = max(1, n/50)
	}
	many := n >= 400 // enough to show every kind of verdict
	base := uint64(1)
	if others := number(t, "FEDERATOR_HISTORIES", 0); others > 0 {
		base, n = rand.Uint64N(1<<40), max(1, others/max(1, l.share))
	}
	if seed := number(t, "FEDERATOR_SEED", -1); seed >= 0 {
		base, n = uint64(seed), 1 // It is not negative.
	}
	t.Logf("%d histories from seed %d", n, base)
	var wg sync.WaitGroup
	var seen tally
	jobs := make(chan uint64)
	for range 2 {
		wg.Go(func() {
			for seed := range jobs {
				if t.Failed() {
					continue
				}
				sets, oracles := setsOf(seed)
				if sets == nil {
					continue
				}
				h := l.history(seed, sets)
				play := func(h *history) error { return h.play(t.Context(), sets, oracles, &seen) }
				if err := play(h); err != nil {
					least := shrink(h, func(h *history) bool { return errors.Is(play(h), errDiffers) })
					t.Errorf("%v\n%v\nat first: %v", least, play(least), err)
				}
			}
		})
	}
	for i := range n {
		jobs <- base + uint64(i) // It is not negative.
	}
	close(jobs)
	wg.Wait()
	t.Logf("verdicts: %d clean, %d with violations, %d Unknown, %d Errors", seen.clean.Load(), seen.found.Load(), seen.unknown.Load(), seen.errors.Load())
	t.Logf("%d evaluations took over what was found for a twin", seen.shared.Load())
	if many && n >= 400 && seen.shared.Load() < int64(n/20) {
		t.Error("the histories have hardly any objects that are alike")
	}
	if many && n >= 400 && (seen.clean.Load() == 0 || seen.found.Load() == 0 || seen.unknown.Load() == 0 || seen.errors.Load() == 0) {
		t.Error("the histories do not show every kind of verdict")
	}
}

// tally counts what the oracle says, and the evaluations that the engine shared, so
// that a history of nothing shows.
type tally struct{ clean, found, unknown, errors, shared atomic.Int64 }

func (c *tally) add(verdicts map[string]textVerdict) {
	for _, v := range verdicts {
		switch {
		case v.state == policy.Error:
			c.errors.Add(1)
		case v.state == policy.Unknown:
			c.unknown.Add(1)
		case v.violations != "":
			c.found.Add(1)
		default:
			c.clean.Add(1)
		}
	}
}

// TestEngine_EqualsFullEvaluation plays histories of policies that between them
// read everything in every way.
func TestEngine_EqualsFullEvaluation(t *testing.T) {
	t.Parallel()
	sets, err := oracleSets()
	if err != nil {
		t.Fatal(err)
	}
	var oracles []*oracle
	for _, s := range sets {
		o, err := newOracle(s)
		if err != nil {
			t.Fatal(err)
		}
		oracles = append(oracles, o)
	}
	small.playAll(t, 400, func(uint64) ([]policySet, []*oracle) { return sets, oracles })
}
