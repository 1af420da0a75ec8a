package policyquery

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// send adds an event to what is sent. A client that has been passed by what is
// remembered of the verdicts is given up rather than waited for.
func (s *watchStream) send(kind watch.EventType, object any) error {
	text, err := json.Marshal(Event{kind, object})
	if err != nil {
		return err
	}
	s.out = append(append(s.out, text...), '\n')
	s.events++
	if len(s.out) < flushAt {
		return nil
	}
	if err := s.grantsError(); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	if !s.q.Loop.Kept(s.from) {
		return expiredError(s.from.Version())
	}
	return nil
}

// grantsError is why it is not known what may be read now, or might be before: what was
// denied for want of an answer is no answer, and nothing is sent that follows from it.
func (s *watchStream) grantsError() error {
	if old := s.last.reader; old != nil && old.err != nil {
		return old.err
	}
	return s.newest.err
}

// sendBookmark says how far the watch is, and sends all.
func (s *watchStream) sendBookmark(initial bool) error {
	m := Bookmark{ResourceVersion: joinVersion(s.point.Version(), s.hidden), Revision: s.last.state.Snapshot.Revision(), Synced: s.point.State().Synced, InitialEnd: initial}
	for b, severity := range s.last.state.Bindings() {
		switch {
		case !s.matchesBinding(boundBinding{b, severity}):
		case !s.readable[b.Name]:
			m.Withheld = append(m.Withheld, b.Name)
		case s.last.failed(b.Name):
			m.Failed = append(m.Failed, b.Name)
		}
	}
	if err := s.send(watch.Bookmark, m); err != nil {
		return err
	}
	s.events = 0
	return s.flush()
}

// sendError sends why the watch ends, and nothing else.
func (s *watchStream) sendError(status metav1.Status) error {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, err := json.Marshal(Event{watch.Error, status})
	if err != nil {
		return err
	}
	s.out = append(text, '\n')
	return s.flush()
}

// flush sends what has gathered. A client that does not take it in time is given up.
func (s *watchStream) flush() error {
	if err := s.controller.SetWriteDeadline(time.Now().Add(s.q.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if !s.headerSent {
		s.headerSent = true
		s.w.Header().Set("Content-Type", "application/json")
		s.w.WriteHeader(http.StatusOK)
	}
	if len(s.out) > 0 {
		if _, err := s.w.Write(s.out); err != nil {
			return err
		}
		s.out = s.out[:0]
	}
	if err := s.controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 would end a stream whose deadline passes while nothing is written.
	if err := s.controller.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// wait returns when there may be something to send.
func (s *watchStream) wait(ctx context.Context, until time.Time) {
	if s.grantsExpire.Before(until) {
		until = s.grantsExpire
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-s.point.Newer():
	case <-s.last.reader.changed:
	case <-ctx.Done():
	}
}
