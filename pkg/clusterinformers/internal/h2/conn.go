package h2

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	fullQueue    = 64 << 10  // bytes to write at which requests wait
	maxQueue     = 256 << 10 // bytes to write at which the connection is closed: the server does not read
	readBuffer   = 4 << 10
	goAwayTime   = time.Second // to say why a connection is closed
	lastStreamID = 1<<31 - 1
)

// conn is a connection. Its reader has a goroutine as long as it is open; what writes has
// one while there is something to write.
type conn struct {
	t       *Transport
	address string
	raw     net.Conn // below TLS
	secure  net.Conn
	tls     *tls.ConnectionState
	heard   atomic.Int64  // when the last frame came, as of now
	others  *atomic.Int64 // the same of all connections to the host

	in      *frameReader // the reader's
	framer  *http2.Framer
	noise   int // frames that carried nothing, see useless
	noiseAt time.Time

	mu         sync.Mutex // taken after the transport's; guards streams, too
	err        error      // why it ended
	gone       bool       // it takes no more streams
	retired    bool       // it closes once it has no streams
	streams    map[uint32]*clientStream
	reserved   int // streams about to be opened
	nextID     uint32
	settled    bool // the server's first SETTINGS have come
	maxStreams int
	idleSince  time.Duration

	resets    map[uint32]uint64 // streams that we reset: the ping that the server answers behind it, 0 until it is sent
	reset     []uint32          // the last that were acknowledged; an answer may overtake what a server has queued
	lastPing  uint64            // the number of the last ping
	resetPing uint64            // that is awaited, behind resets; 0: none
	pinged    time.Duration     // when it was last asked whether it lives
	timer     *time.Timer

	credit        int   // bytes that came and were not returned to the server
	send          int64 // bytes that we may send
	initialSend   int32 // of a stream
	peerHeaders   uint32
	updates       int // WINDOW_UPDATEs that what we sent accounts for
	urgent, queue []byte
	writing       bool
	full          bool            // the queue has been too long: the server does not read
	blocked       []*clientStream // that wait for the queue or a window
	block         headerBlock
	encoder       *hpack.Encoder
}

func newConn(t *Transport, address string, raw, secure net.Conn, state *tls.ConnectionState) *conn {
	c := &conn{
		t: t, address: address, raw: raw, secure: secure, tls: state, others: new(atomic.Int64), idleSince: t.now(),
		streams: map[uint32]*clientStream{}, resets: map[uint32]uint64{}, nextID: 1, maxStreams: 1,
		send: 65535, initialSend: 65535, peerHeaders: 1<<32 - 1,
	}
	c.heard.Store(int64(c.idleSince))
	c.in = &frameReader{r: bufio.NewReaderSize(secure, readBuffer), left: unbounded}
	c.framer = http2.NewFramer(nil, c.in)
	c.framer.SetMaxReadFrameSize(maxFrameBytes)
	c.framer.MaxHeaderListSize = maxHeaderBytes
	c.framer.ReadMetaHeaders = hpack.NewDecoder(maxTableBytes, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	return c
}

// now is the time since the transport began.
func (c *conn) now() time.Duration { return c.t.now() }

// hear notes that a frame has come.
func (c *conn) hear() {
	now := int64(c.now())
	c.heard.Store(now)
	c.others.Store(now)
}

// start sends the preface and starts reading.
func (c *conn) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.urgent = append(c.urgent, http2.ClientPreface...) // nothing may overtake it
	c.urgent = appendSettings(c.urgent,
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: maxTableBytes},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: minWindow},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: maxFrameBytes},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderBytes})
	c.urgent = appendWindowUpdate(c.urgent, 0, connWindow-65535)
	c.t.wg.Go(c.read)
	c.flushLocked()
	c.t.wg.Add(1)
	c.timer = time.AfterFunc(c.t.o.IdleTimeout, c.tick)
}

// reserve reserves a stream, if there is one for what lasts or for what is short.
func (c *conn) reserve(watch bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.roomLocked(watch)
	if free {
		c.reserved++
	}
	return free
}

// room returns how many streams count, and whether there is one more.
func (c *conn) room(watch bool) (used int, free bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usedLocked(), c.roomLocked(watch)
}

func (c *conn) roomLocked(watch bool) bool {
	limit := c.maxStreams
	if watch {
		limit -= min(reserved, limit/2)
	}
	return c.err == nil && !c.gone && !c.full && c.nextID <= lastStreamID-2*maxStreams && c.usedLocked() < limit
}

// fresh reports whether the server has yet to say how many streams it allows.
func (c *conn) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.settled && !c.gone && c.err == nil
}

// failedEarly returns why the connection failed, if that was before the server's settings.
func (c *conn) failedEarly() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled || c.err == errIdle { //nolint:errorlint // it is made here
		return nil
	}
	return c.err
}

// release gives a reserved stream back.
func (c *conn) release() {
	c.mu.Lock()
	c.reserved--
	c.mu.Unlock()
	c.freed()
}

func (c *conn) usedLocked() int { return len(c.streams) + len(c.resets) + c.reserved }

func (c *conn) used() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usedLocked()
}

// retire has the connection closed once it has no streams. It reports whether that is now.
func (c *conn) retire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
	return c.endIdleLocked()
}

// endIdleLocked reports whether the connection has no streams; then it takes no more.
func (c *conn) endIdleLocked() bool {
	idle := c.err == nil && len(c.streams)+c.reserved == 0
	c.gone = c.gone || idle
	return idle
}

// freed is called when a stream has ended.
func (c *conn) freed() {
	c.mu.Lock()
	over := (c.gone || c.retired) && c.endIdleLocked()
	c.mu.Unlock()
	if over {
		c.fail(errIdle)
	}
	c.t.freed(c)
}

// resetLocked resets a stream. It counts until the server has answered a ping behind it.
func (c *conn) resetLocked(id uint32, code http2.ErrCode) {
	c.queue = appendReset(c.queue, id, code)
	c.resets[id] = 0
	if c.resetPing == 0 {
		c.pingResetsLocked()
	}
	c.flushLocked()
}

// pingResetsLocked sends a ping behind the resets that have none.
func (c *conn) pingResetsLocked() {
	c.lastPing++
	c.resetPing = 0
	for id, ping := range c.resets {
		if ping == 0 {
			c.resets[id] = c.lastPing
			c.resetPing = c.lastPing
		}
	}
	if c.resetPing != 0 {
		c.queue = appendPing(c.queue, 0, pingData(c.resetPing)) // not urgent: it must stay behind them
		c.flushLocked()
	}
}

func pingData(n uint64) (data [8]byte) {
	binary.BigEndian.PutUint64(data[:], n)
	return data
}

// armLocked has tick called after d.
func (c *conn) armLocked(d time.Duration) {
	if !c.timer.Stop() {
		c.t.wg.Add(1)
	}
	c.timer.Reset(d)
}

// busyLocked reports whether the server owes us something: resets have to be answered, too,
// as else requests that give up early would never notice that it is silent.
func (c *conn) busyLocked() bool { return c.usedLocked() > 0 }

// patience is how many times longer a connection may be silent while another of its host is not.
// Networks that fail, and hosts, silence all of them, and TCP asks for itself.
const patience = 5

// dueLocked is when the server is asked whether it lives, if nothing comes before.
func (c *conn) dueLocked(heard time.Duration) time.Duration {
	ping := c.t.o.PingInterval
	return min(heard+patience*ping, max(heard, time.Duration(c.others.Load()))+ping)
}

// tick asks whether the server lives, while it owes something, and closes what is idle.
func (c *conn) tick() {
	defer c.t.wg.Done()
	c.mu.Lock()
	var over error
	o, now, heard := &c.t.o, c.now(), time.Duration(c.heard.Load())
	timeout := o.Prolong(o.PingTimeout)
	switch {
	case c.err != nil:
	case !c.busyLocked():
		if left := c.idleSince + o.IdleTimeout - now; left > 0 {
			c.armLocked(left)
		} else if c.endIdleLocked() {
			over = errIdle
		}
	case c.pinged > heard && now-c.pinged >= timeout:
		over = errSilent
	case c.pinged > heard:
		c.armLocked(min(c.pinged+timeout-now, o.IdleTimeout))
	case now >= c.dueLocked(heard):
		c.pinged = now
		c.lastPing++
		c.urgent = appendPing(c.urgent, 0, pingData(c.lastPing))
		c.flushLocked()
		c.armLocked(min(timeout, o.IdleTimeout))
	default:
		c.armLocked(min(c.dueLocked(heard)-now, o.IdleTimeout))
	}
	c.mu.Unlock()
	if over != nil {
		c.fail(over)
	}
}

// fail ends the connection and its streams. A peer that violated the protocol is told, if it
// still reads.
func (c *conn) fail(why error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	var after later
	for _, s := range c.streams {
		after = append(after, s.endLocked(why, noCode)...)
	}
	c.err = why
	for _, s := range c.blocked {
		s.signalLocked()
	}
	if c.timer.Stop() {
		c.t.wg.Done()
	}
	var v *ProtocolError
	tell := errors.As(why, &v)
	if tell {
		c.urgent, c.queue = appendGoAway(nil, v.Code), nil
		_ = c.raw.SetWriteDeadline(time.Now().Add(goAwayTime)) //nolint:errcheck // it is closed then
		if !c.writing {
			c.writing = true
			c.t.wg.Go(c.write)
		}
	}
	c.mu.Unlock()
	if !tell {
		c.shut()
	}
	c.t.remove(c)
	after.run()
}

// shut closes the socket.
func (c *conn) shut() {
	_ = c.raw.Close() // nothing to report to
	c.t.mu.Lock()
	delete(c.t.open, c)
	c.t.mu.Unlock()
}

// flushLocked has what is queued written. A queue that is full ends the connection.
func (c *conn) flushLocked() {
	if len(c.urgent)+len(c.queue) > maxQueue && !c.full {
		c.full = true
		_ = c.raw.SetWriteDeadline(c.t.began) //nolint:errcheck // the writer notices
	}
	if c.writing || c.err != nil {
		return
	}
	c.writing = true
	c.t.wg.Go(c.write)
}

// write writes until nothing is queued. Of what is queued at one time, answers to pings
// and settings come first.
func (c *conn) write() {
	for {
		c.mu.Lock()
		b := append(c.urgent, c.queue...)
		c.urgent, c.queue = nil, nil
		if len(b) == 0 {
			c.writing = false
			_ = c.raw.SetWriteDeadline(time.Time{}) //nolint:errcheck // TLS may write by itself, such as for an update of keys
			ended := c.err != nil
			c.mu.Unlock()
			if ended {
				c.shut()
			}
			return
		}
		for _, s := range c.blocked {
			s.signalLocked()
		}
		wait := c.t.o.Prolong(c.t.o.PingInterval + c.t.o.PingTimeout)
		if c.err != nil {
			wait = goAwayTime
		}
		_ = c.raw.SetWriteDeadline(time.Now().Add(wait)) //nolint:errcheck // the write reports it
		full := c.full
		c.mu.Unlock()
		var err error
		if !full {
			_, err = c.secure.Write(b)
		}
		if full || err != nil {
			c.fail(c.writeError(err))
			c.shut()
			return
		}
	}
}

// writeError is why a connection ended whose writer met err.
func (c *conn) writeError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return errQueueFull
	}
	return fmt.Errorf("h2: connection lost: %w", err)
}

// lost is why a connection ended whose reader met err.
func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", errGone, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("h2: connection lost: %w", err)
}
