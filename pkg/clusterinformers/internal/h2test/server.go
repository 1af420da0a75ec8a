// Package h2test is servers that violate HTTP/2 or misuse it, for tests. Over HTTP/1.1 they
// answer "{}".
package h2test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
)

// Overlong starts a server whose responses are longer than they announce, which violates
// HTTP/2. net/http gives what was announced, "{}", and an error.
func Overlong(tb testing.TB) (url string) {
	tb.Helper()
	return start(tb, func(fr *http2.Framer, id uint32) error {
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		enc.SetMaxDynamicTableSize(0) // each block stands alone
		for _, h := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/json"}, {Name: "content-length", Value: "2"}} {
			_ = enc.WriteField(h) //nolint:errcheck // a buffer takes it
		}
		if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
			return err
		}
		return fr.WriteData(id, true, []byte("{} and more"))
	})
}

// Flooding starts a server that answers a request by frames without end, which HTTP/2 allows:
// of a type that is not known, so that nobody has to answer.
func Flooding(tb testing.TB) (url string) {
	tb.Helper()
	return start(tb, func(fr *http2.Framer, id uint32) error {
		for {
			if err := fr.WriteRawFrame(0x99, 0, id, nil); err != nil {
				return err
			}
		}
	})
}

// Resetting starts a server that resets what it was sent whole, and counts requests.
func Resetting(tb testing.TB, code http2.ErrCode, requests *atomic.Int32) (url string) {
	tb.Helper()
	return start(tb, func(fr *http2.Framer, id uint32) error {
		requests.Add(1)
		return fr.WriteRSTStream(id, code)
	})
}

// start starts a server whose requests are answered so.
func start(tb testing.TB, answer func(fr *http2.Framer, id uint32) error) (url string) {
	tb.Helper()
	certificate, err := tls.X509KeyPair(kubeconfigtest.KeyPair())
	if err != nil {
		tb.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		tb.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				if tc := c.(*tls.Conn); tc.Handshake() == nil && tc.ConnectionState().NegotiatedProtocol == "h2" {
					serve(c, answer)
				} else {
					serve11(c)
				}
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return "https://" + l.Addr().String()
}

// serve11 answers over HTTP/1.1 until the client closes the connection.
func serve11(c net.Conn) {
	for r := bufio.NewReader(c); ; {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			return
		}
	}
}

// serve serves a connection until the client closes it.
func serve(c net.Conn, answer func(fr *http2.Framer, id uint32) error) {
	fr := http2.NewFramer(c, c)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil || fr.WriteSettings() != nil {
		return
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if !f.IsAck() {
				err = fr.WritePing(true, f.Data)
			}
		case interface{ StreamEnded() bool }: // HEADERS or DATA
			if f.StreamEnded() {
				err = answer(fr, f.(http2.Frame).Header().StreamID)
			}
		}
		if err != nil {
			return
		}
	}
}
