package rollbackplan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/remediate/rollbackplan"
	"federator.dev/federator/test/seed"
)

var start = time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)

const (
	oneCommit   = "1111111111111111111111111111111111111111"
	otherCommit = "2222222222222222222222222222222222222222"
)

// action returns an Action that has written ConfigMap shop/one of fleet/eu-1 n minutes after
// the start.
func action(name string, n int, change ...func(*v1alpha1.Action)) *v1alpha1.Action {
	at := metav1.NewMicroTime(start.Add(time.Duration(n) * time.Minute))
	a := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ActionSpec{
			Binding: "hosts", Verb: v1alpha1.Patch, Origin: v1alpha1.Origin{Commit: oneCommit}, Generation: "g1",
			Target:     v1alpha1.Target{Member: "fleet/eu-1", APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "one", UID: "u1"},
			BeforeHash: v1alpha1.Digest("before " + name),
		},
		Inverse: &v1alpha1.Inverse{Verb: v1alpha1.Patch, Patch: `{"a":1}`},
		Status:  v1alpha1.ActionStatus{Phase: v1alpha1.PhaseSucceeded, StartedAt: &at, EndedAt: &at},
	}
	for _, f := range change {
		f(a)
	}
	return a
}

func named(name string) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Spec.Target.Name = name }
}

func in(member string) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Spec.Target.MemberUID = member }
}

func phase(p v1alpha1.ActionPhase) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Status.Phase = p }
}

func of(name string) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Spec.RollbackOf = name }
}

func inverse(verb v1alpha1.Verb, kind v1alpha1.Kind) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Inverse.Verb, a.Spec.Target.Kind = verb, kind }
}

func noInverse(a *v1alpha1.Action) { a.Inverse = &v1alpha1.Inverse{Irreversible: "it was a Secret"} }

func withCommit(hash v1alpha1.CommitHash) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Spec.Origin.Commit = hash }
}

func before(hash string) func(*v1alpha1.Action) {
	return func(a *v1alpha1.Action) { a.Spec.BeforeHash = v1alpha1.Digest(hash) }
}

// span selects what was written from one minute until another; 0 is no bound.
func span(since, until int) *v1alpha1.RollbackSpec {
	r := &v1alpha1.RollbackSpec{Policy: "hosts"}
	bound := func(n int) *metav1.Time {
		if n == 0 {
			return nil
		}
		at := metav1.NewTime(start.Add(time.Duration(n) * time.Minute))
		return &at
	}
	r.Since, r.Until = bound(since), bound(until)
	return r
}

// text is what was selected: targets with their Actions, and what was left out.
func text(s *rollbackplan.Selection) string {
	var out []string
	for _, t := range s.Targets {
		line := fmt.Sprintf("%s %s %s", t.Verb, t.Ref.Name, strings.Join(t.Actions, ","))
		if t.Lost != "" {
			line += " lost"
		}
		out = append(out, line)
	}
	for _, l := range s.LeftOut {
		out = append(out, fmt.Sprintf("%s %d %s", l.Reason, l.Actions, l.Action))
	}
	return strings.Join(out, "; ")
}

func TestSelect_NewestFirstAndWhatIsLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		spec    *v1alpha1.RollbackSpec
		actions []*v1alpha1.Action
		want    string
	}{
		"each target, the newest first": {span(1, 0), []*v1alpha1.Action{action("a", 1), action("c", 3, named("two")), action("b", 2)}, "patch one b,a; patch two c"},
		"of the span alone": {
			span(2, 4),
			[]*v1alpha1.Action{action("a", 1), action("b", 2, named("two")), action("c", 3, named("three")), action("d", 4, named("four"))},
			"patch three c; patch two b",
		},
		"not what was written again later": {span(1, 3), []*v1alpha1.Action{action("a", 2), action("b", 4)}, "Overwritten 1 a"},
		"not of another commit": {
			&v1alpha1.RollbackSpec{Policy: "hosts", Commit: otherCommit},
			[]*v1alpha1.Action{action("a", 1), action("b", 2, withCommit(otherCommit)), action("c", 3, withCommit(otherCommit), named("two")), action("d", 4, named("two"))},
			"patch one b; Overwritten 1 c",
		},
		"both": {
			func() *v1alpha1.RollbackSpec { r := span(2, 0); r.Commit = otherCommit; return r }(),
			[]*v1alpha1.Action{action("a", 1, withCommit(otherCommit)), action("b", 2, withCommit(otherCommit), named("two")), action("c", 3, named("three"))},
			"patch two b",
		},
		"not what was rolled back, but what was before it": {
			span(1, 0),
			[]*v1alpha1.Action{action("a", 1), action("b", 2, phase(v1alpha1.PhaseRolledBack)), action("r", 3, of("b"))},
			"patch one a; RolledBack 1 b",
		},
		"not before a rollback that was rolled back": {
			span(1, 0),
			[]*v1alpha1.Action{action("a", 1), action("b", 2, phase(v1alpha1.PhaseRolledBack)), action("r", 3, of("b"), phase(v1alpha1.PhaseRolledBack)), action("s", 4, of("r"))},
			"Overwritten 1 a; RolledBack 1 b",
		},
		"not before a rollback of what is not known": {span(1, 0), []*v1alpha1.Action{action("a", 1), action("r", 3, of("b"))}, "Overwritten 1 a"},
		"not what somebody else has reverted": {
			span(1, 0),
			[]*v1alpha1.Action{action("a", 1, before("0")), action("b", 2, before("x")), action("c", 3, before("x")), action("d", 4, before("x"))},
			"patch one d,a; Reverted 2 b",
		},
		"not what has no inverse": {
			span(1, 0),
			[]*v1alpha1.Action{action("a", 1), action("b", 2, noInverse), action("c", 3, named("two"), noInverse)},
			"Irreversible 2 b; Overwritten 1 a",
		},
		"not what is being written": {span(1, 0), []*v1alpha1.Action{action("a", 1), action("b", 2, phase("")), action("c", 1, named("two"))}, "patch two c; InDoubt 1 b; Overwritten 1 a"},
		"a change of what was made": {span(1, 0), []*v1alpha1.Action{action("a", 1, inverse(v1alpha1.Delete, "ConfigMap")), action("b", 2)}, "delete one b,a"},
		"not of an earlier member of the name": {
			span(1, 0),
			[]*v1alpha1.Action{action("a", 1, in("uid-1")), action("b", 2, in("uid-2")), action("c", 3, in("uid-1"), named("two")), action("d", 4, in("uid-2"), named("two"), noInverse)},
			"patch one b; MemberGone 2 a; Irreversible 1 d",
		},
		"what was deleted": {span(1, 0), []*v1alpha1.Action{action("a", 1, inverse(v1alpha1.Apply, "PersistentVolumeClaim"))}, "apply one a lost"},
		"not what was not written, or of others": {
			span(1, 0),
			[]*v1alpha1.Action{
				action("a", 1, phase(v1alpha1.PhaseFailed)), action("b", 1, func(a *v1alpha1.Action) { a.Spec.Binding = "costs" }),
			},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := rollbackplan.NewGatherer("hosts")
			for _, a := range c.actions {
				g.Add(a)
			}
			if got := text(g.Select(c.spec)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

func TestSelect_CountsWhatCannotBeRestored(t *testing.T) {
	g := rollbackplan.NewGatherer("hosts")
	for _, a := range []*v1alpha1.Action{
		action("a", 1, inverse(v1alpha1.Apply, "PersistentVolumeClaim")), action("b", 1, named("two"), noInverse), action("c", 1, named("three")),
	} {
		g.Add(a)
	}
	s := g.Select(span(1, 0))
	if s.Irreversible() != 2 || s.Actions() != 2 || !s.Generations["g1"] || len(s.Generations) != 1 {
		t.Errorf("%d irreversible, %d Actions, generations %v", s.Irreversible(), s.Actions(), s.Generations)
	}
}

// TestSelect_RestoresWhatWasBefore compares random histories of one target with a model: the
// inverses of what was selected, newest first, lead from the last state to one of before the
// span, or to what somebody else has made of it; and never undo what stays.
func TestSelect_RestoresWhatWasBefore(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Of(t), 1)) // A test's.
	for range 5000 {
		g := rollbackplan.NewGatherer("hosts")
		var history []*v1alpha1.Action
		state, n := "0", 2+random.IntN(7)
		states := []string{state} // before each Action
		for i := range n {
			if random.IntN(4) == 0 {
				state = fmt.Sprint("person ", random.IntN(2))
			}
			a := action(fmt.Sprint("a", i), i+1, before(state))
			states = append(states, state)
			state = fmt.Sprint("written ", random.IntN(3))
			a.Spec.AfterHash = v1alpha1.Digest(state)
			history = append(history, a)
			g.Add(a)
		}
		since := 1 + random.IntN(n)
		s := g.Select(span(since, 0))
		if len(s.Targets) != 1 {
			t.Fatalf("%d targets of %d Actions since %d", len(s.Targets), n, since)
		}
		actions := s.Targets[0].Actions
		if actions[0] != history[n-1].Name {
			t.Fatalf("%s is rolled back first, the newest is %s", actions[0], history[n-1].Name)
		}
		seen := map[string]bool{}
		at := n
		for _, name := range actions {
			i := slices.IndexFunc(history, func(a *v1alpha1.Action) bool { return a.Name == name })
			if i+1 < since || i >= at || seen[name] {
				t.Fatalf("%v since %d of %d", actions, since, n)
			}
			// What is skipped between two had been reverted to where the later one began.
			for k := i + 1; k < at; k++ {
				if at < n && history[k].Spec.BeforeHash != history[at].Spec.BeforeHash {
					t.Fatalf("%s is left out of %v: %v", history[k].Name, actions, states)
				}
			}
			at, seen[name] = i, true
		}
	}
}
