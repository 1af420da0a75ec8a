//go:debug randseednop=0

package simulation

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

var (
	one   = flag.Uint64("seed", 0, "run the schedule of this seed only, and print its history")
	first = flag.Uint64("first", 1, "the first seed")
	count = flag.Uint64("schedules", 0, "how many schedules to run; 0 means as many as a test runs by default")
	brief = flag.Bool("brief", false, "do not shrink schedules that fail, and stop at the first")
	into  = flag.String("into", "", "file for the summary, of a process that runs a part of the schedules")
)

// summary is what came of some schedules.
type summary struct {
	Steps    []int
	States   map[string]bool
	Failures []string
}

// Whatever fails, in whatever order, corrections stay within their bounds.
func TestCorrections_StayWithinTheirBounds(t *testing.T) { runAll(t, play, 1000, 200) }

// runAll runs so many schedules, fewer with -short, or what flags ask for.
func runAll(t *testing.T, play Player, many, few uint64) {
	if *one != 0 {
		r := play.run(t, *one)
		if t.Log(r); r.Failure != nil {
			t.Error(r.Failure)
		}
		return
	}
	if *into != "" {
		runPart(t, play)
		return
	}
	if testing.Short() {
		many = few
	}
	start := time.Now()
	all := runParts(t, cmp.Or(*count, many))
	slices.Sort(all.Steps)
	for _, text := range all.Failures {
		t.Error(text)
	}
	if n := len(all.Steps); n > 0 {
		t.Logf("%d schedules, %d steps in the median, %d at least, %d distinct states, %v", n, all.Steps[n/2], all.Steps[0], len(all.States), time.Since(start).Round(time.Second))
	}
}

// runPart runs the schedules of this process, and writes their summary.
func runPart(t *testing.T, play Player) {
	s := summary{States: map[string]bool{}}
	defer func() {
		text, err := json.Marshal(s)
		if err == nil {
			err = os.WriteFile(*into, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}()
	for seed := *first; seed < *first+*count && len(s.Failures) < 3; seed++ {
		r := play.run(t, seed)
		s.Steps = append(s.Steps, r.Steps)
		for d := range r.States {
			s.States[hex.EncodeToString(d[:])] = true
		}
		switch {
		case r.Failure != nil && *brief:
			s.Failures = append(s.Failures, fmt.Sprintf("seed %d: %v", seed, r.Failure))
			return
		case r.Failure != nil:
			s.Failures = append(s.Failures, play.shrink(t, r, 20*time.Second).String())
		}
	}
}

// runParts runs all schedules in as many processes as there are processors: one schedule
// at a time in each, since its order is that of one processor.
func runParts(t *testing.T, n uint64) (all summary) {
	all.States = map[string]bool{}
	dir := t.TempDir()
	processes := uint64(runtime.NumCPU())
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range processes {
		file := filepath.Join(dir, strconv.FormatUint(i, 10))
		from, to := i*n/processes, (i+1)*n/processes
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "0", "-into", file,
				"-first", strconv.FormatUint(*first+from, 10), "-schedules", strconv.FormatUint(to-from, 10), "-brief="+strconv.FormatBool(*brief))
			cmd.Env = append(os.Environ(), "GOGC=800")
			output, err := cmd.CombinedOutput()
			var part summary
			if err == nil {
				var text []byte
				if text, err = os.ReadFile(file); err == nil {
					err = json.Unmarshal(text, &part)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%v\n%s", err, output)
				return
			}
			all.Steps, all.Failures = append(all.Steps, part.Steps...), append(all.Failures, part.Failures...)
			for s := range part.States {
				all.States[s] = true
			}
		})
	}
	wg.Wait()
	return all
}

// A seed gives the same history each time.
func TestRun_ASeedReproducesItsHistory(t *testing.T) { reproduces(t, play, 25) }

func reproduces(t *testing.T, play Player, seeds uint64) {
	t.Helper()
	for seed := uint64(1); seed <= seeds; seed++ {
		want := play.run(t, seed)
		for range 3 {
			if got := play.run(t, seed); !slices.Equal(got.History, want.History) {
				t.Fatalf("seed %d: two histories:\n%v\n%v", seed, want, got)
			}
		}
	}
}
