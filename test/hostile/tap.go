package hostile

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// A Frame is one of HTTP/2.
type Frame struct {
	Type    http2.FrameType
	Flags   http2.Flags
	ID      uint32 // of its stream
	Payload []byte
}

// frameHead is the length of what precedes a frame's payload.
const frameHead = 9

// append appends the frame as it is on the wire, which says that its payload has length bytes.
func (f Frame) append(b []byte, length int) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(f.Type), byte(f.Flags))
	return append(binary.BigEndian.AppendUint32(b, f.ID), f.Payload...)
}

// A Tap is a connection of a [Proxy] with a client: the frames that the server writes pass
// through it, one after another, and through the active attacks.
type Tap struct {
	*tls.Conn
	proxy  *Proxy
	number uint64 // of the connection
	closed chan struct{}
	close  func() // closes closed

	// Of who reads.
	in      []byte // what has come
	whole   int    // how much of it are whole frames
	greeted bool

	settings atomic.Int32 // that attacks have sent and the client has not acknowledged

	// Of who writes; the server does so from one goroutine at a time.
	rest   []byte // the beginning of a frame
	active *activeAttacks
	at     int // of the active attacks, the one whose turn is next
	rng    *rand.Rand
	frames int // that the server has written under these attacks

	mu       sync.Mutex
	attacked bool // by a change of its frames
}

// frameAttacks makes the server serve HTTP/2 through taps.
func (p *Proxy) frameAttacks() {
	server := &http2.Server{MaxConcurrentStreams: maxStreams}
	p.server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(hs *http.Server, c *tls.Conn, h http.Handler) {
			t := &Tap{Conn: c, proxy: p, closed: make(chan struct{})}
			t.close = sync.OnceFunc(func() { close(t.closed) })
			p.mu.Lock()
			p.conns++
			t.number = p.conns
			p.taps[t] = struct{}{}
			p.mu.Unlock()
			defer func() {
				_ = t.Close() // it may be closed
				p.mu.Lock()
				delete(p.taps, t)
				p.mu.Unlock()
			}()
			server.ServeConn(t, &http2.ServeConnOpts{BaseConfig: hs, Handler: h})
		},
	}
}

// maxStreams is how many streams a connection may have.
const maxStreams = 1000

// Close closes the connection.
func (t *Tap) Close() error {
	t.close()
	return t.Conn.NetConn().Close() // no TLS alert: a client that does not read would hold it up
}

// end closes the connection if an attack has changed what it says: a server that is well
// again does not go on where it was.
func (t *Tap) end() {
	if t.spoilt() {
		_ = t.Close() // it may be closed
	}
}

// attack notes that an attack changes what the connection says.
func (t *Tap) attack() {
	t.mu.Lock()
	t.attacked = true
	t.mu.Unlock()
	t.proxy.tampered()
}

// Read reads nothing while an attack is active that does not. Acknowledgements of settings
// that attacks have sent are not the server's.
func (t *Tap) Read(b []byte) (int, error) {
	for len(t.in) == 0 || t.whole == 0 {
		buf := make([]byte, 4<<10)
		n, err := t.Conn.Read(buf)
		if err != nil {
			return 0, err
		}
		t.in = append(t.in, buf[:n]...)
		t.unread()
		t.split()
	}
	n := copy(b, t.in[:t.whole])
	t.in, t.whole = t.in[n:], t.whole-n
	return n, nil
}

// split finds out how much of what has come are whole frames.
func (t *Tap) split() {
	if !t.greeted && len(t.in) >= len(http2.ClientPreface) {
		t.greeted, t.whole = true, len(http2.ClientPreface)
	}
	for t.greeted && len(t.in)-t.whole >= frameHead {
		f := t.in[t.whole:]
		length := frameHead + int(f[0])<<16 + int(f[1])<<8 + int(f[2])
		if len(f) < length {
			return
		}
		if http2.FrameType(f[3]) == http2.FrameSettings && http2.Flags(f[4]).Has(http2.FlagSettingsAck) && t.settings.Load() > 0 {
			t.settings.Add(-1)
			t.in = append(t.in[:t.whole:t.whole], f[length:]...)
			continue
		}
		t.whole += length
	}
}

// unread waits while an attack is active that does not read.
func (t *Tap) unread() {
	t.proxy.mu.Lock()
	active := t.proxy.active
	t.proxy.mu.Unlock()
	for _, l := range active.attacks {
		if l.Unread {
			t.attack()
			select {
			case <-active.ctx.Done():
			case <-t.closed:
			}
		}
	}
}

// Write passes frames on, as the active attacks change them.
func (t *Tap) Write(b []byte) (int, error) {
	t.proxy.mu.Lock()
	active := t.proxy.active
	t.proxy.mu.Unlock()
	if active != t.active {
		t.active, t.frames = active, 0
		t.rng = rand.New(rand.NewPCG(active.seed, t.number)) // a mix, not a secret
	}
	t.rest = append(t.rest, b...)
	for len(t.rest) >= frameHead {
		length := frameHead + int(t.rest[0])<<16 + int(t.rest[1])<<8 + int(t.rest[2])
		if len(t.rest) < length {
			break
		}
		f := Frame{
			Type: http2.FrameType(t.rest[3]), Flags: http2.Flags(t.rest[4]),
			ID: binary.BigEndian.Uint32(t.rest[5:]) &^ (1 << 31), Payload: bytes.Clone(t.rest[frameHead:length]),
		}
		t.rest = append(t.rest[:0], t.rest[length:]...)
		t.frames++
		t.at = 0
		if err := t.Send(f); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Send passes a frame on to the attacks that come after the one whose turn it is, and to the
// client.
func (t *Tap) Send(f Frame) error {
	at := t.at
	defer func() { t.at = at }()
	for t.at < len(t.active.attacks) {
		l := t.active.attacks[t.at]
		t.at++
		if l.Frame != nil {
			return l.Frame(t, f)
		}
	}
	return t.Raw(f.append(nil, len(f.Payload)))
}

// errAttackOver is the end of a connection that an attack has spoilt.
var errAttackOver = errors.New("the attack is over")

// Raw sends bytes to the client, past all attacks. It fails once the attack is over.
func (t *Tap) Raw(b []byte) error {
	if t.active.ctx.Err() != nil && t.spoilt() {
		return errAttackOver
	}
	_, err := t.Conn.Write(b)
	return err
}

// spoilt reports whether an attack has changed what the connection says.
func (t *Tap) spoilt() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attacked
}

// Lie sends frames that the server has not written.
func (t *Tap) Lie(frames ...Frame) error {
	t.attack()
	for _, f := range frames {
		if f.Type == http2.FrameSettings && !f.Flags.Has(http2.FlagSettingsAck) {
			t.settings.Add(1)
		}
		if err := t.Send(f); err != nil {
			return err
		}
	}
	return nil
}

// Flood sends a frame again and again: often, with a pause where the client takes it all.
func (t *Tap) Flood(f Frame) error {
	one := f.append(nil, len(f.Payload))
	many := bytes.Repeat(one, max(1, (16<<10)/len(one)))
	t.attack()
	for range 20 {
		if f.Type == http2.FrameSettings && !f.Flags.Has(http2.FlagSettingsAck) {
			t.settings.Add(int32(len(many) / len(one)))
		}
		if err := t.Raw(many); err != nil {
			return err
		}
		if !t.Pause(time.Millisecond) {
			return errAttackOver
		}
	}
	return nil
}

// Pause waits, and reports whether the attack still goes on.
func (t *Tap) Pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.active.ctx.Done():
	case <-t.closed:
	}
	return false
}
