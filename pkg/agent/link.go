package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"federator.dev/federator/internal/sleep"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/agent/internal/joining"
)

const (
	dialTimeout = 10 * time.Second
	maxConns    = 6 // to a process of federator, which uses fewer

	// refusedWithin is how soon a connection that federator refuses ends.
	refusedWithin = 2 * time.Second
	// comeBack is how long agents take, all together, to come back to a process that they have lost: they
	// would all come within the same tenth of a second.
	comeBack = 2 * time.Second
	// refusedDelay is the longest delay once federator has said that it refuses the agent.
	refusedDelay = time.Minute
)

// keepAlive has the kernel ask whether federator lives while a connection waits to be taken into use.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// link has the connections to one process of federator: those that are in use, and one to spare.
type link struct {
	agent   *Agent
	hub     string
	log     *slog.Logger
	changed trigger.Trigger

	mu      sync.Mutex
	conns   map[*conn]bool // whether it is in use
	greeted bool           // federator has said that the agent is accepted, and not since that it is not
	refused int            // connections that ended before they were used, since federator has said or shown that it accepts the agent
	proved  bool           // federator has shown that it accepts the agent since there was a look
	lost    bool           // the last connection has ended since there was a look
}

func newLink(a *Agent, hub string) *link {
	return &link{agent: a, hub: hub, log: a.o.Logger.With("hub", hub), changed: trigger.New(), conns: map[*conn]bool{}}
}

// run keeps a connection to spare until ctx is done.
func (l *link) run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	var retry backoff
	last := ""
	for ctx.Err() == nil {
		if !l.wanted() {
			select {
			case <-l.changed:
			case <-ctx.Done():
			}
			continue
		}
		if l.hasLost() && sleep.For(ctx, rand.N(comeBack)) != nil {
			return
		}
		err := l.open(ctx, &serving)
		// That a connection was made proves nothing: one that federator refuses is made, too.
		if l.hasProved() {
			retry, last = backoff{}, ""
		}
		if err == nil {
			continue
		}
		if text := err.Error(); text != last && ctx.Err() == nil {
			last = text
			l.log.Warn("connecting to federator failed, trying again", "error", err)
		}
		retry.most = 0
		if errors.Is(err, ErrRefused) {
			retry.most = refusedDelay
		}
		if errors.Is(err, ErrRefused) || errors.As(err, new(x509.UnknownAuthorityError)) {
			l.agent.doubts.Fire()
		}
		_ = sleep.For(ctx, retry.next()) // the loop sees that ctx is done
	}
}

// wanted reports whether there is no connection to spare, and room for one.
func (l *link) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, used := range l.conns {
		if !used {
			return false
		}
	}
	return len(l.conns) < maxConns
}

// ready reports whether federator has accepted the agent, and there is a connection.
func (l *link) ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.greeted && len(l.conns) > 0
}

// hasLost reports whether the last connection has ended since it was asked before.
func (l *link) hasLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = false
	return lost
}

// hasProved reports whether federator has used a connection, or has accepted the agent, since it was asked before.
func (l *link) hasProved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	proved := l.proved
	l.proved = false
	return proved
}

// greet asks federator whether it accepts the agent: a connection does not say why it is refused.
func (l *link) greet(ctx context.Context, c *credentials) error {
	err := l.agent.hello(ctx, l.hub, c)
	l.mu.Lock()
	news := err == nil && !l.greeted
	switch {
	case errors.Is(err, ErrRefused):
		l.greeted = false
	case err == nil:
		// Where it says yes, and connections end all the same, only one that is used is a proof.
		l.proved = l.proved || l.refused == 0
		l.greeted, l.refused = true, 0
	}
	l.mu.Unlock()
	if news {
		l.log.Info("connected to federator")
	}
	return err
}

// open opens a connection and starts to serve it.
func (l *link) open(ctx context.Context, serving *sync.WaitGroup) error {
	c := l.agent.current.Load()
	l.mu.Lock()
	greeted, refused := l.greeted, l.refused
	l.mu.Unlock()
	if !greeted || refused > 0 {
		if err := l.greet(ctx, c); err != nil {
			return err
		}
	}
	raw, err := l.dial(ctx, c)
	if err != nil {
		return err
	}
	opened := newConn(raw, l, c)
	l.mu.Lock()
	l.conns[opened] = false
	l.mu.Unlock()
	serving.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				l.log.Error("serving a connection failed", "error", p, "stack", string(debug.Stack()))
			}
			_ = opened.Close() // nothing to report to
		}()
		opened.serve(ctx)
	})
	if refused > 0 {
		return fmt.Errorf("%s closes connections at once", l.hub)
	}
	return nil
}

func (l *link) dial(ctx context.Context, c *credentials) (*tls.Conn, error) {
	host, _, err := net.SplitHostPort(l.hub)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := l.agent.o.Dial(ctx, "tcp", l.hub)
	if err != nil {
		return nil, err
	}
	config := c.tls(host)
	config.NextProtos = []string{joining.Protocol}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error says more
		return nil, fmt.Errorf("%s: %w", l.hub, err)
	}
	return secure, nil
}

// replace has new connections made, as there is another certificate. What is under way on the old ones goes on.
func (l *link) replace() {
	l.mu.Lock()
	for c := range l.conns {
		if c.credentials != l.agent.current.Load() {
			delete(l.conns, c)
			close(c.retiring)
		}
	}
	l.mu.Unlock()
	l.changed.Fire()
}

// use notes that federator uses a connection: there is to be another one to spare.
func (l *link) use(c *conn) {
	l.mu.Lock()
	if _, is := l.conns[c]; is {
		l.conns[c], l.refused, l.proved = true, 0, true
	}
	l.mu.Unlock()
	l.changed.Fire()
}

// gone notes that a connection has ended.
func (l *link) gone(c *conn) {
	l.mu.Lock()
	used, is := l.conns[c]
	delete(l.conns, c)
	l.lost = l.lost || is && len(l.conns) == 0
	if is && !used && time.Since(c.began) < refusedWithin {
		l.refused++
	}
	l.mu.Unlock()
	l.changed.Fire()
}
