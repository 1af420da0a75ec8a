package policyquery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/queryapi"
)

// HistoryMark is the object of a BOOKMARK event: all events up to its place have been sent.
type HistoryMark struct {
	After string `json:"after"` // to watch on from
}

// SchemaName is the name of the component in OpenAPI, which clients generate code from.
func (HistoryMark) SchemaName() string { return "TransitionMark" }

// historyWatch is one open watch of a history. It belongs to one goroutine.
type historyWatch struct {
	*historyParams
	lines

	q      History
	caller queryapi.Caller
	grants *historyGrants
	expire time.Time // of grants
	at     uint64    // the position up to which all was examined
}

// Watch implements queryapi.Watchable: it sends what is recorded after a position, or from now on, until the client
// disconnects or does not read, or the watch times out. Events are in the order of the log. A process that shares its fleet is not watched:
// each has a log of its own.
func (q History) Watch(w http.ResponseWriter, r *http.Request, caller queryapi.Caller) error {
	params, err := parseHistoryParams(r.URL.Query(), q.now())
	if err != nil {
		return err
	}
	for name, is := range map[string]bool{"until": !params.until.IsZero(), "since": !params.since.IsZero(), "continue": params.after != nil, "net": params.net, "order": r.URL.Query().Has("order"), "limit": r.URL.Query().Has("limit")} {
		if is {
			return badParameter(name, "does not go with watch")
		}
	}
	q.WriteTimeout, q.BookmarkInterval = cmp.Or(q.WriteTimeout, defaultWriteTimeout), cmp.Or(q.BookmarkInterval, defaultBookmarkInterval)
	s := &historyWatch{historyParams: params, lines: newLines(w, q.WriteTimeout), q: q, caller: caller, at: q.History.Span().Last}
	params.oldest = true
	if params.watchAfter != "" {
		if s.at, err = q.position(params.watchAfter); err != nil {
			return err
		}
	}
	timeout := params.timeout
	if timeout == 0 {
		timeout = defaultWatchTimeout + rand.N(defaultWatchTimeout)
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(timeout, 2*defaultWatchTimeout))
	defer cancel()
	err = s.run(ctx)
	if err == nil || !s.headerSent {
		return err
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && s.sendError(status.Status()) == nil {
		return nil
	}
	panic(http.ErrAbortHandler) // the client is gone or does not read
}

// position returns the position of <log>/<position>.
func (q History) position(text string) (uint64, error) {
	log, number, ok := strings.Cut(text, "/")
	at, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return 0, badParameter("after", "is not a position, <log>/<position>")
	}
	span := q.History.Span()
	if log != q.History.ID() || at > span.Last || span.Oldest > 0 && at+1 < span.Oldest {
		return 0, apierrors.NewResourceExpired(fmt.Sprintf("what follows position %s is not kept", text))
	}
	return at, nil
}

func (s *historyWatch) run(ctx context.Context) error {
	due := time.Now()
	for ctx.Err() == nil {
		more := s.q.History.More(s.at)
		held, err := s.send(ctx)
		if err != nil {
			return err
		}
		if held != nil {
			more = held
		}
		if now := time.Now(); len(s.out) > 0 || !now.Before(due) {
			due = now.Add(s.q.BookmarkInterval)
			if err := s.bookmark(); err != nil {
				return err
			}
		}
		s.wait(ctx, more, due)
	}
	return s.bookmark() // so that the client goes on from here
}

// send sends what was recorded after the position. What was committed and is not shown to readers yet, so that it is not known who may
// read it, waits for the channel that is returned.
func (s *historyWatch) send(ctx context.Context) (held <-chan struct{}, err error) {
	query := s.query()
	query.After = s.at
	last := s.q.History.Span().Last
	for record, err := range s.q.History.Read(query) {
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, nil
		}
		if now := s.q.Index.Snapshot(); ofCommit(&record) && record.Revision > now.Revision() {
			return s.q.Index.Newer(now), nil
		}
		if err := s.examine(ctx, &record); err != nil {
			return nil, err
		}
		if s.at = max(s.at, record.Position); len(s.out) >= flushAt {
			if err := s.flush(); err != nil {
				return nil, err
			}
		}
	}
	s.at = max(s.at, last)
	return nil, nil
}

// ofCommit reports whether the revision of a record is that of a commit of the index.
func ofCommit(r *history.Record) bool {
	return r.Type == history.Object || r.Type == history.Scope || r.Type == history.Member
}

// examine adds a record that the client asks for and may read. Grants of before a member or kind came do not decide that it may not.
func (s *historyWatch) examine(ctx context.Context, r *history.Record) error {
	if err := s.renew(ctx, false); err != nil {
		return err
	}
	if !s.matches(r) {
		return nil
	}
	may := s.grants.mayRead(r)
	if !may && s.grants.snapshot.Shape() != s.q.Index.Snapshot().Shape() {
		if err := s.renew(ctx, true); err != nil {
			return err
		}
		may = s.grants.mayRead(r)
	}
	if s.grants.reader.err != nil {
		return s.grants.reader.err // grants are unknown, not denied
	}
	if may && s.matches(r) { // without what may not be read
		return s.add(watch.Added, r)
	}
	return nil
}

// renew fetches the grants again when they have expired, or do not know of a member or kind.
func (s *historyWatch) renew(ctx context.Context, outdated bool) error {
	now := time.Now()
	if s.grants != nil && !outdated && now.Before(s.expire) && now.Before(s.grants.reader.expires(now)) {
		return nil
	}
	grants, err := s.q.grants(ctx, s.caller)
	if err != nil {
		return err
	}
	s.grants, s.expire = grants, now.Add(maxGrantAge)
	return nil
}

func (s *historyWatch) bookmark() error {
	mark := HistoryMark{After: s.q.History.ID() + "/" + strconv.FormatUint(s.at, 10)}
	if err := s.add(watch.Bookmark, mark); err != nil {
		return err
	}
	return s.flush()
}

// wait returns when there may be something to send.
func (s *historyWatch) wait(ctx context.Context, more <-chan struct{}, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-more:
	case <-ctx.Done():
	}
}
