package delivery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/sinks"
)

// Log is the history of this process.
type Log interface {
	ID() string
	Read(history.Query) iter.Seq2[history.Record, error]
	More(after uint64) <-chan struct{}
	Span() history.Span
}

// Sink takes messages.
type Sink interface {
	// Send returns how many of the messages, from the first, are known to be taken, and why no more.
	Send(ctx context.Context, messages []sinks.Message) (int, error)
}

// Options configure a Delivery. All but Grouping, IncludeText and Logger are required.
type Options struct {
	UID     string // of the Notification
	Version string // of what it selects and how: a collection that is sent again under another makes other messages
	Origin  string // of events: a URI reference that names this hub
	Log     Log
	Sink    Sink
	Selects func(*history.Record) bool
	// Grouping makes one message of several transitions; nil: each is one.
	Grouping *Grouping
	// IncludeText adds text of objects, which who reads the sink needs no grant for.
	IncludeText bool
	File        string // where the position is kept
	Logger      *slog.Logger
}

func (o *Options) validate() error {
	if o.UID == "" || o.Version == "" || o.Origin == "" || o.Log == nil || o.Sink == nil || o.Selects == nil || o.File == "" {
		return errors.New("delivery: UID, Version, Origin, Log, Sink, Selects and File are required")
	}
	if o.Grouping != nil {
		if err := o.Grouping.validate(); err != nil {
			return fmt.Errorf("delivery: %w", err)
		}
	}
	return nil
}

// Reported is what is known to be sent of a Notification.
type Reported struct {
	Log   string    // in which it was read; "" where nothing was sent yet
	Until time.Time // the time of the last transition or, where nothing was sent yet, from which on all is to be
}

// Status is how far a Delivery has come.
type Status struct {
	Reported

	Position uint64
	Waiting  uint64 // transitions of the history that are not read yet, or not sent
	LastSent time.Time
	Failures int   // since a message was taken
	Err      error // of the last attempt, nil if it was taken
}

const (
	// overlap is how much of what another process has reported is sent again.
	overlap = time.Minute
	// idleSave is how often a position is written down while nothing is selected.
	idleSave   = 10 * time.Second
	pageRead   = 500_000 // transitions that are read at once: what they are in cannot be removed meanwhile
	chunk      = 256     // messages that are made, and sent, before the position is written down
	chunkBytes = 4 << 20 // of them, about

	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// giveUp is how long a message may be refused as malformed.
	giveUp = time.Hour
)

// Delivery sends what one Notification selects. Its Run alone uses at, backoff and refused.
type Delivery struct {
	opts    Options
	at      position
	saved   time.Time // when at was written down
	backoff time.Duration
	refused refusal

	mu     sync.Mutex
	status Status
}

// refusal is since when one message is refused as malformed.
type refusal struct {
	id     string
	since  time.Time
	why    error
	gaveUp bool
}

// New returns a Delivery; nothing is read before Run.
func New(opts Options) (*Delivery, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Delivery{opts: opts}, nil
}

// Status returns how far it has come.
func (d *Delivery) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.status
	if last := d.opts.Log.Span().Last; last > s.Position {
		s.Waiting = last - s.Position
	}
	return s
}

// Run sends until the context ends. before is what is known to be sent, by this process or others.
func (d *Delivery) Run(ctx context.Context, before Reported) error {
	d.begin(before)
	for ctx.Err() == nil {
		wait, err := d.pass(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			wait = d.failed(err)
		} else {
			d.succeeded()
		}
		if err := sleep.For(ctx, wait); err != nil {
			break
		}
	}
	return context.Cause(ctx)
}

// begin finds the position to go on from.
func (d *Delivery) begin(before Reported) {
	at, err := load(d.opts.File)
	if err != nil {
		d.opts.Logger.Error("transitions are sent again: it is not known which were", "error", err)
	}
	id := d.opts.Log.ID()
	d.at = at
	if at.Log != id || before.Log != id && before.Until.After(at.Until) { // another process was later
		since := before.Until.Truncate(time.Second) // no clock that is compared is finer
		if before.Log != "" {
			since = since.Add(-overlap)
		}
		since = notAhead(since)
		d.at = position{Log: id, After: d.before(since), Until: since, Floor: since, Gaps: at.Gaps}
		if d.at.After == 0 && before.Log != "" && !before.Until.IsZero() {
			d.at.Missing = d.missing(before, since)
		}
	}
	d.at.Floor = notAhead(d.at.Floor)
	d.saved, d.backoff, d.refused = time.Time{}, 0, refusal{}
	d.publish(nil)
}

// notAhead returns a time, or that of a minute ago where it is to come: a clock was wrong, and nothing is left out until then.
func notAhead(t time.Time) time.Time {
	if now := time.Now(); t.After(now) {
		return now.Add(-overlap).Truncate(time.Second)
	}
	return t
}

// before returns the position of the last transition before a time.
func (d *Delivery) before(t time.Time) uint64 {
	for r, err := range d.opts.Log.Read(history.Query{Until: t, Backward: true}) {
		if err == nil && r.Position > 0 {
			return r.Position
		}
	}
	return 0
}

// missing returns the gap between what another process has reported and what this log has; nil if there is none.
func (d *Delivery) missing(before Reported, since time.Time) *history.Record {
	to := d.opts.Log.Span().OldestTime
	if to.IsZero() {
		to = time.Now()
	}
	if to = to.UTC(); !to.After(before.Until) {
		return nil
	}
	from := since.UTC()
	return &history.Record{
		Time: to, Type: history.Gap, Transition: "Gap", From: &from, To: &to, Key: history.Key("gap", d.at.Log, "since", before.Log, before.Until.UTC().Format(time.RFC3339)),
		Message: "the process that reported before had another history, and this one begins later",
	}
}

// publish has Status tell of the position.
func (d *Delivery) publish(change func(*Status)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.Reported, d.status.Position, d.status.LastSent = Reported{d.at.Log, d.at.Until}, d.at.After, d.at.LastSent
	if change != nil {
		change(&d.status)
	}
}

// succeeded notes that all was sent that there was to send.
func (d *Delivery) succeeded() {
	d.backoff = 0
	d.publish(func(s *Status) { s.Failures, s.Err = 0, nil })
}

// failed notes why nothing could be sent, and returns how long to wait.
func (d *Delivery) failed(err error) time.Duration {
	failures := 0
	d.publish(func(s *Status) { s.Failures, s.Err = s.Failures+1, err; failures = s.Failures })
	d.backoff = min(max(firstBackoff, 2*d.backoff), maxBackoff)
	d.opts.Logger.Error("transitions could not be sent", "failures", failures, "error", err)
	var refused *sinks.RefusedError
	if errors.As(err, &refused) {
		return min(max(d.backoff, refused.RetryAfter()), maxBackoff)
	}
	return d.backoff
}

// save writes the position down, and publishes it.
func (d *Delivery) save(durable bool) error {
	if err := d.at.save(d.opts.File, durable); err != nil {
		return fmt.Errorf("position: %w", err)
	}
	d.saved = time.Now()
	d.publish(nil)
	return nil
}

// send sends messages. One that its receiver has called malformed for too long is sent as one that says so.
func (d *Delivery) send(ctx context.Context, messages []sinks.Message) (sent int, err error) {
	messages = slices.Clone(messages) // who asks knows them by their IDs
	for sent < len(messages) {
		m := &messages[sent]
		if d.refused.gaveUp && d.refused.id == m.ID {
			if *m, err = dropped(&d.opts, m, d.refused.why); err != nil {
				return sent, err
			}
		}
		n, err := d.opts.Sink.Send(ctx, messages[sent:])
		if sent += n; n > 0 {
			d.backoff, d.refused = 0, refusal{}
		}
		switch {
		case err == nil && n == 0:
			return sent, errors.New("the sink has taken nothing, and does not say why")
		case err == nil:
			continue
		case sent == len(messages) || !isMalformed(err):
			return sent, err
		}
		if m = &messages[sent]; m.Type == DroppedType {
			d.opts.Logger.Error("a message was given up, and its receiver cannot be told", "id", m.ID, "error", err)
			sent, d.refused = sent+1, refusal{}
			continue
		}
		if d.refused.id != m.ID {
			d.refused = refusal{id: m.ID, since: time.Now(), why: err}
		}
		if time.Since(d.refused.since) < giveUp {
			return sent, err
		}
		d.opts.Logger.Error("a message was given up", "id", m.ID, "error", err)
		d.refused.gaveUp = true
	}
	return sent, nil
}

// isMalformed reports whether an error says of a message, not of its receiver, what is wrong.
func isMalformed(err error) bool {
	var refused *sinks.RefusedError
	if errors.As(err, &refused) {
		return refused.Status == http.StatusBadRequest || refused.Status == http.StatusRequestEntityTooLarge || refused.Status == http.StatusUnprocessableEntity
	}
	var field *sinks.FieldError
	return errors.As(err, &field)
}
