package assignment

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"
)

// None is no process.
const None = -1

const (
	// Threshold is the imbalance below which nothing moves.
	Threshold = 1.08
	// bound is how far above the mean a process may come by members that are placed by hash.
	bound = 1.05
)

// Load is what a member costs the process that judges it.
type Load struct {
	Bytes  float64 // held
	Deltas float64 // a second
	CPU    float64 // cores, of evaluations
}

// idle is what any member costs.
var idle = Load{Bytes: 4 << 20, Deltas: 0.2, CPU: 0.002}

const dimensions = 3

type vector [dimensions]float64

func (v *vector) add(o vector) {
	for d := range v {
		v[d] += o[d]
	}
}

func (v *vector) sub(o vector) {
	for d := range v {
		v[d] -= o[d]
	}
}

func (v vector) max() float64 { return max(v[0], v[1], v[2]) }

// most bounds what is believed of one member: beyond, somebody lies, and nothing is infinite.
const most = 1e15

func (l Load) vector() vector {
	v := vector{l.Bytes, l.Deltas, l.CPU}
	for d, x := range v {
		if !(x > 0) { // nor a number
			v[d] = 0
		}
		v[d] = min(v[d], most)
	}
	v.add(vector{idle.Bytes, idle.Deltas, idle.CPU})
	return v
}

// Member is one member, and who has it.
type Member struct {
	Name     string
	Load     Load
	Measured bool // otherwise Load is not known
	Judge    int  // None: nobody
	Standby  int
	Next     int  // who is to take the judge's place, or the standby's, and is not ready yet
	Aside    bool // Next takes the standby's place
	Fixed    bool // it is not moved
	Ready    bool // its standby has read all: it can take the judge's place at once
	// Prefers is a process that has the member although it does not hold it by the map; it is placed there first.
	Prefers int

	judging, following vector // what it costs, as a share of the fleet's
}

// Plan is an assignment under way. Its Members are in place; Place and Moves change them.
type Plan struct {
	Processes   []string // IDs, sorted
	Members     []Member
	Replication int
	// Closed are processes that are given no member, unless there is no other.
	Closed []bool

	heights []vector
}

// New returns a plan. It takes members over as its own.
func New(processes []string, members []Member, replication int) *Plan {
	p := &Plan{Processes: processes, Members: members, Replication: replication, Closed: make([]bool, len(processes)), heights: make([]vector, len(processes))}
	p.weigh()
	for i := range p.Members {
		m := &p.Members[i]
		judge, standby := m.settled()
		p.put(judge, m.judging)
		p.put(standby, m.following)
	}
	return p
}

// settled returns who holds the member once what is under way has ended.
func (m *Member) settled() (judge, standby int) {
	switch {
	case m.Next == None:
		return m.Judge, m.Standby
	case m.Aside:
		return m.Judge, m.Next
	default:
		return m.Next, m.Standby
	}
}

// weigh sets what members cost as shares of the fleet's cost.
func (p *Plan) weigh() {
	median := p.median()
	var total vector
	loads := make([]vector, len(p.Members))
	for i := range p.Members {
		loads[i] = median
		if m := &p.Members[i]; m.Measured {
			loads[i] = m.Load.vector()
		}
		total.add(loads[i])
	}
	copies := float64(max(min(p.Replication, len(p.Processes)), 1))
	for i := range p.Members {
		m := &p.Members[i]
		for d := range loads[i] {
			m.judging[d] = loads[i][d] / total[d]
		}
		m.following = vector{m.judging[0] / copies, m.judging[1] / copies, 0}
		m.judging[0], m.judging[1] = m.following[0], m.following[1]
	}
}

// median is what a member costs that was never measured.
func (p *Plan) median() vector {
	var of [dimensions][]float64
	for i := range p.Members {
		if m := &p.Members[i]; m.Measured {
			for d, x := range m.Load.vector() {
				of[d] = append(of[d], x)
			}
		}
	}
	if len(of[0]) == 0 {
		return Load{}.vector()
	}
	var v vector
	for d := range of {
		slices.Sort(of[d])
		v[d] = of[d][len(of[d])/2]
	}
	return v
}

func (p *Plan) put(process int, v vector) {
	if process != None {
		p.heights[process].add(v)
	}
}

func (p *Plan) take(process int, v vector) {
	if process != None {
		p.heights[process].sub(v)
	}
}

// Place finds a judge for each member that has none, and a standby where there is to be one. The heaviest come first: what is left
// fills the gaps.
func (p *Plan) Place() {
	if len(p.Processes) == 0 {
		return
	}
	order := make([]int, 0, len(p.Members))
	for i := range p.Members {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &p.Members[a], &p.Members[b]
		return cmp.Or(cmp.Compare(y.judging.max(), x.judging.max()), cmp.Compare(x.Name, y.Name))
	})
	for _, i := range order {
		if m := &p.Members[i]; m.Judge == None {
			m.Judge = p.find(m, m.judging, m.Standby, m.Next)
			p.put(m.Judge, m.judging)
		}
	}
	if p.Replication < 2 || len(p.Processes) < 2 {
		return
	}
	for _, i := range order {
		if m := &p.Members[i]; m.Standby == None && (m.Next == None || !m.Aside) {
			if m.Standby = p.find(m, m.following, m.Judge, m.Next); m.Standby != None {
				p.put(m.Standby, m.following)
			}
		}
	}
}

// find returns the process that a member goes to: neither of two others, and one that is closed only where all are.
func (p *Plan) find(m *Member, v vector, not, nor int) int {
	if q := p.findOf(m, v, not, nor, false); q != None {
		return q
	}
	return p.findOf(m, v, not, nor, true)
}

// findOf is find among the processes that are closed, or are not.
func (p *Plan) findOf(m *Member, v vector, not, nor int, closed bool) int {
	limit := bound / float64(len(p.Processes))
	best, bestRank := None, uint64(0)
	lowest, least := None, math.Inf(1)
	for q := range p.Processes {
		if q == not || q == nor || p.Closed[q] != closed {
			continue
		}
		after := p.heights[q]
		after.add(v)
		h, rank := after.max(), p.rank(m, q)
		if m.Prefers == q && h <= 2*limit {
			return q
		}
		if h <= limit && (best == None || rank > bestRank) {
			best, bestRank = q, rank
		}
		if h < least || h == least && lowest != None && rank > p.rank(m, lowest) {
			lowest, least = q, h
		}
	}
	if best == None {
		return lowest
	}
	return best
}

// rank is how much a process is a member's by rendezvous hashing.
func (p *Plan) rank(m *Member, process int) uint64 { return Rank(m.Name, p.Processes[process]) }

// Rank is how much a process is the one for a key: the one with the highest rank has it.
func Rank(key, process string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))     //nolint:errcheck // it never fails
	_, _ = h.Write([]byte{0})       //nolint:errcheck // it never fails
	_, _ = h.Write([]byte(process)) //nolint:errcheck // it never fails
	x := h.Sum64()
	// FNV leaves the last bytes in the lowest bits: names that differ in a digit would have ranks in one order.
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Imbalance is how much higher the highest process is than the mean of all could be, once what is under way has ended: 1 is
// perfect.
func (p *Plan) Imbalance() float64 {
	if len(p.Processes) == 0 || len(p.Members) == 0 {
		return 1
	}
	_, h := p.highest()
	return h * float64(len(p.Processes))
}

func (p *Plan) highest() (process int, height float64) {
	process = None
	for q := range p.heights {
		if h := p.heights[q].max(); process == None || h > height {
			process, height = q, h
		}
	}
	return process, height
}

// Bound is an imbalance that no assignment of whole members can be below.
func (p *Plan) Bound() float64 {
	n := len(p.Processes)
	if n == 0 || len(p.Members) == 0 {
		return 1
	}
	least := 1 / float64(n)
	for d := range dimensions {
		of := make([]float64, len(p.Members))
		for i := range p.Members {
			of[i] = p.Members[i].judging[d]
		}
		slices.SortFunc(of, func(a, b float64) int { return cmp.Compare(b, a) })
		least = max(least, of[0])
		// Of k·n+1 members some process has k+1, at best the smallest of these.
		for k := 1; p.Replication < 2 && k*n < len(of) && k < 64; k++ {
			sum := 0.0
			for _, x := range of[k*n-k : k*n+1] {
				sum += x
			}
			least = max(least, sum)
		}
	}
	return least * float64(n)
}
