package memberclient

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"federator.dev/federator/pkg/clusterinformers/internal/h2"
)

// A member that violates HTTP/2 so often within so long is reached by net/http, over HTTP/1.1.
// One that floods is not: it would find its way there as well.
const (
	maxViolations   = 3
	violationWindow = 10 * time.Minute
)

// switching sends requests by our own transport, or by net/http where that does not get on
// with the server.
type switching struct {
	own     *h2.Transport // nil: net/http only
	stock   sendOnce      // of the same connections and TLS; of no transport where nothing is sent by net/http
	stocked atomic.Bool   // the server has violated the protocol too often
	o       *TransportOptions

	mu         sync.Mutex
	violations [maxViolations]time.Time // the last that were no floods, oldest first
}

// sendOnce has net/http send a body once: it sends again what a server reset with
// PROTOCOL_ERROR, though it may have begun. What it has not begun is an error then, too.
type sendOnce struct{ *http.Transport }

func (s sendOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody != nil {
		once := *r
		once.GetBody = nil
		r = &once
	}
	return s.Transport.RoundTrip(r)
}

// newSwitching returns what sends requests over connections that stock makes.
func newSwitching(stock *http.Transport, o *TransportOptions) (*switching, error) {
	s := &switching{stock: sendOnce{stock}, o: o}
	if o.Stock {
		return s, nil
	}
	own, err := h2.New(h2.Options{
		Dial: stock.DialContext, TLS: stock.TLSClientConfig,
		PingInterval: o.PingInterval, PingTimeout: o.PingTimeout, Prolong: o.Prolong, IdleTimeout: stock.IdleConnTimeout,
		Fallback: s.stock,
		OnFallback: func(err *h2.ALPNError) {
			if o.OnStock != nil {
				o.OnStock(err)
			}
		},
		OnProtocolError: s.violated,
	})
	s.own = own
	return s, err
}

// RoundTrip implements http.RoundTripper.
func (s *switching) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.own == nil || s.stocked.Load() {
		return s.stock.RoundTrip(r)
	}
	return s.own.RoundTrip(r)
}

// violated counts a violation.
func (s *switching) violated(err *h2.ProtocolError) {
	often := s.stock.Transport != nil && err.Code != http2.ErrCodeEnhanceYourCalm && s.often(time.Now())
	if s.o.OnViolation != nil {
		s.o.OnViolation(err)
	}
	if often && !s.stocked.Swap(true) && s.o.OnStock != nil {
		s.o.OnStock(err)
	}
}

// often counts a violation that is no flood, and reports whether there are too many.
func (s *switching) often(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(s.violations[:], s.violations[1:])
	s.violations[maxViolations-1] = now
	return !s.violations[0].IsZero() && now.Sub(s.violations[0]) < violationWindow
}

// CloseIdleConnections closes what is idle, and what is in use when it falls idle.
func (s *switching) CloseIdleConnections() {
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
	if s.stock.Transport != nil {
		s.stock.CloseIdleConnections()
	}
}

// close ends all that is sent by our own transport.
func (s *switching) close() {
	if s.own != nil {
		s.own.Close()
	}
}
