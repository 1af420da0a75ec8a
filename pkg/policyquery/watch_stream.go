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
	if err := s.add(kind, object); err != nil {
		return err
	}
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

// lines are the events of a watch, one per line. A client that does not read them in time is disconnected. They belong to one
// goroutine.
type lines struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration // of writing a block
	headerSent bool          // whether the response has started
	out        []byte        // not written yet
}

func newLines(w http.ResponseWriter, timeout time.Duration) lines {
	return lines{w: w, controller: http.NewResponseController(w), timeout: timeout}
}

// add adds an event, which flush writes.
func (l *lines) add(kind watch.EventType, object any) error {
	text, err := json.Marshal(Event{kind, object})
	if err != nil {
		return err
	}
	l.out = append(append(l.out, text...), '\n')
	return nil
}

// sendError sends the error that ends the watch, in place of what was not written.
func (l *lines) sendError(status metav1.Status) error {
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	l.out = l.out[:0]
	if err := l.add(watch.Error, status); err != nil {
		return err
	}
	return l.flush()
}

// flush writes what was added, and the header before.
func (l *lines) flush() error {
	if err := l.controller.SetWriteDeadline(time.Now().Add(l.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if !l.headerSent {
		l.headerSent = true
		l.w.Header().Set("Content-Type", "application/json")
		l.w.WriteHeader(http.StatusOK)
	}
	if len(l.out) > 0 {
		if _, err := l.w.Write(l.out); err != nil {
			return err
		}
		l.out = l.out[:0]
	}
	if err := l.controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 would end a stream whose deadline passes while nothing is written.
	if err := l.controller.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
