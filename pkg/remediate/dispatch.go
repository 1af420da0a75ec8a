package remediate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/policy"
)

// ErrNoHalt is returned for an acknowledgement of a halt that there is not.
var ErrNoHalt = errors.New("there is no such halt")

// Options configure a Dispatcher.
type Options struct {
	Clients Clients // required
	Journal Journal // required
	// Lead is asked right before each write: its error keeps it from being done. nil:
	// this process is the only one that acts.
	Lead func() error
	// Held says why nothing may be written to a member at the moment, nil when it may:
	// its Cluster is paused, say. It is asked right before each write; corrections wait
	// until it ends, and so do waves. nil: no member is held.
	Held func(member string) error
	// Health says how an object does; nil: all are Healthy.
	Health func(policy.Ref) Health
	// Fleet bounds the targets of all bindings together, within FleetWindow (an hour
	// by default).
	Fleet       Limit
	FleetWindow time.Duration
	// PerMember is how many corrections one member gets at once. 0 means 4.
	PerMember int
	// Fights is how often a correction may be written within the binding's window
	// before the binding is halted: it does not clear its violation. 0 means 5.
	Fights int
	// Retry is when a Failed correction is tried again. 0 means 5 minutes.
	Retry   time.Duration
	Changed func(binding string) // told when a binding's Status may differ; may be nil; must not call back
	// Corrected is told of each correction and rollback when it has ended. It must not
	// block, call back, or change it. May be nil.
	Corrected func(*Action)
	Logger    *slog.Logger          // nil: none
	Metrics   prometheus.Registerer // nil: none
}

// Dispatcher corrects what bindings want corrected, each within its Contract. Its
// methods are safe for concurrent use.
type Dispatcher struct {
	opts Options
	do   func(context.Context, *Intent) (*Action, error)
	exec *executor
	wake chan struct{} // has room for one

	metrics *metrics

	mu       sync.Mutex
	stopped  string // why nobody writes anything; "" when they do
	bindings map[string]*wanted
	ledger   *ledger
	busy     map[policy.Ref]bool // targets being written, by whomever
	load     map[string]int      // by member: corrections at once
	open     bool                // what a predecessor left has been dealt with
}

// wanted is what a binding wants corrected.
type wanted struct {
	contract Contract
	ready    bool
	of       Denominators
	intents  map[policy.Ref]*wish
	members  map[string]int      // of intents: how many
	due      map[policy.Ref]bool // of intents: those that are not done, or have failed
	failed   map[policy.Ref]bool // of these: those that have failed
	outcomes map[policy.Ref]*outcome
	left     map[policy.Ref]bool // targets of outcomes that are not wanted any more
	halt     *Halt
	acked    *acked
	consent  *consent
	progress progress
	spent    []Spent
	waiting  string
	follower string // why this process does not act; "" when it does
	pending  int
}

// outcome is what came of a target's last correction.
type outcome struct {
	Outcome
	name   string // of the intent
	writes []time.Time
}

// acked is what somebody has allowed beyond a limit.
type acked struct {
	targets int
	until   time.Time
}

// consent is the last acknowledgement, and how long what is done follows it.
type consent struct {
	Acknowledgement
	until time.Time
}

// New returns a Dispatcher that does nothing before Run.
func New(opts Options) (*Dispatcher, error) {
	if opts.Clients == nil || opts.Journal == nil {
		return nil, errors.New("remediate: Clients and Journal are required")
	}
	if opts.Fleet.Count < 0 || opts.Fleet.Percent < 0 || opts.FleetWindow < 0 || opts.PerMember < 0 || opts.Fights < 0 || opts.Retry < 0 {
		return nil, errors.New("remediate: a bound is negative")
	}
	if opts.FleetWindow == 0 {
		opts.FleetWindow = time.Hour
	}
	if opts.PerMember == 0 {
		opts.PerMember = 4
	}
	if opts.Fights == 0 {
		opts.Fights = 5
	}
	if opts.Retry == 0 {
		opts.Retry = 5 * time.Minute
	}
	if opts.Health == nil {
		opts.Health = func(policy.Ref) Health { return Healthy }
	}
	if opts.Held == nil {
		opts.Held = func(string) error { return nil }
	}
	if opts.Corrected == nil {
		opts.Corrected = func(*Action) {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dispatcher{
		opts: opts, wake: make(chan struct{}, 1), bindings: map[string]*wanted{},
		ledger: newLedger(opts.Fleet, opts.FleetWindow), busy: map[policy.Ref]bool{}, load: map[string]int{},
	}
	d.metrics = newMetrics(d)
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(d.metrics); err != nil {
			return nil, fmt.Errorf("remediate: metrics: %w", err)
		}
	}
	d.opts.Corrected = func(a *Action) {
		d.metrics.ended(a)
		opts.Corrected(a)
	}
	d.exec = &executor{clients: opts.Clients, journal: opts.Journal, clock: time.Now, gate: d.counted, paused: d.held, settled: d.later}
	d.do = d.exec.do
	return d, nil
}

// counted is gate, for a write that follows at once.
func (d *Dispatcher) counted(i *Intent) error {
	err := d.gate(i)
	if err == nil {
		d.metrics.writes.WithLabelValues(i.Remedy.Target.Member).Inc()
	}
	return err
}

// gate is asked right before each write, which counts from here on.
func (d *Dispatcher) gate(i *Intent) error {
	if d.opts.Lead != nil {
		if err := d.opts.Lead(); err != nil {
			return fmt.Errorf("%w: %w", errNotNow, err)
		}
	}
	if err := d.held(i.Remedy.Target.Member); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.bindings[i.Binding]
	switch {
	case d.stopped != "":
		return fmt.Errorf("%w: all actions are stopped", errNotNow)
	case i.RollbackOf != "": // somebody asks for it, no policy
	case w == nil || w.halt != nil || w.contract.Suspend || !w.ready || !w.wants(i):
		return fmt.Errorf("%w: the policy does not ask for it any more", errNotNow)
	}
	d.ledger.begin(i.Binding, i.Remedy.Target)
	return nil
}

// held returns why a member may not be written to now, as errNotNow.
func (d *Dispatcher) held(member string) error {
	if err := d.opts.Held(member); err != nil {
		return fmt.Errorf("%w: %w", errNotNow, err)
	}
	return nil
}

// errNotNow keeps a write from being done.
var errNotNow = errors.New("nothing may be written")

func (d *Dispatcher) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) tell(bindings ...string) {
	if d.opts.Changed == nil {
		return
	}
	for _, b := range bindings {
		d.opts.Changed(b)
	}
}

// Want says all that a binding wants corrected now, one intent for a target; it
// replaces what it wanted before. ready says that the whole verdict set has been
// counted: before, nothing is written.
func (d *Dispatcher) Want(binding string, c Contract, of Denominators, intents []Intent, ready bool) error {
	wishes := make([]*wish, 0, len(intents))
	for n := range intents {
		wishes = append(wishes, &wish{&intents[n], intents[n].name()})
	}
	return d.wanted(binding, c, of, ready, func(w *wanted) {
		w.clear()
		for _, i := range wishes {
			if w.intents[i.Remedy.Target] == nil {
				w.wish(i)
			}
		}
		for target := range w.outcomes {
			w.leave(target)
		}
	})
}

// Change is Want for a binding that wants what it wanted before, but for these intents,
// and without those for the targets that are gone: it costs what it changes.
func (d *Dispatcher) Change(binding string, c Contract, of Denominators, intents []Intent, gone []policy.Ref, ready bool) error {
	wishes := make([]*wish, 0, len(intents))
	for n := range intents {
		wishes = append(wishes, &wish{&intents[n], intents[n].name()})
	}
	return d.wanted(binding, c, of, ready, func(w *wanted) {
		if w.intents == nil {
			w.clear()
		}
		for _, target := range gone {
			w.unwish(target)
			w.leave(target)
		}
		for _, i := range wishes {
			w.wish(i)
		}
	})
}

// wanted takes in what a binding wants.
func (d *Dispatcher) wanted(binding string, c Contract, of Denominators, ready bool, take func(*wanted)) error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("binding %q: %w", binding, err)
	}
	if c.Limits.Window == 0 {
		c.Limits.Window = time.Hour
	}
	d.mu.Lock()
	w := d.binding(binding)
	if w.progress.generation != c.Generation || w.progress.phase == "" || w.progress.wave >= max(len(c.Waves), 1) {
		w.progress.restart(c.Generation, time.Now())
	}
	w.contract, w.of, w.ready = c, of, ready
	take(w)
	d.mu.Unlock()
	d.poke()
	return nil
}

func (d *Dispatcher) binding(name string) *wanted {
	w := d.bindings[name]
	if w == nil {
		w = &wanted{outcomes: map[policy.Ref]*outcome{}, left: map[policy.Ref]bool{}}
		d.bindings[name] = w
	}
	return w
}

func recent(times []time.Time, window time.Duration) []time.Time {
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(times), func(at time.Time) bool { return now.Sub(at) >= window })
}

// Drop ends the corrections of a binding at once. What it has written stays counted,
// and a halt stays, for when it wants something again.
func (d *Dispatcher) Drop(binding string) {
	d.mu.Lock()
	if w := d.bindings[binding]; w != nil {
		w.clear()
		w.ready = false
	}
	d.mu.Unlock()
	d.poke()
}

// Forget ends the corrections of a binding that is gone. What it has written stays
// counted in the fleet's limit.
func (d *Dispatcher) Forget(binding string) {
	d.mu.Lock()
	delete(d.bindings, binding)
	d.mu.Unlock()
	d.metrics.forget(binding)
}

// Restore brings back a halt that an earlier process has reported.
func (d *Dispatcher) Restore(binding string, h *Halt) {
	d.mu.Lock()
	d.binding(binding).halt = h
	d.mu.Unlock()
}

// Stop keeps everybody from writing anything, until Resume. A write that is under way
// is not taken back.
func (d *Dispatcher) Stop(why string) {
	d.mu.Lock()
	d.stopped = cmpOr(why, "stopped")
	d.mu.Unlock()
	d.poke()
}

// Resume ends a Stop.
func (d *Dispatcher) Resume() {
	d.mu.Lock()
	d.stopped = ""
	d.mu.Unlock()
	d.poke()
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Acknowledge ends a halt, in the name of somebody. What was over a limit is allowed, as
// far as it was, for one window. The Actions of that window say who has acknowledged.
func (d *Dispatcher) Acknowledge(binding, id, by string) error {
	d.mu.Lock()
	w := d.bindings[binding]
	if w == nil || w.halt == nil || w.halt.ID != id {
		d.mu.Unlock()
		return fmt.Errorf("binding %q: halt %q: %w", binding, id, ErrNoHalt)
	}
	now := time.Now()
	until := now.Add(w.contract.Limits.Window)
	w.consent = &consent{Acknowledgement{Halt: id, By: by, At: now}, until}
	switch w.halt.Reason {
	case OverLimit:
		w.acked = &acked{targets: w.halt.Over.Targets, until: until}
	case Unhealthy:
		w.progress.touched = map[policy.Ref]bool{}
	case Fighting:
		for _, o := range w.outcomes {
			o.writes = nil
		}
	}
	w.halt = nil
	d.mu.Unlock()
	d.poke()
	return nil
}

// halt keeps a binding from being written for. The caller holds the lock.
func (d *Dispatcher) halt(binding string, w *wanted, reason HaltReason, message string, over *Spent) {
	now := time.Now()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", binding, reason, message, now.UnixNano()))
	w.halt = &Halt{ID: hex.EncodeToString(sum[:])[:12], Reason: reason, Message: message, Since: now, Over: over}
	d.opts.Logger.Warn("a policy is halted", "policy", binding, "reason", string(reason), "message", message, "halt", w.halt.ID)
}

// Status returns where the corrections of a binding stand.
func (d *Dispatcher) Status(binding string) (s Status, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.bindings[binding]
	if w == nil {
		return Status{}, false
	}
	s = Status{
		Halted: w.halt, Waiting: w.waiting, Budget: slices.Clone(w.spent), Wave: w.progress.status(w.contract.Waves), Pending: w.pending,
		Phases: map[Phase]int{}, Targets: map[policy.Ref]Outcome{},
	}
	for target, o := range w.outcomes {
		if o.Phase != "" {
			s.Phases[o.Phase]++
			s.Targets[target] = o.Outcome
		}
	}
	return s, true
}
