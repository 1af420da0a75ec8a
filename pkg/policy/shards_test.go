package policy_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
)

var shardMembers = []string{"fleet/a", "fleet/b", "fleet/c", "fleet/d", "fleet/e", "fleet/f"}

// sharded is a fleet that several processes share, beside one that has it alone.
type sharded struct {
	r      *rand.Rand
	land   *land
	sets   []policySet
	limits policy.Limits

	documents *policy.External // from outside the fleet; nil: there are none
	// subscribes says that processes tell each other only what they ask for.
	subscribes bool
	chosen     []string
	configs    []config
	digests    []func(aggregate.Kind) string // by config
	newest     int                           // of the configs

	whole     *world
	engine    *policy.Engine // of the whole fleet
	at        *aggregate.Cursor
	processes []*process
	judge     map[string]int // by the map: whose word counts of a member
	ids       []string
	views     []view // what the engines have seen
	running   []int  // configs of the processes, and that of the whole
	log       strings.Builder
	seen      *shardTally
}

// view is what an engine has seen.
type view struct {
	own, peers *aggregate.Snapshot
	told       map[string]*aggregate.Snapshot
}

type shardTally struct {
	known, found, unknown, moves, quiet, previews, others, waiting, grown, shrunk atomic.Int64
}

func newSharded(seed uint64, l *land, sets []policySet, documents *policy.External, seen *shardTally) (*sharded, error) {
	s := &sharded{documents: documents, r: rand.New(rand.NewPCG(seed, 1)), land: l, sets: sets, limits: policy.Limits{Evaluation: time.Hour}, judge: map[string]int{}, seen: seen}
	switch s.r.IntN(16) {
	case 0, 1:
		s.limits = oracleLimits
	case 2, 4, 6, 8, 10, 12, 14, 15: // where peers tell what they are asked for, a view holds less than that of the whole fleet
		s.subscribes = true
	}
	set := s.r.IntN(len(sets))
	for _, p := range sets[set].set.Packages {
		s.chosen = append(s.chosen, p.Name)
	}
	s.r.Shuffle(len(s.chosen), func(i, j int) { s.chosen[i], s.chosen[j] = s.chosen[j], s.chosen[i] })
	s.chosen = s.chosen[:min(len(s.chosen), 3+s.r.IntN(3))]
	if err := s.configure(set); err != nil {
		return nil, err
	}
	var err error
	if s.whole, err = newWorld(); err != nil {
		return nil, err
	}
	if s.engine, err = policy.NewEngine(policy.EngineOptions{Set: sets[set].set, Bindings: s.configs[0].bindings, Parallelism: 1, Limits: s.limits, External: documents}); err != nil {
		return nil, err
	}
	for i := range 3 {
		s.ids = append(s.ids, fmt.Sprint("federator-", i))
	}
	for i := range 3 {
		p := &process{id: s.ids[i], subs: s.subscriber(), starts: uint64(100 * (i + 1)), has: s.configs[0], owner: policy.KeyOwner{Self: s.ids[i], Now: s.ids}}
		if err := p.start(sets, s.limits, 3); err != nil {
			return nil, err
		}
		s.processes = append(s.processes, p)
	}
	s.views, s.running = make([]view, 3), make([]int, 4)
	return s, nil
}

// configure adds a configuration.
func (s *sharded) configure(set int) error {
	c := config{set, s.land.bindings(s.r, s.sets[set].set, s.chosen)}
	// What its policies need of each kind is what an engine with them exports.
	w, err := newWorld()
	if err != nil {
		return err
	}
	for _, o := range append([]op{{Do: "join", Member: "x"}}, s.land.open("x", func() aggregate.State { return aggregate.Synced })...) {
		if err := w.do(o); err != nil {
			return err
		}
	}
	e, err := policy.NewEngine(policy.EngineOptions{Set: s.sets[set].set, Bindings: c.bindings, Parallelism: 1, Exports: true})
	if err != nil {
		return err
	}
	if _, err := e.Reset(context.Background(), w.index.Snapshot(), nil); err != nil {
		return err
	}
	x := e.State().Export()
	s.configs = append(s.configs, c)
	s.digests = append(s.digests, func(kind aggregate.Kind) string {
		info, _ := x.Scope("x", kind)
		digest, _, _ := strings.Cut(info.Version, " ")
		return digest
	})
	s.newest = len(s.configs) - 1
	return nil
}

// knows reports whether a scope that a peer has told of has what one of some configurations needs.
func (s *sharded) knows(configs ...int) func(aggregate.ScopeInfo) bool {
	return func(info aggregate.ScopeInfo) bool {
		told, _, _ := strings.Cut(info.Version, " ")
		return slices.ContainsFunc(configs, func(c int) bool { need := s.digests[c](info.Kind); return need == "" || need == told })
	}
}

func (s *sharded) note(format string, args ...any) { fmt.Fprintf(&s.log, format+"\n", args...) }

// do lets an op happen: in the fleet, in who reads its member, and in what the others are told by sources.
func (s *sharded) do(o op) error {
	s.note("  %s", o)
	if o.Do == "join" && !s.whole.members[o.Member] {
		s.judge[o.Member] = s.r.IntN(3)
		s.processes[s.judge[o.Member]].roles[o.Member] = aggregate.Judge
	}
	if err := s.whole.do(o); err != nil {
		return err
	}
	m, is := s.whole.index.Snapshot().Member(o.Member)
	for i, p := range s.processes {
		if err := p.do(o); err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
		if o.Do == "leave" {
			delete(p.roles, o.Member)
			p.forget(o.Member)
		}
		if role, reads := p.roles[o.Member]; is && (!reads || role == aggregate.Joining) {
			if err := p.hear(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// move lets a member take a step from one process to another.
func (s *sharded) move() error {
	member, i := pick(s.r, shardMembers...), s.r.IntN(3)
	var under []string // way: who else reads it, or does not judge what it should
	for n, p := range s.processes {
		for _, m := range shardMembers {
			if role, reads := p.roles[m]; reads && (role == aggregate.Judge) != (s.judge[m] == n) {
				under = append(under, fmt.Sprint(n, m))
			}
		}
	}
	if len(under) > 0 && s.r.IntN(4) > 0 {
		at := pick(s.r, under...)
		i, member = int(at[0]-'0'), at[1:]
	}
	if !s.whole.members[member] {
		return nil
	}
	m, _ := s.whole.index.Snapshot().Member(member)
	p := s.processes[i]
	role, reads := p.roles[member]
	switch {
	case !reads: // it begins to read
		s.note("  %d joins %s", i, member)
		return p.read(s.whole, member, pick(s.r, aggregate.Joining, aggregate.Joining, aggregate.Standby))
	case role == aggregate.Joining && s.judge[member] != i:
		s.note("  %d is to judge %s", i, member)
		s.judge[member] = i
	case s.judge[member] == i && role != aggregate.Judge:
		s.note("  %d judges %s", i, member)
		s.seen.moves.Add(1)
		if s.r.IntN(2) == 0 {
			p.forget(member)
		}
		return p.setRole(member, aggregate.Judge)
	case s.judge[member] != i && role == aggregate.Judge && s.r.IntN(2) == 0:
		s.note("  %d stands by for %s", i, member)
		return p.setRole(member, aggregate.Standby)
	case s.judge[member] != i:
		s.note("  %d lets go of %s", i, member)
		if err := p.unread(member); err != nil {
			return err
		}
		return p.hear(m)
	}
	return nil
}

// pass takes the engine of a process to what it knows.
func (s *sharded) pass(ctx context.Context, i int, reset bool) error {
	p := s.processes[i]
	own, peers := p.own.index.Snapshot(), p.peers.Snapshot()
	err := p.pass(i, s.processes, func() (*policy.Changes, error) {
		if reset || p.at[0] == nil {
			p.at = [2]*aggregate.Cursor{p.own.index.Cursor(own), p.peers.Cursor(peers)}
			return p.engine.Reset(ctx, own, peers)
		}
		var batches [2]*aggregate.Batch
		for n := range p.at {
			if b, some := p.at[n].Poll(); some {
				batches[n] = b
			}
		}
		if batches[0] == nil && batches[1] == nil {
			return nil, nil
		}
		return p.engine.Apply(ctx, batches[0], batches[1])
	})
	s.views[i] = view{own, peers, maps.Clone(p.told)}
	return err
}

// reconfigure gives a process the newest policies.
func (s *sharded) reconfigure(ctx context.Context, i int) error {
	p, to := s.processes[i], s.configs[s.newest]
	s.note("  %d has policies %d", i, s.newest)
	if p.engine.State() != nil {
		if err := s.preview(ctx, i); err != nil {
			return err
		}
	}
	p.has, s.running[i] = to, s.newest
	return p.pass(i, s.processes, func() (*policy.Changes, error) { return p.engine.Configure(ctx, s.sets[to.set].set, to.bindings) })
}

// step lets something happen.
func (s *sharded) step(ctx context.Context) error {
	i, j := s.r.IntN(3), s.r.IntN(3)
	p := s.processes[i]
	if s.subscribes && s.r.IntN(3) == 0 {
		if err := s.subscribe(ctx, i); err != nil {
			return err
		}
		return s.check(ctx, i)
	}
	if s.documents != nil && s.r.IntN(6) == 0 {
		if err := s.read(ctx, i); err != nil {
			return err
		}
		return s.check(ctx, i)
	}
	switch n := s.r.IntN(32); {
	case n < 8:
		for _, o := range s.land.happening(s.r) {
			o.Member = shardMembers[(slices.Index(worldMembers, o.Member)+3*(i%2))%len(shardMembers)]
			if err := s.do(o); err != nil {
				return err
			}
		}
	case n < 15:
		if err := s.move(); err != nil {
			return err
		}
	case n < 21:
		if i == j || s.processes[j].engine.State() == nil {
			return nil
		}
		s.note("  %d hears of %d", i, j)
		return p.deliver(j, s.processes[j], func(m string) bool { return s.judge[m] == j })
	case n < 26:
		s.note("  %d evaluates", i)
		if err := s.pass(ctx, i, s.r.IntN(12) == 0); err != nil {
			return err
		}
	case n == 26:
		s.note("  %d loses %d", i, j)
		if i != j {
			return p.lose(j)
		}
	case n == 27:
		return s.restart(i)
	case n < 31:
		if s.newest == s.running[i] {
			if err := s.configure(s.r.IntN(len(s.sets))); err != nil {
				return err
			}
		}
		if p.engine.State() == nil {
			return nil
		}
		if err := s.reconfigure(ctx, i); err != nil {
			return err
		}
	default:
		p.owner = policy.KeyOwner{Self: p.id, Now: s.ids[s.r.IntN(2):], Before: s.ids[:s.r.IntN(3)]}
		s.note("  %d has owner %v", i, p.owner)
		if err := p.pass(i, s.processes, func() (*policy.Changes, error) { return p.engine.SetKeyOwner(ctx, p.owner) }); err != nil {
			return err
		}
	}
	return s.check(ctx, i)
}

// restart ends a process, and starts it with new indexes.
func (s *sharded) restart(i int) error {
	s.note("  %d starts again", i)
	p := s.processes[i]
	roles := p.roles
	if err := p.start(s.sets, s.limits, 3); err != nil {
		return err
	}
	s.views[i] = view{}
	for m := range s.whole.index.Snapshot().Members() {
		role, reads := roles[m.Name]
		if reads {
			if err := p.read(s.whole, m.Name, role); err != nil {
				return err
			}
		}
		if !reads || role == aggregate.Joining {
			if err := p.hear(m); err != nil {
				return err
			}
		}
	}
	for j, other := range s.processes {
		if j != i {
			if err := other.lose(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func playShards(ctx context.Context, seed uint64, sets []policySet, documents *policy.External, seen *shardTally) (err error) {
	s, err := newSharded(seed, small, sets, documents, seen)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nseed %d:\n%s", err, seed, s.log.String())
		}
	}()
	for n, o := range small.populate(s.r) {
		if err := s.do(o); err != nil {
			return err
		}
		if o.Do == "reopen" && n%2 == 0 { // the other half of the members
			o.Member = shardMembers[slices.Index(worldMembers, o.Member)+3]
			for _, o := range []op{{Do: "join", Member: o.Member, UID: 1, Labels: map[string]string{"region": "eu"}}, o} {
				if err := s.do(o); err != nil {
					return err
				}
			}
		}
	}
	s.at = s.whole.index.Cursor(s.whole.index.Snapshot())
	if _, err := s.engine.Reset(ctx, s.whole.index.Snapshot(), nil); err != nil {
		return err
	}
	for range 2 {
		for range 10 + s.r.IntN(25) {
			if err := s.step(ctx); err != nil {
				return err
			}
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TestShards_EqualOneProcess lets three processes share a fleet, with random delays, losses, restarts, moves and changes
// of policies: none is ever Known and wrong, and once all is told they say together what one process says.
// FEDERATOR_HISTORIES plays as many other histories, FEDERATOR_SEED one.
func TestShards_EqualOneProcess(t *testing.T) {
	t.Parallel()
	sets, err := oracleSets()
	if err != nil {
		t.Fatal(err)
	}
	base, n := uint64(1), 100
	if testing.Short() {
		n = 20
	}
	if others := number(t, "FEDERATOR_HISTORIES", 0); others > 0 {
		base, n = rand.Uint64N(1<<40), others
	}
	if seed := number(t, "FEDERATOR_SEED", -1); seed >= 0 {
		base, n = uint64(seed), 1 // It is not negative.
	}
	t.Logf("%d histories from seed %d", n, base)
	var seen shardTally
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < uint64(n) && !t.Failed(); i = next.Add(1) - 1 { // It is not negative.
				if err := playShards(t.Context(), base+i, sets, nil, &seen); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d times quiet: %d Known and clean, %d with violations, %d Unknown; %d moves, %d verdicts previewed, %d times peers had other policies; %d verdicts waited for keys, which grew %d times, and shrank %d",
		seen.quiet.Load(), seen.known.Load(), seen.found.Load(), seen.unknown.Load(), seen.moves.Load(), seen.previews.Load(), seen.others.Load(),
		seen.waiting.Load(), seen.grown.Load(), seen.shrunk.Load())
	if n >= 100 && (seen.waiting.Load() == 0 || seen.grown.Load() == 0 || seen.shrunk.Load() == 0 || seen.known.Load() == 0 || seen.found.Load() == 0 || seen.unknown.Load() == 0 || seen.moves.Load() == 0 || seen.previews.Load() == 0 || seen.others.Load() == 0) {
		t.Error("the histories do not show everything")
	}
}
