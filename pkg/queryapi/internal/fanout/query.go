package fanout

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/resources"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Ask asks all processes for their parts of a query, with exactly these parameters, of a page after a position
// at a revision that was minted for the first; 0: the newest.
func (h *Handler) Ask(r *http.Request, u user.Info, query url.Values, at aggregate.Revision, after aggregate.Position) (*part.Answers, error) {
	return h.askAll(&request{Handler: h, user: u, as: at, asked: query}, r, at, after)
}

// AskEveryone is Ask of all processes, also of those that judge no members: keys of views are theirs, too.
func (h *Handler) AskEveryone(r *http.Request, u user.Info, query url.Values) (*part.Answers, error) {
	return h.askAll(&request{Handler: h, user: u, asked: query, everyone: true}, r, 0, aggregate.Position{})
}

func (h *Handler) askAll(q *request, r *http.Request, at aggregate.Revision, after aggregate.Position) (*part.Answers, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	to := *r.URL
	to.RawQuery = q.asked.Encode()
	r.URL = &to
	q.r = r
	var ok bool
	if q.info, ok = apirequest.RequestInfoFrom(ctx); !ok {
		panic("fanout: a request without request info")
	}
	if at != 0 {
		if q.at = h.options.Revisions.vector(at); q.at == nil {
			return nil, resources.Expired(at)
		}
	}
	if at != 0 || after != (aggregate.Position{}) {
		q.token = &selection.Token{Revision: at, After: after}
	}
	defer func() { q.g.end() }()
	if err := q.gatherAll(part.Ask{}); err != nil {
		return nil, err
	}
	a := &part.Answers{Absent: q.g.absent, Revision: at, Partial: len(q.g.lost) > 0}
	for _, s := range q.g.parts {
		if s.header.Refused != nil {
			continue
		}
		body, err := s.body()
		if err != nil {
			return nil, q.lostBefore(err)
		}
		a.Bodies = append(a.Bodies, body)
	}
	if len(a.Bodies) == 0 {
		return nil, q.g.refusal()
	}
	if at == 0 {
		var err error
		if a.Revision, err = h.options.Revisions.mint(q.g.vector(), true); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// body reads a part that is one item.
func (s *stream) body() ([]byte, error) {
	kind, payload, err := s.reader.Next()
	if err != nil || kind != part.ItemFrame {
		return nil, fmt.Errorf("%w: %s: a frame %q: %w", errLost, s.place.id, kind, err)
	}
	body := bytes.Clone(payload)
	if kind, _, err = s.reader.Next(); err != nil || kind != part.End {
		return nil, fmt.Errorf("%w: %s: a frame %q: %w", errLost, s.place.id, kind, err)
	}
	return body, nil
}
