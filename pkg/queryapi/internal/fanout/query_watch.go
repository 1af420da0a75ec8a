package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// QueryWatch is a watch of a query.
type QueryWatch struct {
	Query   url.Values         // what the parts are asked, without a resourceVersion
	From    aggregate.Revision // that was minted for a list, or another watch; 0: it begins with all that there is
	Timeout time.Duration      // 0: the default
	// BookmarkInterval and WriteTimeout are those of the Handler where they are 0.
	BookmarkInterval, WriteTimeout time.Duration
	// Bookmark makes the object of a bookmark of the newest ones of all parts. absent are members that none of them
	// answers for; partial, whether a process is missing.
	Bookmark func(ctx context.Context, parts []json.RawMessage, absent []string, partial bool, at aggregate.Revision, initial bool) (any, error)
}

// queryStream is what a watchStream has of a watch of a query. Its events have no revisions, but bookmarks have
// positions of the part.
type queryStream struct {
	QueryWatch

	positions []string          // up to which each part has been sent; "" before its first bookmark
	bookmarks []json.RawMessage // the newest of each part
	amid      []bool            // events of the part were sent that its position does not have
	due       bool              // a bookmark, as something was sent
	initial   bool              // the next bookmark is the first one, after all that there is
}

// WatchQuery serves a watch of a query, merged of one of each part. An error is returned before anything is written.
func (h *Handler) WatchQuery(w http.ResponseWriter, r *http.Request, u user.Info, o QueryWatch) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	own := *h
	if o.BookmarkInterval > 0 {
		own.options.BookmarkInterval = o.BookmarkInterval
	}
	if o.WriteTimeout > 0 {
		own.options.WriteTimeout = o.WriteTimeout
	}
	q := &request{Handler: &own, w: w, r: r.WithContext(ctx), user: u, asked: o.Query, everyone: true, watches: true, params: &selection.Params{Revision: o.From, Timeout: o.Timeout}}
	var ok bool
	if q.info, ok = apirequest.RequestInfoFrom(ctx); !ok {
		panic("fanout: a request without request info")
	}
	if o.From != 0 {
		if q.at = h.options.Revisions.vector(o.From); q.at == nil || q.at.positions == nil {
			return resources.Expired(o.From)
		}
	}
	defer func() { q.g.end() }()
	if err := q.gatherAll(part.Ask{}); err != nil {
		return err
	}
	if len(q.g.parts) == 0 || !slices.ContainsFunc(q.g.parts, func(s *stream) bool { return s.header.Refused == nil }) {
		return q.g.refusal()
	}
	q.g.lead = &part.Header{}
	n := len(q.g.parts)
	s := &watchStream{
		request: q, controller: http.NewResponseController(w), positions: q.g.vector().revisions, places: q.g.vector().places,
		lowered: make([]bool, n), heard: make([]time.Time, n),
		query: &queryStream{QueryWatch: o, positions: make([]string, n), bookmarks: make([]json.RawMessage, n), amid: make([]bool, n), initial: o.From == 0},
	}
	return s.serve()
}

// processes returns those that are asked, by ID.
func (q *request) processes(a *Assignment) []string {
	if q.everyone {
		a.derive()
		return a.living()
	}
	return a.judging()
}

// askedOf returns the parameters of a part of a query.
func (q *request) askedOf(i int) url.Values {
	if q.token != nil || q.at == nil {
		return q.asked
	}
	v := maps.Clone(q.asked)
	v.Set("resourceVersion", q.at.positions[i])
	return v
}

// bookmarked takes note of the bookmark of a part.
func (w *watchStream) bookmarked(of int, payload []byte) error {
	var mark struct {
		ResourceVersion string             `json:"resourceVersion"`
		Revision        aggregate.Revision `json:"revision"`
	}
	if w.query == nil || json.Unmarshal(payload, &mark) != nil || mark.ResourceVersion == "" {
		return w.endExpired("a process sent what is no bookmark")
	}
	q := w.query
	q.due = q.due || q.positions[of] == ""
	q.positions[of], q.bookmarks[of], q.amid[of] = mark.ResourceVersion, slices.Clone(payload), false
	w.positions[of] = mark.Revision
	return nil
}

// sendDue sends a bookmark where something was sent that it is to have.
func (w *watchStream) sendDue() error {
	if w.query == nil || !w.query.due {
		return nil
	}
	return w.sendQueryBookmark()
}

// sendQueryBookmark sends how far the watch is, unless that is no position of all parts: a client that resumed there
// would be sent events again.
func (w *watchStream) sendQueryBookmark() error {
	q := w.query
	if slices.Contains(q.amid, true) || slices.Contains(q.positions, "") {
		return nil
	}
	revision, err := w.options.Revisions.mint(w.vector(), true)
	if err != nil {
		return w.endExpired("its revisions are used up")
	}
	object, err := q.Bookmark(w.r.Context(), q.bookmarks, w.g.absent, len(w.g.lost) > 0, revision, q.initial)
	if err != nil {
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			return w.endWith(status.Status())
		}
		return err
	}
	text, err := json.Marshal(map[string]any{"object": object, "type": "BOOKMARK"})
	if err != nil {
		return fmt.Errorf("fanout: %w", err)
	}
	w.out = append(append(w.out, text...), '\n')
	q.due, q.initial = false, false
	return nil
}

// ParseRevision parses a revision that was minted; 0 where it is none.
func ParseRevision(text string) aggregate.Revision {
	n, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return 0
	}
	return aggregate.Revision(n)
}
