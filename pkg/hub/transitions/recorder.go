package transitions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/hub"
)

// Log is where transitions are recorded: a history.History.
type Log interface {
	Tell(context.Context, []history.Record) error
	Read(history.Query) iter.Seq2[history.Record, error]
	Span() history.Span
}

// Options configure a Recorder. Config, Namespace and Log are required.
type Options struct {
	Config    *rest.Config // of the hub
	Namespace string       // of the stops' ConfigMaps
	Log       Log
	// Leads reports whether this process records what concerns the hub; nil: it does. It must not block.
	Leads func() bool
	// Members returns the members that this process holds, of processes that share a fleet: it records Actions in these. nil: who leads records
	// all. It must not block.
	Members func() iter.Seq[string]
	Clock   func() time.Time // nil: time.Now
	Logger  *slog.Logger     // nil: none
}

const (
	tick = time.Second // between looks at who leads
	// keep is how long is remembered what another process should record: longer than it takes to notice that it has ended.
	keep       = 5 * time.Minute
	maxWaiting = 100_000          // records that wait, or are kept
	maxBatch   = 1000             // records that are told at once
	maxCaught  = 20_000           // records of a list that are put in order at once
	retry      = 10 * time.Second // after a failure to list
	again      = 30 * time.Second // between lists for members that came
)

// Recorder records what becomes of the hub's objects.
type Recorder struct {
	opts   Options
	hub    rest.Interface
	core   kubernetes.Interface
	follow []func(context.Context)
	lists  []lister
	more   chan struct{} // of one; waiting or relist has changed

	mu       sync.Mutex
	waiting  []taken
	dropped  bool // something was not remembered that is to be recorded
	unlisted int  // resources that were not listed yet
	relist   bool // a resource was listed

	// Run's goroutine only:
	kept []taken             // what another process should record
	seen map[uint64]struct{} // digests of the keys of what is recorded, of objects that there are
	// suspended is whether FleetPolicies were suspended, as recorded since the start, by UID.
	suspended map[string]bool
	led       bool            // this process leads, and the objects were listed since it does
	held      map[string]bool // members, when the objects were listed for them
	tried     time.Time       // when the objects were listed last
	failed    bool            // that failed
}

// taken is what an event has said: records, or that an object is gone whose keys are not needed any more.
type taken struct {
	at     time.Time
	record history.Record
	forget []uint64
}

// New returns a Recorder, which reads the hub when it runs.
func New(opts Options) (*Recorder, error) {
	if opts.Config == nil || opts.Namespace == "" || opts.Log == nil {
		return nil, errors.New("transitions: Config, Namespace and Log are required")
	}
	if opts.Leads == nil {
		opts.Leads = func() bool { return true }
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	config := rest.CopyConfig(opts.Config)
	config.QPS = -1 // it has few requests at once
	client, err := hub.NewRESTClient(config)
	if err != nil {
		return nil, err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	r := &Recorder{opts: opts, hub: client, core: core, more: make(chan struct{}, 1), seen: map[uint64]struct{}{}, suspended: map[string]bool{}}
	r.resources()
	return r, nil
}

// Run records until the context ends, and returns when all that it started has ended.
func (r *Recorder) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, follow := range r.follow {
		wg.Go(func() { follow(ctx) })
	}
	looks := time.NewTicker(tick)
	defer looks.Stop()
	for look := true; ; {
		if err := r.step(ctx, look); err != nil {
			return err
		}
		select {
		case <-r.more:
			look = false
		case <-looks.C:
			look = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step records what there is to record now. look is whether to look at who should.
func (r *Recorder) step(ctx context.Context, look bool) error {
	leads, held := r.opts.Leads(), r.members()
	if r.led = r.led && leads; r.due(leads, held) {
		err := r.catchUp(ctx, leads, held)
		switch r.failed = err != nil; {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, history.ErrEnded):
			return err
		case err != nil:
			r.opts.Logger.Warn("what has become of the hub's objects is not recorded yet", "error", err)
		default:
			look = true
		}
	}
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	if look {
		waiting, r.kept = append(r.kept, waiting...), nil
	}
	now := r.opts.Clock()
	var out []history.Record
	for _, t := range waiting {
		mine := t.forget == nil && r.mine(&t.record, leads, held)
		switch {
		case t.forget != nil:
			for _, key := range t.forget {
				delete(r.seen, key)
			}
		case mine && r.caughtUp(leads):
			if r.isNew(&t.record) {
				out = append(out, t.record)
			}
		case now.Sub(t.at) < keep && len(r.kept) < maxWaiting:
			r.kept = append(r.kept, t)
		case mine:
			r.drop()
		}
	}
	if r.caughtUp(leads) && r.takeDropped() {
		out = append(out, gap(now))
	}
	return r.tell(ctx, out)
}

// members returns the members that this process holds, nil where it does not share the fleet.
func (r *Recorder) members() map[string]bool {
	if r.opts.Members == nil {
		return nil
	}
	held := map[string]bool{}
	for name := range r.opts.Members() {
		held[name] = true
	}
	return held
}

// mine reports whether this process is to record something.
func (r *Recorder) mine(x *history.Record, leads bool, held map[string]bool) bool {
	if x.Type == history.Action && held != nil {
		return held[x.Member]
	}
	return leads
}

// due reports whether the objects are to be listed for what is not recorded: this process has begun to record, or holds other
// members, or they were listed, so that something may have been missed.
func (r *Recorder) due(leads bool, held map[string]bool) bool {
	r.mu.Lock()
	unlisted, relist := r.unlisted, r.relist
	r.mu.Unlock()
	since := r.opts.Clock().Sub(r.tried)
	switch {
	case unlisted > 0 || !leads && len(held) == 0 || r.failed && since < retry:
		return false
	case leads && !r.led || relist:
		return true
	}
	for name := range held {
		if !r.held[name] {
			return since >= again
		}
	}
	return false
}

// caughtUp reports whether the objects were listed for what is not recorded since this process began to record.
func (r *Recorder) caughtUp(leads bool) bool { return r.led || !leads && r.held != nil }

// isNew reports whether something is not recorded yet, and notes that it will be.
func (r *Recorder) isNew(x *history.Record) bool {
	key := xxhash.Sum64String(x.Key)
	if _, is := r.seen[key]; is {
		return false
	}
	r.seen[key] = struct{}{}
	if isSuspension(x) {
		r.suspended[x.UID] = x.Transition == history.Suspended
	}
	return true
}

// tell records in order.
func (r *Recorder) tell(ctx context.Context, records []history.Record) error {
	now := r.opts.Clock().UTC()
	for len(records) > 0 {
		n := min(len(records), maxBatch)
		batch := make([]history.Record, n)
		copy(batch, records)
		for i := range batch {
			batch[i].Time = now
		}
		if err := r.opts.Log.Tell(ctx, batch); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// take takes what an event says.
func (r *Recorder) take(records ...history.Record) {
	now := r.opts.Clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range records {
		if len(r.waiting) == maxWaiting {
			r.waiting, r.dropped = r.waiting[1:], true
		}
		r.waiting = append(r.waiting, taken{at: now, record: records[i]})
	}
	r.wake()
}

// forget takes that an object is gone, which had these records.
func (r *Recorder) forget(records []history.Record) {
	keys := make([]uint64, 0, len(records))
	for i := range records {
		keys = append(keys, xxhash.Sum64String(records[i].Key))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, taken{forget: keys})
	r.wake()
}

func (r *Recorder) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped = true
}

func (r *Recorder) takeDropped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.dropped
	r.dropped = false
	return was
}

// listed takes that a resource was listed, for the first time or again.
func (r *Recorder) listed(first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.relist = true; first {
		r.unlisted--
	}
	r.wake()
}

func (r *Recorder) wake() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// gap is the record of what was too much to remember.
func gap(now time.Time) history.Record {
	to := now.UTC()
	return history.Record{
		Type: history.Gap, Transition: "Gap", To: &to, Key: history.Key("gap", "hub", to.Format(time.RFC3339Nano)),
		Message: "the hub's objects changed faster than they could be recorded",
	}
}

// catchUp records what the objects say and the log does not have.
func (r *Recorder) catchUp(ctx context.Context, leads bool, held map[string]bool) error {
	r.tried = r.opts.Clock()
	r.setRelist(false)
	c := &catching{Recorder: r, ctx: ctx, leads: leads, members: held, logged: map[uint64]bool{}, asked: map[history.Query]bool{}, wasSuspended: maps.Clone(r.suspended)}
	if span := r.opts.Log.Span(); span.Oldest > 1 {
		c.since = span.OldestTime
	}
	for _, list := range r.lists {
		if err := errors.Join(list(c), c.flush()); err != nil {
			r.setRelist(true)
			return err
		}
	}
	r.led, r.held = leads, maps.Clone(held)
	return nil
}

func (r *Recorder) setRelist(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.relist = is
}
