package simulation

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand" //nolint:depguard // client-go draws from its global source, which only it can reseed
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// minSteps is how many steps a schedule has at least, before its end.
const minSteps = 50

// Result is what came of a schedule.
type Result struct {
	Seed    uint64
	Steps   int
	Failure error // the first invariant that did not hold; nil: all did
	History []string
	States  map[[8]byte]bool // digests of the states of the world that it reached
	choices []uint32
}

// prepare makes what schedules share, outside of their bubbles.
func prepare() {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // one of them sleeps until a millisecond after the last error of any schedule
	packages()
	hubKinds()
	windows()
}

// Player plays the schedule that some choices stand for.
type Player func(*testing.T, *choices) Result

// Run runs the schedule of a seed.
func Run(t *testing.T, seed uint64) Result { return play.run(t, seed) }

func (play Player) run(t *testing.T, seed uint64) Result {
	prepare()
	r := play(t, seeded(seed))
	r.Seed = seed
	return r
}

// play plays a schedule of the write path.
var play Player = func(t *testing.T, c *choices) Result {
	return bubble(t, func(ctx context.Context) Result {
		w := newWorld(ctx, c)
		w.run(minSteps + c.below(30))
		return Result{Steps: w.step, Failure: w.failure, History: w.history, States: w.states, choices: c.made}
	})
}

// bubble runs a schedule in virtual time.
func bubble(t *testing.T, run func(context.Context) Result) (r Result) {
	// client-go draws the intervals of elections from the global source: each schedule
	// reseeds it. Nothing else may run meanwhile that draws from it.
	rand.Seed(1)
	// Goroutines of one instant run in one order on one processor, in many on several.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { r = run(context.WithoutCancel(t.Context())) })
	return r
}

// Shrink looks for a shorter schedule that fails alike, for as long as it may.
func Shrink(t *testing.T, r Result, within time.Duration) Result { return play.shrink(t, r, within) }

func (play Player) shrink(t *testing.T, r Result, within time.Duration) Result {
	start := time.Now()
	kind := failureKind(r.Failure)
	best := r
	try := func(numbers []uint32) bool {
		if time.Since(start) > within {
			return false
		}
		next := play(t, &choices{replay: numbers})
		if failureKind(next.Failure) != kind || len(next.History) >= len(best.History) {
			return false
		}
		next.Seed, next.choices = r.Seed, numbers
		best = next
		return true
	}
	for size := len(best.choices) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(best.choices); {
			numbers := slices.Delete(slices.Clone(best.choices), at, at+size)
			zeroed := slices.Clone(best.choices)
			clear(zeroed[at : at+size])
			if !try(numbers) && !try(zeroed) {
				at += size
			}
		}
	}
	return best
}

// failureKind is which invariant failed.
func failureKind(err error) string {
	if err == nil {
		return ""
	}
	kind, _, _ := strings.Cut(err.Error(), ":")
	return kind
}

// digest shortens the description of a state.
func digest(state string) (d [8]byte) {
	sum := sha256.Sum256([]byte(state))
	copy(d[:], sum[:])
	return d
}

// String is what a person needs to see of a failed schedule.
func (r Result) String() string {
	return fmt.Sprintf("seed %d, %d steps: %v\n%s", r.Seed, r.Steps, r.Failure, strings.Join(r.History, "\n"))
}
