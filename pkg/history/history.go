package history

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history/internal/segments"
)

// ErrEnded is returned by Tell once Run has returned.
var ErrEnded = errors.New("the history is not recorded any more")

// Options configure a History.
type Options struct {
	Directory string        // of this process alone; made where there is none
	Key       []byte        // by which all is encrypted; nil: nothing is
	MaxBytes  int64         // on disk, beyond which the oldest is removed; 0: no bound
	MaxAge    time.Duration // 0: no bound
	// Kinds says what is recorded of objects; nil: DefaultKinds, with their default fields.
	Kinds []Rule
	// Read reports whether policies read a kind, which is then recorded, too; nil: none. It must not block.
	Read func(aggregate.Kind) bool
	// Trace returns the trace ID of a commit; nil: there are none.
	Trace   func(memberUID string, kind aggregate.Kind, at aggregate.Revision) string
	Boot    string           // as in segments.Options
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: nothing is logged
	Metrics prometheus.Registerer
}

// History is what happened, as far as it is kept. Read and Wait may be called from any goroutine.
type History struct {
	opts    Options
	log     *segments.Log
	clock   *clock
	metrics *metrics
	told    chan []Record
	ended   chan struct{} // closed when Run returns
	folds   chan struct{} // has one for each that is made

	mu       sync.Mutex
	written  aggregate.Revision // up to where commits are recorded
	progress chan struct{}      // closed when written changes
	why      error              // why nothing is written; nil: it is
	turns    map[string]*foldTurn

	// Run's goroutine only, after Begin:
	index  *aggregate.Index
	last   *aggregate.Snapshot
	taker  *taker
	before map[string]bool // keys of what the process before has recorded last
	marker *marker         // since when nothing is written
	tried  time.Time       // when that was tried last
}

// Open opens what was recorded before.
func Open(opts Options) (*History, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	fields, err := newSelections(opts.Kinds, opts.Read)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	clock := &clock{system: opts.Now}
	log, err := segments.Open(segments.Options{
		Directory: opts.Directory, Key: opts.Key, Boot: opts.Boot, MaxBytes: opts.MaxBytes, MaxAge: opts.MaxAge, Now: clock.now, Log: opts.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	clock.last = log.Status().Last.Time
	marker, err := openMarker(opts.Directory)
	if err != nil {
		opts.Log.Error("if nothing can be recorded when this process ends, the next one will not know", "error", err)
		marker = unmarked()
	}
	h := &History{
		opts: opts, log: log, clock: clock, marker: marker, told: make(chan []Record, 16), ended: make(chan struct{}), folds: make(chan struct{}, maxFolds), turns: map[string]*foldTurn{}, progress: make(chan struct{}),
		taker: newTaker(fields), before: map[string]bool{},
	}
	h.taker.trace, h.taker.full = opts.Trace, h.drain
	h.metrics = newMetrics(h)
	if opts.Metrics != nil {
		if err := opts.Metrics.Register(h.metrics); err != nil {
			return nil, errors.Join(fmt.Errorf("history: metrics: %w", err), log.Close())
		}
	}
	return h, nil
}

// Bounds of what is looked up of the process before.
const (
	lookBackRecords = 50_000
	lookBackTime    = 10 * time.Minute // before the last record
)

// Begin says what is recorded from here on: all that is committed to an index after its present state, which is what was
// loaded. It is called once, before anything is committed and before Run.
func (h *History) Begin(x *aggregate.Index) error {
	h.index, h.last = x, x.Snapshot()
	before := h.log.Status().Last
	h.taker.begin(h.last, before.Time)
	if before.Position > 0 {
		h.taker.recorded = func(member, uid string, kind aggregate.Kind) aggregate.State {
			return h.followed(member, uid, kind, before.Position)
		}
	}
	h.reached(h.last.Revision())
	err := h.lookBack(before.Time)
	if !h.marker.since.IsZero() {
		h.setFailure(errors.New("the process before could not record what happened"))
		h.resume(h.clock.now())
	}
	return err
}

// lookBack notes what was recorded last, which may be taken again.
func (h *History) lookBack(newest time.Time) error {
	n := 0
	for e, err := range h.log.Read(segments.Query{Since: newest.Add(-lookBackTime), Backward: true}) {
		var gap *segments.GapError
		switch {
		case errors.As(err, &gap):
			continue
		case err != nil:
			return fmt.Errorf("history: %w", err)
		}
		r, err := recordOf(&e)
		if err == nil && (r.Type == Object || r.Type == Verdict || r.Type == Gap) {
			h.before[r.Key] = true
		}
		if n++; n == lookBackRecords {
			break
		}
	}
	return nil
}

// followed returns the state that was recorded last of a scope that was followed then, up to a position; Unknown if it was not. Records of objects say
// that they were read.
func (h *History) followed(member, uid string, kind aggregate.Kind, upTo uint64) aggregate.State {
	for e, err := range h.log.Read(segments.Query{Member: member, Kind: string(kind), Before: upTo + 1, Backward: true}) {
		if err != nil {
			continue // what is missing is said where it is
		}
		r, err := recordOf(&e)
		switch {
		case err != nil || r.Type == Verdict || r.Type == Gap:
		case r.MemberUID != uid:
			return aggregate.Unknown
		case r.Type == Object:
			return aggregate.Synced
		default:
			var state aggregate.State
			if state.UnmarshalText([]byte(r.Transition)) == nil && wasRead(aggregate.Status{State: state}) {
				return state
			}
			return aggregate.Unknown
		}
	}
	return aggregate.Unknown
}

// Query says which records Read reads: all that is set must hold.
type Query struct {
	Member, Kind, Namespace, Name, UID, Policy string

	Since, Until  time.Time // Since <= Time < Until
	After, Before uint64    // positions, both exclusive; 0: not set
	Backward      bool      // the newest first
	Beside        bool      // also records that IsBeside, of scopes and members that what is asked for may be in
}

// mayBeIn reports whether what is asked for may be in the scope or member that a record is about.
func (q *Query) mayBeIn(r *Record) bool {
	return (q.Member == "" || r.Member == "" || q.Member == r.Member) && (q.Kind == "" || r.Kind == "" || q.Kind == string(r.Kind))
}

func (q *Query) segments() segments.Query {
	return segments.Query{
		Member: q.Member, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID, Policy: q.Policy,
		Since: q.Since, Until: q.Until, After: q.After, Before: q.Before, Backward: q.Backward,
	}
}

// Read yields records by their position. What is missing is a record of type Gap, without a position: it may be yielded again to who reads on from a
// record near it.
func (h *History) Read(q Query) iter.Seq2[Record, error] {
	of := q.segments()
	beside := segments.Query{Policy: besideFacet, Since: q.Since, Until: q.Until, After: q.After, Before: q.Before, Backward: q.Backward}
	all := of
	all.Member, all.Kind, all.Namespace, all.Name, all.UID, all.Policy = "", "", "", "", "", ""
	if !q.Beside || of == all {
		return h.read(of)
	}
	return merged(h.read(of), h.read(beside), &q)
}

// Gaps yields the gaps that were recorded at or after a time, by their position.
func (h *History) Gaps(since time.Time) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for r, err := range h.read(segments.Query{Policy: besideFacet, Since: since}) {
			if (err != nil || r.Type == Gap) && !yield(r, err) {
				return
			}
		}
	}
}

// merged yields the records of a query, and those beside it, by their position, those of both once. What the log has lost is among the first.
func merged(of, beside iter.Seq2[Record, error], q *Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		pull, stop := iter.Pull2(beside)
		defer stop()
		next := func() (r Record, err error, more bool) { //nolint:revive,staticcheck // as iter.Pull2 has it
			for r, err, more = pull(); more && err == nil && (r.Position == 0 || !q.mayBeIn(&r)); r, err, more = pull() {
			}
			return r, err, more
		}
		b, failed, more := next()
		for r, err := range of {
			for more && (failed != nil || r.Position > 0 && b.Position != r.Position && (b.Position < r.Position) != q.Backward) {
				if !yield(b, failed) || failed != nil {
					return
				}
				b, failed, more = next()
			}
			if more && b.Position == r.Position {
				b, failed, more = next()
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
		for ; more; b, failed, more = next() {
			if !yield(b, failed) || failed != nil {
				return
			}
		}
	}
}

func (h *History) read(q segments.Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var last time.Time
		for e, err := range h.log.Read(q) {
			var gap *segments.GapError
			switch {
			case errors.As(err, &gap):
				if !yield(missing(h.log.ID(), gap, last), nil) {
					return
				}
				continue
			case err != nil:
				yield(Record{}, fmt.Errorf("history: %w", err))
				return
			}
			last = e.Time
			r, err := recordOf(&e)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// missing is the record of what the log has lost. It has no position: what is around it may be there. Where it is not known of when it is, it
// has the time of the record before.
func missing(log string, g *segments.GapError, last time.Time) Record {
	r := Record{Time: last, Type: Gap, Transition: "Gap", Key: join("gap", log, fmt.Sprint(g.From), fmt.Sprint(g.To)), Message: why(g)}
	if at := g.Until; !at.IsZero() {
		r.Time = at
	}
	for at, to := range map[time.Time]**time.Time{g.Since: &r.From, g.Until: &r.To} {
		if !at.IsZero() {
			*to = &at
		}
	}
	return r
}

// why says why records are missing: what the disk says is for who runs federator.
func why(g *segments.GapError) string {
	for _, known := range [...]error{segments.ErrLost, segments.ErrExpired} {
		if errors.Is(g, known) {
			return fmt.Sprintf("positions %d to %d are missing: %v", g.From, g.To, known)
		}
	}
	return fmt.Sprintf("positions %d to %d cannot be read", g.From, g.To)
}

// Records reports whether transitions of objects of a kind are recorded.
func (h *History) Records(kind aggregate.Kind) bool {
	return h.taker.fields.rules[kind] != nil || h.opts.Read != nil && h.opts.Read(kind)
}

// More returns a channel that is closed once there is a record after a position.
func (h *History) More(after uint64) <-chan struct{} { return h.log.More(after) }

// ID names the log: positions of another one say nothing about it.
func (h *History) ID() string { return h.log.ID() }

// Span is what is kept.
type Span struct {
	Oldest, Last         uint64 // positions
	OldestTime, LastTime time.Time
	Bytes                int64 // on disk
}

// Span returns what is kept now.
func (h *History) Span() Span {
	s := h.log.Status()
	return Span{s.Oldest.Position, s.Last.Position, s.Oldest.Time, s.Last.Time, s.Bytes}
}

// Failure returns why nothing is recorded at present, nil if it is.
func (h *History) Failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

func (h *History) setFailure(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.why = err
}
