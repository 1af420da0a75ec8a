package assignment

// Move is a change of who holds a member.
type Move struct {
	Member int // in Members
	To     int
	Aside  bool // the standby's place is taken, not the judge's
	Swap   bool // judge and standby change places, which nothing has to be read for
}

// Moves changes the plan by the moves that pay most, so many at most, and returns them.
func (p *Plan) Moves(limit int) []Move {
	var out []Move
	for len(out) < limit && len(p.Processes) > 1 && p.Imbalance() > Threshold {
		from, height := p.highest()
		m, ok := p.best(from, height)
		if ok {
			p.apply(m)
			out = append(out, m)
			continue
		}
		a, b, ok := p.exchange(from, height)
		if !ok || len(out)+2 > limit {
			break
		}
		p.apply(a)
		p.apply(b)
		out = append(out, a, b)
	}
	return out
}

// movable reports whether a member may move now.
func (m *Member) movable() bool { return !m.Fixed && m.Next == None && m.Judge != None }

// best returns the move away from the highest process that lowers it most.
func (p *Plan) best(from int, height float64) (Move, bool) {
	best, bestGain, bestRank, found := Move{}, 0.0, uint64(0), false
	for i := range p.Members {
		m := &p.Members[i]
		if !m.movable() || m.Judge != from && m.Standby != from {
			continue
		}
		for q := range p.Processes {
			move, ok := m.move(i, from, q)
			if !ok || p.Closed[q] {
				continue
			}
			gain, worth := p.gain(m, move, from, height)
			if !worth || gain < bestGain*0.98 {
				continue
			}
			// Of moves that are about as good the one that brings a member home.
			rank := p.rank(m, q)
			if !found || gain > bestGain*1.02 || rank > bestRank {
				best, bestGain, bestRank, found = move, max(gain, bestGain), rank, true
			}
		}
	}
	return best, found
}

// move returns the move of a member from one process, which holds it, to another, if there is one.
func (m *Member) move(i, from, to int) (Move, bool) {
	switch {
	case to == from:
		return Move{}, false
	case m.Judge == from && m.Standby == to:
		return Move{Member: i, To: to, Swap: true}, m.Ready
	case m.Judge == from:
		return Move{Member: i, To: to}, true
	default:
		return Move{Member: i, To: to, Aside: true}, to != m.Judge
	}
}

// shift returns what leaves the one process and comes to the other.
func (m *Member) shift(move Move) (leaves vector) {
	switch {
	case move.Aside:
		return m.following
	case move.Swap:
		leaves = m.judging
		leaves.sub(m.following)
		return leaves
	default:
		return m.judging
	}
}

// gain is by how much a move lowers the highest process, and whether that is worth it.
func (p *Plan) gain(m *Member, move Move, from int, height float64) (gain float64, worth bool) {
	v := m.shift(move)
	a, b := p.heights[from], p.heights[move.To]
	a.sub(v)
	b.add(v)
	gain = height - max(a.max(), b.max())
	return gain, gain > 0 && gain >= v.max()/2 && gain > 1e-9
}

// exchange returns two moves that lower the highest process where none does by itself: a member for a lighter one.
func (p *Plan) exchange(from int, height float64) (there, back Move, ok bool) {
	const pairs = 1 << 20 // that are looked at
	left, best := pairs, 0.0
	if p.Closed[from] {
		return there, back, false
	}
	for i := range p.Members {
		m := &p.Members[i]
		if !m.movable() || m.Judge != from {
			continue
		}
		for j := range p.Members {
			o := &p.Members[j]
			if !o.movable() || o.Judge == from || o.Standby == from || m.Standby == o.Judge || p.Closed[o.Judge] {
				continue
			}
			if left--; left < 0 {
				return there, back, ok
			}
			a, b := p.heights[from], p.heights[o.Judge]
			a.sub(m.judging)
			a.add(o.judging)
			b.sub(o.judging)
			b.add(m.judging)
			gain := height - max(a.max(), b.max())
			if gain > best && gain >= height/50 {
				best, ok = gain, true
				there, back = Move{Member: i, To: o.Judge}, Move{Member: j, To: from}
			}
		}
	}
	return there, back, ok
}

func (p *Plan) apply(move Move) {
	m := &p.Members[move.Member]
	from := m.Judge
	if move.Aside {
		from = m.Standby
	}
	v := m.shift(move)
	p.take(from, v)
	p.put(move.To, v)
	if move.Swap {
		m.Judge, m.Standby = m.Standby, m.Judge
		m.Fixed = true // once is enough
		return
	}
	m.Next, m.Aside = move.To, move.Aside
}
