package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/exchange/internal/wire"
)

// The paths that an Exporter serves.
const (
	StreamPath  = "/exchange/v1/stream"
	DigestsPath = "/exchange/v1/digests"
)

// window is that of a stream: what a record is like was sent just before.
const window = 256 << 10

// maxAgain bounds what an importer may ask for again in one request.
const maxAgain = 1000

// ServeHTTP serves importers. Who they are must have been verified before.
func (x *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == StreamPath && (r.Method == http.MethodGet || r.Method == http.MethodPost):
		x.serveStream(w, r)
	case path == StreamPath, path == DigestsPath && r.Method != http.MethodGet:
		http.Error(w, "not this method", http.StatusMethodNotAllowed)
	case path == DigestsPath:
		x.serveDigests(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (x *Exporter) serveStream(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	epoch, sequence, err := parseSince(query.Get("since"))
	again := make([]ask, 0, len(query["again"]))
	for _, text := range query["again"] {
		member, kind, _ := strings.Cut(text, " ")
		again = append(again, ask{member, aggregate.Kind(kind)})
	}
	if err != nil || len(again) > maxAgain {
		http.Error(w, "since is no position, or too much is asked for", http.StatusBadRequest)
		return
	}
	s := &stream{x: x, importer: x.o.Peer(r), epoch: epoch, position: sequence, again: again, asks: everything(), to: deadlines{w: w, control: http.NewResponseController(w), stall: x.o.Stall}}
	if r.Method == http.MethodPost {
		end, err := s.listen(r)
		if err != nil {
			http.Error(w, "it does not say what is asked for: "+clip.Line(err.Error(), maxReason), http.StatusBadRequest)
			return
		}
		defer end()
	}
	x.metrics.streams.Inc()
	defer x.metrics.streams.Dec()
	defer x.forget(s)
	w.Header().Set("Content-Type", "application/vnd.federator.exchange+zstd")
	w.WriteHeader(http.StatusOK)
	err = s.run(r.Context())
	s.account()
	if errors.Is(err, errStalled) || r.Context().Err() == nil && !errors.Is(err, errEnded) {
		x.metrics.cut.Inc()
		x.o.Logger.Warn("an importer was cut", "error", err, "address", r.RemoteAddr)
	}
}

// listen reads what the importer asks for first, and goes on until end is called.
func (s *stream) listen(r *http.Request) (end func(), err error) {
	if r.ProtoMajor < 2 {
		return nil, errors.New("it must speak HTTP/2")
	}
	if err := s.to.control.SetReadDeadline(time.Now().Add(opening)); err != nil {
		return nil, err
	}
	frames := newAsks(r.Body)
	if s.asks, err = readAsks(frames); err != nil {
		return nil, err
	}
	if err := s.to.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() { s.asks.follow(frames) })
	return func() {
		_ = s.to.control.SetReadDeadline(time.Now()) //nolint:errcheck // a stream that has ended is not read either
		reading.Wait()
	}, nil
}

// account adds what was sent since it was called last to the metrics.
func (s *stream) account() {
	if s.frames == nil {
		return
	}
	s.x.metrics.plain.Add(float64(s.frames.Bytes - s.counted.plain))
	s.x.metrics.sent.Add(float64(s.to.bytes - s.counted.sent))
	s.counted.plain, s.counted.sent = s.frames.Bytes, s.to.bytes
}

var (
	errEnded   = errors.New("the exporter ends")
	errStalled = errors.New("it does not read")
)

// parseSince parses <epoch>.<sequence>.
func parseSince(text string) (epoch, sequence uint64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	before, after, ok := strings.Cut(text, ".")
	if !ok {
		return 0, 0, errors.New("it is no position")
	}
	if epoch, err = strconv.ParseUint(before, 10, 64); err != nil {
		return 0, 0, err
	}
	sequence, err = strconv.ParseUint(after, 10, 64)
	return epoch, sequence, err
}

// deadlines writes a response, each write within a time.
type deadlines struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	bytes   int64
	flushed time.Time
}

func (d *deadlines) Write(p []byte) (n int, err error) {
	err = d.within(func() (err error) {
		n, err = d.w.Write(p)
		return err
	})
	d.bytes += int64(n)
	return n, err
}

// flush sends what was written.
func (d *deadlines) flush() error {
	d.flushed = time.Now()
	return d.within(d.control.Flush)
}

// within ends a write that takes too long. While nothing is written there is no deadline: it would end the stream, too.
func (d *deadlines) within(write func() error) error {
	begun := time.Now()
	if err := d.control.SetWriteDeadline(begun.Add(d.stall)); err != nil {
		return err
	}
	err := write()
	if err == nil {
		err = d.control.SetWriteDeadline(time.Time{})
	}
	// net/http ends the stream at the deadline, also when the write was done a moment later; its own errors may be any.
	if time.Since(begun) >= d.stall {
		return errStalled
	}
	return err
}

// stream tells one importer.
type stream struct {
	x        *Exporter
	importer string // who reads it, "" if that is not known
	epoch    uint64 // that the importer has asked for
	position uint64 // the sequence up to which it was told all
	resumed  bool
	again    []ask
	to       deadlines
	zstd     *zstd.Encoder
	frames   *wire.Writer
	buf      []byte
	id       uint64
	asks     *asks
	wants    asked                       // what it was told of
	told     map[string]toldMember       // by member, where that is known; nil while it asks for everything
	rest     time.Time                   // until then it is not looked at what else it asks for
	counted  struct{ plain, sent int64 } // bytes that are in the metrics
}

func (s *stream) run(ctx context.Context) (err error) {
	s.zstd, err = zstd.NewWriter(&s.to, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(window),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false)) // frontiers have a hash
	if err != nil {
		return err
	}
	s.frames = wire.NewWriter(s.zstd)
	s.x.mu.Lock()
	s.resumed = s.epoch == s.x.o.Epoch && s.x.table.resumable(s.position)
	s.wants = s.asks.basis
	s.x.noteLocked(s)
	s.x.mu.Unlock()
	hello := wire.Hello{Version: wire.Version, Process: s.x.o.Process, Epoch: s.x.o.Epoch, Resumed: s.resumed, Stream: s.id}
	if err := s.frames.Frame(wire.TypeHello, hello.Append(nil)); err != nil {
		return err
	}
	heartbeat, rested := time.NewTimer(0), time.NewTimer(time.Hour)
	defer heartbeat.Stop()
	defer rested.Stop()
	for {
		b, revision, changed, err := s.next()
		if err != nil {
			return err
		}
		if b != nil {
			if err := s.tell(ctx, b); err != nil {
				return err
			}
			heartbeat.Reset(s.x.o.Heartbeat)
			rested.Reset(time.Until(s.rest))
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.x.ended:
			return errEnded
		case <-changed:
		case <-s.asks.wake:
		case <-rested.C:
		case <-heartbeat.C:
			if err := s.beat(revision); err != nil {
				return err
			}
			heartbeat.Reset(s.x.o.Heartbeat)
		}
	}
}

// next returns what is to be told next, if there is anything, and a channel that is closed when there is more.
func (s *stream) next() (*batch, aggregate.Revision, <-chan struct{}, error) {
	asks, err := s.asks.now()
	if err != nil {
		return nil, 0, nil, err
	}
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	t := &s.x.table
	resumed := s.resumed && t.resumable(s.position)
	if resumed && time.Now().Before(s.rest) {
		asks = s.wants
	}
	same := asks.number == s.wants.number
	if t.export == nil || resumed && s.position == t.sequence && len(s.again) == 0 && same {
		return nil, t.revision, t.changed, nil
	}
	b := t.batchAfter(s.position, resumed, s.again)
	if b == nil && !same {
		b = &batch{export: t.export, sequence: t.sequence, revision: t.revision}
	}
	if b == nil {
		return nil, t.revision, t.changed, nil
	}
	if b.asked = asks; !asks.set.IsEverything() || !s.wants.set.IsEverything() {
		t.complete(b, !same)
	}
	return b, t.revision, t.changed, nil
}

func (s *stream) flush() error {
	if err := s.zstd.Flush(); err != nil {
		return err
	}
	s.account()
	return s.to.flush()
}

// beat says that the stream is alive, and has all.
func (s *stream) beat(revision aggregate.Revision) error {
	var err error
	if !s.resumed {
		err = s.frames.Frame(wire.TypePing, nil)
	} else {
		err = s.frontier(revision)
	}
	if err != nil {
		return err
	}
	return s.flush()
}

func (s *stream) frontier(revision aggregate.Revision) error {
	f := wire.Frontier{Epoch: s.x.o.Epoch, Sequence: s.position, Revision: revision, Time: time.Now().UnixMilli(), Interest: s.wants.number}
	s.buf = f.Append(s.buf[:0])
	return s.frames.Frame(wire.TypeFrontier, s.buf)
}

// askPause is how long a stream waits at least before it looks again at what else is asked for, so that keys are gathered:
// to look costs as much for one as for many. Where looking takes long it waits for longer, in proportion; what it takes to tell
// what was found is no reason to wait.
const askPause = 50 * time.Millisecond

// tell writes a batch.
func (s *stream) tell(ctx context.Context, b *batch) error {
	begun := time.Now()
	f, err := s.newFilter(ctx, b)
	if err != nil {
		return err
	}
	looking := time.Since(begun)
	s.buf = wire.Begin{Sequence: b.sequence, State: b.state, Interest: b.asked.number}.Append(s.buf[:0])
	if err := s.frames.Frame(wire.TypeBegin, s.buf); err != nil {
		return err
	}
	for _, name := range b.gone {
		delete(s.told, name)
		s.buf = wire.AppendName(s.buf[:0], name)
		if err := s.frames.Frame(wire.TypeGone, s.buf); err != nil {
			return err
		}
	}
	for i := range b.sections {
		tell := s.section
		if f != nil {
			tell = f.section
		}
		if err := tell(b, &b.sections[i]); err != nil {
			return err
		}
	}
	if f != nil {
		looking += f.looking
	}
	if b.asked.set.IsEverything() {
		s.told = nil
	}
	if b.asked.number != s.wants.number {
		s.rest = begun.Add(max(askPause, time.Since(begun)+2*looking))
	}
	s.x.mu.Lock()
	s.wants = b.asked
	s.x.mu.Unlock()
	s.position, s.resumed, s.again = b.sequence, true, nil
	if err := s.frontier(b.revision); err != nil {
		return err
	}
	if b.state {
		s.x.metrics.states.Inc()
	}
	return s.flush()
}

func (s *stream) section(b *batch, m *section) error {
	s.buf = wire.Member{Name: m.member, Full: m.full, JSON: m.frame}.Append(s.buf[:0])
	if err := s.frames.Frame(wire.TypeMember, s.buf); err != nil {
		return err
	}
	for i := range m.scopes {
		if err := s.scope(b, m.member, &m.scopes[i]); err != nil {
			return err
		}
	}
	s.buf = m.end.Append(s.buf[:0])
	return s.frames.Frame(wire.TypeEnd, s.buf)
}

func (s *stream) scope(b *batch, member string, c *scopeSection) error {
	if c.frame == nil {
		s.buf = wire.AppendName(s.buf[:0], c.kind)
		return s.frames.Frame(wire.TypeNoScope, s.buf)
	}
	if err := s.scopeFrame(c); err != nil {
		return err
	}
	switch {
	case c.failed:
		return nil
	case c.replace:
		return b.export.Records(member, c.kind, s.record)
	}
	for _, e := range c.records {
		if err := s.change(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) scopeFrame(c *scopeSection) error {
	s.buf = append(s.buf[:0], c.frame...)
	if c.replace {
		s.buf[len(s.buf)-1] = 1
	}
	return s.frames.Frame(wire.TypeScope, s.buf)
}

func (s *stream) change(e entry) error {
	switch {
	case e.gone:
		s.buf = wire.Delete{Namespace: e.key.Namespace, Name: e.key.Name}.Append(s.buf[:0])
		return s.frames.Frame(wire.TypeDelete, s.buf)
	case e.frame != nil:
		return s.put(e.frame)
	}
	return fmt.Errorf("%s: there is no record of it", e.key)
}

func (s *stream) record(r *aggregate.Record) error {
	s.buf = wire.AppendRecord(s.buf[:0], r)
	return s.put(s.buf)
}

func (s *stream) put(record []byte) error {
	s.x.metrics.records.Inc()
	if err := s.frames.Frame(wire.TypeRecord, record); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(s.to.flushed) > s.x.o.Heartbeat {
		return s.flush() // the importer sees that there is progress
	}
	return nil
}
