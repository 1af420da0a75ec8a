package seriesparts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Part is what a process says of the series that it has counted.
type Part struct {
	StepSeconds int       `json:"stepSeconds"`
	Start       time.Time `json:"start"` // of the first value
	Series      []Series  `json:"series"`
	Dropped     int       `json:"dropped"`
	Truncated   bool      `json:"truncated"`
	Known       []bool    `json:"known"`
	Partial     bool      `json:"partial"`
}

// Series is one of them: of a member, which one process judges, or of keys of views, of which each has some.
type Series struct {
	Policy string   `json:"policy"`
	Member string   `json:"member"` // "": keys of views
	Metric string   `json:"metric"`
	Values []*int64 `json:"values"` // nil: not known
}

// Options say how parts become one.
type Options struct {
	Metrics []string // in the order of the answer
	Limit   int      // of the series of the answer
	// KeysMissing is set where a process that may have counted keys of views does not answer, and Unknown where not
	// all series are known that are asked for.
	KeysMissing, Unknown bool
}

// Merge adds what processes have counted at the same steps. The steps are those that all can know: the clock of one may
// be a step behind.
func Merge(bodies [][]byte, o Options) (*Part, error) {
	parts := make([]Part, len(bodies))
	for i, body := range bodies {
		if err := json.Unmarshal(body, &parts[i]); err != nil {
			return nil, fmt.Errorf("series: a part: %w", err)
		}
		if parts[i].StepSeconds <= 0 || parts[i].StepSeconds != parts[0].StepSeconds || len(parts[i].Known) != len(parts[0].Known) {
			return nil, errors.New("series: the processes of the fleet differ in their steps")
		}
	}
	if len(parts) == 0 {
		return nil, errors.New("series: there are no parts")
	}
	out := &Part{StepSeconds: parts[0].StepSeconds, Start: parts[0].Start, Known: slices.Repeat([]bool{!o.Unknown}, len(parts[0].Known))}
	for _, p := range parts {
		if p.Start.Before(out.Start) {
			out.Start = p.Start
		}
		out.Dropped += p.Dropped
		out.Truncated, out.Partial = out.Truncated || p.Truncated, out.Partial || p.Partial
	}
	m := merging{Options: o, out: out, of: map[[3]string]int{}}
	for i := range parts {
		m.add(&parts[i])
	}
	for i := range parts {
		m.addMissing(&parts[i])
	}
	m.finish()
	return out, nil
}

// merging is the state of one Merge.
type merging struct {
	Options

	out  *Part
	of   map[[3]string]int // places in sums
	sums []sum
}

// sum is a series of the answer.
type sum struct {
	Series

	begun   []bool             // whether a part has said something of a step
	unknown []bool             // whether it is not known for good
	had     map[*Part]struct{} // the parts that have the series
}

// at returns where a value of a part is in the answer, which may be outside of it.
func (m *merging) at(p *Part) int {
	return int(p.Start.Sub(m.out.Start) / (time.Duration(p.StepSeconds) * time.Second))
}

// add takes in the series of a part.
func (m *merging) add(p *Part) {
	shift, n := m.at(p), len(m.out.Known)
	for i := range m.out.Known {
		m.out.Known[i] = m.out.Known[i] && i >= shift && p.Known[i-shift]
	}
	for _, s := range p.Series {
		key := [3]string{s.Metric, s.Policy, s.Member}
		place, ok := m.of[key]
		if !ok {
			place = len(m.sums)
			m.of[key] = place
			m.sums = append(m.sums, sum{
				Series: Series{s.Policy, s.Member, s.Metric, make([]*int64, n)}, begun: make([]bool, n), unknown: make([]bool, n), had: map[*Part]struct{}{},
			})
		}
		to := &m.sums[place]
		to.had[p] = struct{}{}
		for i := range n {
			var v *int64
			if i >= shift && i-shift < len(s.Values) {
				v = s.Values[i-shift]
			}
			to.add(i, v)
		}
	}
}

// add takes in a value of a part. A member is counted by one process at a time, so that what two know of one is not known;
// keys are those of all.
func (s *sum) add(i int, v *int64) {
	switch {
	case s.Member == "" && v == nil, s.Member != "" && v != nil && s.begun[i]:
		s.unknown[i] = true
	case v == nil:
	case s.begun[i]:
		total := *s.Values[i] + *v
		s.Values[i] = &total
	default:
		s.begun[i], s.Values[i] = true, v
	}
}

// addMissing takes in what a part does not say of keys: they were none of its own where it knows all that it has counted.
func (m *merging) addMissing(p *Part) {
	shift := m.at(p)
	for i := range m.sums {
		s := &m.sums[i]
		if _, had := s.had[p]; had || s.Member != "" {
			continue
		}
		for step := range s.unknown {
			s.unknown[step] = s.unknown[step] || step < shift || !p.Known[step-shift] || p.Truncated
		}
	}
}

// finish puts the series into the answer.
func (m *merging) finish() {
	for i := range m.sums {
		s := &m.sums[i]
		for step, unknown := range s.unknown {
			if unknown || s.Member == "" && m.KeysMissing {
				s.Values[step] = nil
			}
		}
		m.out.Series = append(m.out.Series, s.Series)
	}
	slices.SortFunc(m.out.Series, func(a, b Series) int {
		return cmp.Or(cmp.Compare(slices.Index(m.Metrics, a.Metric), slices.Index(m.Metrics, b.Metric)), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Member, b.Member))
	})
	if len(m.out.Series) > m.Limit {
		m.out.Series, m.out.Truncated = m.out.Series[:m.Limit], true
	}
}
