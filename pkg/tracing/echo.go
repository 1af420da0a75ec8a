package tracing

import (
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// echo is a write that is to come back by the member's watch. What is seen before the write has
// been answered is remembered.
type echo struct {
	attempt   *Attempt
	written   bool // the write was answered, and the attempt has ended
	sightings []sighting
	until     Instant
}

// sighting is a change of a target.
type sighting struct {
	revision uint64
	version  string
	deleted  bool
	at       Instant
}

// is reports whether a change is the echo.
func (s *sighting) is(e *Ended) bool {
	if e.Version == "" {
		return s.deleted
	}
	return s.version == e.Version
}

// expectEcho begins to look for the echo of a write, if it is the attempt's first.
func (a *Attempt) expectEcho() {
	t := a.t
	if a.echo != nil {
		return
	}
	if t.awaited.Add(1) > maxEchoes {
		t.awaited.Add(-1)
		t.metrics.dropped.WithLabelValues("echo").Inc()
		return
	}
	a.echo = &echo{attempt: a}
	t.echoMu.Lock()
	defer t.echoMu.Unlock()
	t.echoes[a.of.Target] = append(t.echoes[a.of.Target], a.echo)
}

// await waits for the echo of an attempt that has ended, and reports whether somebody else finishes it.
func (t *Tracer) await(e *echo) bool {
	a := e.attempt
	t.echoMu.Lock()
	defer t.echoMu.Unlock()
	if !a.ended.Written {
		t.forgetLocked(e)
		return false
	}
	for i := range e.sightings {
		if s := &e.sightings[i]; s.is(&a.ended) {
			t.echoedLocked(e, s)
			return true
		}
	}
	e.written, e.until, e.sightings = true, a.at+Instant(t.opts.EchoAfter), nil
	return true
}

// sight compares changes with the echoes that are awaited.
func (t *Tracer) sight(c *Commit, stamps []Stamp) {
	t.echoMu.Lock()
	defer t.echoMu.Unlock()
	for i := range stamps {
		s := &stamps[i]
		of := Object{c.Member, c.Kind, s.Namespace, s.Name}
		if s.Position < 1 || s.Position > c.Changes || len(t.echoes[of]) == 0 {
			continue
		}
		seen := sighting{c.Revision - uint64(c.Changes-s.Position), s.Version, s.Deleted, c.At}
		for _, e := range slices.Clone(t.echoes[of]) {
			switch {
			case e.written && seen.is(&e.attempt.ended):
				t.echoedLocked(e, &seen)
			case !e.written && len(e.sightings) < maxSightings:
				e.sightings = append(e.sightings, seen)
			}
		}
	}
}

// echoedLocked finishes an attempt whose write has come back.
func (t *Tracer) echoedLocked(e *echo, s *sighting) {
	t.forgetLocked(e)
	t.keepEcho(e.attempt, s)
	e.attempt.finish(s)
}

// keepEcho traces the change that is an echo, too.
func (t *Tracer) keepEcho(a *Attempt, s *sighting) {
	link := trace.NewSpanContext(trace.SpanContextConfig{TraceID: a.trace, SpanID: a.root, TraceFlags: trace.FlagsSampled})
	var now []record
	t.mu.Lock()
	if at := &t.slots[s.revision&t.mask]; at.revision == s.revision {
		at.echoOf = link
		if b := t.batchLocked(s.revision); b.After != 0 || !t.opts.Judged { // otherwise it is judged soon
			now = t.decideLocked(now, at, b, s.at)
		}
	}
	t.mu.Unlock()
	t.enqueue(now...)
}

func (t *Tracer) forget(e *echo) {
	t.echoMu.Lock()
	defer t.echoMu.Unlock()
	t.forgetLocked(e)
}

func (t *Tracer) forgetLocked(e *echo) {
	of := e.attempt.of.Target
	list := t.echoes[of]
	i := slices.Index(list, e)
	if i < 0 {
		return
	}
	t.awaited.Add(-1)
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(t.echoes, of)
	} else {
		t.echoes[of] = list
	}
}

// expire finishes the attempts whose echo has not come.
func (t *Tracer) expire(now Instant) {
	if t.awaited.Load() == 0 {
		return
	}
	t.echoMu.Lock()
	defer t.echoMu.Unlock()
	for _, list := range t.echoes {
		for _, e := range slices.Clone(list) {
			if e.written && now >= e.until {
				t.forgetLocked(e)
				e.attempt.finish(nil)
			}
		}
	}
}
