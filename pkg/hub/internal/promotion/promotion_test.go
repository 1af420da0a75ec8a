package promotion

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"federator.dev/federator/api/v1alpha1"
)

func TestTermsOf(t *testing.T) {
	t.Parallel()
	of := func(v intstr.IntOrString) *intstr.IntOrString { return &v }
	for name, c := range map[string]struct {
		rollout *v1alpha1.VersionRollout
		want    Terms
		err     string
	}{
		"defaults": {&v1alpha1.VersionRollout{}, Terms{Shadow: time.Hour, MaxNew: Bound{Percent: 5, IsPart: true}, Waves: 2}, ""},
		"all": {
			&v1alpha1.VersionRollout{Shadow: &metav1.Duration{Duration: time.Minute}, MaxNew: of(intstr.FromInt32(7)), MaxErrors: of(intstr.FromString("100%")), MaxCost: "200%"},
			Terms{Shadow: time.Minute, MaxNew: Bound{Count: 7}, MaxErrors: Bound{Percent: 100, IsPart: true}, MaxCost: 200, Waves: 2},
			"",
		},
		"no shadow":        {&v1alpha1.VersionRollout{Shadow: &metav1.Duration{}}, Terms{MaxNew: Bound{Percent: 5, IsPart: true}, Waves: 2}, ""},
		"above everything": {&v1alpha1.VersionRollout{MaxNew: of(intstr.FromString("101%"))}, Terms{}, "rollout.maxNew"},
		"no percentage":    {&v1alpha1.VersionRollout{MaxErrors: of(intstr.FromString("5"))}, Terms{}, "rollout.maxErrors"},
		"negative":         {&v1alpha1.VersionRollout{MaxErrors: of(intstr.FromInt32(-1))}, Terms{}, "rollout.maxErrors"},
		"no cost":          {&v1alpha1.VersionRollout{MaxCost: "0%"}, Terms{}, "rollout.maxCost"},
		"a bare cost":      {&v1alpha1.VersionRollout{MaxCost: "200"}, Terms{}, "rollout.maxCost"},
	} {
		got, err := TermsOf(c.rollout, 2)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

// TestTermsOf_NoRollout: whatever a version finds, it takes its place.
func TestTermsOf_NoRollout(t *testing.T) {
	t.Parallel()
	terms, err := TermsOf(nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	f := Facts{Evidence: v1alpha1.RolloutEvidence{Complete: true, New: math.MaxInt64, Errors: math.MaxInt64}}
	if got := Begin(now).Next(&terms, &f, now); got.Phase != v1alpha1.RolloutPromoted {
		t.Errorf("%+v", got)
	}
}

// TestBound_IsExact: 29 % of 100 is 29, which floating point is not sure of.
func TestBound_IsExact(t *testing.T) {
	t.Parallel()
	for percent := range int64(101) {
		b := Bound{Percent: percent, IsPart: true}
		if got := b.of(100); got != percent {
			t.Errorf("%s of 100 is %d", b, got)
		}
		if got := b.of(19); got != percent*19/100 {
			t.Errorf("%s of 19 is %d", b, got)
		}
	}
}

// TestState_Next follows a version on its way, and each way off it.
func TestState_Next(t *testing.T) {
	t.Parallel()
	began := time.Unix(10000, 0)
	terms := Terms{Shadow: time.Hour, MaxNew: Bound{Percent: 5, IsPart: true}, MaxCost: 200, Waves: 2}
	good := v1alpha1.RolloutEvidence{Complete: true, Subjects: 100, New: 5}
	cost := func(n int64) v1alpha1.RolloutEvidence { e := good; e.Cost = &n; return e }
	with := func(change func(e *v1alpha1.RolloutEvidence)) v1alpha1.RolloutEvidence {
		e := good
		change(&e)
		return e
	}
	shadow, new := Begin(began), Begin(began.Add(-time.Second))
	shadow.Began = new.Began // its shadow counts since
	in := func(n int) State { return State{Phase: v1alpha1.RolloutWaves, Began: began, Since: began, Waves: n} }
	wave := func(n int, done bool) Waves { return Waves{Known: true, Wave: n, Done: done} }
	for name, c := range map[string]struct {
		from    State
		facts   Facts
		after   time.Duration
		phase   v1alpha1.RolloutPhase
		waves   int
		message string
	}{
		"in shadow":                       {shadow, Facts{Evidence: good}, time.Hour - 1, v1alpha1.RolloutShadow, 0, "in shadow until 1970-01-01T03:46:40Z"},
		"it counts from what is known":    {new, Facts{Evidence: good}, time.Hour, v1alpha1.RolloutShadow, 0, "in shadow until 1970-01-01T04:46:40Z"},
		"nothing is known yet":            {new, Facts{}, 48 * time.Hour, v1alpha1.RolloutShadow, 0, "its shadow begins once all"},
		"the shadow ends":                 {shadow, Facts{Evidence: good}, time.Hour, v1alpha1.RolloutWaves, 1, ""},
		"people end it":                   {shadow, Facts{Evidence: good, Approved: true}, 0, v1alpha1.RolloutWaves, 1, ""},
		"people do not replace evidence":  {shadow, Facts{Approved: true}, 0, v1alpha1.RolloutShadow, 0, "until all that it reads"},
		"one version knows more":          {shadow, Facts{Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.Unknown, e.Complete = 1, false })}, 2 * time.Hour, v1alpha1.RolloutShadow, 0, "until both versions know"},
		"nor does time":                   {shadow, Facts{}, 48 * time.Hour, v1alpha1.RolloutShadow, 0, "until all that it reads"},
		"too many new ones":               {shadow, Facts{Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New = 6 })}, 0, v1alpha1.RolloutTakenBack, 0, "6 violations on 100 subjects"},
		"people do not allow them":        {shadow, Facts{Approved: true, Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New = 6 })}, time.Hour, v1alpha1.RolloutTakenBack, 0, "at most 5% may be"},
		"not known to be too many":        {shadow, Facts{Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New, e.Complete = 6, false })}, 2 * time.Hour, v1alpha1.RolloutShadow, 0, ""},
		"of the first version all are":    {shadow, Facts{First: true, Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New = 100 })}, time.Hour, v1alpha1.RolloutWaves, 1, ""},
		"of a new package all are":        {shadow, Facts{Added: v1alpha1.RolloutEvidence{Subjects: 50, New: 50}, Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New = 52 })}, time.Hour, v1alpha1.RolloutWaves, 1, ""},
		"too many beside a new package":   {shadow, Facts{Added: v1alpha1.RolloutEvidence{Subjects: 50, New: 50}, Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New = 53 })}, time.Hour, v1alpha1.RolloutTakenBack, 0, "3 violations on 50 subjects"},
		"it fails":                        {shadow, Facts{First: true, Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.Errors = 1 })}, 0, v1alpha1.RolloutTakenBack, 0, "fails on 1 of 100 subjects"},
		"it costs twice as much":          {shadow, Facts{Evidence: cost(200)}, time.Hour, v1alpha1.RolloutWaves, 1, ""},
		"it costs more":                   {shadow, Facts{Evidence: cost(201)}, 0, v1alpha1.RolloutTakenBack, 0, "201%"},
		"it is not valid":                 {shadow, Facts{Refused: "it is not valid"}, 0, v1alpha1.RolloutTakenBack, 0, "it is not valid"},
		"nothing is written yet":          {in(1), Facts{Evidence: good}, time.Hour, v1alpha1.RolloutWaves, 1, "in effect in wave 1 of 2"},
		"the first wave":                  {in(1), Facts{Evidence: good, Waves: wave(0, false)}, time.Hour, v1alpha1.RolloutWaves, 1, ""},
		"the second begins":               {in(1), Facts{Evidence: good, Waves: wave(1, false)}, time.Hour, v1alpha1.RolloutWaves, 2, "in effect in wave 2 of 2"},
		"not while a member is not known": {in(1), Facts{Waves: wave(1, false)}, time.Hour, v1alpha1.RolloutWaves, 1, "in effect in wave 1 of 2; it goes on once all"},
		"the last one ends":               {in(2), Facts{Evidence: good, Waves: wave(1, true)}, time.Hour, v1alpha1.RolloutPromoted, 2, ""},
		"of what is not known it does not": {
			in(2), Facts{Waves: wave(1, true)}, time.Hour, v1alpha1.RolloutWaves, 2, "",
		},
		"one that is not there yet ends nothing": {in(1), Facts{Evidence: good, Waves: wave(1, true)}, time.Hour, v1alpha1.RolloutWaves, 2, ""},
		"a wave fails":                           {in(1), Facts{Evidence: good, Waves: Waves{Failed: "a wave failed"}}, time.Hour, v1alpha1.RolloutTakenBack, 0, "a wave failed"},
		"evidence turns in a wave":               {in(1), Facts{Evidence: with(func(e *v1alpha1.RolloutEvidence) { e.New = 6 })}, 0, v1alpha1.RolloutTakenBack, 0, "6 violations"},
		"it is held":                             {in(1), Facts{Evidence: good, Waves: Waves{Held: "the window is closed"}}, 0, v1alpha1.RolloutWaves, 1, "the window is closed"},
	} {
		got := c.from.Next(&terms, &c.facts, began.Add(c.after))
		if got.Phase != c.phase || got.Waves != c.waves || !strings.Contains(got.Message, c.message) || !got.Began.Equal(c.from.Began) {
			t.Errorf("%s: %+v", name, got)
		}
		if changed := got.Phase != c.from.Phase || c.from == new && c.facts.Evidence.Complete; changed != got.Since.Equal(began.Add(c.after)) && c.after > 0 {
			t.Errorf("%s: since %v", name, got.Since)
		}
	}
}

// TestState_NextWithoutWaves: what is not corrected takes its place everywhere after its shadow,
// and so does what has lost its waves.
func TestState_NextWithoutWaves(t *testing.T) {
	t.Parallel()
	now := time.Unix(10000, 0)
	f := Facts{Evidence: v1alpha1.RolloutEvidence{Complete: true}}
	for _, from := range []State{Begin(now), {Phase: v1alpha1.RolloutWaves, Began: now, Since: now, Waves: 2}} {
		if got := from.Next(&Terms{}, &f, now); got.Phase != v1alpha1.RolloutPromoted {
			t.Errorf("from %+v: %+v", from, got)
		}
		// Where its mode was lowered because of what it shows, nothing is known of the other members yet.
		if got := from.Next(&Terms{}, &Facts{Evidence: v1alpha1.RolloutEvidence{Subjects: 10, New: 10}}, now.Add(time.Hour)); got.Phase != from.Phase || got.Waves != from.Waves {
			t.Errorf("from %+v, on incomplete evidence: %+v", from, got)
		}
	}
}

// rank orders the phases on the way of a version.
var rank = map[v1alpha1.RolloutPhase]int{v1alpha1.RolloutShadow: 0, v1alpha1.RolloutWaves: 1, v1alpha1.RolloutPromoted: 2, v1alpha1.RolloutTakenBack: 3}

// TestState_NextKeepsItsPromises on random facts: a version comes no further than complete and
// sufficient evidence lets it, by one wave at a time; what ends stays so; and refused evidence ends it.
func TestState_NextKeepsItsPromises(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for run := range 2000 {
		terms := Terms{Shadow: time.Duration(r.IntN(100)) * time.Second, MaxNew: Bound{Count: int64(r.IntN(5))}, MaxErrors: Bound{Count: int64(r.IntN(2))}, Waves: r.IntN(4)}
		now := time.Unix(int64(1000+r.IntN(1000)), 0)
		state := Begin(now)
		for range 60 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Second)
			f := randomFacts(r)
			next := state.Next(&terms, &f, now)
			if why := broken(&state, &next, &terms, &f, now); why != "" {
				t.Fatalf("seed %d, run %d: %s\n%+v\n%+v\n%+v\n%+v", seed, run, why, terms, f, state, next)
			}
			again := next.Next(&terms, &f, now)
			if rank[again.Phase] < rank[next.Phase] || again.Waves < next.Waves && again.Phase != v1alpha1.RolloutTakenBack {
				t.Fatalf("seed %d, run %d: the same facts lead back from %+v to %+v", seed, run, next, again)
			}
			state = next
		}
	}
}

func randomFacts(r *rand.Rand) Facts {
	f := Facts{
		Evidence: v1alpha1.RolloutEvidence{Complete: r.IntN(3) > 0, Subjects: 10, New: int64(r.IntN(5) * r.IntN(2) * r.IntN(2)), Errors: int64(r.IntN(20) / 19)},
		First:    r.IntN(10) == 0, Approved: r.IntN(10) == 0,
		Waves: Waves{Known: r.IntN(3) > 0, Wave: r.IntN(4), Done: r.IntN(4) == 0},
	}
	if r.IntN(40) == 0 {
		f.Waves.Failed = "failed"
	}
	return f
}

// broken says which promise a step breaks, "" if none.
func broken(was, is *State, t *Terms, f *Facts, now time.Time) string {
	e := &f.Evidence
	bad := f.Waves.Failed != "" || e.Complete && (e.New > t.MaxNew.Count && !f.First || e.Errors > t.MaxErrors.Count)
	ended := was.Phase == v1alpha1.RolloutPromoted || was.Phase == v1alpha1.RolloutTakenBack
	further := rank[is.Phase] > rank[was.Phase] || is.Waves > was.Waves
	switch {
	case ended && *is != *was:
		return "what has ended changes"
	case !ended && bad != (is.Phase == v1alpha1.RolloutTakenBack):
		return "it is taken back without a reason, or is not with one"
	case is.Phase == v1alpha1.RolloutTakenBack && is.Message == "":
		return "nothing says why it was taken back"
	case is.Phase == v1alpha1.RolloutTakenBack:
	case further && !e.Complete:
		return "it comes further without complete evidence"
	case was.Phase == v1alpha1.RolloutShadow && is.Phase != v1alpha1.RolloutShadow && !f.Approved && (now.Before(was.Since.Add(t.Shadow)) || t.Shadow > 0 && was.Since.Equal(was.Began)):
		return "the shadow ends early"
	case is.Waves > was.Waves+1:
		return "two waves at once"
	case is.Phase == v1alpha1.RolloutPromoted && !ended && t.Waves > 0 && was.Waves < t.Waves:
		return "it is promoted before its last wave"
	case is.Phase == v1alpha1.RolloutPromoted && !ended && t.Waves > 0 && !(f.Waves.Known && f.Waves.Done):
		return "it is promoted before its last wave has ended"
	case rank[is.Phase] < rank[was.Phase]:
		return "it goes back"
	case is.Phase == v1alpha1.RolloutWaves && (is.Waves < 1 || t.Waves > 0 && is.Waves > t.Waves):
		return "it is in a wave that there is not"
	}
	return ""
}
