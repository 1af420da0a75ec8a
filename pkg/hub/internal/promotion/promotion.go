// Package promotion decides how far a version of a policy has come that is to take the
// place of another: it is a function of its terms, of what is known now, and of how far it
// had come. It reads no clock and keeps nothing.
package promotion

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"federator.dev/federator/api/v1alpha1"
)

// Terms are what a version must pass.
type Terms struct {
	Shadow    time.Duration
	MaxNew    Bound
	MaxErrors Bound
	MaxCost   int64 // percent of the former version's; 0: any
	Waves     int   // how many there are; 0: it takes its place everywhere at once
}

// Bound is the most that there may be: a number, or a part of all subjects.
type Bound struct {
	Count   int64
	Percent int64
	IsPart  bool
}

// of returns the bound as a number.
func (b Bound) of(subjects int64) int64 {
	if b.IsPart {
		return subjects * b.Percent / 100
	}
	return b.Count
}

func (b Bound) String() string {
	if b.IsPart {
		return strconv.FormatInt(b.Percent, 10) + "%"
	}
	return strconv.FormatInt(b.Count, 10)
}

// TermsOf returns the terms of a rollout with a number of waves; those that are not set have
// the defaults of the CRD. nil: the version takes its place at once.
func TermsOf(r *v1alpha1.VersionRollout, waves int) (Terms, error) {
	if r == nil {
		return Terms{MaxNew: Bound{Count: math.MaxInt64}, MaxErrors: Bound{Count: math.MaxInt64}}, nil
	}
	t := Terms{Shadow: time.Hour, Waves: waves}
	if r.Shadow != nil {
		t.Shadow = r.Shadow.Duration
	}
	var err error
	if t.MaxNew, err = boundOf(r.MaxNew, intstr.FromString("5%")); err != nil {
		return t, fmt.Errorf("rollout.maxNew: %w", err)
	}
	if t.MaxErrors, err = boundOf(r.MaxErrors, intstr.FromInt32(0)); err != nil {
		return t, fmt.Errorf("rollout.maxErrors: %w", err)
	}
	if r.MaxCost != "" {
		if t.MaxCost, err = strconv.ParseInt(strings.TrimSuffix(r.MaxCost, "%"), 10, 64); err != nil || !strings.HasSuffix(r.MaxCost, "%") || t.MaxCost <= 0 {
			return t, fmt.Errorf("rollout.maxCost: %q is not a percentage such as 200%%", r.MaxCost)
		}
	}
	return t, nil
}

func boundOf(v *intstr.IntOrString, def intstr.IntOrString) (Bound, error) {
	if v == nil {
		v = &def
	}
	if v.Type == intstr.Int {
		if v.IntVal < 0 {
			return Bound{}, fmt.Errorf("%d is negative", v.IntVal)
		}
		return Bound{Count: int64(v.IntVal)}, nil
	}
	digits, isPart := strings.CutSuffix(v.StrVal, "%")
	n, err := strconv.ParseUint(digits, 10, 7)
	if err != nil || !isPart || n > 100 {
		return Bound{}, fmt.Errorf("%q is neither a number nor a percentage such as 5%%", v.StrVal)
	}
	return Bound{Percent: int64(n), IsPart: true}, nil // at most 100
}

// Facts are what is known now.
type Facts struct {
	Evidence v1alpha1.RolloutEvidence
	// Missing is why it is not known what all processes find that judge members: Evidence is not complete then. "" if it is.
	Missing string
	// Added is what of Evidence is of packages that have no former version: MaxNew does not apply to it.
	Added    v1alpha1.RolloutEvidence
	First    bool   // there is no former version to find less: MaxNew does not apply
	Approved bool   // people have approved to end the shadow
	Refused  string // why it can be in effect nowhere, such as parameters that it does not take; "" if it can
	Waves    Waves
}

// Waves are how far the corrections of the version have come, where it is enforced.
type Waves struct {
	Known  bool   // the following are of this version
	Wave   int    // that is written to, from 0
	Done   bool   // the last one has ended
	Failed string // why one has failed, "" if none has
	Held   string // why nothing is written now, "" if it is
}

// Older returns evidence that was recorded and is not known now: nothing follows from it. nil for nil.
func Older(recorded *v1alpha1.RolloutEvidence) *v1alpha1.RolloutEvidence {
	if recorded == nil {
		return nil
	}
	out := recorded.DeepCopy()
	out.Complete = false
	return out
}

// State is how far a version has come. It is stored with seconds: its caller truncates
// times before.
type State struct {
	Phase        v1alpha1.RolloutPhase
	Began, Since time.Time
	Waves        int // in how many it is in effect
	Message      string
}

// Begin returns the state of a version that is new. Its shadow counts from its first complete
// evidence: until then Since is Began.
func Begin(now time.Time) State {
	return State{Phase: v1alpha1.RolloutShadow, Began: now, Since: now}
}

// Next returns the next state. What is taken back stays so, and what is promoted: both end by
// another version.
func (s State) Next(t *Terms, f *Facts, now time.Time) State {
	if s.Phase == v1alpha1.RolloutTakenBack || s.Phase == v1alpha1.RolloutPromoted {
		return s
	}
	if why := t.refuse(f); why != "" {
		return State{Phase: v1alpha1.RolloutTakenBack, Began: s.Began, Since: now, Message: why}
	}
	switch s.Phase {
	case v1alpha1.RolloutWaves:
		return s.nextWave(t, f, now)
	default:
		return s.nextShadow(t, f, now)
	}
}

// refuse returns why a version is taken back, "" if it is not. What is not complete yet is no
// evidence against it, nor for it.
func (t *Terms) refuse(f *Facts) string {
	if why := cmp.Or(f.Refused, f.Waves.Failed); why != "" {
		return why
	}
	e := &f.Evidence
	if !e.Complete {
		return ""
	}
	found, subjects := e.New-f.Added.New, e.Subjects-f.Added.Subjects
	switch {
	case !f.First && found > t.MaxNew.of(subjects):
		return fmt.Sprintf("it finds %d violations on %d subjects that the former version does not find, at most %s may be", found, subjects, t.MaxNew)
	case e.Errors > t.MaxErrors.of(e.Subjects):
		return fmt.Sprintf("evaluating it fails on %d of %d subjects where the former version does not fail, at most %s may be", e.Errors, e.Subjects, t.MaxErrors)
	case t.MaxCost > 0 && e.Cost != nil && *e.Cost > t.MaxCost:
		return fmt.Sprintf("an evaluation takes %d%% of the CPU time of one of the former version, at most %d%% may be", *e.Cost, t.MaxCost)
	}
	return ""
}

func (s State) nextShadow(t *Terms, f *Facts, now time.Time) State {
	if s.Since.Equal(s.Began) && f.Evidence.Complete {
		s.Since = now // it was judged on nothing before
	}
	ends := s.Since.Add(t.Shadow)
	switch {
	case !f.Evidence.Complete && s.Since.Equal(s.Began):
		s.Message = "its shadow begins once " + f.completes()
		return s
	case now.Before(ends) && !f.Approved:
		s.Message = fmt.Sprintf("in shadow until %s", ends.UTC().Format(time.RFC3339))
		return s
	case !f.Evidence.Complete:
		s.Message = "in shadow until " + f.completes()
		return s
	case t.Waves == 0:
		return State{Phase: v1alpha1.RolloutPromoted, Began: s.Began, Since: now}
	}
	return State{Phase: v1alpha1.RolloutWaves, Began: s.Began, Since: now, Waves: 1}
}

// completes says what makes evidence complete that is not: without its numbers, which change all the time.
func (f *Facts) completes() string {
	switch unknown := f.Evidence.Unknown; {
	case f.Missing != "":
		return "it is known what all processes find: " + f.Missing
	case unknown > 0 && (f.First || unknown == f.Added.Unknown):
		return "one of its verdicts is known"
	case unknown > 0:
		return "both versions know their verdicts wherever one of them does"
	}
	return "all that it reads was read and evaluated"
}

// nextWave lets the version take its place in the members of the next wave once that has
// begun: one at a time, so that no wave ends before it was there.
func (s State) nextWave(t *Terms, f *Facts, now time.Time) State {
	if t.Waves == 0 { // the waves were removed, or nothing is corrected any more
		if f.Evidence.Complete {
			return State{Phase: v1alpha1.RolloutPromoted, Began: s.Began, Since: now}
		}
		s.Message = "it has no waves any more: it waits until " + f.completes()
		return s
	}
	s.Waves = max(1, min(s.Waves, t.Waves))
	switch {
	case !f.Waves.Known || !f.Evidence.Complete:
	case f.Waves.Done && s.Waves == t.Waves:
		return State{Phase: v1alpha1.RolloutPromoted, Began: s.Began, Since: now, Waves: s.Waves}
	case f.Waves.Wave >= s.Waves && s.Waves < t.Waves:
		s.Waves++
	}
	s.Message = cmp.Or(f.Waves.Held, fmt.Sprintf("in effect in wave %d of %d", s.Waves, t.Waves))
	if !f.Evidence.Complete {
		s.Message += "; it goes on once " + f.completes()
	}
	return s
}
