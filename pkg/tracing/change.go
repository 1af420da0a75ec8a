package tracing

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// Instant is a time in nanoseconds since 1970; 0 is not known.
type Instant int64

// At returns the instant of a time.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

func (i Instant) time() time.Time { return time.Unix(0, int64(i)) }

// Stamp is what is noted of a change before it is committed.
type Stamp struct {
	Namespace, Name string
	Version         string // resourceVersion in the member; "" where it was deleted
	Deleted         bool
	Position        int // among the changes of the commit, from 1; 0: it changes nothing
	// When the turn began in which the change was read, and when decoding it began and ended.
	Read, Began, Decoded Instant
}

// Commit is one commit of single changes, to one scope.
type Commit struct {
	Member, Kind string
	Revision     uint64 // of the last change
	Changes      int    // each of which has a revision
	At           Instant
}

// Change is what is known of one change. Those that Tracer returns are the caller's.
type Change struct {
	Revision                               uint64
	Member, Kind, Namespace, Name, Version string
	Deleted                                bool
	Read, Began, Decoded, Committed        Instant
	Batch                                  Batch
	Intended                               Instant // when an intent came of it
}

// Batch is one batch of the policy engine: what was committed after revision Before, up to After.
type Batch struct {
	Before, After uint64
	// When it began, when views were up to date, when subjects were evaluated, and when the verdicts were published.
	Started, Viewed, Evaluated, Published Instant
}

// has reports whether a change is of the batch.
func (b *Batch) has(revision uint64) bool { return b.Before < revision && revision <= b.After }

// slot is one change of the table.
type slot struct {
	revision                               uint64
	member, kind, namespace, name, version string
	deleted                                bool
	slow                                   bool              // it is traced for that, which was said when it was committed
	echoOf                                 trace.SpanContext // of the correction whose write it is
	read, began, decoded, committed        Instant
}

func (s *slot) change(b Batch) Change {
	return Change{
		Revision: s.revision, Member: s.member, Kind: s.kind, Namespace: s.namespace, Name: s.name, Version: s.version, Deleted: s.deleted,
		Read: s.read, Began: s.began, Decoded: s.decoded, Committed: s.committed, Batch: b,
	}
}

// Why a change is traced.
const (
	keptAction = "action"
	keptSample = "sample"
	keptSlow   = "slow"
	keptEcho   = "echo"
)

// Exemplar is what a latency was observed of: a change that is traced.
type Exemplar struct {
	Read   Instant
	Labels prometheus.Labels // nil: there is none
}

// TraceOf returns the ID of the trace of a change of an object, whether it is traced or not, and false where tracing is off. The revision is that which the
// change was committed at; member and kind add nothing to it.
func (t *Tracer) TraceOf(_, _ string, revision uint64) (trace.TraceID, bool) {
	if t == nil {
		return trace.TraceID{}, false
	}
	return t.ids.change(revision), true
}

// Committed notes changes that have been committed, and returns one of them that is traced for certain.
// The stamps are not kept.
func (t *Tracer) Committed(c *Commit, stamps []Stamp) Exemplar {
	if t == nil {
		return Exemplar{}
	}
	var ex Exemplar
	var late []record // which the engine has judged already
	t.mu.Lock()
	for i := range stamps {
		s := &stamps[i]
		if s.Position < 1 || s.Position > c.Changes {
			continue
		}
		revision := c.Revision - uint64(c.Changes-s.Position)
		at := &t.slots[revision&t.mask]
		*at = slot{
			revision: revision, member: c.Member, kind: c.Kind, namespace: s.Namespace, name: s.Name, version: s.Version, deleted: s.Deleted,
			read: s.Read, began: s.Began, decoded: s.Decoded, committed: c.At,
		}
		if ex.Labels == nil {
			id := t.ids.change(revision)
			sampled := t.sampler.keeps(id)
			if at.slow = !sampled && t.isSlow(at, c.At) && t.slowLocked(c.At); sampled || at.slow {
				ex = Exemplar{s.Read, prometheus.Labels{"trace_id": id.String()}}
			}
		}
		switch {
		case !t.opts.Judged:
			late = t.decideLocked(late, at, Batch{}, c.At)
		case revision <= t.evaluated:
			b := t.batchLocked(revision)
			late = t.decideLocked(late, at, b, max(c.At, b.Published))
		}
	}
	t.mu.Unlock()
	t.enqueue(late...)
	if t.awaited.Load() > 0 {
		t.sight(c, stamps)
	}
	return ex
}

func (t *Tracer) isSlow(s *slot, now Instant) bool {
	return t.opts.Slow > 0 && s.read != 0 && now-s.read >= Instant(t.opts.Slow)
}

// Evaluated decides which changes of a batch are traced, and returns the labels of an exemplar, nil if none is.
func (t *Tracer) Evaluated(b Batch) prometheus.Labels {
	if t == nil {
		return nil
	}
	var kept []record
	t.mu.Lock()
	t.batches[t.nextBatch%maxBatches] = b
	t.nextBatch++
	t.evaluated = max(t.evaluated, b.After)
	first := max(b.Before, b.After-min(b.After, uint64(len(t.slots)))) + 1
	for revision := first; revision <= b.After; revision++ {
		if s := &t.slots[revision&t.mask]; s.revision == revision {
			kept = t.decideLocked(kept, s, b, b.Published)
		}
	}
	if len(kept) > 0 {
		t.sentLocked(t.ids.batch(b.After))
	}
	t.mu.Unlock()
	if len(kept) == 0 {
		return nil
	}
	links := make([]uint64, 0, min(len(kept), maxLinks))
	for _, r := range kept[:cap(links)] {
		links = append(links, r.(*changeRecord).Revision)
	}
	t.enqueue(&batchRecord{b, links})
	t.enqueue(kept...)
	return prometheus.Labels{"trace_id": t.ids.change(links[0]).String()}
}

// decideLocked appends a change that is traced.
func (t *Tracer) decideLocked(kept []record, s *slot, b Batch, now Instant) []record {
	id := t.ids.change(s.revision)
	var why string
	switch {
	case s.echoOf.IsValid():
		why = keptEcho
	case t.sampler.keeps(id):
		why = keptSample
	case s.slow || t.isSlow(s, now):
		if why = keptSlow; !s.slow && !t.slowLocked(now) {
			t.metrics.dropped.WithLabelValues("slow").Inc()
			return kept
		}
	default:
		return kept
	}
	if !t.sentLocked(id) {
		return kept
	}
	return append(kept, &changeRecord{s.change(b), why, s.echoOf})
}

// slowLocked reports whether another slow change may be traced in this second.
func (t *Tracer) slowLocked(now Instant) bool {
	if second := now / Instant(time.Second); second != t.slowSecond {
		t.slowSecond, t.slowTraced = second, 0
	}
	t.slowTraced++
	return t.slowTraced <= t.opts.SlowRate
}

// sentLocked notes that the spans of a trace's change or batch are to be sent, and reports whether
// they were not before. The newest are remembered.
func (t *Tracer) sentLocked(id trace.TraceID) bool {
	if t.sent[id] {
		return false
	}
	delete(t.sent, t.sentOrder[t.nextSent%maxSent])
	t.sentOrder[t.nextSent%maxSent] = id
	t.nextSent++
	t.sent[id] = true
	return true
}

// batchLocked returns the batch of a change, zero where it is not known.
func (t *Tracer) batchLocked(revision uint64) Batch {
	for i := range t.batches {
		if t.batches[i].has(revision) {
			return t.batches[i]
		}
	}
	return Batch{}
}

// Object names an object of the fleet, or a member alone.
type Object struct{ Member, Kind, Namespace, Name string }

// Cause returns the change that an intent comes of, nil where tracing is off, or nothing is known of it: the one at a revision. Of an object that
// was deleted the revision is not known, which is 0: it is found among those of the last batch.
func (t *Tracer) Cause(revision uint64, of Object) *Change {
	if t == nil {
		return nil
	}
	now := At(t.opts.Clock())
	t.mu.Lock()
	defer t.mu.Unlock()
	var last Batch
	if t.nextBatch > 0 {
		last = t.batches[(t.nextBatch-1)%maxBatches]
	}
	if revision == 0 {
		revision = t.deletionLocked(&last, of)
	}
	if revision == 0 { // no batch has been judged yet
		return nil
	}
	c := Change{Revision: revision, Member: of.Member, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name}
	if s := &t.slots[revision&t.mask]; s.revision == revision {
		c = s.change(Batch{})
	}
	c.Batch, c.Intended = t.batchLocked(revision), now
	return &c
}

// deletionLocked returns the revision at which an object was deleted in a batch, or else the last one of it.
func (t *Tracer) deletionLocked(b *Batch, of Object) uint64 {
	for revision := b.After; revision > b.Before && b.After-revision < uint64(len(t.slots)); revision-- {
		s := &t.slots[revision&t.mask]
		if s.revision == revision && s.deleted && s.member == of.Member && s.kind == of.Kind && s.namespace == of.Namespace && s.name == of.Name {
			return revision
		}
	}
	return b.After
}

// overtaken returns the revision of the next change of the same object in the same batch, 0 if there is none.
func (t *Tracer) overtaken(c *Change) uint64 {
	const most = 1024 // revisions that are looked at
	t.mu.Lock()
	defer t.mu.Unlock()
	for revision := c.Revision + 1; revision <= c.Batch.After && revision-c.Revision <= most; revision++ {
		s := &t.slots[revision&t.mask]
		if s.revision == revision && s.name == c.Name && s.namespace == c.Namespace && s.kind == c.Kind && s.member == c.Member {
			return revision
		}
	}
	return 0
}
