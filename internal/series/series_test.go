package series_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"federator.dev/federator/internal/series"
)

// TestRing_Model compares with a plain map of all values, over random histories with gaps.
func TestRing_Model(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		const steps = 20
		r := series.New(series.Options{Steps: steps})
		model := map[int64]map[series.Key]int64{}
		keys := make([]series.Key, 6)
		for i := range keys {
			keys[i] = series.Key{Policy: fmt.Sprint(i % 2), Member: fmt.Sprint(i), Metric: "violations"}
		}
		step, current := int64(random.IntN(5)), map[series.Key]int64{}
		for range 80 {
			step += 1 + int64(random.IntN(2)*random.IntN(10))
			for _, k := range keys {
				if random.IntN(4) == 0 {
					current[k] = int64(random.IntN(3) * random.IntN(2))
				}
			}
			values := map[series.Key]int64{}
			for k, v := range current {
				values[k] = v
			}
			r.Record(step, values)
			r.Record(step-1, map[series.Key]int64{keys[0]: 99}) // is ignored
			model[step] = values
			from := step - int64(random.IntN(2*steps))
			for _, k := range keys {
				for i, got := range r.Values(k, from, 2*steps) {
					at := from + int64(i)
					want, known := model[at]
					known = known && at > step-steps
					if known != (got != nil) || known && *got != want[k] {
						t.Fatalf("seed %d: %v at %d of %d: %v, want %v %v", seed, k, at, step, got, want[k], known)
					}
				}
			}
		}
		if n := len(r.Keys()); n > len(keys) {
			t.Errorf("%d series are kept", n)
		}
	}
}

func TestRing_ForgetsWhatIsZeroAgain(t *testing.T) {
	r := series.New(series.Options{Steps: 3})
	k := series.Key{Policy: "p", Member: "m", Metric: "violations"}
	r.Record(1, map[series.Key]int64{k: 1})
	for step := range int64(6) {
		r.Record(2+step, nil)
	}
	if len(r.Keys()) != 0 || r.Bytes() != 0 {
		t.Errorf("%v, %d bytes", r.Keys(), r.Bytes())
	}
}

// TestRing_IsBounded: what changes least is dropped, and what is shown of it later is not known before.
func TestRing_IsBounded(t *testing.T) {
	r := series.New(series.Options{Steps: 50, MaxBytes: 20_000})
	busy := series.Key{Policy: "busy", Member: "m", Metric: "violations"}
	for step := range int64(40) {
		values := map[series.Key]int64{busy: step%2 + 1}
		for i := range 200 {
			values[series.Key{Policy: "quiet", Member: fmt.Sprint(i), Metric: "violations"}] = 7
		}
		r.Record(step+1, values)
		if r.Bytes() > 20_000 {
			t.Fatalf("%d bytes", r.Bytes())
		}
	}
	known := 0
	for i, v := range r.Values(busy, 1, 40) {
		if v != nil {
			if known++; *v != int64(i%2+1) {
				t.Errorf("at %d it is %d", i+1, *v)
			}
		}
	}
	if r.Dropped() < 50 || r.Dropped() > 199 || known < 20 {
		t.Errorf("%d are dropped, the busy one is known at %d steps", r.Dropped(), known)
	}
	for _, k := range r.Keys() {
		for i, v := range r.Values(k, 1, 40) {
			if k != busy && v != nil && *v != 7 {
				t.Errorf("%v at %d: %d, which is not so", k, i, *v)
			}
		}
	}
}

func TestRing_ForgetIsNotZero(t *testing.T) {
	r := series.New(series.Options{})
	k := series.Key{Policy: "p", Member: "m", Metric: "violations"}
	r.Record(1, map[series.Key]int64{k: 5})
	r.ForgetPolicy("p")
	if got := r.Values(k, 1, 1); got[0] != nil {
		t.Errorf("%v", got)
	}
	r.Record(2, map[series.Key]int64{k: 3})
	if got := r.Values(k, 1, 2); got[0] != nil || *got[1] != 3 {
		t.Errorf("%v", got)
	}
}
