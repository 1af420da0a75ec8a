package queryapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/fanout"
	"federator.dev/federator/pkg/queryapi/internal/part"
)

// PartServer is a Sharer whose parts are made of items, which it sends as they are made: what is too much to be held, or
// takes long.
type PartServer interface {
	Sharer
	// ServePart writes the part of this process, of a request that was made by SharedFleet.Pull. Errors are as those of
	// Serve, also once it has begun.
	ServePart(r *http.Request, caller Caller, to *PartWriter) error
}

// SharedPoster is a Poster that answers for a fleet which several processes share. Others answer 501 there.
type SharedPoster interface {
	Poster
	PartServer
	// PostShared is Post where several processes share the fleet.
	PostShared(w http.ResponseWriter, r *http.Request, caller Caller, fleet SharedFleet) error
}

// PartWriter writes a part. It belongs to one goroutine.
type PartWriter struct {
	w     http.ResponseWriter
	ask   *part.Ask
	first aggregate.Revision
	begun bool
}

// Here reports whether the process that asks is this one.
func (p *PartWriter) Here() bool { return p.ask.Here }

// OnlyJudged has the part be of the members alone that the process judges, not of those that it reads for another one,
// which is lost. It is called before Begin.
func (p *PartWriter) OnlyJudged() {
	ask := *p.ask
	ask.Also = nil
	p.ask = &ask
}

// ReadDone ends the time that a peer has for its request's body.
func (p *PartWriter) ReadDone() error { return ReadDone(p.w) }

// Begin tells the process that asks of which members the part is, which it returns, in order: it waits no longer then.
func (p *PartWriter) Begin(at *aggregate.Snapshot) (members []string, err error) {
	out, err := part.AppendHeader(nil, part.NewHeader(p.first, at, p.ask))
	if err != nil {
		return nil, fmt.Errorf("query API: %w", err)
	}
	p.begun = true
	p.w.Header().Set("Content-Type", part.ContentType)
	if err := p.write(out); err != nil {
		return nil, err
	}
	err = http.NewResponseController(p.w).Flush()
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return p.ask.Members(at), nil
}

// Item writes an item.
func (p *PartWriter) Item(payload []byte) error {
	return p.write(part.Append(make([]byte, 0, len(payload)+8), part.ItemFrame, payload))
}

func (p *PartWriter) write(b []byte) error {
	if _, err := p.w.Write(b); err != nil {
		return fmt.Errorf("query API: a peer does not read its part: %w", err)
	}
	return nil
}

// serveItems serves the part of a PartServer.
func (s *Server) serveItems(w http.ResponseWriter, r *http.Request, q PartServer, ask *part.Ask) error {
	to := &PartWriter{w: w, ask: ask, first: s.options.Index.First()}
	err := q.ServePart(r, s.callerOf(r.Context()), to)
	if !to.begun {
		return err
	}
	if err == nil {
		_, _ = w.Write(part.Append(nil, part.End, nil)) // the peer may be gone
		return nil
	}
	status, shown := statusOf(err)
	if !shown && r.Context().Err() == nil {
		s.log.Error("query API: a part failed", "path", r.URL.Path, "error", err)
	}
	text, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("query API: %w", err)
	}
	_, _ = w.Write(part.Append(nil, part.ErrorFrame, text)) // the peer may be gone
	return nil
}

// Pull implements SharedFleet.
func (f sharedFleet) Pull(query url.Values, posted []byte, each func(item []byte) error) (*Parts, error) {
	return f.server.shared.Pull(f.r, f.caller.user, query, posted, each)
}

// postShared serves a POST request of a fleet that several processes share.
func (s *Server) postShared(w http.ResponseWriter, r *http.Request, name string) error {
	q, ok := s.poster(r).(SharedPoster)
	if !ok {
		return fanout.NotImplemented("What is posted to " + name)
	}
	c := s.callerOf(r.Context())
	return q.PostShared(w, r, c, sharedFleet{s, w, r, c, q})
}

// checkPeerMethod refuses what is not read, nor the part of what is posted to a query.
func (s *Server) checkPeerMethod(r *http.Request, ask *part.Ask) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if info, ok := apirequest.RequestInfoFrom(r.Context()); ok && ask != nil && isPost(r, info) {
		if _, ok := s.poster(r).(SharedPoster); ok {
			return nil
		}
		return apierrors.NewBadRequest("there are no parts of this")
	}
	return newStatusError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "peers only read")
}
