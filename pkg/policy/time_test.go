package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// expiryText is a policy about instants that objects name.
const expiryText = `# METADATA
# title: What has passed
# custom: {severity: low, kinds: ["Deployment.apps"]}
package expiry

violation contains {"msg": "passed"} if data.fleet.passed[input.object.spec.until]
`

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func instant(d time.Duration) string { return noon.Add(d).Format(time.RFC3339) }

// timedEngine is an engine with a clock that a test sets.
type timedEngine struct {
	*policy.Engine

	t   *testing.T
	w   *world
	now time.Time
}

func newTimed(t *testing.T, text string, opts policy.EngineOptions, ops ...op) *timedEngine {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range worldMembers[:2] {
		mustDo(t, w, op{Do: "join", Member: m})
		mustDo(t, w, small.open(m, func() aggregate.State { return aggregate.Synced })...)
	}
	mustDo(t, w, ops...)
	x := &timedEngine{t: t, w: w, now: noon}
	opts.Set = load(t, text)
	opts.Bindings, _ = policy.DefaultBindings(opts.Set, nil)
	opts.Clock = func() time.Time { return x.now }
	opts.Parallelism = 1
	x.Engine, _ = engineOn(t, w, opts)
	return x
}

// advance moves the clock and lets time alone take effect; nothing may be due.
func (x *timedEngine) advance(d time.Duration) *policy.Changes {
	x.t.Helper()
	x.now = x.now.Add(d)
	changes, err := x.Advance(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return changes
}

// found lists what is not clean and Known.
func (x *timedEngine) found() string {
	var out []string
	for b := range x.State().Bindings() {
		for v := range x.State().Verdicts(b.Name, "") {
			if v.Clean() && v.State == policy.Known {
				continue
			}
			text := fmt.Sprintf("%s %s", v.Subject.Ref.Name, v.State)
			if len(v.Violations) > 0 {
				text += " " + v.Violations[0].Msg
			}
			if v.Message != "" {
				text += " " + v.Message
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func (x *timedEngine) want(found string, instants int, wake string) {
	x.t.Helper()
	if got := x.found(); got != found {
		x.t.Errorf("at %s: found %q, want %q", x.now.Format(time.RFC3339), got, found)
	}
	if got := x.Stats().Instants; got != instants {
		x.t.Errorf("at %s: %d instants, want %d", x.now.Format(time.RFC3339), got, instants)
	}
	got := ""
	if s := x.State(); !s.Wake.IsZero() {
		got = s.Wake.Format(time.RFC3339)
	}
	if got != wake {
		x.t.Errorf("at %s: it wakes at %q, want %q", x.now.Format(time.RFC3339), got, wake)
	}
}

func until(name string, d time.Duration) op {
	return deployment("fleet/a", name, map[string]any{"until": instant(d)})
}

func TestEngine_FiresInstants(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{},
		until("past", -time.Hour), until("now", 0), until("soon", time.Second), until("with", time.Second), until("late", time.Hour))
	x.want("now Known passed; past Known passed", 2, instant(time.Second))
	if x.advance(900*time.Millisecond) != nil {
		t.Error("something is due before its second")
	}
	before := x.Stats().Evaluations
	changes := x.advance(100 * time.Millisecond)
	x.want("now Known passed; past Known passed; soon Known passed; with Known passed", 1, instant(time.Hour))
	if n := x.Stats().Evaluations - before; n != 2 {
		t.Errorf("two instants of one second cost %d evaluations", n)
	}
	n := 0
	for c := range changes.All() {
		if c.Before.Clean() && !c.After.Clean() {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d changes", n)
	}
	if got := x.State().AsOf; !got.Equal(noon.Add(time.Second)) {
		t.Errorf("as of %v", got)
	}
	x.advance(time.Hour)
	x.want("late Known passed; now Known passed; past Known passed; soon Known passed; with Known passed", 0, "")
}

func TestEngine_ABatchFiresWhatPassed(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{}, until("soon", time.Second), until("moved", time.Second), until("late", time.Hour))
	cursor := x.w.index.Cursor(x.State().Snapshot)
	mustDo(t, x.w, until("moved", 2*time.Hour), until("new", time.Minute))
	x.now = noon.Add(time.Minute)
	apply(t, x.Engine, cursor)
	x.want("new Known passed; soon Known passed", 2, instant(time.Hour))
	mustDo(t, x.w, op{Do: "delete", Member: "fleet/a", Kind: "Deployment.apps", NS: "shop", Name: "late"}, op{Do: "leave", Member: "fleet/a"})
	apply(t, x.Engine, cursor)
	x.want("", 0, "")
}

func TestEngine_ConfigureIsAsOfNow(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{}, until("soon", time.Second), until("late", time.Hour))
	x.now = noon.Add(time.Second)
	set := x.State().Set()
	bindings, _ := policy.DefaultBindings(set, nil)
	second := bindings[0]
	second.Name = "again"
	if _, err := x.Configure(t.Context(), set, append(bindings, second)); err != nil {
		t.Fatal(err)
	}
	x.want("soon Known passed; soon Known passed", 1, instant(time.Hour))
	if _, err := x.Configure(t.Context(), set, bindings[:1]); err != nil {
		t.Fatal(err)
	}
	x.want("soon Known passed", 1, instant(time.Hour))
	if _, err := x.Configure(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	x.want("", 0, "")
}

// TestEngine_TwinsShareAVerdictAndEachRecordsItsInstant evaluates objects that are alike once, and again when
// their instant has passed.
func TestEngine_TwinsShareAVerdictAndEachRecordsItsInstant(t *testing.T) {
	t.Parallel()
	var ops []op
	for i := range 20 {
		ops = append(ops, until(fmt.Sprint("d", i), time.Duration(1+i%2)*time.Minute))
	}
	x := newTimed(t, expiryText, policy.EngineOptions{}, ops...)
	if s := x.Stats(); s.Memoized != 18 || s.Edges != 20 || s.Instants != 2 {
		t.Errorf("%d evaluations shared, %d reads of %d instants", s.Memoized, s.Edges, s.Instants)
	}
	x.advance(time.Minute)
	if n := x.State().Total("expiry").Violations; n != 10 {
		t.Errorf("%d violations", n)
	}
	if s := x.Stats(); s.Memoized != 27 || s.Edges != 10 {
		t.Errorf("%d evaluations shared, %d reads", s.Memoized, s.Edges)
	}
	x.advance(-2 * time.Minute)
	if c := x.State().Total("expiry"); c.Unknown != 10 || c.Known != 10 || c.Violations != 10 {
		t.Errorf("after a step back: %+v", c)
	}
}

func TestEngine_AClockThatStepsBack(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{}, until("past", -time.Hour), until("passed", 0), until("soon", time.Minute), until("late", time.Hour))
	if x.advance(-5*time.Second) != nil {
		t.Error("five seconds are noticed")
	}
	x.advance(time.Minute + 5*time.Second) // 12:01
	x.want("passed Known passed; past Known passed; soon Known passed", 1, instant(time.Hour))
	x.advance(-30 * time.Second) // 12:00:30
	x.want("passed Known passed; past Known passed; soon Unknown passed", 2, instant(time.Minute))
	if got := x.State().AsOf; !got.Equal(noon.Add(time.Minute)) {
		t.Errorf("as of %v", got)
	}
	s, _ := x.State().Get("expiry", policy.Subject{Ref: policy.Ref{Member: "fleet/a", Kind: "Deployment.apps", Namespace: "shop", Name: "soon"}})
	if len(s.Gaps) != 1 || !strings.Contains(s.Gaps[0].String(), "the clock was set back") {
		t.Errorf("gaps %v", s.Gaps)
	}
	x.advance(-time.Minute) // 11:59:30
	x.want("passed Unknown passed; past Known passed; soon Unknown passed", 3, instant(0))
	cursor := x.w.index.Cursor(x.State().Snapshot)
	mustDo(t, x.w, until("new", 10*time.Second), until("soon", 2*time.Minute))
	apply(t, x.Engine, cursor)
	x.want("new Unknown passed; passed Unknown passed; past Known passed", 4, instant(0))
	x.advance(35 * time.Second) // 12:00:05
	x.want("new Unknown passed; passed Known passed; past Known passed", 3, instant(10*time.Second))
	x.advance(time.Hour) // 13:00:05
	x.want("late Known passed; new Known passed; passed Known passed; past Known passed; soon Known passed", 0, "")
}

// TestEngine_ADoubtIsNoDefault: what the first objects of a kind read while the clock is back is not kept.
func TestEngine_ADoubtIsNoDefault(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{})
	x.advance(-time.Hour)
	cursor := x.w.index.Cursor(x.State().Snapshot)
	mustDo(t, x.w, until("first", -time.Minute))
	apply(t, x.Engine, cursor)
	x.want("first Unknown passed", 1, instant(-time.Minute))
	x.advance(time.Hour)
	x.want("first Known passed", 0, "")
	if n := x.Stats().ReadSets; n != 1 {
		t.Errorf("%d read sets, want the one that is read", n)
	}
}

// TestEngine_AClockBefore1970 is taken for one of 1970, which is no reason to evaluate time and again.
func TestEngine_AClockBefore1970(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{}, until("past", -time.Hour))
	x.now = time.Date(1969, 1, 2, 0, 0, 0, 0, time.UTC)
	if x.advance(0) == nil {
		t.Error("a clock that was set back is not noticed")
	}
	if x.advance(time.Minute) != nil {
		t.Error("everything is evaluated again before 1970")
	}
}

func TestEngine_InstantsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"", "2026-01-02", "2026-01-02T15:04:05", "2026-01-02t15:04:05Z", "2026-01-02T15:04:05z", "2026-01-02T15:04:05.0Z",
		"2026-01-02T15:04:05+00:00", "2026-01-02T24:00:00Z", "2026-01-02T23:59:60Z", "2026-02-30T00:00:00Z", "99999-01-02T15:04:05Z",
	} {
		x := newTimed(t, expiryText, policy.EngineOptions{}, deployment("fleet/a", "d", map[string]any{"until": key}))
		if got := x.found(); !strings.HasPrefix(got, "d Error ") || !strings.Contains(got, "is no instant in UTC") {
			t.Errorf("%q: %s", key, got)
		}
	}
}

// TestEngine_InstantsOfMembersAndKeys fires for subjects other than objects.
func TestEngine_InstantsOfMembersAndKeys(t *testing.T) {
	t.Parallel()
	x := newTimed(t, `# METADATA
# title: Keys
# custom: {severity: low, kinds: ["Deployment.apps"], subject: view.until}
package keys

view.until[input.object.spec.until] contains true if true

violation contains {"msg": "passed"} if data.fleet.passed[input.key]
`, policy.EngineOptions{}, until("a", time.Minute), until("b", time.Minute), until("c", time.Hour))
	x.want("", 2, instant(time.Minute))
	x.advance(time.Minute)
	x.want(" Known passed", 1, instant(time.Hour))
	x.advance(-time.Minute)
	x.want(" Unknown passed", 2, instant(time.Minute))
	x = newTimed(t, `# METADATA
# title: Members
# custom: {severity: low, subject: member}
package members

violation contains {"msg": "passed"} if {
	data.fleet.passed["2026-01-02T12:01:00Z"]
	input.member.name == "fleet/a"
}
`, policy.EngineOptions{})
	x.want("", 1, instant(time.Minute))
	x.advance(time.Minute)
	x.want(" Known passed", 0, "")
	x.advance(-time.Minute)
	x.want(" Unknown;  Unknown passed", 1, instant(time.Minute))
}

// TestEngine_QuarantineKeepsNoInstants quarantines a member. What changes meanwhile reads nothing, and records
// its instants again when the quarantine ends, which time alone does.
func TestEngine_QuarantineKeepsNoInstants(t *testing.T) {
	t.Parallel()
	rules := strings.SplitAfterN(quadratic, "\n\n", 3)[2] // what takes long
	x := newTimed(t, expiryText+"\n"+rules, policy.EngineOptions{Limits: policy.Limits{Evaluation: ms}, CPU: steps()}, until("a", time.Second), until("b", time.Second))
	cursor := x.w.index.Cursor(x.State().Snapshot)
	list := []any{}
	for i := range 1000 {
		list = append(list, fmt.Sprint(i))
	}
	for i := range 10 {
		mustDo(t, x.w, deployment("fleet/a", fmt.Sprint("odd", i), map[string]any{"list": list}))
	}
	apply(t, x.Engine, cursor)
	if got := x.State().Retry; !got.Equal(noon.Add(time.Minute)) {
		t.Fatalf("the quarantine ends at %v", got)
	}
	mustDo(t, x.w, until("a", 30*time.Second))
	for i := range 10 {
		mustDo(t, x.w, op{Do: "delete", Member: "fleet/a", Kind: "Deployment.apps", NS: "shop", Name: fmt.Sprint("odd", i)})
	}
	apply(t, x.Engine, cursor)
	if got := x.found(); !strings.HasPrefix(got, `a Error member "fleet/a"`) || strings.Contains(got, "; ") || x.Stats().Instants != 1 {
		t.Errorf("%d instants, found %s", x.Stats().Instants, got)
	}
	x.advance(time.Second)
	if got := x.found(); !strings.Contains(got, `; b Error member "fleet/a"`) || x.Stats().Instants != 0 {
		t.Errorf("%d instants, found %s", x.Stats().Instants, got)
	}
	x.advance(59 * time.Second)
	x.want("a Known passed; b Known passed", 0, "")
}

func TestEvaluate_AsOf(t *testing.T) {
	t.Parallel()
	x := newTimed(t, expiryText, policy.EngineOptions{}, until("soon", time.Minute))
	set := x.State().Set()
	bindings, _ := policy.DefaultBindings(set, nil)
	for d, want := range map[time.Duration]int{-time.Hour: 0, 59 * time.Second: 0, time.Minute: 1, time.Hour: 1} {
		s, err := policy.Evaluate(t.Context(), policy.EngineOptions{Set: set, Bindings: bindings, AsOf: noon.Add(d)}, x.w.index.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Total("expiry").Violations; got != want || !s.AsOf.Equal(noon.Add(d)) {
			t.Errorf("%v: %d violations as of %v", d, got, s.AsOf)
		}
		none, err := policy.Compare(t.Context(), x.State(), policy.EngineOptions{Set: set, Bindings: bindings})
		if err != nil {
			t.Fatal(err)
		}
		for c := range none.All() {
			t.Errorf("compared with itself: %+v", c)
		}
	}
}

// TestPreview_IsAsOfNow previews a policy that asks the time on a fleet where nothing has changed for hours, by
// policies that do not.
func TestPreview_IsAsOfNow(t *testing.T) {
	t.Parallel()
	for _, active := range []string{strings.Replace(expiryText, "data.fleet.passed[input.object.spec.until]", "false", 1), strings.ReplaceAll(expiryText, "package expiry", "package other")} {
		x := newTimed(t, active, policy.EngineOptions{}, until("soon", time.Minute), until("late", time.Hour))
		x.now = noon.Add(2 * time.Hour)
		set := load(t, expiryText)
		bindings, _ := policy.DefaultBindings(set, nil)
		candidate := policy.EngineOptions{Set: set, Bindings: bindings, Clock: func() time.Time { return x.now }}
		want, asOf := 2, x.now
		if wake := x.State().Wake; !wake.IsZero() { // verdicts before and after are of one time
			want, asOf = 0, wake.Add(-time.Second)
		}
		p, err := policy.NewPreview(x.State(), candidate)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		err = p.Run(t.Context(), policy.PreviewOptions{Found: func(_, after *policy.Verdict) error {
			if after != nil {
				found += len(after.Violations)
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		changes, err := policy.Compare(t.Context(), x.State(), candidate)
		if err != nil {
			t.Fatal(err)
		}
		if n := changes.After.Total("expiry").Violations; found != want || n != want || !p.Candidate().AsOf.Equal(asOf) || !changes.After.AsOf.Equal(asOf) {
			t.Errorf("previewed %d violations as of %v, compared %d as of %v; want %d as of %v", found, p.Candidate().AsOf, n, changes.After.AsOf, want, asOf)
		}
	}
}
