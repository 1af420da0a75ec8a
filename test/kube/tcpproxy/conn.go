package tcpproxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	readSize = 32 << 10
	// maxBurst is the most that a throttle lets pass at once.
	maxBurst = 16 << 10
	// maxHeld bounds the bytes in flight per connection and direction, as a
	// TCP window would: beyond it the sender is held back.
	maxHeld = 8 << 20
	// maxChunks bounds the reads in flight, for senders of tiny pieces.
	maxChunks = 8 << 10
)

type direction int

const (
	toTarget direction = iota
	toClient
)

// conn is one proxied connection.
type conn struct {
	proxy  *Proxy
	client *net.TCPConn
	cancel context.CancelFunc // ends the connection's goroutines

	halfOpen chan struct{} // closed by HalfOpen
	toReset  atomic.Int64  // bytes left for the client before a reset; 0 or below: no reset

	mu     sync.Mutex
	server *net.TCPConn // nil until dialled
	ended  bool
	reset  bool // ended by a TCP reset
}

// chunk is what one read returned.
type chunk struct {
	data []byte
	err  error // the stream's end; io.EOF for an orderly one
	at   time.Time
}

// abort closes both sides, with a TCP reset if requested.
func (c *conn) abort(reset bool) {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.reset = true, reset
	for _, nc := range []*net.TCPConn{c.client, c.server} {
		if nc == nil {
			continue
		}
		if reset {
			_ = nc.SetLinger(0)
		}
		_ = nc.Close()
	}
}

// serve forwards both ways until both ends have closed or the connection is
// aborted.
func (c *conn) serve(ctx context.Context) {
	if !c.dial(ctx) {
		c.abort(true) // what a client sees of a server that is not there
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(ctx, toTarget, c.server, c.client) })
	pumps.Go(func() { c.pump(ctx, toClient, c.client, c.server) })
	pumps.Wait()
}

// openHalf closes the server's side and leaves the client's as it is, until the client closes it.
func (c *conn) openHalf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.server == nil {
		return
	}
	close(c.halfOpen)
	_ = c.server.SetLinger(0)
	_ = c.server.Close()
}

func (c *conn) isHalfOpen() bool {
	select {
	case <-c.halfOpen:
		return true
	default:
		return false
	}
}

// dial connects to the target once the mode is not a black hole.
func (c *conn) dial(ctx context.Context) bool {
	if !c.outsideBlackHole(ctx, toTarget) {
		return false
	}
	d := net.Dialer{Timeout: 10 * time.Second, Control: resetOnClose}
	var nc net.Conn
	var err error
	for _, target := range c.proxy.nextTargets() {
		if nc, err = d.DialContext(ctx, "tcp4", target); err == nil {
			break
		}
	}
	if err != nil {
		// A black hole that began meanwhile hides the refusal.
		c.outsideBlackHole(ctx, toClient)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	server := nc.(*net.TCPConn)
	if !c.ended || !c.reset {
		_ = server.SetLinger(-1)
	}
	if c.ended {
		_ = server.Close()
		return false
	}
	c.server = server
	return true
}

// resetOnClose makes closing a socket send a TCP reset. A dial that is canceled just
// as the target accepts closes the socket itself, before abort knows it.
func resetOnClose(_, _ string, socket syscall.RawConn) error {
	var err error
	controlErr := socket.Control(func(fd uintptr) {
		err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	})
	return cmp.Or(controlErr, err)
}

// outsideBlackHole waits until the direction is no black hole; it reports false
// when ctx ends.
func (c *conn) outsideBlackHole(ctx context.Context, d direction) bool {
	for {
		m, _, changed := c.proxy.current(d)
		if m.State != BlackHole {
			return true
		}
		if !wait(ctx, nil, changed) {
			return false
		}
	}
}

// pump reads src and writes dst, decoupled by a queue so that latency does not
// bound throughput. It returns when src has ended and all is written.
func (c *conn) pump(ctx context.Context, d direction, dst, src *net.TCPConn) {
	queue := make(chan chunk, maxChunks)
	held := semaphore.NewWeighted(maxHeld)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		read(ctx, src, queue, held)
	})
	defer reader.Wait()
	for ch := range queue {
		forwarded := c.isHalfOpen() || c.forward(ctx, d, dst, ch)
		held.Release(int64(len(ch.data)))
		switch {
		case c.isHalfOpen(): // all is swallowed, and nothing said
		case !forwarded:
			c.abort(false) // also ends the reader
		case errors.Is(ch.err, io.EOF):
			_ = dst.CloseWrite()
		case ch.err != nil:
			c.abort(true)
		}
	}
}

// read queues what src delivers until it ends or ctx does.
func read(ctx context.Context, src *net.TCPConn, queue chan<- chunk, held *semaphore.Weighted) {
	buf := make([]byte, readSize)
	for {
		n, err := src.Read(buf)
		if held.Acquire(ctx, int64(n)) != nil {
			return
		}
		select {
		case queue <- chunk{data: append([]byte(nil), buf[:n]...), err: err, at: time.Now()}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// forward writes ch as the mode allows, following its changes; an empty chunk
// (the stream's end) is held back like any other. It reports false when the
// connection is over.
func (c *conn) forward(ctx context.Context, d direction, dst *net.TCPConn, ch chunk) bool {
	data := ch.data
	for first := true; first || len(data) > 0; {
		m, limit, changed := c.proxy.current(d)
		if m.State == BlackHole {
			if !wait(ctx, nil, changed) {
				return false
			}
			continue
		}
		if left := time.Until(ch.at.Add(m.Latency)); left > 0 {
			if !sleep(ctx, left, changed) {
				return false
			}
			continue
		}
		piece := data
		left := c.toReset.Load()
		if left > 0 && d == toClient {
			piece = data[:min(int64(len(data)), left)]
		}
		if limit != nil {
			piece = piece[:min(len(piece), limit.Burst())]
			r := limit.ReserveN(time.Now(), len(piece))
			if left := r.Delay(); left > 0 {
				if !sleep(ctx, left, changed) {
					return false
				}
				select {
				case <-changed: // the bound may be another now
					r.Cancel()
					continue
				default:
				}
			}
		}
		// Counted first: who has received a byte finds it in the statistics.
		count := c.proxy.counter(d)
		count.Add(int64(len(piece)))
		n, err := dst.Write(piece)
		count.Add(int64(n - len(piece)))
		if err != nil {
			return false
		}
		if left > 0 && d == toClient && c.toReset.Add(-int64(n)) <= 0 {
			c.abort(true)
			return false
		}
		data, first = data[n:], false
	}
	return ctx.Err() == nil
}

// sleep waits for d or a change of mode; it reports false when ctx ends.
func sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	return wait(ctx, t.C, changed)
}

func wait(ctx context.Context, timer <-chan time.Time, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-timer:
	case <-changed:
	}
	return true
}
