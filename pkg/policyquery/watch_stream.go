package policyquery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/queryapi"
)

// send buffers an event, and flushes the buffer when it is full. It returns an error if the
// point of the watch is no longer in the history of verdicts: the client is too slow.
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

// grantsError returns the error of fetching the present or previous grants: a failed review
// is not a denial, so nothing that depends on it may be sent.
func (s *watchStream) grantsError() error {
	if old := s.last.reader; old != nil && old.err != nil {
		return old.err
	}
	return s.newest.err
}

// sendBookmark sends the position of the watch, and flushes the buffer.
func (s *watchStream) sendBookmark(initial bool) error {
	// The newest state of the point, as lists have it: a bookmark and a list of the same findings are at the same revision.
	state := s.point.State()
	m := Bookmark{ResourceVersion: joinVersion(s.point.Version(), s.hidden), Revision: state.Snapshot.Revision(), Synced: state.Synced, InitialEnd: initial}
	if s.params.part {
		m.Synced = state.SyncedNow()
	}
	for b := range boundIn(s.last.state) {
		switch {
		case !s.matchesBinding(b):
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

// sendError sends the error that ends the watch, and discards the buffer.
func (s *watchStream) sendError(status metav1.Status) error {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, err := json.Marshal(Event{watch.Error, status})
	if err != nil {
		return err
	}
	s.out = append(text, '\n')
	return s.flush()
}

// flush writes the buffer. A client that does not read it in time is disconnected.
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

// WatchShared implements queryapi.WatchSharer: the events of all processes, each of the subjects that it judges. A member or
// a key of a view that another one judges from now on ends it with 410.
func (q Violations) WatchShared(_ http.ResponseWriter, r *http.Request, caller queryapi.Caller, fleet queryapi.SharedFleet) error {
	params, err := parseParams(r.URL.Query())
	if err != nil {
		return err
	}
	return fleet.Watch(queryapi.SharedWatch{
		Query: r.URL.Query(), From: params.resourceVersion, Timeout: params.timeout,
		BookmarkInterval: q.BookmarkInterval, WriteTimeout: q.WriteTimeout,
		Bookmark: func(ctx context.Context, of queryapi.SharedBookmark) (any, error) {
			m := Bookmark{ResourceVersion: of.Version, Revision: of.Revision, Synced: len(of.Absent) == 0 && !of.Partial, InitialEnd: of.Initial}
			for _, text := range of.Parts {
				var p Bookmark
				if err := json.Unmarshal(text, &p); err != nil {
					return nil, fmt.Errorf("violations: a part: %w", err)
				}
				m.Synced = m.Synced && p.Synced
				m.Withheld, m.Failed = append(m.Withheld, p.Withheld...), append(m.Failed, p.Failed...)
			}
			for _, list := range []*[]string{&m.Withheld, &m.Failed} {
				slices.Sort(*list)
				*list = slices.Compact(*list)
			}
			var err error
			m.Absent, _, err = caller.VisibleIn(ctx, of.Absent)
			return m, err
		},
	})
}
