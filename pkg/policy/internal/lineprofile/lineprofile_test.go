package lineprofile_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"federator.dev/federator/pkg/policy/internal/lineprofile"
)

// steps are evaluations of lines of a file, with how long each takes.
type step struct {
	row  int
	took time.Duration
}

func locations(file string, rows int) []*ast.Location {
	out := make([]*ast.Location, rows+1)
	for row := range out {
		out[row] = ast.NewLocation(nil, file, row, 1)
	}
	return out
}

func run(tracer topdown.QueryTracer, at []*ast.Location, steps ...step) {
	for _, s := range steps {
		tracer.TraceEvent(topdown.Event{Op: topdown.EvalOp, Node: &ast.Expr{Location: at[s.row]}})
		time.Sleep(s.took)
	}
}

// TestProfile_CostsASmallPart of what evaluations take, whatever these and their samples do.
func TestProfile_CostsASmallPart(t *testing.T) {
	for _, slowdown := range []int{1, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			var p lineprofile.Profile
			at := locations("a.rego", 3)
			var taken, spent time.Duration
			for i := range 200_000 {
				took := time.Duration(i%7+1) * 10 * time.Microsecond
				sampled := time.Duration((i%7+1)*slowdown) * 10 * time.Microsecond
				p.Sample(taken, func(tracer topdown.QueryTracer) {
					run(tracer, at, step{1, sampled})
					spent += sampled
				})
				taken += took
			}
			if _, samples := p.Top(1); samples < 10 || spent > taken/200+time.Duration(70*slowdown)*time.Microsecond {
				t.Errorf("%d samples took %v of %v", samples, spent, taken)
			}
		})
	}
}

func TestProfile_TellsLinesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p lineprofile.Profile
		at := locations("a.rego", 9)
		sample := func(steps ...step) bool {
			sampled := false
			p.Sample(time.Hour, func(tracer topdown.QueryTracer) {
				sampled = true
				tracer.TraceEvent(topdown.Event{Op: topdown.EvalOp, Node: &ast.Expr{}}) // of the query
				time.Sleep(time.Second)
				run(tracer, at, steps...)
			})
			return sampled
		}
		if lines, samples := p.Top(10); len(lines) != 0 || samples != 0 {
			t.Errorf("before any sample: %v of %d", lines, samples)
		}
		if !sample(step{2, 300}, step{5, 600}, step{2, 50}) || !sample(step{7, 50}) {
			t.Fatal("nothing was sampled")
		}
		lines, samples := p.Top(2)
		if fmt.Sprint(lines) != "[{a.rego 5 0.6} {a.rego 2 0.35}]" || samples != 2 {
			t.Errorf("%v of %d samples", lines, samples)
		}
		same := p.Keep(func(file string) bool { return file == "a.rego" })
		if got, n := same.Top(2); fmt.Sprint(got) != fmt.Sprint(lines) || n != 2 {
			t.Errorf("of the same file: %v of %d", got, n)
		}
		if got, n := p.Keep(func(string) bool { return false }).Top(2); len(got) != 0 || n != 0 {
			t.Errorf("of another file: %v of %d", got, n)
		}
	})
}

// TestProfile_IsBounded: in lines of many files, and in what is remembered.
func TestProfile_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p lineprofile.Profile
		for file := range 100 {
			p.Sample(time.Hour, func(tracer topdown.QueryTracer) {
				at := locations(fmt.Sprint(file), 100)
				for row := range 100 {
					run(tracer, at, step{row + 1, 1})
				}
			})
		}
		if lines, _ := p.Top(1 << 20); len(lines) != 4096 {
			t.Errorf("%d lines are remembered", len(lines))
		}
	})
}

// TestProfile_ForgetsWhatIsOld: what a policy has taken long ago counts less.
func TestProfile_ForgetsWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p lineprofile.Profile
		at := locations("a.rego", 2)
		for i := range 6000 {
			p.Sample(time.Hour, func(tracer topdown.QueryTracer) { run(tracer, at, step{1 + i/3000, 100}) })
		}
		lines, samples := p.Top(1)
		if lines[0].Row != 2 || lines[0].Share < 0.95 || samples > 1024 {
			t.Errorf("%v of %d samples", lines, samples)
		}
	})
}

// TestProfile_IsSampledByOneAtATime of many goroutines.
func TestProfile_IsSampledByOneAtATime(t *testing.T) {
	var p lineprofile.Profile
	at := locations("a.rego", 2)
	inside := make(chan struct{}, 1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				p.Sample(time.Hour, func(tracer topdown.QueryTracer) {
					select {
					case inside <- struct{}{}:
					default:
						t.Error("two samples at a time")
						return
					}
					run(tracer, at, step{1, 0}, step{2, 0})
					<-inside
				})
				p.Top(3)
			}
		})
	}
	all.Wait()
	if _, samples := p.Top(1); samples == 0 {
		t.Error("nothing was sampled")
	}
}
