package plans_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

func digest(c string) v1alpha1.Digest { return v1alpha1.Digest(strings.Repeat(c, 64)) }

func spec() v1alpha1.PlanSpec {
	return v1alpha1.PlanSpec{
		Policy: "no-latest", Purpose: v1alpha1.PlanGeneration, Generation: strings.Repeat("a", 32),
		Digests: v1alpha1.PlanDigests{Package: digest("1"), Parameters: digest("2"), Spec: digest("3")},
	}
}

// randomTargets returns n targets of a few members and kinds, each of another object, in no order.
func randomTargets(r *rand.Rand, n int) []plans.Target {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	texts := []string{"", "", "plain", "<a & \"b\" \\ \u2028 \x00>\n- é", strings.Repeat("long \"", 80)}
	out := make([]plans.Target, n)
	for i := range out {
		member := r.IntN(4)
		out[i] = plans.Target{
			MemberUID: fmt.Sprintf("uid-%d", member),
			Ref: policy.Ref{
				Member: fmt.Sprintf("fleet/eu-%d", member), Kind: policy.Kind(pick("Deployment.apps", "ConfigMap", "Namespace")),
				Namespace: pick("", "shop", "web"), Name: fmt.Sprintf("%s-%d", pick("a", "z", strings.Repeat("n", r.IntN(200))), i),
			},
			APIVersion: pick("v1", "apps/v1"), UID: pick("", fmt.Sprint("u", i)), Verb: v1alpha1.Verb(pick("apply", "patch", "delete")), Remedy: digest(pick("a", "b")),
			Irreversible: pick(texts...), Diff: pick(texts...), DryRun: v1alpha1.DryRunAnswer(pick("", "Passed", "Refused")), Message: pick(texts...),
		}
	}
	return out
}

func build(t testing.TB, s v1alpha1.PlanSpec, targets []plans.Target) (*v1alpha1.Plan, []v1alpha1.PlanPart) {
	t.Helper()
	plan, parts, err := plans.Build(s, targets)
	if err != nil {
		t.Fatal(err)
	}
	var out []v1alpha1.PlanPart
	for _, p := range parts {
		out = append(out, *p)
	}
	return plan, out
}

// hashed is what a digest is over, of a target.
func hashed(t plans.Target) plans.Target {
	t.Diff, t.Message, t.DryRun = "", "", ""
	if t.Irreversible != "" {
		t.Irreversible = "yes"
	}
	return t
}

func byRef(targets []plans.Target) map[policy.Ref]plans.Target {
	out := map[policy.Ref]plans.Target{}
	for _, t := range targets {
		out[t.Ref] = t
	}
	return out
}

// TestBuild_RoundTrips: what was planned is what is decoded, whatever the order of targets and
// parts, and after the journey through JSON; nothing is changed that was given.
func TestBuild_RoundTrips(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		targets := randomTargets(r, r.IntN(60))
		given := slices.Clone(targets)
		plan, parts := build(t, spec(), targets)
		if !slices.Equal(targets, given) {
			t.Fatalf("seed %d: Build has changed its targets", seed)
		}
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		stored := &v1alpha1.Plan{}
		if err := json.Unmarshal(text, stored); err != nil {
			t.Fatal(err)
		}
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		got, err := plans.Decode(stored, parts)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want, diffs := byRef(targets), 0
		for _, g := range got {
			w := want[g.Ref]
			if hashed(g) != hashed(w) || g.DryRun != w.DryRun || w.Message == "plain" && g.Message != w.Message || g.Key() != w.Key() {
				t.Fatalf("seed %d: decoded %+v, not %+v", seed, g, w)
			}
			if g.Diff != "" {
				diffs++
			}
			if w.Diff == "" && g.Diff != "" || w.Diff == "plain" && g.Diff != "" && g.Diff != "plain" {
				t.Fatalf("seed %d: diff %q, not %q", seed, g.Diff, w.Diff)
			}
		}
		had := 0
		for _, w := range targets {
			if w.Diff != "" {
				had++
			}
		}
		if len(got) != len(targets) || diffs != min(had, 20) {
			t.Fatalf("seed %d: %d targets of %d, %d diffs of %d", seed, len(got), len(targets), diffs, had)
		}
		again, moreParts := build(t, spec(), got)
		r.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		shuffled, shuffledParts := build(t, spec(), got)
		if !reflect.DeepEqual(again, plan) || !reflect.DeepEqual(shuffled, plan) || !reflect.DeepEqual(shuffledParts, moreParts) {
			t.Fatalf("seed %d: the same targets make another Plan", seed)
		}
	}
}

// TestBuild_HashIsOverWhatPasses changes one field of one target at a time.
func TestBuild_HashIsOverWhatPasses(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*plans.Target){
		"member UID": func(t *plans.Target) { t.MemberUID += "x" }, "member": func(t *plans.Target) { t.Ref.Member += "x" },
		"kind": func(t *plans.Target) { t.Ref.Kind += "x" }, "namespace": func(t *plans.Target) { t.Ref.Namespace += "x" },
		"name": func(t *plans.Target) { t.Ref.Name += "x" }, "API version": func(t *plans.Target) { t.APIVersion += "x" },
		"UID": func(t *plans.Target) { t.UID += "x" }, "remedy": func(t *plans.Target) { t.Remedy = digest("c") },
		"verb": func(t *plans.Target) {
			t.Verb = map[v1alpha1.Verb]v1alpha1.Verb{"apply": "patch", "patch": "delete", "delete": "apply"}[t.Verb]
		},
		"irreversible": func(t *plans.Target) {
			if t.Irreversible != "" {
				t.Irreversible = ""
			} else {
				t.Irreversible = "it is gone"
			}
		},
		// A field's end is no part of the next one.
		"boundary": func(t *plans.Target) {
			if n := len(t.Ref.Namespace); n > 0 {
				t.Ref.Name, t.Ref.Namespace = t.Ref.Namespace[n-1:]+t.Ref.Name, t.Ref.Namespace[:n-1]
			} else {
				t.Ref.Namespace, t.Ref.Name = t.Ref.Name[:1], t.Ref.Name[1:]
			}
		},
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		targets := randomTargets(r, 1+r.IntN(20))
		plan, _ := build(t, spec(), targets)
		hashes := map[v1alpha1.Digest]string{plan.Spec.Hash: "nothing"}
		i := r.IntN(len(targets))
		for name, change := range changes {
			other := slices.Clone(targets)
			change(&other[i])
			got, _ := build(t, spec(), other)
			if same, ok := hashes[got.Spec.Hash]; ok {
				t.Fatalf("seed %d: the hash is the same with another %s as with %s", seed, name, same)
			}
			hashes[got.Spec.Hash] = name
			sameKey := name == "UID" || name == "API version" || name == "irreversible"
			if (other[i].Key() == targets[i].Key()) != sameKey {
				t.Fatalf("seed %d: with another %s the key is the same: %t", seed, name, !sameKey)
			}
		}
		if less, _ := build(t, spec(), targets[1:]); hashes[less.Spec.Hash] != "" {
			t.Fatalf("seed %d: the hash is the same with one target less", seed)
		}
		shown := slices.Clone(targets)
		shown[i].Diff, shown[i].Message, shown[i].DryRun = "other", "other", v1alpha1.DryRunContended
		if shown[i].Irreversible != "" {
			shown[i].Irreversible = "in other words"
		}
		if got, _ := build(t, spec(), shown); got.Spec.Hash != plan.Spec.Hash || got.Name != plan.Name || shown[i].Key() != targets[i].Key() {
			t.Fatalf("seed %d: the hash depends on what is only shown", seed)
		}
	}
}

// TestBuild_HashIsOverThePurpose changes one field of the spec at a time.
func TestBuild_HashIsOverThePurpose(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	halt := func(id string, reason v1alpha1.HaltReason, over ...v1alpha1.Budget) func(*v1alpha1.PlanSpec) {
		return func(s *v1alpha1.PlanSpec) {
			s.Purpose, s.Halt = v1alpha1.PlanHalt, &v1alpha1.PlannedHalt{ID: id, Reason: reason, Over: over}
		}
	}
	rollback := func(r v1alpha1.PlannedRollback) func(*v1alpha1.PlanSpec) {
		return func(s *v1alpha1.PlanSpec) { s.Purpose, s.Rollback = v1alpha1.PlanRollback, &r }
	}
	amends := func(name string) func(*v1alpha1.PlanSpec) {
		return func(s *v1alpha1.PlanSpec) { s.Purpose, s.Amends = v1alpha1.PlanAmendment, name }
	}
	hashes := map[v1alpha1.Digest]int{}
	for n, change := range []func(*v1alpha1.PlanSpec){
		func(*v1alpha1.PlanSpec) {},
		func(s *v1alpha1.PlanSpec) { s.Policy = "other" },
		func(s *v1alpha1.PlanSpec) { s.Purpose = v1alpha1.PlanDryRun },
		func(s *v1alpha1.PlanSpec) { s.Digests.Package = digest("9") },
		func(s *v1alpha1.PlanSpec) { s.Digests.Parameters = digest("9") },
		func(s *v1alpha1.PlanSpec) { s.Digests.Spec = digest("9") },
		amends("a"), amends("b"),
		halt("1", v1alpha1.OverLimit), halt("2", v1alpha1.OverLimit), halt("1", v1alpha1.Fighting),
		halt("1", v1alpha1.OverLimit, v1alpha1.Budget{Scope: "Policy", Targets: 5}), halt("1", v1alpha1.OverLimit, v1alpha1.Budget{Scope: "Policy", Targets: 6}),
		rollback(v1alpha1.PlannedRollback{Since: &since}), rollback(v1alpha1.PlannedRollback{Since: &since, Until: &since}),
		rollback(v1alpha1.PlannedRollback{Commit: "c"}), rollback(v1alpha1.PlannedRollback{Commit: "c", By: "jo"}), rollback(v1alpha1.PlannedRollback{Commit: "c", Reason: "r"}),
	} {
		s := spec()
		change(&s)
		plan, parts := build(t, s, randomTargets(rand.New(rand.NewPCG(1, 1)), 3))
		if plan.Name != string(s.Policy)+"-"+string(plan.Spec.Hash[:16]) || parts[0].Name != plan.Name+"-1" || parts[0].Spec.Plan != plan.Name {
			t.Errorf("change %d: Plan %q with part %q", n, plan.Name, parts[0].Name)
		}
		if other, ok := hashes[plan.Spec.Hash]; ok {
			t.Errorf("the hashes of changes %d and %d are the same", n, other)
		}
		hashes[plan.Spec.Hash] = n
	}
	s := spec()
	s.Authors, s.AuthorsProven, s.Origin = []v1alpha1.UserName{"jo"}, true, &v1alpha1.Origin{Source: "git", Commit: "c"}
	s.Hash, s.Digests.Targets, s.Targets, s.Parts, s.Irreversible = "stale", "stale", 77, 77, 77
	plan, parts := build(t, s, randomTargets(rand.New(rand.NewPCG(1, 1)), 3))
	if n, ok := hashes[plan.Spec.Hash]; !ok || n != 0 {
		t.Error("the hash depends on more than it is said to")
	}
	if _, err := plans.Decode(plan, parts); err != nil {
		t.Error(err)
	}
}

func TestBuild_Counts(t *testing.T) {
	t.Parallel()
	var targets []plans.Target
	add := func(member, kind string, verb v1alpha1.Verb, n int) {
		for range n {
			targets = append(targets, plans.Target{
				MemberUID: "u-" + member, Ref: policy.Ref{Member: member, Kind: policy.Kind(kind), Name: fmt.Sprint("o", len(targets))}, Verb: verb, Remedy: digest("a"),
			})
		}
	}
	add("f/b", "ConfigMap", v1alpha1.Patch, 2)
	add("f/a", "ConfigMap", v1alpha1.Patch, 2)
	add("f/a", "ConfigMap", v1alpha1.Delete, 2)
	add("f/a", "Namespace", v1alpha1.Apply, 3)
	targets[0].Irreversible = "it is"
	plan, _ := build(t, spec(), targets)
	want := []v1alpha1.PlanCount{
		{Member: "f/a", Kind: "Namespace", Verb: "apply", Targets: 3},
		{Member: "f/a", Kind: "ConfigMap", Verb: "delete", Targets: 2},
		{Member: "f/a", Kind: "ConfigMap", Verb: "patch", Targets: 2},
		{Member: "f/b", Kind: "ConfigMap", Verb: "patch", Targets: 2},
	}
	if s := plan.Spec; !slices.Equal(s.Counts, want) || s.CountsOmitted != 0 || s.Targets != 9 || s.Irreversible != 1 || s.Parts != 1 {
		t.Errorf("%+v", s)
	}
	for i := range 1100 {
		add(fmt.Sprintf("f/m%04d", i), "Secret", v1alpha1.Patch, 1)
	}
	plan, _ = build(t, spec(), targets)
	if s := plan.Spec; len(s.Counts) != 1000 || s.CountsOmitted != 104 || !slices.Equal(s.Counts[:4], want) {
		t.Errorf("%d counts, %d omitted", len(s.Counts), s.CountsOmitted)
	}
	plan, parts := build(t, spec(), nil)
	if got, err := plans.Decode(plan, parts); len(parts) != 0 || plan.Spec.Parts != 0 || len(got) != 0 || err != nil {
		t.Errorf("a Plan of nothing has %d parts, %d targets, %v", len(parts), len(got), err)
	}
}

// TestBuild_Refuses: what could not be written, recorded or told apart is not planned.
func TestBuild_Refuses(t *testing.T) {
	t.Parallel()
	good := plans.Target{MemberUID: "u", Ref: policy.Ref{Member: "f/a", Kind: "ConfigMap", Namespace: "n", Name: "o"}, Verb: v1alpha1.Patch, Remedy: digest("a")}
	for want, change := range map[string]func(*plans.Target){
		"it has no member": func(t *plans.Target) { t.Ref.Member = "" }, "it has no UID of the member": func(t *plans.Target) { t.MemberUID = "" },
		"it has no kind": func(t *plans.Target) { t.Ref.Kind = "" }, "it has no name": func(t *plans.Target) { t.Ref.Name = "" },
		`verb ""`: func(t *plans.Target) { t.Verb = "" }, `verb "create"`: func(t *plans.Target) { t.Verb = "create" },
		`"" is no digest`: func(t *plans.Target) { t.Remedy = "" }, "is no digest": func(t *plans.Target) { t.Remedy = digest("A") },
		"its name has 254 bytes, at most 253 are allowed": func(t *plans.Target) { t.Ref.Name = strings.Repeat("a", 254) },
		"its namespace is not UTF-8":                      func(t *plans.Target) { t.Ref.Namespace = "\xff" },
		`answer "Perhaps" to a dry run`:                   func(t *plans.Target) { t.DryRun = "Perhaps" },
	} {
		bad := good
		change(&bad)
		if _, _, err := plans.Build(spec(), []plans.Target{bad}); !errors.Is(err, plans.ErrInvalid) || !strings.Contains(err.Error(), want) || len(err.Error()) > 600 {
			t.Errorf("want %q: %v", want, err)
		}
		if err := bad.Validate(); !errors.Is(err, plans.ErrInvalid) {
			t.Errorf("want %q: Validate says %v", want, err)
		}
	}
	twice := good
	twice.Verb, twice.UID = v1alpha1.Delete, "x"
	if _, _, err := plans.Build(spec(), []plans.Target{good, twice}); !errors.Is(err, plans.ErrInvalid) {
		t.Errorf("an object that is there twice: %v", err)
	}
	if _, _, err := plans.Build(spec(), make([]plans.Target, v1alpha1.MaxPlanTargets+1)); !errors.Is(err, plans.ErrTooMany) {
		t.Errorf("too many: %v", err)
	}
}

// TestBuild_LongestTargets: with the longest fields, and texts that JSON escapes, each part is
// small enough, as it is stored.
func TestBuild_LongestTargets(t *testing.T) {
	t.Parallel()
	var targets []plans.Target
	kind, diff := strings.Repeat("\x01", 317), strings.Repeat("\x01", 64<<10)
	for i := range 2000 {
		targets = append(targets, plans.Target{
			MemberUID: strings.Repeat("\x01", 128), APIVersion: strings.Repeat("\\", 317), UID: strings.Repeat("\"", 128), Remedy: digest("a"),
			Ref:  policy.Ref{Member: strings.Repeat("<", 317), Kind: policy.Kind(kind), Namespace: strings.Repeat("é", 126), Name: fmt.Sprintf("%s%04d", strings.Repeat("\x02", 249), i)},
			Verb: []v1alpha1.Verb{v1alpha1.Apply, v1alpha1.Patch, v1alpha1.Delete}[i%3], Irreversible: strings.Repeat("\"", 1000),
			Diff: diff, Message: strings.Repeat("\\", 1<<10), DryRun: v1alpha1.DryRunUnreachable,
		})
	}
	plan, parts := build(t, spec(), targets)
	for i := range parts {
		text, err := json.Marshal(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if room := v1alpha1.MaxPlanPartBytes - len(text); room < 3<<10 || len(parts[i].Spec.Targets) > 520192 {
			t.Errorf("part %d has %d bytes", i+1, len(text))
		} else if i+1 < len(parts) && room > 64<<10 {
			t.Errorf("part %d has %d bytes, and is not the last", i+1, len(text))
		}
	}
	if got, err := plans.Decode(plan, parts); err != nil || len(got) != len(targets) {
		t.Errorf("%d targets, %v", len(got), err)
	}
}
