package handover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/persistence"
)

// Bounds of a Taker.
const (
	takerStall  = 10 * time.Second // without a byte
	takerTurn   = 5 * time.Minute  // until a member has its turn, as long as the others before it come
	takerLimit  = 2 * time.Minute  // of one member from then on
	takerMember = 2                // that one process is asked for at a time
	takerPause  = 30 * time.Second // in which a process is not asked that did not answer, or too slowly
	retryEvery  = time.Second      // where a process is busy

	// A process that sends less than slowRate bytes a second is given up after slowAfter.
	slowRate  = 64 << 10
	slowAfter = 15 * time.Second

	maxMessage = 256
)

// Holder is a process that may hold a member.
type Holder struct {
	ID, URL string
	Client  *http.Client // reaches that process only
}

// TakerOptions are whom a Taker asks. Holders is required.
type TakerOptions struct {
	// Holders returns who may hold a member, in the order in which they are asked.
	Holders func(member string) []Holder
	Logger  *slog.Logger // nil: nothing is logged
	// Stall is for how long a process may say nothing. 0: 10 s.
	Stall time.Duration
}

// Wish is a member that is to be taken over. All are required but UID.
type Wish struct {
	Index       *aggregate.Index // that it is added to
	Member, UID string
	// Form says what of a kind is held, as in persistence.Options, and Wanted whether it is at all.
	Form   func(aggregate.Kind) string
	Wanted func(aggregate.Kind) bool
	// MaxObjects and MaxBytes bound what the member may cost.
	MaxObjects, MaxBytes int64
}

// Taker takes members over from other processes. It is a prometheus.Collector.
type Taker struct {
	o       TakerOptions
	total   *prometheus.CounterVec
	objects prometheus.Counter

	mu    sync.Mutex
	gates map[question]*gate
}

// NewTaker returns a Taker.
func NewTaker(o TakerOptions) (*Taker, error) {
	if o.Holders == nil {
		return nil, errors.New("handover: Holders is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Stall = cmp.Or(o.Stall, takerStall)
	return &Taker{
		o: o, gates: map[question]*gate{},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "federator_shard_handovers_total",
			Help: "Members that joined this process, by what another one handed over of them: taken (all), partly, nothing (it had nothing to go on with), nobody (no process holds the member), refused, failed. What was not taken was listed.",
		}, []string{"result"}),
		objects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "federator_shard_handover_objects_total", Help: "Objects that other processes handed over to this one.",
		}),
	}, nil
}

// Describe implements prometheus.Collector.
func (t *Taker) Describe(ch chan<- *prometheus.Desc) {
	t.total.Describe(ch)
	t.objects.Describe(ch)
}

// Collect implements prometheus.Collector.
func (t *Taker) Collect(ch chan<- prometheus.Metric) {
	t.total.Collect(ch)
	t.objects.Collect(ch)
}

// Results of a handover, the best first.
const (
	resultTaken   = "taken"
	resultPartly  = "partly"
	resultNothing = "nothing"
	resultRefused = "refused"
	resultFailed  = "failed"
	resultNobody  = "nobody"
)

// Take adds what another process holds of a member to the index, where the member is already, and returns which kinds that is, and
// when each was last known to be what the member has (zero: never). It returns soon once ctx is done.
func (t *Taker) Take(ctx context.Context, wish Wish) map[aggregate.Kind]time.Time {
	taken, result := map[aggregate.Kind]time.Time{}, resultNobody
	wanted := wish.Wanted
	wish.Wanted = func(kind aggregate.Kind) bool {
		_, is := taken[kind]
		return !is && wanted(kind)
	}
	for _, h := range t.o.Holders(wish.Member) {
		began := time.Now()
		got, err := t.takeFrom(ctx, h, wish)
		maps.Copy(taken, got.Scopes)
		wish.MaxObjects, wish.MaxBytes = wish.MaxObjects-int64(got.Objects), wish.MaxBytes-got.Bytes
		t.objects.Add(float64(got.Objects))
		result = resultOf(len(taken), got, err)
		t.o.Logger.Info("another process was asked for what it holds of a member", "member", wish.Member, "peer", h.ID, "result", result, "scopes", len(got.Scopes),
			"objects", got.Objects, "listed", got.Left, "within", time.Since(began).Round(time.Millisecond), "error", errors.Join(err, got.Why))
		if ctx.Err() != nil || err == nil && len(got.Scopes) > 0 {
			break
		}
	}
	t.total.WithLabelValues(result).Inc()
	return taken
}

// refusedError is of a process that answers with something else.
type refusedError struct {
	status  int
	message string
}

func (e *refusedError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.message) }

func resultOf(taken int, got persistence.Received, err error) string {
	var refused *refusedError
	switch {
	case err == nil && got.Left == 0 && taken > 0:
		return resultTaken
	case taken > 0:
		return resultPartly
	case errors.As(err, &refused):
		return resultRefused
	case err != nil:
		return resultFailed
	}
	return resultNothing
}

// takeFrom takes what one process holds.
func (t *Taker) takeFrom(ctx context.Context, h Holder, wish Wish) (got persistence.Received, err error) {
	err = t.inTurn(ctx, question{of: h.ID}, takerLimit, func(ctx context.Context) (err error) {
		got, err = t.ask(ctx, h, wish)
		return err
	})
	return got, err
}

// inTurn asks a process once there is room for that, for a time at most, and again where the process is busy.
func (t *Taker) inTurn(ctx context.Context, q question, limit time.Duration, ask func(context.Context) error) (err error) {
	g := t.gate(q)
	if err := g.enter(ctx); err != nil {
		return err
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	defer func() { g.leave(outer.Err() == nil && q.isOfProcess(err, time.Since(began))) }()
	for {
		err = ask(ctx)
		var refused *refusedError
		if !errors.As(err, &refused) || refused.status != http.StatusServiceUnavailable {
			return err
		}
		if sleep.For(ctx, retryEvery) != nil {
			return err
		}
	}
}

// ask asks for a member, once.
func (t *Taker) ask(ctx context.Context, h Holder, wish Wish) (got persistence.Received, err error) {
	err = t.stream(ctx, h, request{path: Path, member: wish.Member, uid: wish.UID, contentType: contentType}, func(ctx context.Context, from io.Reader) error {
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(4*window))
		if err != nil {
			return err
		}
		defer z.Close()
		got, err = persistence.Receive(ctx, z, wish.Index, persistence.ReceiveOptions{
			Member: wish.Member, UID: wish.UID, Form: wish.Form, Wanted: wish.Wanted, MaxObjects: wish.MaxObjects, MaxBytes: wish.MaxBytes,
		})
		return err
	})
	return got, err
}

// request is what a process is asked.
type request struct{ path, member, uid, contentType string }

// stream has read take what a process answers, as long as it comes steadily.
func (t *Taker) stream(ctx context.Context, h Holder, of request, read func(context.Context, io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := &steady{stall: t.o.Stall, began: time.Now()}
	body.timer = time.AfterFunc(t.o.Stall, func() { cancel(errStalled) })
	defer body.timer.Stop()
	query := url.Values{"name": {of.member}, "uid": {of.uid}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+of.path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		return cmp.Or(stalled(ctx), fmt.Errorf("%w: %w", errUnreached, err))
	}
	defer resp.Body.Close()
	if is := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || is != of.contentType {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxMessage)) //nolint:errcheck // what there is of it
		return &refusedError{resp.StatusCode, clip.Line(string(text), maxMessage)}
	}
	body.from = resp.Body
	if err := read(ctx, body); err != nil {
		return cmp.Or(stalled(ctx), err)
	}
	return nil
}

var (
	errStalled = errors.New("the process says nothing")
	errSlow    = errors.New("the process is too slow")
	errPaused  = errors.New("the process has failed a moment ago")

	errUnreached = errors.New("the process cannot be asked")
)

// atOnce is how long a process takes to refuse a connection, at most.
const atOnce = time.Second

// isOfProcess reports whether a failure that took a while is the process's, so that others ask it in vain. What it sends of one
// member, and makes no sense, or ends too early, says nothing of others. Nor does, of since when violations are there, that it
// refuses connections: it may only be beginning, and to ask again costs nothing.
func (q question) isOfProcess(err error, took time.Duration) bool {
	if errors.Is(err, errUnreached) {
		return !q.seen || took > atOnce
	}
	return errors.Is(err, errStalled) || errors.Is(err, errSlow)
}

// stalled returns that nothing came, where that is why ctx is done.
func stalled(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return nil
}

// steady reads what comes steadily.
type steady struct {
	from  io.Reader
	timer *time.Timer
	stall time.Duration
	began time.Time
	bytes int64
}

func (s *steady) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if n > 0 {
		s.timer.Reset(s.stall)
	}
	s.bytes += int64(n)
	if took := time.Since(s.began); err == nil && took > slowAfter && float64(s.bytes) < slowRate*took.Seconds() {
		return n, errSlow
	}
	return n, err
}

// question is what a process is asked: for members, or since when violations are there. Neither waits for the other. A process that
// does not say the latter, as it is only beginning, is asked again, and for members, too.
type question struct {
	of   string
	seen bool
}

// gate bounds how often one process is asked a question.
type gate struct {
	slots chan struct{}

	mu     sync.Mutex
	until  time.Time     // when it is asked again
	failed chan struct{} // closed when it fails: nobody waits for it any longer
}

func (t *Taker) gate(q question) *gate {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gates[q]
	if g == nil {
		g = &gate{slots: make(chan struct{}, takerMember), failed: make(chan struct{})}
		t.gates[q] = g
	}
	return g
}

// enter waits for a turn.
func (g *gate) enter(ctx context.Context) error {
	g.mu.Lock()
	paused, failed := time.Now().Before(g.until), g.failed
	g.mu.Unlock()
	if paused {
		return errPaused
	}
	ctx, cancel := context.WithTimeout(ctx, takerTurn)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-failed:
		return errPaused
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends a turn, in which the process may have failed.
func (g *gate) leave(failed bool) {
	<-g.slots
	if !failed {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = time.Now().Add(takerPause)
	close(g.failed)
	g.failed = make(chan struct{})
}
