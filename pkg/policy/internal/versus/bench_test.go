package versus

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/policy/internal/value"
)

// side is one way to evaluate a rule of an object.
type side struct {
	name string // of its metric
	eval func(c *testCase, out *findings) error
	best time.Duration // of a pass over the sample
}

// sides are the ways to evaluate a rule.
func (s *setup) sides(params value.Value) []*side {
	hand := s.hand(params)
	var a value.Arena
	list := []*side{
		{name: "topdown", eval: func(c *testCase, out *findings) error { return s.policy.interpret(c.term, s.fleet, out) }},
		{name: "compiled", eval: func(c *testCase, out *findings) error { return s.policy.run(c.input, s.fleet, out) }},
		{name: "go", eval: func(c *testCase, out *findings) error {
			hand(&c.subject, out)
			return nil
		}},
		{name: "compiled-bytes", eval: s.policy.runBytes},
		{name: "go-decoding", eval: func(c *testCase, out *findings) (err error) {
			a.Reset()
			of := c.subject
			if of.object, err = value.Decode(&a, c.body, s.policy.pkg.Reads.Object); err == nil {
				hand(&of, out)
			}
			return err
		}},
	}
	ofBytes := s.bytes(params)
	return append(list, &side{name: "go-bytes", eval: func(c *testCase, out *findings) error {
		ofBytes(&c.subject, c.body, out)
		return nil
	}})
}

// pass evaluates the rule of the whole sample.
func (s *side) pass(tb testing.TB, sample []*testCase, out *findings) {
	for _, c := range sample {
		out.list = out.list[:0]
		if err := s.eval(c, out); err != nil {
			tb.Fatal(err)
		}
	}
}

// time keeps how long the fastest pass takes: what else the machine does makes passes
// slower, never faster.
func (s *side) time(tb testing.TB, sample []*testCase, out *findings) {
	start := time.Now()
	s.pass(tb, sample, out)
	if took := time.Since(start); s.best == 0 || took < s.best {
		s.best = took
	}
}

// means are ratios and times by their name and policy.
type means map[string]map[string]float64

func (m means) add(name, policy string, x float64) {
	if m[name] == nil {
		m[name] = map[string]float64{}
	}
	m[name][policy] = x
}

// of is the geometric mean.
func (m means) of(name string) float64 {
	sum := 0.0
	for _, x := range m[name] {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(m[name])))
}

// ratios are those that are printed, and of which metrics.
var ratios = [][3]string{
	{"x-go", "compiled", "go"},
	{"x-go-decoding", "compiled-bytes", "go-decoding"},
	{"x-go-bytes", "compiled-bytes", "go-bytes"},
	{"topdown-x", "topdown", "compiled"},
}

// BenchmarkShipped compares the shipped rules with those by hand: of decoded objects, and
// of stored bytes. All sides take turns.
func BenchmarkShipped(b *testing.B) {
	set := shipped(b)
	m := means{}
	for i := range contests {
		c := &contests[i]
		b.Run(c.policy, func(b *testing.B) { c.bench(b, c.setup(b, set), m) })
	}
	if len(m["x-go"]) < len(contests) {
		return // by -bench
	}
	b.Run("mean", func(b *testing.B) {
		for b.Loop() { //nolint:revive // there is nothing to measure
		}
		for name := range m {
			b.ReportMetric(m.of(name), name)
		}
		b.ReportMetric(float64(len(m["x-go"])), "rules")
	})
}

func (c *contest) bench(b *testing.B, s *setup, m means) {
	sample := s.sample(b)
	sides := s.sides(sample[0].params)
	out := &findings{}
	runtime.GC()
	for b.Loop() {
		for _, side := range sides {
			side.time(b, sample, out)
		}
	}
	b.ReportMetric(0, "ns/op")
	best := map[string]float64{}
	for _, side := range sides {
		best[side.name] = float64(side.best) / float64(len(sample))
		b.ReportMetric(best[side.name], side.name+"-ns")
		if strings.HasPrefix(side.name, "compiled") || strings.HasPrefix(side.name, "go") {
			allocs := testing.AllocsPerRun(3, func() { side.pass(b, sample, out) })
			b.ReportMetric(allocs/float64(len(sample)), side.name+"-allocs")
		}
	}
	for name, ns := range best {
		m.add(name+"-ns", c.policy, ns)
	}
	for _, r := range ratios {
		b.ReportMetric(best[r[1]]/best[r[2]], r[0])
		m.add(r[0], c.policy, best[r[1]]/best[r[2]])
	}
}

// BenchmarkRule evaluates one side of a rule over and over, for profiles.
func BenchmarkRule(b *testing.B) {
	set := shipped(b)
	for i := range contests {
		c := &contests[i]
		b.Run(c.policy, func(b *testing.B) {
			s := c.setup(b, set)
			sample := s.sample(b)
			for _, side := range s.sides(sample[0].params) {
				b.Run(side.name, func(b *testing.B) {
					b.ReportAllocs()
					out := &findings{}
					for b.Loop() {
						side.pass(b, sample, out)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(sample)), "ns/object")
				})
			}
		})
	}
}
