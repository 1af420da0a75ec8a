package policysource

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/pkg/policy"
)

// Manager keeps sources' policies. See the package's documentation.
type Manager struct {
	opts    Options
	state   atomic.Pointer[State]
	slots   chan struct{} // who fetches and judges
	started atomic.Bool
	changed chan struct{} // of capacity 1: wanted changed

	mu      sync.Mutex // guards what follows, and is held to replace state
	wanted  []Source
	runners map[string]*runner
}

// NewManager returns a manager without sources.
func NewManager(opts Options) (*Manager, error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	set, err := policy.Load(opts.Base, opts.Load)
	if err != nil {
		return nil, fmt.Errorf("policysource: base: %w", err)
	}
	m := &Manager{
		opts: opts, slots: make(chan struct{}, opts.Parallel), changed: make(chan struct{}, 1),
		runners: map[string]*runner{},
	}
	m.state.Store(&State{
		Generation: 1, Set: set, Policies: map[string]Policies{}, Status: map[string]Status{},
		replaced: make(chan struct{}),
	})
	return m, nil
}

// State returns all sources as they are now.
func (m *Manager) State() *State { return m.state.Load() }

// Active returns the active policies of each source that has any.
func (m *Manager) Active() map[string]Policies { return m.State().Policies }

// Status returns what there is to say about a source, and whether there is one.
func (m *Manager) Status(name string) (Status, bool) {
	s, ok := m.State().Status[name]
	return s, ok
}

// SetSources replaces the list of sources. Sources that make no sense get a Status
// that says so, and keep what is active; a list with names that cannot be told apart
// is refused as a whole. Policies of sources that are no longer listed leave, as soon
// as the others compile without them.
func (m *Manager) SetSources(sources []Source) error {
	if err := m.opts.checkNames(sources); err != nil {
		return err
	}
	m.mu.Lock()
	m.wanted = append([]Source(nil), sources...)
	m.mu.Unlock()
	wake(m.changed)
	return nil
}

// Sync asks a source's remote now, or right after what is under way.
func (m *Manager) Sync(name string) error {
	m.mu.Lock()
	r := m.runners[name]
	m.mu.Unlock()
	if r == nil {
		return fmt.Errorf("source %.80q: %w", name, ErrSource)
	}
	wake(r.now)
	return nil
}

// wake sends to a channel of capacity 1 what need not be said twice.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run follows the sources until the context ends, and returns when all of its
// goroutines have. It runs once.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("policysource: Run is called twice")
	}
	c := &control{m: m, leaving: map[string]uint64{}}
	defer c.stop(func(string, *runner) bool { return true })
	for {
		var replaced <-chan struct{}
		if len(c.leaving) > 0 {
			replaced = m.State().Replaced()
			c.retry()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
			c.reconcile(ctx)
		case <-replaced:
		}
	}
}

// control is Run's own state.
type control struct {
	m *Manager
	// leaving are sources that are gone but whose policies others need, with the
	// generation at which that was so.
	leaving map[string]uint64
}

// reconcile makes the runners those of the sources that are wanted.
func (c *control) reconcile(ctx context.Context) {
	m := c.m
	m.mu.Lock()
	wanted := map[string]Source{}
	for _, s := range m.wanted {
		wanted[s.Name] = s
	}
	m.mu.Unlock()
	c.stop(func(name string, r *runner) bool {
		s, ok := wanted[name]
		return !ok || !same(s, r.given)
	})
	for name := range m.State().Status {
		if _, ok := wanted[name]; !ok {
			c.leave(name)
		}
	}
	for name, s := range wanted {
		delete(c.leaving, name)
		m.mu.Lock()
		running := m.runners[name] != nil
		m.mu.Unlock()
		if !running {
			c.start(ctx, s)
		}
	}
}

// same says that a source need not start anew. LastGood is about starts only.
func same(a, b Source) bool {
	a.LastGood, b.LastGood = "", ""
	return reflect.DeepEqual(a, b)
}

// stop ends runners and joins them.
func (c *control) stop(which func(string, *runner) bool) {
	var ending []*runner
	c.m.mu.Lock()
	for name, r := range c.m.runners {
		if which(name, r) {
			ending = append(ending, r)
			delete(c.m.runners, name)
		}
	}
	c.m.mu.Unlock()
	for _, r := range ending {
		r.cancel()
	}
	for _, r := range ending {
		<-r.done
	}
}

// start gives a source a runner, or a status that says why not.
func (c *control) start(ctx context.Context, s Source) {
	m := c.m
	checked, err := m.opts.check(s)
	kept := err == nil && m.keeps(s)
	m.update(s.Name, func(st *Status, p *Policies) {
		st.Generation, st.Phase, st.Reason, st.Message = s.Generation, Pending, "Pending", "the remote is about to be asked"
		st.Failures, st.Next = 0, time.Time{}
		if err != nil {
			st.Phase, st.Reason, st.Message = Invalid, "Invalid", shorten(err.Error())
		}
		p.Current = p.Current && kept
	})
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &runner{m: m, given: s, spec: checked, now: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	m.mu.Lock()
	m.runners[s.Name] = r
	m.mu.Unlock()
	go r.run(ctx)
}

// keeps says whether what is active is of the same place and trust as a source that
// starts anew, so that it may stay current.
func (m *Manager) keeps(s Source) bool {
	p, ok := m.State().Policies[s.Name]
	return ok && reflect.DeepEqual(p.origin, originOf(s))
}

// origin is what decides which commits a source takes.
type origin struct {
	url, ref, path string
	verify         Keys
}

func originOf(s Source) origin { return origin{s.URL, s.Ref, s.Path, s.Verify} }

// leave removes a source's policies, unless others do not compile without them.
func (c *control) leave(name string) {
	m := c.m
	for {
		st := m.State()
		next := st.Set
		if _, ok := st.Policies[name]; ok {
			set, err := policy.Load(st.sources(m.opts.Base, name), m.opts.Load)
			if err != nil {
				c.leaving[name] = st.Generation
				m.update(name, func(s *Status, p *Policies) {
					s.Phase, s.Reason, s.Message = Removed, "Needed", "other sources do not compile without it: "+shorten(err.Error())
					p.Current = false
				})
				return
			}
			next = set
		}
		if m.publish(st, func(out *State) {
			delete(out.Policies, name)
			delete(out.Status, name)
			if next != st.Set {
				out.Set = next
				out.Generation++
			}
		}) {
			delete(c.leaving, name)
			m.opts.Log.Info("source removed", "source", name)
			return
		}
	}
}

// retry tries again to remove what was needed by others.
func (c *control) retry() {
	for name, at := range c.leaving {
		if c.m.State().Generation != at {
			c.leave(name)
		}
	}
}

// publish replaces the state by a changed copy, if its set is still that of st.
func (m *Manager) publish(st *State, change func(*State)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.state.Load()
	if was.Generation != st.Generation {
		return false
	}
	next := was.with()
	change(next)
	m.state.Store(next)
	close(was.replaced)
	return true
}

// update changes the status of a source and, if it has any, its policies, whose
// files it may not change.
func (m *Manager) update(name string, change func(*Status, *Policies)) {
	m.mu.Lock()
	was := m.state.Load()
	next := was.with()
	before, after := next.set(name, change)
	m.state.Store(next)
	close(was.replaced)
	m.mu.Unlock()
	m.opts.note(before, after)
}

// set changes the status of a source in a state that is not published yet.
func (s *State) set(name string, change func(*Status, *Policies)) (before, after Status) {
	before, after = s.Status[name], s.Status[name]
	after.Source = name
	p, active := s.Policies[name]
	change(&after, &p)
	after.Active, after.Current = nil, false
	if active {
		s.Policies[name] = p
		commit := p.Commit
		after.Active, after.Current = &commit, p.Current
	}
	if before.Phase != after.Phase || before.Reason != after.Reason {
		after.Changed = time.Now()
	}
	s.Status[name] = after
	return before, after
}

// note logs what changed in a status.
func (o Options) note(before, after Status) {
	same := before.Phase == after.Phase && before.Reason == after.Reason && before.Current == after.Current
	if same && (before.Active == nil) == (after.Active == nil) && (after.Active == nil || *before.Active == *after.Active) {
		return
	}
	attrs := []any{"source", after.Source, "phase", after.Phase, "reason", after.Reason, "message", after.Message, "current", after.Current}
	if after.Active != nil {
		attrs = append(attrs, "active", after.Active.Hash)
	}
	log := o.Log.Warn
	if after.Phase == Active || after.Phase == Pending {
		log = o.Log.Info
	}
	log("policy source", attrs...)
}
