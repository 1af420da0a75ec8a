package policysource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/policy"
)

// Manager loads the policies of sources. See the package's documentation.
type Manager struct {
	opts    Options
	state   atomic.Pointer[State]
	slots   *semaphore.Weighted // limits concurrent fetches and evaluations
	started atomic.Bool
	changed trigger.Trigger // wanted has changed

	mu      sync.Mutex // also held to replace state
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
		opts: opts, slots: semaphore.NewWeighted(int64(opts.MaxConcurrent)), changed: trigger.New(),
		runners: map[string]*runner{},
	}
	m.state.Store(&State{
		Generation: 1, Set: set, Policies: map[string]Policies{}, Status: map[string]Status{},
		Candidates: map[string]RollingOut{}, Beside: set, replaced: make(chan struct{}),
	})
	return m, nil
}

// State returns the current state of all sources.
func (m *Manager) State() *State { return m.state.Load() }

// SetSources replaces the list of sources. Invalid sources get a Status that says so and
// keep their active policies; a list with invalid or duplicate names is rejected. Policies
// of sources that are no longer listed are removed as soon as the others compile without
// them.
func (m *Manager) SetSources(sources []Source) error {
	if err := m.opts.checkNames(sources); err != nil {
		return err
	}
	m.mu.Lock()
	m.wanted = append([]Source(nil), sources...)
	m.mu.Unlock()
	m.changed.Fire()
	return nil
}

// Sync has a source's remote checked now, or right after a check in progress.
func (m *Manager) Sync(name string) error {
	m.mu.Lock()
	r := m.runners[name]
	m.mu.Unlock()
	if r == nil {
		return fmt.Errorf("source %.80q: %w", name, ErrUnknownSource)
	}
	r.triggered.Fire()
	return nil
}

// Run loads the sources until the context ends, and returns when all of its goroutines
// have ended. It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	if !m.started.CompareAndSwap(false, true) {
		return errors.New("policysource: Run is called twice")
	}
	c := &reconciler{m: m, removing: map[string]uint64{}}
	defer c.stop(func(string, *runner) bool { return true })
	for {
		var replaced <-chan struct{}
		if len(c.removing) > 0 {
			replaced = m.State().Replaced()
			c.retryRemovals()
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

// reconciler is the state of Run.
type reconciler struct {
	m *Manager
	// removing are sources that are no longer listed but whose policies others need, with
	// the generation of the last attempt to remove them.
	removing map[string]uint64
}

// reconcile starts and stops runners for the listed sources.
func (c *reconciler) reconcile(ctx context.Context) {
	m := c.m
	m.mu.Lock()
	wanted := map[string]Source{}
	for _, s := range m.wanted {
		wanted[s.Name] = s
	}
	m.mu.Unlock()
	c.stop(func(name string, r *runner) bool {
		s, ok := wanted[name]
		return !ok || !sameSource(s, r.source)
	})
	for name := range m.State().Status {
		if _, ok := wanted[name]; !ok {
			c.remove(name)
		}
	}
	for name, s := range wanted {
		delete(c.removing, name)
		m.mu.Lock()
		running := m.runners[name]
		m.mu.Unlock()
		if running == nil {
			c.start(ctx, s)
		} else {
			running.setTerms(termsOf(s))
		}
	}
}

// reserved returns the packages of listed sources of which nothing is active yet: they were
// theirs before a restart.
func (m *Manager) reserved(st *State) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for _, s := range m.wanted {
		if _, active := st.Policies[s.Name]; active {
			continue
		}
		for _, pkg := range s.Owned {
			out[pkg] = s.Name
		}
	}
	return out
}

// sameSource reports whether a source need not be restarted. LastGood and Owned only matter
// at a start, and how commits roll out is told to what runs.
func sameSource(a, b Source) bool {
	for _, s := range []*Source{&a, &b} {
		s.LastGood, s.Owned = "", nil
		s.Rollout, s.Promoted, s.TakenBack, s.TakenBackMessage, s.Begun = false, "", "", "", ""
	}
	return reflect.DeepEqual(a, b)
}

// stop ends runners and waits for them.
func (c *reconciler) stop(which func(string, *runner) bool) {
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

// start starts a runner for a source, or sets a status that says why not.
func (c *reconciler) start(ctx context.Context, s Source) {
	m := c.m
	checked, err := m.opts.validateSource(s)
	kept := err == nil && m.sameOrigin(s)
	change := m.update
	if !kept {
		change = m.withdraw // what others may have committed is not to become active
	}
	change(s.Name, func(st *Status, p *Policies) {
		st.Generation, st.Phase, st.Reason, st.Message = s.Generation, Pending, "Pending", "the remote has not been checked yet"
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
	r := &runner{
		m: m, source: s, spec: checked, triggered: trigger.New(), changed: trigger.New(), cancel: cancel, done: make(chan struct{}),
		line: m.State().Policies[s.Name].Line,
	}
	terms := termsOf(s)
	r.terms.Store(&terms)
	m.mu.Lock()
	m.runners[s.Name] = r
	m.mu.Unlock()
	go r.run(ctx)
}

// sameOrigin reports whether a restarted source has the same repository and trusted keys
// as its active policies, so that they may stay current.
func (m *Manager) sameOrigin(s Source) bool {
	p, ok := m.State().Policies[s.Name]
	return ok && reflect.DeepEqual(p.origin, originOf(s))
}

// origin is what decides which commits a source accepts.
type origin struct {
	url, ref, path string
	verify         Keys
}

func originOf(s Source) origin { return origin{s.URL, s.Ref, s.Path, s.Verify} }

// remove removes a source's policies, unless others do not compile without them.
func (c *reconciler) remove(name string) {
	m := c.m
	for {
		st := m.State()
		next := st.Set
		if _, ok := st.Policies[name]; ok {
			set, err := policy.Load(st.sources(m.opts.Base, name), m.opts.Load)
			if err != nil {
				c.removing[name] = st.Generation
				m.withdraw(name, func(s *Status, p *Policies) {
					s.Phase, s.Reason, s.Message = Removed, "Needed", "other sources do not compile without it: "+shorten(err.Error())
					p.Current = false
				})
				return
			}
			next = set
		}
		if m.publish(st, next, st.without(name), func(out *State) {
			delete(out.Policies, name)
			delete(out.Status, name)
		}) {
			delete(c.removing, name)
			m.opts.Logger.Info("source removed", "source", name)
			return
		}
	}
}

// retryRemovals tries again to remove sources that others needed.
func (c *reconciler) retryRemovals() {
	for name, at := range c.removing {
		if c.m.State().Generation != at {
			c.remove(name)
		}
	}
}

// publish replaces the state with a changed copy, with a set and the commits that roll out beside it, if those
// are still what they are in st.
func (m *Manager) publish(st *State, set *policy.Set, candidates map[string]RollingOut, change func(*State)) bool {
	beside := st.Beside
	same := set == st.Set && maps.EqualFunc(candidates, st.Candidates, func(a, b RollingOut) bool { return a.Set == b.Set })
	if !same {
		beside = besides(set, candidates)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.state.Load()
	if was.layout != st.layout {
		return false
	}
	next := was.clone()
	next.Set, next.Candidates, next.Beside = set, candidates, beside
	if set != st.Set {
		next.Generation++
	}
	if !same {
		next.layout++
	}
	change(next)
	m.state.Store(next)
	close(was.replaced)
	return true
}

// update changes the status of a source and, if it has any, its policies; change must not
// modify their files.
func (m *Manager) update(name string, change func(*Status, *Policies)) {
	m.mu.Lock()
	was := m.state.Load()
	next := was.clone()
	before, after := next.set(name, change)
	m.state.Store(next)
	close(was.replaced)
	m.mu.Unlock()
	m.opts.logChange(before, after)
}

// set changes the status of a source in a state that has not been published yet.
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

// logChange logs a change of a status.
func (o Options) logChange(before, after Status) {
	same := before.Phase == after.Phase && before.Reason == after.Reason && before.Current == after.Current
	if same && (before.Active == nil) == (after.Active == nil) && (after.Active == nil || *before.Active == *after.Active) {
		return
	}
	attrs := []any{"source", after.Source, "phase", after.Phase, "reason", after.Reason, "message", after.Message, "current", after.Current}
	if after.Active != nil {
		attrs = append(attrs, "active", after.Active.Hash)
	}
	log := o.Logger.Warn
	if after.Phase == Active || after.Phase == Pending || after.Reason == ReasonInRollout {
		log = o.Logger.Info
	}
	log("policy source", attrs...)
}
