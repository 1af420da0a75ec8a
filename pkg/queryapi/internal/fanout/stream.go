package fanout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"federator.dev/federator/pkg/queryapi/internal/part"
)

// stream is the part of one process. It ends with the context of the request.
type stream struct {
	place  place
	header *part.Header
	reader *part.Reader
	lost   error               // why there is no answer
	failed apierrors.APIStatus // why the process refuses the whole request
	end    func()              // must be called
	abort  context.CancelCauseFunc
}

// open asks a process for its part, and reads its header.
func (q *request) open(at place, query url.Values, ask part.Ask) *stream {
	ctx, abort := context.WithCancelCause(q.r.Context())
	s := &stream{place: at, abort: abort, end: func() { abort(nil) }}
	timer := time.AfterFunc(q.options.Answer, func() { abort(errors.New("it did not answer in time")) })
	defer timer.Stop()
	peer := q.g.assignment.live[at.id]
	if peer != nil {
		defer q.health.wait(peer, abort)()
	}
	body, err := q.ask(ctx, s, query, ask)
	if err == nil {
		if peer != nil && !q.watches {
			body = &patientReader{body, q.health, peer, abort}
		}
		s.reader = part.NewReader(body)
		s.header, err = s.reader.Header()
	}
	switch {
	case err == nil:
		s.place.epoch, s.place.also = s.header.Epoch, s.header.Also
	case errors.As(err, &s.failed):
	default:
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if s.lost = err; peer != nil && q.r.Context().Err() == nil {
			q.health.suspect(peer)
		}
	}
	return s
}

// ask returns the body of a part.
func (q *request) ask(ctx context.Context, s *stream, query url.Values, ask part.Ask) (io.Reader, error) {
	a := q.g.assignment
	u := *q.r.URL
	u.RawQuery = query.Encode()
	if s.place.id == a.Self {
		ask.Here = true
		r := q.r.Clone(part.With(ctx, &ask))
		r.URL, r.RequestURI = &u, ""
		if q.posted != nil {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(q.posted)), int64(len(q.posted))
		}
		return q.askOwn(s, r)
	}
	peer := a.live[s.place.id]
	if peer == nil {
		return nil, errors.New("it does not live")
	}
	if err := q.health.lost(peer); err != nil {
		return nil, err
	}
	resp, err := q.options.toPeer(ctx, peer, q.r, &u, q.posted, q.user, &ask) //nolint:bodyclose // s.end closes it
	if err != nil {
		return nil, err
	}
	end := s.end
	s.end = func() {
		end()
		_ = resp.Body.Close()
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	return nil, refusal(resp)
}

// toPeer sends a request of a user to a peer.
func (o *Options) toPeer(ctx context.Context, peer *Peer, of *http.Request, u *url.URL, posted []byte, by userInfo, ask *part.Ask) (*http.Response, error) {
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if posted != nil {
		method, body = http.MethodPost, bytes.NewReader(posted)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(peer.URL, "/")+u.RequestURI(), body)
	if err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	r.Header["Accept"] = of.Header["Accept"]
	r.Header.Set("Accept-Encoding", "identity") // on the way to another process of the same cluster
	r.Header.Set("User-Agent", "federator/peer")
	SetIdentity(r, by)
	if ask != nil {
		if err := ask.Set(r.Header); err != nil {
			return nil, err
		}
	}
	resp, err := peer.Client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	return resp, nil
}

// SetIdentity says in a request to a peer who asks.
func SetIdentity(r *http.Request, u userInfo) {
	transport.SetAuthProxyHeaders(r, u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra())
}

type userInfo interface {
	GetName() string
	GetUID() string
	GetGroups() []string
	GetExtra() map[string][]string
}

// maxRefusal bounds a Status that is read.
const maxRefusal = 1 << 20

// refusal returns the error that a response is: one that the client is to get, or that of a
// process which cannot answer.
func refusal(resp *http.Response) error {
	status, err := statusOf(resp)
	if err != nil {
		return err
	}
	return classify(status)
}

// statusOf returns the Status that a response has.
func statusOf(resp *http.Response) (*apierrors.StatusError, error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("fanout: %w", err)
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) != nil || int(status.Code) != resp.StatusCode {
		return nil, fmt.Errorf("fanout: it answered %s", resp.Status)
	}
	return &apierrors.StatusError{ErrStatus: status}, nil
}

// classify returns an error that is of the request, and the text of another.
func classify(err *apierrors.StatusError) error {
	switch code := err.ErrStatus.Code; {
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return err
	case code >= 400 && code < 500 && code != http.StatusUnauthorized && code != http.StatusForbidden && code != http.StatusTooManyRequests:
		return err
	}
	return fmt.Errorf("fanout: it answered: %s", err.ErrStatus.Message)
}

// askOwn serves the part of this process into a pipe.
func (q *request) askOwn(s *stream, r *http.Request) (io.Reader, error) {
	in, out := io.Pipe()
	w := &pipeWriter{header: http.Header{}, out: out}
	refused := make(chan error, 1)
	var panicked any
	var own sync.WaitGroup
	own.Go(func() {
		defer func() {
			panicked = recover()
			_ = out.CloseWithError(io.ErrUnexpectedEOF)
			close(refused)
		}()
		err := q.options.Own(w, r)
		if err != nil {
			refused <- err
		}
		_ = out.Close()
	})
	end := s.end
	s.end = func() {
		end()
		_ = in.Close()
		own.Wait()
		if err, ok := panicked.(error); panicked != nil && (!ok || !errors.Is(err, http.ErrAbortHandler)) {
			cause := panicked
			panicked = nil
			panic(cause)
		}
	}
	return &ownReader{in, refused}, nil
}

// ownReader reads the pipe; its error is why nothing was written.
type ownReader struct {
	*io.PipeReader
	refused <-chan error
}

func (o *ownReader) Read(p []byte) (int, error) {
	n, err := o.PipeReader.Read(p)
	if err == nil {
		return n, nil
	}
	if why, ok := <-o.refused; ok {
		return n, why
	}
	return n, err
}

// pipeWriter is the response of this process itself.
type pipeWriter struct {
	header http.Header
	out    *io.PipeWriter
}

// Header implements http.ResponseWriter.
func (p *pipeWriter) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter: errors are returned, not written.
func (p *pipeWriter) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (p *pipeWriter) Write(b []byte) (int, error) {
	return p.out.Write(b)
}

// FlushError implements what http.ResponseController looks for: nothing is held back.
func (p *pipeWriter) FlushError() error { return nil }
