package fanout

import (
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"federator.dev/federator/internal/federation"
	"federator.dev/federator/pkg/queryapi/internal/selection"
)

// Forward has a peer answer a request of a user: its response, as it arrives. A peer that is lost before it answers is a
// LostError, and nothing is written; later the connection of the client is aborted.
func (h *Handler) Forward(w http.ResponseWriter, r *http.Request, peer *Peer, u user.Info) error {
	if err := h.health.lost(peer); err != nil {
		return &LostError{peer.ID, err}
	}
	info, ok := apirequest.RequestInfoFrom(r.Context())
	watch := ok && info.Verb == selection.Watch
	if watch && wsstream.IsWebSocketRequest(r) {
		return h.forwardSocket(w, r, peer, u)
	}
	base, err := url.Parse(peer.URL)
	if err != nil {
		return &LostError{peer.ID, err}
	}
	var failed error
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.Out.Host = ""
			accept, reader := p.Out.Header["Accept"], p.Out.Header[federation.ReaderHeader]
			p.Out.Header = http.Header{"User-Agent": {"federator/peer"}, "Accept-Encoding": {"identity"}} // no credentials of the client
			if len(accept) > 0 {
				p.Out.Header["Accept"] = accept
			}
			if len(reader) > 0 {
				p.Out.Header[federation.ReaderHeader] = reader
			}
			SetIdentity(p.Out, u)
		},
		Transport:     patient{peer.Client.Transport, h.health, peer},
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusUnauthorized {
				return errors.New("the peer does not know this process")
			}
			for name := range resp.Header { // what this process says itself
				if name == "Date" || w.Header().Get(name) != "" && name != "Warning" && name != "Content-Type" {
					resp.Header.Del(name)
				}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:     nil,
	}
	to := http.ResponseWriter(plainWriter{w})
	if watch {
		to = &patientWriter{w, http.NewResponseController(w), h.options.WriteTimeout}
	}
	proxy.ServeHTTP(to, r)
	switch {
	case failed == nil:
		return nil
	case r.Context().Err() != nil:
		return r.Context().Err()
	}
	h.options.Log.Debug("query API: a process did not answer", "process", peer.ID, "error", failed)
	return &LostError{peer.ID, failed}
}

// plainWriter is not flushed: it may compress what it is given, which the proxy would flush past it.
type plainWriter struct{ http.ResponseWriter }

// patientWriter gives a client so much time for each write.
type patientWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
}

// Unwrap is for http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements http.ResponseWriter.
func (p *patientWriter) Write(b []byte) (int, error) {
	if err := p.controller.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

// FlushError implements what http.ResponseController looks for. HTTP/2 ends a stream whose deadline passes, even while there
// is nothing to write.
func (p *patientWriter) FlushError() error {
	if err := p.controller.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if err := p.controller.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
