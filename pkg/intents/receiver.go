package intents

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policy"
)

// ReceiverOptions configure a Receiver.
type ReceiverOptions struct {
	Self *Sender // this process's own; required
	// Actor carries out what all processes say: a remediate.Dispatcher. Required.
	Actor enforce.Actor
	// Lease returns an error while this process does not lead: it follows nobody then. Required.
	Lease func() (until time.Time, err error)
	// Fleet returns who judges what as this process knows it, nil while it does not. It returns the same pointer as long
	// as nothing has changed. It must not block. Required; FleetChanged is called when it returns another one.
	Fleet func() *Fleet
	// Resolve asks those who judge targets what these are, in the order of the claims: targets of which other processes have remedies. It is
	// called before Actor is told of them, and again each second. nil: nobody can be asked, and nothing is written to them.
	Resolve func(context.Context, []enforce.Claim) []enforce.Resolution
	// Prefetch is called before Actor is told of intents, with their targets, and OwnersChanged when who manages targets
	// may have changed at a process. May be nil.
	Prefetch      func(context.Context, []policy.Ref)
	OwnersChanged func()
	Logger        *slog.Logger // nil: none
}

// Receiver gives the union of what all processes say to one Actor, while this process leads.
type Receiver struct {
	opts  ReceiverOptions
	wake  trigger.Trigger
	inbox chan told
	// answers are those to Resolve that were asked for again.
	answers chan answered
	status  atomic.Pointer[status]

	// What follows is of Run's goroutine.
	fleet   *Fleet // that was applied last; nil unless this process leads
	known   bool   // it is known who judges what
	checked bool   // unjudged is of now
	// unjudged is which member is not judged by the process that is to judge it, or by another one, "" if none.
	unjudged string
	tellers  map[string]*teller
	given    map[string]*given // what the Actor knows, by policy
	asking   bool              // Resolve is asked again
}

// told is a batch of a process.
type told struct {
	by    *teller
	batch *batch
	at    time.Time
	taken chan error
}

// given is what the Actor knows of a policy.
type given struct {
	whole bool // it has had all intents since this process leads, but for what has changed since
	ready bool
	none  bool // it is only observed
	// claims are of the targets that were asked about.
	claims map[policy.Ref]*claimed
}

// status is why nothing is written. It is immutable, but for when processes were heard of.
type status struct {
	fleet    *Fleet
	tellers  []*teller
	general  string
	policies map[string]string
}

// NewReceiver returns a Receiver that does nothing before Run.
func NewReceiver(opts ReceiverOptions) (*Receiver, error) {
	if opts.Self == nil || opts.Actor == nil || opts.Lease == nil || opts.Fleet == nil {
		return nil, errors.New("intents: Self, Actor, Lease and Fleet are required")
	}
	if opts.Resolve == nil {
		opts.Resolve = resolveNothing
	}
	if opts.Prefetch == nil {
		opts.Prefetch = func(context.Context, []policy.Ref) {}
	}
	if opts.OwnersChanged == nil {
		opts.OwnersChanged = func() {}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Receiver{opts: opts, wake: trigger.New(), inbox: make(chan told), answers: make(chan answered), tellers: map[string]*teller{}, given: map[string]*given{}}, nil
}

// FleetChanged has Options.Fleet asked again.
func (r *Receiver) FleetChanged() { r.wake.Fire() }

const notTold = "this process has not been told yet what all others know of the fleet"

// Incomplete returns why not all is known that a policy's corrections follow from, "" if it is. It is for
// remediate.Options: cheap, and of the time at which it is called.
func (r *Receiver) Incomplete(policy string) string {
	s := r.status.Load()
	if s == nil {
		return notTold
	}
	if s.general != "" {
		return s.general
	}
	if r.opts.Fleet() != s.fleet {
		return "it has changed which process judges which members"
	}
	now := time.Now()
	for _, t := range s.tellers {
		if why := t.silent(now); why != "" {
			return why
		}
	}
	why, known := s.policies[policy]
	if !known {
		return notTold
	}
	return why
}

// Run follows all processes while this one leads, until the context ends.
func (r *Receiver) Run(ctx context.Context) error {
	own, err := r.opts.Self.open()
	if err != nil {
		return err
	}
	defer func() { r.opts.Self.close(own) }()
	var links sync.WaitGroup
	defer links.Wait()
	defer func() { r.disperse(); r.status.Store(nil) }()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		if _, err := r.opts.Lease(); err != nil {
			r.resign()
			own.leave(r.opts.Self)
		} else {
			r.lead(ctx, &links)
			r.takeOwn(ctx, own)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case t := <-r.inbox:
			t.taken <- r.take(ctx, t)
		case a := <-r.answers:
			r.takeAnswers(ctx, a)
		case <-own.wake:
		case <-r.wake:
		case <-ticker.C:
			r.askAgain(ctx, &links)
		}
	}
}

func resolveNothing(_ context.Context, claims []enforce.Claim) []enforce.Resolution {
	return slices.Repeat([]enforce.Resolution{{Why: "nobody can be asked about its target"}}, len(claims))
}

// leave has a reader start over, and hold nothing meanwhile.
func (r *reader) leave(s *Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.restart, r.policies = true, map[string]*dirt{}
}

// resign forgets everything: another process writes.
func (r *Receiver) resign() {
	if r.fleet == nil {
		return
	}
	r.status.Store(nil)
	r.disperse()
	r.fleet, r.known = nil, false
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		r.opts.Actor.ClearIntents(name)
		r.given[name] = &given{}
	}
}

// disperse ends the links to all processes.
func (r *Receiver) disperse() {
	for _, t := range r.tellers {
		t.cancel()
	}
	r.tellers = map[string]*teller{}
}

// lead applies who judges what, and follows the processes that there are.
func (r *Receiver) lead(ctx context.Context, links *sync.WaitGroup) {
	fleet := r.opts.Fleet()
	if r.known = fleet != nil; fleet == nil || fleet == r.fleet {
		if r.fleet != nil {
			r.settle(ctx, nil)
		}
		return
	}
	r.fleet, r.checked = fleet, false
	everybody := fleet.everybody()
	for id, t := range r.tellers {
		if !slices.Contains(everybody, id) {
			t.cancel()
			delete(r.tellers, id)
		}
	}
	for _, id := range everybody {
		peer, lives := fleet.Peers[id]
		was := r.tellers[id]
		if was != nil && (id == fleet.Self || was.lives == lives && was.peer == peer) {
			continue
		}
		t := newTeller(id)
		t.peer, t.lives = peer, lives
		if was != nil { // what it has said last is kept, and does not count as said
			was.cancel()
			t.policies, t.judged = was.policies, was.judged
		}
		r.tellers[id] = t
		if lives && id != fleet.Self {
			var following context.Context
			following, t.cancel = context.WithCancel(ctx)
			links.Go(func() { r.follow(following, t) })
		}
	}
	all := changes{}
	for _, t := range r.tellers {
		for name := range t.policies {
			all.all(name)
		}
	}
	r.settle(ctx, all)
}

// takeOwn takes what this process's own Corrector has said since.
func (r *Receiver) takeOwn(ctx context.Context, own *reader) {
	if r.fleet == nil {
		return
	}
	t := r.tellers[r.fleet.Self]
	t.heardAt(time.Now())
	if !r.opts.Self.hasMore(own) {
		return
	}
	b := r.opts.Self.take(own)
	owners := t.spoken && t.owners != b.frontier.Owners
	changed, err := t.apply(b)
	if err != nil {
		panic(err) // within one process
	}
	r.checked = r.checked && !b.restart && !b.settled
	if owners {
		r.opts.OwnersChanged()
	}
	r.settle(ctx, changed)
}

// take takes a batch of another process.
func (r *Receiver) take(ctx context.Context, t told) error {
	if r.tellers[t.by.id] != t.by {
		return errors.New("it is not followed any more")
	}
	owners := t.by.spoken && t.by.owners != t.batch.frontier.Owners
	changed, err := t.by.apply(t.batch)
	if r.checked = r.checked && !t.batch.restart && !t.batch.settled; err == nil {
		t.by.heardAt(t.at)
	}
	if owners {
		r.opts.Prefetch(ctx, t.by.targets())
		r.opts.OwnersChanged()
	}
	r.settle(ctx, changed)
	return err
}

// settle gives the Actor what has changed, and of all policies whether they are ready. The gate knows first.
func (r *Receiver) settle(ctx context.Context, changed changes) {
	next := &status{fleet: r.fleet, policies: map[string]string{}}
	for _, id := range slices.Sorted(maps.Keys(r.tellers)) {
		next.tellers = append(next.tellers, r.tellers[id])
	}
	if next.general = "it is not known which process judges which members"; r.known {
		next.general = r.refuse(next.tellers, time.Now())
	}
	own := r.tellers[r.fleet.Self]
	for name := range own.policies {
		next.policies[name] = refusePolicy(name, next.tellers, own.policies[name])
	}
	r.status.Store(next)
	if !own.spoken {
		return // there is nothing to go by
	}
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		if own.policies[name] == nil {
			delete(r.given, name)
			r.opts.Actor.RemovePolicy(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own.policies)) {
		ready := next.general == "" && next.policies[name] == ""
		r.give(ctx, name, changed[name], ready)
	}
}

// give gives the Actor what has changed of a policy, nil for nothing but whether it is ready.
func (r *Receiver) give(ctx context.Context, name string, what *changed, ready bool) {
	g, own := r.given[name], r.tellers[r.fleet.Self].policies[name]
	if g == nil {
		g = &given{}
		r.given[name] = g
	}
	switch {
	case own.spec == nil:
		if !g.none {
			r.opts.Actor.ClearIntents(name)
		}
		*g = given{none: true}
		return
	case g.whole && what == nil && g.ready == ready:
		return
	}
	all := !g.whole || what != nil && what.all
	var targets []policy.Ref
	switch {
	case all:
		targets = r.targetsOf(name)
	case what != nil:
		targets = slices.Collect(maps.Keys(what.targets))
	}
	slices.SortFunc(targets, compareRefs)
	now := r.gather(ctx, name, g, targets, all)
	if len(now.present) > 0 {
		r.opts.Prefetch(ctx, now.present)
	}
	spec, totals := r.merge(name, own)
	var err error
	if all {
		err = r.opts.Actor.SetIntents(name, spec, totals, now.intents, ready)
	} else {
		err = r.opts.Actor.UpdateIntents(name, spec, totals, now.intents, now.gone, ready)
	}
	g.whole, g.ready, g.none = err == nil, ready, false
	if err != nil {
		r.opts.Logger.Error("setting intents failed", "policy", name, "error", err)
	}
}
