package dryrun_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/remediate/internal/dryrun"
	"federator.dev/federator/pkg/remediate/internal/plans"
)

func targets(members, each int) []plans.Target {
	var out []plans.Target
	for m := range members {
		for n := range each {
			out = append(out, plans.Target{Ref: policy.Ref{Member: fmt.Sprint("m", m), Name: fmt.Sprint(n)}})
		}
	}
	return out
}

// TestGathering_KeepsToRates: those of each member and of all, also of two at once.
func TestGathering_KeepsToRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := dryrun.NewPacer(dryrun.Rates{PerSecond: 50, MemberPerSecond: 10})
		var mu sync.Mutex
		asked := map[int]map[string]int{} // by second and member; "" is all
		start := time.Now()
		ask := func(_ context.Context, x *plans.Target, _ bool) {
			mu.Lock()
			defer mu.Unlock()
			second := int(time.Since(start) / time.Second)
			if asked[second] == nil {
				asked[second] = map[string]int{}
			}
			asked[second][x.Ref.Member]++
			asked[second][""]++
			x.DryRun = v1alpha1.DryRunPassed
		}
		var both sync.WaitGroup
		for range 2 {
			all := targets(8, 30)
			both.Go(func() {
				g := dryrun.New(all)
				if g.Remaining() != 240 {
					t.Errorf("%d remain", g.Remaining())
				}
				if err := g.Run(t.Context(), pacer, ask); err != nil || g.Remaining() != 0 {
					t.Errorf("%v, %d remain", err, g.Remaining())
				}
				if c := dryrun.Count(all); c.Passed != 240 {
					t.Errorf("%+v", c)
				}
			})
		}
		both.Wait()
		for second, of := range asked {
			for member, n := range of {
				if most := map[bool]int{true: 50 + 5, false: 10 + 1}[member == ""]; n > most {
					t.Errorf("second %d: %q was asked %d times", second, member, n)
				}
			}
		}
		if took := time.Since(start); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("480 targets at 50 a second took %v", took)
		}
	})
}

// TestGathering_SilentMembers are not asked on and on, and delay nobody; each of their targets
// says so. Diffs are of a few targets of each member.
func TestGathering_SilentMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := targets(4, 50)
		var mu sync.Mutex
		asked, diffs := map[string]int{}, 0
		var others time.Duration
		start := time.Now()
		err := dryrun.New(all).Run(t.Context(), dryrun.NewPacer(dryrun.Rates{}.OrDefault()), func(_ context.Context, x *plans.Target, diff bool) {
			if x.Ref.Member == "m0" {
				time.Sleep(time.Minute)
				x.DryRun, x.Message = v1alpha1.DryRunUnreachable, "it hangs"
			} else if x.DryRun = v1alpha1.DryRunPassed; diff {
				x.Diff = "+ a: 1"
			}
			mu.Lock()
			defer mu.Unlock()
			if asked[x.Ref.Member]++; x.Ref.Member != "m0" {
				others = time.Since(start)
			}
			if x.Diff != "" {
				diffs++
			}
		})
		if c := dryrun.Count(all); err != nil || c.Passed != 150 || c.Unreachable != 50 || asked["m0"] != 3 || asked["m1"] != 50 {
			t.Errorf("%v, %+v, asked %v", err, c, asked)
		}
		if others > 5*time.Second || diffs != 15 {
			t.Errorf("the others took %v; %d diffs", others, diffs)
		}
		if last := all[49]; last.Message != "not asked, since: it hangs" {
			t.Errorf("%+v", last)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := errors.New("ended")
		g := dryrun.New(targets(1, 50))
		if err := g.Run(ctx, dryrun.NewPacer(dryrun.Rates{}.OrDefault()), func(_ context.Context, x *plans.Target, _ bool) {
			if x.Ref.Name == "7" {
				cancel(ended)
			}
			x.DryRun = v1alpha1.DryRunPassed
		}); !errors.Is(err, ended) || g.Remaining() != 43 {
			t.Errorf("%v, %d remain", err, g.Remaining())
		}
	})
}

func TestRates_Validate(t *testing.T) {
	for _, bad := range []dryrun.Rates{{PerSecond: -1}, {MemberPerSecond: -1}, {PerSecond: math.NaN()}, {MemberPerSecond: math.Inf(1)}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := (dryrun.Rates{PerSecond: 0.1}).Validate(); err != nil {
		t.Error(err)
	}
}
