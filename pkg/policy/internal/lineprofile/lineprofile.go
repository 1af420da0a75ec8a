// Package lineprofile says which lines of a policy its evaluations spend their time on, from samples that cost a
// small part of that time.
package lineprofile

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// every is how many times as long as its samples a policy evaluates at least.
const every = 200

const (
	// debt is what a policy is taken to have spent on samples at first: one that takes no time has none.
	debt = 5 * time.Microsecond
	// maxPlaces bounds the expressions, and the lines, that are told apart. What others take is not counted.
	maxPlaces = 4096
	// ageAfter is the number of samples after which older ones count half.
	ageAfter = 1024
)

// Line is a line and its part of the time of evaluations.
type Line struct {
	File  string
	Row   int // from 1
	Share float64
}

type place struct {
	file string
	row  int
}

// Profile is that of one policy. The zero value is ready to use, by any number of goroutines.
type Profile struct {
	busy   atomic.Bool  // a sample is being taken
	spent  atomic.Int64 // nanoseconds, on samples
	tracer tracer       // of who has set busy

	mu      sync.Mutex
	lines   map[place]time.Duration
	samples int
}

// Sample has an evaluation traced, if a policy whose evaluations have taken that long is to be sampled again and
// no other goroutine does. An evaluation of its own is what it is about: tracing slows it down several times.
func (p *Profile) Sample(taken time.Duration, evaluate func(topdown.QueryTracer)) {
	if (time.Duration(p.spent.Load())+debt)*every >= taken || !p.busy.CompareAndSwap(false, true) {
		return
	}
	defer p.busy.Store(false)
	start := time.Now()
	p.tracer.start = start
	evaluate(&p.tracer)
	p.tracer.charge(time.Since(start))
	p.add()
	p.spent.Add(int64(time.Since(start)))
}

// add adds a sample to the profile.
func (p *Profile) add() {
	t := &p.tracer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.samples++; p.samples > ageAfter {
		p.samples /= 2
		for at := range p.lines {
			p.lines[at] /= 2
		}
	}
	if p.lines == nil {
		p.lines = map[place]time.Duration{}
	}
	for location, took := range t.took {
		at := place{location.File, location.Row}
		if _, known := p.lines[at]; *took > 0 && (known || len(p.lines) < maxPlaces) {
			p.lines[at] += *took
		}
		*took = 0
	}
	t.current, t.at = nil, 0
}

// Top returns the lines that take most, at most n, and of how many samples; shares are of all lines.
func (p *Profile) Top(n int) (top []Line, samples int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all time.Duration
	for at, took := range p.lines {
		all += took
		top = append(top, Line{at.file, at.row, float64(took)})
	}
	slices.SortFunc(top, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row))
	})
	top = slices.Clip(top[:min(n, len(top))])
	for i := range top {
		top[i].Share /= float64(max(all, 1))
	}
	return top, p.samples
}

// Keep returns a profile with what is known of the files that are the same, for policies that were compiled
// again: their lines are where they were.
func (p *Profile) Keep(same func(file string) bool) *Profile {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &Profile{lines: map[place]time.Duration{}, samples: p.samples}
	out.spent.Store(p.spent.Load())
	for at, took := range p.lines {
		if same(at.file) {
			out.lines[at] = took
		}
	}
	if len(out.lines) == 0 {
		out.samples = 0
	}
	return out
}

// tracer charges the time between two events to the line of the first one, its own time aside.
type tracer struct {
	start   time.Time
	at      time.Duration // since start: until when time is charged
	current *time.Duration
	took    map[*ast.Location]*time.Duration
}

var _ topdown.QueryTracer = (*tracer)(nil)

// Enabled implements topdown.QueryTracer.
func (*tracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer.
func (t *tracer) TraceEvent(e topdown.Event) {
	if e.Op != topdown.EvalOp && e.Op != topdown.RedoOp {
		return
	}
	expr, ok := e.Node.(*ast.Expr)
	if !ok {
		return
	}
	t.charge(time.Since(t.start))
	t.current = t.of(expr.Location)
	t.at = time.Since(t.start)
}

func (t *tracer) charge(now time.Duration) {
	if t.current != nil {
		*t.current += now - t.at
	}
}

// of returns where time of a location is counted; nil for the query's own and for too many.
func (t *tracer) of(l *ast.Location) *time.Duration {
	if l == nil || l.File == "" {
		return nil
	}
	at := t.took[l]
	if at == nil && len(t.took) < maxPlaces {
		if t.took == nil {
			t.took = map[*ast.Location]*time.Duration{}
		}
		at = new(time.Duration)
		t.took[l] = at
	}
	return at
}
