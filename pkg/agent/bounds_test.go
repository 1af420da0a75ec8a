package agent_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"federator.dev/federator/pkg/agent/internal/identity"
	"federator.dev/federator/pkg/agent/internal/joining"
)

// ended reports whether the other end closes a connection within a time.
func ended(c net.Conn, within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && (!errors.As(err, &timeout) || !timeout.Timeout())
}

// TestServer_HandshakesAreBounded: who opens connections and says nothing is refused at once, and keeps agents out for a
// moment only.
func TestServer_HandshakesAreBounded(t *testing.T) {
	h := newHub(t, 0)
	member, uid := h.create("edge")
	token := h.token(member, uid, time.Hour)
	const most, more = 256, 32
	refused := 0
	var silent []net.Conn
	for range most + more {
		c, err := net.Dial("tcp", h.listening)
		if err != nil { // it is refused before this end knows that it is connected
			refused++
			continue
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for _, c := range silent[min(most, len(silent)):] {
		if ended(c, time.Second) {
			refused++
		}
	}
	if refused < more/2 { // of the first, some may have been refused
		t.Errorf("%d of %d connections too many are refused", refused, more)
	}
	until(t, "an agent joins", func() error {
		if code, why := post(t, client(), h.address, joining.JoinPath, joining.Request{Token: token, CSR: csr(t)}); code != 200 {
			return errors.New(why)
		}
		return nil
	})
}

// TestServer_ConnectionsOfAMemberAreBounded: the oldest that nobody uses gives way.
func TestServer_ConnectionsOfAMemberAreBounded(t *testing.T) {
	j := join(t, 0)
	kept, err := j.store.Load(t.Context())
	ok(t, err)
	pair, err := tls.X509KeyPair(kept.Certificate, kept.Key)
	ok(t, err)
	authorities, err := identity.Certificates(kept.Authorities)
	ok(t, err)
	open := func(c *tls.Config) *tls.Conn {
		c.RootCAs, c.ServerName, c.NextProtos = identity.Pool(authorities), "127.0.0.1", []string{joining.Protocol}
		conn, err := tls.Dial("tcp", j.listening, c)
		ok(t, err)
		t.Cleanup(func() { conn.NetConn().Close() })
		return conn
	}
	var conns []*tls.Conn
	for range 40 {
		conns = append(conns, open(&tls.Config{Certificates: []tls.Certificate{pair}}))
	}
	alive := 0
	for _, c := range conns {
		if !ended(c, 100*time.Millisecond) {
			alive++
		}
	}
	if alive == 0 || alive > 16 {
		t.Errorf("%d connections of one agent are open", alive)
	}
	if c := open(&tls.Config{}); !ended(c, patience) {
		t.Error("a connection without a certificate is kept")
	}
	// One over which something comes before it is taken is no agent's.
	c := open(&tls.Config{Certificates: []tls.Certificate{pair}})
	_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	ok(t, err)
	if !ended(c, patience) {
		t.Error("a connection that speaks first is kept")
	}
}
