package clusterinformers

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers/internal/decode"
	"federator.dev/federator/pkg/clusterinformers/internal/listwatch"
	"federator.dev/federator/pkg/clusterinformers/internal/stream"
	"federator.dev/federator/pkg/tracing"
)

// A listWatch gives its worker back after maxBatch changes or turnBytes, whichever comes first.
const (
	maxBatch  = 256
	turnBytes = 256 << 10
)

// smallList is how much of a first list is read without a slot.
const smallList = 64 << 10

// reader is what a worker reads with.
type reader struct {
	scratch  [64 << 10]byte
	event    decode.Event
	decoders map[decoderKey]*decode.Decoder
}

// decoderKey is what a decoder is made for, within a manager.
type decoderKey struct {
	kind      aggregate.Kind
	version   string
	encoding  decode.Encoding
	federated bool // the member is read at another federator
}

// maxDecoders bounds the decoders that a reader keeps.
const maxDecoders = 64

// readers are those of one manager: its rules are the decoders'.
type readers struct{ pool sync.Pool }

func (r *readers) get() *reader {
	if w, ok := r.pool.Get().(*reader); ok {
		return w
	}
	return &reader{decoders: map[decoderKey]*decode.Decoder{}}
}

func (r *readers) put(w *reader) { r.pool.Put(w) }

// decoder returns a decoder for an informer's objects.
func (w *reader) decoder(i *informer, encoding decode.Encoding) (*decode.Decoder, error) {
	key := decoderKey{i.kind, i.res().GVK.Version, encoding, i.member.federated.Load()}
	if d := w.decoders[key]; d != nil {
		return d, nil
	}
	d, err := i.decoder(encoding)
	if err != nil {
		return nil, err
	}
	if len(w.decoders) >= maxDecoders {
		clear(w.decoders)
	}
	w.decoders[key] = d
	return d, nil
}

// rules are what of an object is kept.
func (i *informer) rules() decode.Rules {
	return decode.Rules{Drop: splitPaths(i.rule.Drop), Redact: !i.member.manager.opts.KeepSecretValues && decode.Sensitive(i.kind), Federator: i.member.federated.Load()}
}

// decoder returns a new decoder for the informer's objects.
func (i *informer) decoder(encoding decode.Encoding) (*decode.Decoder, error) {
	d, err := decode.New(i.res().GVK, encoding, i.rules())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", decode.ErrMalformed, err)
	}
	return d, nil
}

// read decodes and applies what has come of the watch. It reports whether there is more.
func (p *listWatch) read(now time.Time) (again bool) {
	if !p.came.Swap(false) || p.awaitsSlot(now) {
		return false
	}
	all := &p.informer.member.manager.readers
	r := all.get()
	again, err := p.readEvents(now, r)
	all.put(r) // what a panic leaves behind is not used again
	if commit := p.commit(); commit != nil && err == nil {
		p.checkCommit(now, commit)
	}
	if err != nil {
		p.failed(now, p.watch, err)
	}
	return again
}

// readEvents reads until nothing has come, or until the turn is over.
func (p *listWatch) readEvents(now time.Time, r *reader) (again bool, err error) {
	w := p.watch
	d, err := r.decoder(p.informer, w.encoding)
	if err != nil {
		return false, err
	}
	w.events.Use(d, r.scratch[:])
	defer w.events.Park()
	fallbacks, events, read := d.Fallbacks(), 0, 0
	p.turn, p.decoded = tracing.At(now), tracing.At(now)
	defer func() {
		p.informer.fellBack(d.Fallbacks() - fallbacks)
		if events > 0 {
			p.informer.contact(now)
			if !p.machine.Listing() {
				p.pace.count(events, now)
			}
		}
	}()
	for events < maxBatch && read < turnBytes {
		err := w.events.Next(&r.event)
		if errors.Is(err, stream.ErrNothing) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		events++
		read += r.event.Bytes
		if p.suspect {
			p.suspect = false
			if !p.machine.Listing() {
				p.markUp()
			}
		}
		if err := p.event(&r.event, now); err != nil || p.watch != w {
			return false, err // it was given up
		}
		if p.machine.Listing() {
			p.received += int64(r.event.Bytes)
			if p.awaitsSlot(now) {
				break
			}
		}
	}
	p.came.Store(true)
	return p.slotBy.IsZero(), nil
}

// awaitsSlot reports whether a first list is large and waits for a slot, for a while: API servers
// drop watchers that do not read.
func (p *listWatch) awaitsSlot(now time.Time) bool {
	switch {
	case p.received < smallList || !p.machine.Listing():
		return false
	case p.slot == nil:
		p.slot = p.informer.member.manager.slots.Request(&p.informer.member.listSlots, p.task.Wake)
		if p.slot.Held() {
			p.widen()
			return false
		}
		p.slotBy = now.Add(slotPatience)
	case p.slotBy.IsZero():
		p.slot.Progress()
		return false
	case p.slot.Held() || !now.Before(p.slotBy):
		p.slotBy = time.Time{}
		p.widen()
		return false
	}
	p.came.Store(true)
	p.wakeIn(p.slotBy.Sub(now))
	return true
}

// widen lets more of the watch come before it is read.
func (p *listWatch) widen() {
	if p.watch == nil {
		return
	}
	if g, can := p.watch.body.(interface{ Grow(n int) }); can {
		g.Grow(watchWindow - smallList)
	}
}

// event takes an event of the watch.
func (p *listWatch) event(ev *decode.Event, now time.Time) error {
	rv := ev.Record.ResourceVersion
	switch ev.Type {
	case watch.Error:
		return apierrors.FromObject(ev.Status)
	case watch.Bookmark:
		return p.bookmark(ev, now)
	}
	if !p.machine.Listing() && !p.federated {
		if err := p.checkOrder(rv, false); err != nil {
			return err
		}
	}
	if ev.Type == watch.Deleted {
		if p.machine.Object(p.request.ID, rv) == listwatch.Stage {
			p.restaged = true
			namespace, name := stagedKey(&ev.Record)
			return p.stage(&object{namespace: namespace, name: name, deleted: true})
		}
		namespace, name := cloneKey(&ev.Record)
		p.remove(namespace, name, p.machine.AppliedResourceVersion(), now)
		return nil
	}
	ev.Record.Update = ev.Type == watch.Modified
	o := p.object(&ev.Record, ev.Unfit, p.machine.Listing())
	// The record's strings are the decoder's, which goes on.
	if p.machine.Object(p.request.ID, o.rv) == listwatch.Stage {
		p.restaged = p.restaged || ev.Type == watch.Modified
		return p.stage(o)
	}
	if o.rv == "" {
		o.rv = p.machine.AppliedResourceVersion() // an event without one is no progress
	}
	p.put(o, now)
	return nil
}

// bookmark takes a bookmark, which may end the initial events.
func (p *listWatch) bookmark(ev *decode.Event, now time.Time) error {
	rv := ev.Record.ResourceVersion
	if !p.machine.Listing() {
		if err := p.checkOrder(rv, true); err != nil {
			return err
		}
	}
	switch p.machine.Bookmark(p.request.ID, rv, ev.InitialEventsEnd) {
	case listwatch.Replace:
		p.replaceStaged(now, rv)
	case listwatch.Advance:
		p.bookmarked(rv)
		p.answerCapture(now, true)
	default:
	}
	if ev.Scope != "" {
		p.tell(ev.Scope) // with what came before
	}
	return nil
}

// stage adds an object to the list under way.
func (p *listWatch) stage(o *object) error {
	p.listed.add(o)
	p.staged = append(p.staged, o)
	if !p.chargeListed(p.listed) {
		return fmt.Errorf("initial list: %w", errOverBudget)
	}
	return nil
}

// switchToJSON makes the scope speak JSON from now on, which loses nothing. It
// reports whether it did not before.
func (i *informer) switchToJSON(why string) bool {
	if decode.Encoding(i.encoding.Swap(int32(decode.JSON))) == decode.JSON {
		return false
	}
	i.metrics.fallbacks.Inc()
	i.fallback.Add(1)
	i.log().Info("scope switched to JSON", "reason", why)
	return true
}

// fellBack counts objects that were decoded by the standard path.
func (i *informer) fellBack(n uint64) {
	if n > 0 {
		i.fallback.Add(n)
		i.metrics.fallbacks.Add(float64(n))
	}
}

// contact notes that the member has sent something.
func (i *informer) contact(now time.Time) {
	i.lastRead.Store(now.UnixNano())
	i.metrics.contact(now)
}

func cloneKey(r *aggregate.Record) (namespace, name string) {
	return string([]byte(r.Namespace)), string([]byte(r.Name))
}

// pace is how fast the events of a watch come. While they come fast, the watch is read with a
// delay, so that they coalesce: each time costs a wake-up, a commit and, with net/http, a
// WINDOW_UPDATE, however little has come.
type pace struct {
	fast   atomic.Bool
	since  time.Time // when counting began
	events int       // counted since
}

// Events come fast above fastRate a second, and no more below half of it, as counted
// over at least ratePeriod. A fast watch is read coalesceDelay after something has come.
const (
	fastRate      = 1000
	ratePeriod    = 50 * time.Millisecond
	coalesceDelay = 2 * time.Millisecond
)

// count takes note of events.
func (p *pace) count(n int, now time.Time) {
	p.events += n
	took := now.Sub(p.since)
	if took < ratePeriod {
		return
	}
	rate := float64(p.events) / took.Seconds()
	p.fast.Store(rate > fastRate || p.fast.Load() && rate > fastRate/2)
	p.since, p.events = now, 0
}
