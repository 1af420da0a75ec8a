package seriesparts_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policyquery/internal/seriesparts"
	"federator.dev/federator/test/seed"
)

var epoch = time.Unix(1_800_000_000, 0).UTC()

func encode(t *testing.T, parts ...*seriesparts.Part) (bodies [][]byte) {
	t.Helper()
	for _, p := range parts {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, text)
	}
	return bodies
}

func text(values []*int64) string {
	var out []string
	for _, v := range values {
		if v == nil {
			out = append(out, "?")
			continue
		}
		out = append(out, fmt.Sprint(*v))
	}
	return strings.Join(out, " ")
}

// TestMerge_Model compares with sums at each step, of parts whose clocks differ and that do not know all.
func TestMerge_Model(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	const steps, processes = 12, 3
	for round := range 300 {
		missing := rng.IntN(4) == 0
		parts := make([]*seriesparts.Part, processes)
		least := 3
		shifts := make([]int, processes)
		for i := range parts {
			shifts[i] = rng.IntN(3)
			least = min(least, shifts[i])
			p := &seriesparts.Part{StepSeconds: 300, Start: epoch.Add(time.Duration(shifts[i]) * 300 * time.Second), Known: make([]bool, steps)}
			for s := range p.Known {
				p.Known[s] = rng.IntN(6) > 0
			}
			for _, member := range []string{"", fmt.Sprint("m", i)} {
				if rng.IntN(3) == 0 {
					continue // it was 0 all the time
				}
				s := seriesparts.Series{Policy: "p", Member: member, Metric: "violations", Values: make([]*int64, steps)}
				for at := range s.Values {
					if v := rng.Int64N(9); p.Known[at] || rng.IntN(2) == 0 {
						s.Values[at] = &v
					}
				}
				p.Series = append(p.Series, s)
			}
			parts[i] = p
		}
		out, err := seriesparts.Merge(encode(t, parts...), seriesparts.Options{Metrics: []string{"violations"}, Limit: 100, KeysMissing: missing, Unknown: missing})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range out.Series {
			got[s.Member] = text(s.Values)
		}
		want := map[string]string{}
		known := make([]bool, steps)
		for at := range steps {
			known[at] = !missing
			total, all, some := int64(0), !missing, false
			for i, p := range parts {
				own := at + least - shifts[i]
				known[at] = known[at] && own >= 0 && p.Known[own]
				had := false
				for _, s := range p.Series {
					var v *int64
					if own >= 0 {
						v = s.Values[own]
					}
					if s.Member != "" {
						want[s.Member] += text([]*int64{v}) + " "
						continue
					}
					had, some = true, true
					if all = all && v != nil; v != nil {
						total += *v
					}
				}
				all = all && (had || own >= 0 && p.Known[own])
			}
			switch {
			case some && all:
				want[""] += fmt.Sprint(total, " ")
			case some:
				want[""] += "? "
			}
		}
		if fmt.Sprint(known) != fmt.Sprint(out.Known) {
			t.Fatalf("round %d: known %v, want %v", round, out.Known, known)
		}
		if len(got) != len(want) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
		for member, w := range want {
			if got[member] != strings.TrimSpace(w) {
				t.Fatalf("round %d, %q: %s, want %s", round, member, got[member], w)
			}
		}
	}
}

// TestMerge_OfAMemberThatMoves: what two know of a member at a step is not added.
func TestMerge_OfAMemberThatMoves(t *testing.T) {
	one, two := int64(1), int64(2)
	part := func(values ...*int64) *seriesparts.Part {
		return &seriesparts.Part{StepSeconds: 300, Start: epoch, Known: make([]bool, 3), Series: []seriesparts.Series{{Policy: "p", Member: "m", Metric: "violations", Values: values}}}
	}
	out, err := seriesparts.Merge(encode(t, part(&one, &one, nil), part(nil, &two, &two)), seriesparts.Options{Limit: 9})
	if err != nil || len(out.Series) != 1 || text(out.Series[0].Values) != "1 ? 2" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestMerge_RefusesOtherSteps, and bounds the answer.
func TestMerge_RefusesOtherSteps(t *testing.T) {
	a := &seriesparts.Part{StepSeconds: 300, Start: epoch, Known: make([]bool, 3)}
	b := &seriesparts.Part{StepSeconds: 60, Start: epoch, Known: make([]bool, 3)}
	if _, err := seriesparts.Merge(encode(t, a, b), seriesparts.Options{}); err == nil {
		t.Error("steps that differ are added")
	}
	if _, err := seriesparts.Merge([][]byte{[]byte("{")}, seriesparts.Options{}); err == nil {
		t.Error("what is no JSON is added")
	}
	for i := range 3 {
		a.Series = append(a.Series, seriesparts.Series{Policy: fmt.Sprint(i), Member: "m", Metric: "violations", Values: make([]*int64, 3)})
	}
	out, err := seriesparts.Merge(encode(t, a), seriesparts.Options{Limit: 2})
	if err != nil || len(out.Series) != 2 || !out.Truncated {
		t.Errorf("%+v, %v", out, err)
	}
}
