package policytest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

// run evaluates a case on its complete fleet and by replay, and compares.
func (f *fixture) run(ctx context.Context, set *policy.Set, opts Options) (Case, error) {
	c := Case{ID: f.id(), Name: f.name, File: f.file, Line: f.line, Fleet: true, Outcome: Passed}
	start := time.Now()
	engine := policy.EngineOptions{Set: set, Bindings: f.bindings, Limits: policy.Limits{Evaluation: opts.Timeout, Slow: math.MaxInt64}, AsOf: f.now, External: f.external}
	whole, err := f.evaluateWhole(ctx, engine)
	if err != nil {
		return c, err
	}
	c.Failures = f.compare(whole)
	followed, err := f.replay(ctx, engine, rand.New(rand.NewPCG(opts.Seed, 0)))
	if err != nil {
		return c, err
	}
	c.Failures = append(c.Failures, f.diff(whole, followed, opts.Seed)...)
	if len(c.Failures) > 0 {
		c.Outcome = Failed
	}
	c.Duration = time.Since(start)
	return c, nil
}

// verdicts are the verdicts of a state by their verdictID.
func (f *fixture) verdicts(s *policy.State) map[verdictID]policy.Verdict {
	out := map[verdictID]policy.Verdict{}
	for _, b := range f.bindings {
		for v := range s.Verdicts(b.Name, "") {
			id := verdictID{binding: b.Name, subject: v.Subject.String()}
			if v.Subject.Ref.Member == "" {
				id.subject, id.key = "", v.Subject.String()
			}
			out[id] = v
		}
	}
	return out
}

// evaluateWhole evaluates the complete fleet at once.
func (f *fixture) evaluateWhole(ctx context.Context, opts policy.EngineOptions) (*policy.State, error) {
	w, err := newWriter()
	if err != nil {
		return nil, err
	}
	for _, s := range f.fleet.steps(w) {
		if err := s.do(); err != nil {
			return nil, err
		}
	}
	return policy.Evaluate(ctx, opts, w.index.Snapshot())
}

// longBefore is how long before its time the replay of a case may begin.
const longBefore = 3 * 365 * 24 * time.Hour

// replay applies the changes of the fleet to an engine that starts with none, while time passes until that of
// the case.
func (f *fixture) replay(ctx context.Context, opts policy.EngineOptions, r *rand.Rand) (*policy.State, error) {
	w, err := newWriter()
	if err != nil {
		return nil, err
	}
	now := f.now
	if !now.IsZero() {
		now = now.Add(-time.Duration(r.Int64N(int64(longBefore))))
		opts.AsOf, opts.Clock = time.Time{}, func() time.Time { return now }
	}
	e, err := policy.NewEngine(opts)
	if err != nil {
		return nil, err
	}
	cursor := w.index.Cursor(w.index.Snapshot())
	if _, err := e.Reset(ctx, w.index.Snapshot(), nil); err != nil {
		return nil, err
	}
	apply := func() error {
		batch, ok := cursor.Poll()
		if !ok {
			return nil
		}
		_, err := e.Apply(ctx, batch, nil)
		return err
	}
	for _, s := range shuffle(f.fleet.shuffledSteps(w, r), r) {
		if err := s.do(); err != nil {
			return nil, err
		}
		if r.IntN(4) == 0 {
			continue // two changes in one batch
		}
		if left := f.now.Sub(now); left > 0 {
			now = now.Add(time.Duration(r.Int64N(int64(left))))
		}
		if err := apply(); err != nil {
			return nil, err
		}
	}
	if err := apply(); err != nil {
		return nil, err
	}
	now = f.now
	if _, err := e.Advance(ctx); err != nil {
		return nil, err
	}
	return e.State(), nil
}

// compare compares the verdicts with the expected ones.
func (f *fixture) compare(s *policy.State) []Failure {
	var out []Failure
	fail := func(line int, id verdictID, message, expected, found string) {
		out = append(out, Failure{
			File: f.file, Line: line, Binding: id.binding, Subject: id.String(), Message: message, Expected: expected, Actual: found,
		})
	}
	found := f.verdicts(s)
	for _, e := range f.expect {
		v, ok := found[e.verdictID]
		switch {
		case !ok:
			fail(e.line, e.verdictID, "a verdict is missing", e.describe(), "no verdict: the binding does not evaluate the subject")
		case !e.matches(&v):
			fail(e.line, e.verdictID, "a verdict is not as expected", e.describe(), describe(&v))
		}
		delete(found, e.verdictID)
	}
	for _, id := range slices.SortedFunc(maps.Keys(found), compareIDs) {
		if v := found[id]; v.State != policy.Known || len(v.Violations) > 0 {
			fail(f.line, id, "a verdict is not expected", "Known and clean, as it is not listed", describe(&v))
		}
	}
	for _, b := range f.bindings {
		if h, ok := s.Health(b.Name); ok && h.Problem() != "" {
			out = append(out, Failure{File: f.file, Line: f.line, Message: fmt.Sprintf("binding %s has a problem: %s", b.Name, h.Problem())})
		}
	}
	return out
}

func compareIDs(a, b verdictID) int {
	return slices.Compare([]string{a.binding, a.subject, a.key}, []string{b.binding, b.subject, b.key})
}

// diff compares the verdicts of the complete fleet with those of the replay.
func (f *fixture) diff(whole, followed *policy.State, seed uint64) []Failure {
	var out []Failure
	want, got := f.verdicts(whole), f.verdicts(followed)
	ids := slices.Collect(maps.Keys(want))
	for id := range got {
		if _, ok := want[id]; !ok {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	for _, id := range ids {
		a, inWhole := want[id]
		b, inFollowed := got[id]
		if inWhole && inFollowed && same(&a, &b) {
			continue
		}
		x := Failure{
			File: f.file, Line: f.line, Binding: id.binding, Subject: id.String(), Expected: "no verdict", Actual: "no verdict",
			Message: fmt.Sprintf("replaying the changes of the fleet (seed %d) gives a different verdict than evaluating it at once", seed),
		}
		if inWhole {
			x.Expected = describe(&a)
		}
		if inFollowed {
			x.Actual = describe(&b)
		}
		out = append(out, x)
	}
	return out
}

// same reports whether verdicts are equal except for their revisions.
func same(a, b *policy.Verdict) bool {
	x, y := *a, *b
	x.Revision, y.Revision = aggregate.Revision(0), aggregate.Revision(0)
	s, err := json.Marshal(x)
	t, err2 := json.Marshal(y)
	return err == nil && err2 == nil && string(s) == string(t)
}

// matches reports whether a verdict is the expected one.
func (e *expected) matches(v *policy.Verdict) bool {
	msgs, exempt := messages(v)
	return v.State.String() == e.state && slices.Equal(msgs, e.violations) && exempt == e.exempt
}

// messages returns the messages of a verdict, sorted, and whether they are exempt.
func messages(v *policy.Verdict) (msgs []string, exempt bool) {
	exempt = len(v.Violations) > 0
	for _, x := range v.Violations {
		msgs = append(msgs, x.Msg)
		exempt = exempt && x.Exempt != ""
	}
	slices.Sort(msgs)
	return msgs, exempt
}

func (e *expected) describe() string { return formatVerdict(e.state, "", e.violations, e.exempt) }

func describe(v *policy.Verdict) string {
	msgs, exempt := messages(v)
	reason := v.Message
	if len(v.Gaps) > 0 {
		var gaps []string
		for _, g := range v.Gaps {
			gaps = append(gaps, g.String())
		}
		reason = strings.Join(gaps, ", ")
	}
	return formatVerdict(v.State.String(), reason, msgs, exempt)
}

func formatVerdict(state, reason string, msgs []string, exempt bool) string {
	s := state
	if reason != "" {
		s += " (" + reason + ")"
	}
	switch {
	case len(msgs) > 0:
		quoted := make([]string, 0, len(msgs))
		for _, m := range msgs {
			quoted = append(quoted, fmt.Sprintf("%q", m))
		}
		s += " with " + strings.Join(quoted, ", ")
	case state != policy.Error.String():
		s += " and clean"
	}
	if exempt {
		s += ", exempt"
	}
	return s
}
