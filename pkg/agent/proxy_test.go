package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"federator.dev/federator/pkg/agent"
	"federator.dev/federator/pkg/clusterinformers"
)

// gateway is a proxy of HTTP, and the only way out of a network: it knows where a name is that nobody else does.
type gateway struct {
	listener net.Listener
	names    map[string]string
	passed   atomic.Int64
	refuses  atomic.Bool
	serving  sync.WaitGroup
}

func newGateway(t *testing.T, names map[string]string) *gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	g := &gateway{listener: l, names: names}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.serving.Go(func() { g.serve(ctx, c) })
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); g.serving.Wait() })
	return g
}

func (g *gateway) url() *url.URL { return &url.URL{Scheme: "http", Host: g.listener.Addr().String()} }

func (g *gateway) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	from := bufio.NewReader(c)
	req, err := http.ReadRequest(from)
	if err != nil {
		return
	}
	target, known := g.names[req.Host]
	if req.Method != http.MethodConnect || !known || g.refuses.Load() {
		fmt.Fprint(c, "HTTP/1.1 403 Forbidden by the gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		fmt.Fprint(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { c.Close(); to.Close() })()
	g.passed.Add(1)
	fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, to) // ends with either side
		c.Close()
	})
	_, _ = io.Copy(to, from)
	to.Close()
	back.Wait()
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestAgent_BehindAProxy: an agent that can only go out, and through a proxy only, joins and is followed. What the proxy
// refuses is said, and tried again.
func TestAgent_BehindAProxy(t *testing.T) {
	h := newHub(t, 0)
	const name = "127.0.0.1:1" // where nobody listens
	g := newGateway(t, map[string]string{name: h.address})
	g.refuses.Store(true)
	member, uid := h.create("inside")
	said := &lines{}
	a, err := agent.New(agent.Options{
		Hubs: []string{name}, Token: h.token(member, uid, time.Hour), Cluster: credentials(t, nameOf(t), readAll),
		Store: agent.InDirectory(t.TempDir()), Version: "v1", Logger: slog.New(slog.NewTextHandler(said, nil)),
		Proxy: func(hub string) (*url.URL, error) {
			if hub != name {
				return nil, fmt.Errorf("asked for the proxy to %s", hub)
			}
			return g.url(), nil
		},
	})
	ok(t, err)
	h.run(a)
	until(t, "the refusal is said", func() error {
		if text := said.String(); !strings.Contains(text, "403 Forbidden by the gateway") {
			return fmt.Errorf("%q", text)
		}
		return nil
	})
	g.refuses.Store(false)
	f := h.follow([]string{"ConfigMap", "Namespace"}, clusterinformers.Spec{Name: member, UID: uid, Agent: true})
	f.synced(member)
	put(t, "behind-a-proxy")
	f.has(member, "behind-a-proxy", true)
	if g.passed.Load() == 0 {
		t.Error("nothing went through the proxy")
	}
}
