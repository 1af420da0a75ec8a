package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A Proxy is an HTTPS and HTTP/2 server that stands before an API server and says what
// its attacks make of the answers. Without attacks it changes nothing.
type Proxy struct {
	upstream *http.Client
	host     string
	rename   func([]byte) []byte
	listener net.Listener
	server   *http.Server
	ca       []byte
	serving  sync.WaitGroup

	mu       sync.Mutex
	active   *activeAttacks
	taken    map[Verb]int64 // most bytes of one body that a client took
	requests map[Verb]int
	flood    int // floods under way that come to an end
	taps     map[*Tap]struct{}
	conns    uint64 // made so far
	lied     int    // frames that were attacked
}

// activeAttacks are the attacks that are active at one time.
type activeAttacks struct {
	attacks []*Attack
	seed    uint64
	ctx     context.Context // ends the streams that began under these attacks
	end     context.CancelFunc

	mu      sync.Mutex
	expired map[string]bool // paths whose watches have been ended to list again
}

// Listen starts a proxy on a loopback port before an API server. rename, which may be
// nil, is applied to all that the server says and must keep its length: two members that
// are one server get marks of their own by it.
func Listen(upstream *rest.Config, rename func([]byte) []byte) (*Proxy, error) {
	config := rest.CopyConfig(upstream)
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	pair, crt, err := certificate()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if rename == nil {
		rename = func(b []byte) []byte { return b }
	}
	p := &Proxy{
		upstream: client, host: strings.TrimSuffix(config.Host, "/"), rename: rename, listener: listener, ca: crt,
		taken: map[Verb]int64{}, requests: map[Verb]int{}, taps: map[*Tap]struct{}{},
	}
	p.active = p.newActive(0)
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.serve),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	p.frameAttacks()
	p.serving.Go(func() {
		_ = p.server.ServeTLS(listener, "", "") // it ends with Close
	})
	return p, nil
}

// Close ends the proxy and its connections, and waits for what it started.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.active.end()
	p.mu.Unlock()
	err := p.server.Close()
	p.serving.Wait()
	p.upstream.CloseIdleConnections()
	return err
}

// Kubeconfig leads to the proxy.
func (p *Proxy) Kubeconfig() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: "https://" + p.listener.Addr().String(), CertificateAuthorityData: p.ca}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: "anybody"}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	return clientcmd.Write(*config)
}

// SetAttacks replaces the active attacks: streams end, and each has to list again
// once; connections whose frames were attacked end, too. All that is drawn is drawn from the seed.
func (p *Proxy) SetAttacks(seed uint64, attacks ...*Attack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active.end()
	p.active = p.newActive(seed, attacks...)
	for t := range p.taps {
		t.end()
	}
}

// Tampered counts what attacks have done to frames.
func (p *Proxy) Tampered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lied
}

func (p *Proxy) tampered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lied++
}

func (p *Proxy) newActive(seed uint64, attacks ...*Attack) *activeAttacks {
	ctx, cancel := context.WithCancel(context.Background())
	return &activeAttacks{attacks: attacks, seed: seed, ctx: ctx, end: cancel, expired: map[string]bool{}}
}

// Taken is the most bytes of one body that a client took in answer to a verb.
func (p *Proxy) Taken(v Verb) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken[v]
}

// Requests counts the requests with a verb.
func (p *Proxy) Requests(v Verb) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[v]
}

// Flooding counts the floods under way that come to an end.
func (p *Proxy) Flooding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flood
}

func (p *Proxy) flooding(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flood += n
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	c := parse(r)
	p.mu.Lock()
	t := p.active
	p.requests[c.Verb]++
	p.mu.Unlock()
	c.seed = t.seed
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	r = r.WithContext(ctx)
	counted := &counter{ResponseWriter: w}
	defer func() {
		p.mu.Lock()
		p.taken[c.Verb] = max(p.taken[c.Verb], counted.n)
		p.mu.Unlock()
	}()
	if c.Verb == Watch && t.relist(c.Path) {
		answerStatus(counted, http.StatusGone, "Expired", "too old resource version")
		return
	}
	for _, l := range t.attacks {
		if l.Answer != nil && l.Answer(counted, r, c) {
			return
		}
	}
	p.forward(counted, r, c, t)
}

// relist reports, once for each path, that a watch has to start again.
func (t *activeAttacks) relist(path string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := !t.expired[path] && t.seed != 0
	t.expired[path] = true
	return again
}

// forward asks the API server and passes its answer on, as the attacks change it.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, c *Call, t *activeAttacks) {
	asJSON := false
	for _, l := range t.attacks {
		asJSON = asJSON || l.content() && !l.Bytes
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, p.host+r.URL.RequestURI(), r.Body)
	if err != nil {
		answerStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	for _, name := range []string{"Accept", "Content-Type", "If-None-Match", "User-Agent"} {
		if v := r.Header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	if asJSON {
		req.Header.Del("If-None-Match")
		if c.Objects() {
			req.Header.Set("Accept", "application/json")
		}
	}
	resp, err := p.upstream.Do(req)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			panic(http.ErrAbortHandler)
		}
		answerStatus(w, http.StatusBadGateway, "InternalError", err.Error())
		return
	}
	defer resp.Body.Close()
	for _, name := range []string{"Content-Type", "Etag", "Vary", "Cache-Control", "Warning", "Location"} {
		if v := resp.Header.Get(name); v != "" && !(asJSON && name == "Etag") {
			w.Header().Set(name, v)
		}
	}
	var out io.Writer = w
	for _, l := range t.attacks {
		if l.Wire != nil {
			out = l.Wire(c, out)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush() // a watch begins before its first event
	switch {
	case resp.StatusCode != http.StatusOK || !asJSON || !strings.Contains(resp.Header.Get("Content-Type"), "json"):
		p.copy(w, out, resp, c)
	case c.Verb == Watch || c.Verb == WatchList:
		p.stream(r.Context(), w, out, resp.Body, c, t)
	default:
		p.document(out, resp.Body, c, t)
	}
}

// copy passes bytes on: whole where an answer ends, frame by frame where it does not.
func (p *Proxy) copy(w http.ResponseWriter, out io.Writer, resp *http.Response, c *Call) {
	flush := http.NewResponseController(w)
	body := bufio.NewReaderSize(resp.Body, 64<<10)
	next := func() ([]byte, error) { return io.ReadAll(body) }
	if resp.StatusCode == http.StatusOK && (c.Verb == Watch || c.Verb == WatchList) {
		next = func() ([]byte, error) { return body.ReadBytes('\n') }
		if !strings.Contains(resp.Header.Get("Content-Type"), "json") {
			next = func() ([]byte, error) { return frame(body) }
		}
	}
	for {
		b, err := next()
		if err != nil && !errors.Is(err, io.EOF) {
			panic(http.ErrAbortHandler)
		}
		if len(b) == 0 {
			return
		}
		if _, err := out.Write(p.rename(b)); err != nil {
			panic(http.ErrAbortHandler)
		}
		_ = flush.Flush() // the client may be gone, which the next write reports
	}
}

// frame reads one frame of a watch in protobuf, its length included.
func frame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	b := make([]byte, 4+binary.BigEndian.Uint32(head))
	copy(b, head)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// counter counts what is written of a body.
type counter struct {
	http.ResponseWriter
	n int64
}

func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n += int64(n)
	return n, err
}

// answerStatus answers with an error as an API server does.
func answerStatus(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}
