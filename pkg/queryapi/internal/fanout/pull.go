package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/queryapi/internal/part"
)

// Pull asks all processes for their parts of a query, with exactly these parameters and, where it is posted, this body.
// Items are given to each as they arrive, of one part after another: nothing of them is held here. An error of each ends it and is returned.
func (h *Handler) Pull(r *http.Request, u user.Info, query url.Values, posted []byte, each func(item []byte) error) (*part.Answers, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	to := *r.URL
	to.RawQuery = query.Encode()
	r.URL = &to
	q := &request{Handler: h, r: r, user: u, asked: query, posted: posted}
	var ok bool
	if q.info, ok = apirequest.RequestInfoFrom(ctx); !ok {
		panic("fanout: a request without request info")
	}
	defer func() { q.g.end() }()
	if err := q.gatherAll(part.Ask{}); err != nil {
		return nil, err
	}
	a := &part.Answers{Absent: q.g.absent}
	for _, s := range q.g.parts {
		if s.header.Refused != nil {
			continue
		}
		members := q.g.membersOf(s)
		if a.Members = append(a.Members, members...); s.place.id == q.g.assignment.Self {
			a.Here = slices.Sorted(slices.Values(members))
		}
		if err := s.items(each); err != nil {
			return nil, q.lostBefore(err)
		}
	}
	if len(a.Members) == 0 && !slices.ContainsFunc(q.g.parts, func(s *stream) bool { return s.header.Refused == nil }) {
		return nil, q.g.refusal()
	}
	slices.Sort(a.Members)
	var err error
	a.Revision, err = h.options.Revisions.mint(q.g.vector(), true)
	return a, err
}

// items reads a part of items to its end.
func (s *stream) items(each func([]byte) error) error {
	for {
		kind, payload, err := s.reader.Next()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s: %w", errLost, s.place.id, err)
		case kind == part.End:
			return nil
		case kind == part.ErrorFrame:
			var status metav1.Status
			if err := json.Unmarshal(payload, &status); err != nil {
				return fmt.Errorf("%w: %s: %w", errLost, s.place.id, err)
			}
			return &apierrors.StatusError{ErrStatus: status}
		case kind != part.ItemFrame:
			return fmt.Errorf("%w: %s: a frame %q", errLost, s.place.id, kind)
		}
		if err := each(payload); err != nil {
			return err
		}
	}
}
