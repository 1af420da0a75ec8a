package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"federator.dev/federator/test/simulation/apiserver"
)

// link is the network of one process: its requests wait here until the world answers them.
type link struct {
	process string
	arrived chan struct{} // has room for one; shared by all links

	mu      sync.Mutex
	cut     bool
	parked  []*parked
	counter int
}

// parked is a request that has been sent and not answered.
type parked struct {
	process  string
	to       string // hub, or a member
	number   int    // among those of its process
	sent     time.Time
	request  *http.Request
	body     []byte
	answer   chan answer // has room for one
	response *http.Response
	hangs    bool   // it is never answered
	is       *write // what it is for, once that was asked
}

type answer struct {
	response *http.Response
	err      error
}

var (
	errCut     = errors.New("connection cut")
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
)

// route is a RoundTripper to one server through a link.
type route struct {
	*link

	to string
}

// RoundTrip implements http.RoundTripper.
func (r route) RoundTrip(request *http.Request) (*http.Response, error) {
	p := &parked{process: r.process, to: r.to, sent: time.Now(), request: request, answer: make(chan answer, 1)}
	if request.Body != nil {
		var err error
		p.body, err = io.ReadAll(request.Body)
		request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	if r.cut {
		r.mu.Unlock()
		return nil, errCut
	}
	r.counter++
	p.number = r.counter
	r.parked = append(r.parked, p)
	r.mu.Unlock()
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	select {
	case a := <-p.answer:
		return a.response, a.err
	case <-request.Context().Done():
		r.remove(p)
		return nil, context.Cause(request.Context())
	}
}

func (l *link) remove(p *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = slices.DeleteFunc(l.parked, func(o *parked) bool { return o == p })
}

// waiting returns the requests that wait, ordered by what they are.
func (l *link) waiting() []*parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.parked)
	slices.SortStableFunc(all, func(a, b *parked) int {
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.String(), b.String()), cmp.Compare(a.request.URL.RawQuery, b.request.URL.RawQuery), bytes.Compare(a.body, b.body))
	})
	return all
}

// sever fails all requests, those to come as well: nothing reaches the process any more.
func (l *link) sever() {
	l.mu.Lock()
	l.cut = true
	all := l.parked
	l.parked = nil
	l.mu.Unlock()
	for _, p := range all {
		p.answer <- answer{err: errCut}
	}
}

func (l *link) reply(p *parked, response *http.Response, err error) {
	l.remove(p)
	p.answer <- answer{response, err}
}

// String describes a request in the history.
func (p *parked) String() string {
	text := p.request.Method + " " + strings.TrimPrefix(p.request.URL.Path, "/")
	if p.dryRun() {
		text += " (dry run)"
	}
	return text
}

func (p *parked) dryRun() bool {
	return p.request.URL.Query().Has("dryRun") || p.request.Method == http.MethodDelete && bytes.Contains(p.body, []byte(`"dryRun"`))
}

// writes reports whether the request is to change a member.
func (p *parked) writes() bool {
	return p.to != "hub" && p.to != gitHost && p.request.Method != http.MethodGet && !p.dryRun()
}

// execute has a server execute the request, whatever its client does meanwhile.
func (p *parked) execute(s *apiserver.Server) *http.Response {
	r := p.request.Clone(context.WithoutCancel(p.request.Context()))
	r.Body = io.NopCloser(bytes.NewReader(p.body))
	response, err := s.RoundTrip(r)
	if err != nil {
		panic(err) // the server is in memory
	}
	return response
}
