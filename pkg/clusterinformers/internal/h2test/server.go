// Package h2test is a server that violates HTTP/2, for tests.
package h2test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"federator.dev/federator/pkg/clusterinformers/internal/kubeconfigtest"
)

// Overlong starts a server whose responses are longer than they announce, which violates
// HTTP/2. net/http gives what was announced, "{}", and an error.
func Overlong(tb testing.TB) (url string) {
	tb.Helper()
	certificate, err := tls.X509KeyPair(kubeconfigtest.KeyPair())
	if err != nil {
		tb.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
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
			serving.Go(func() { serve(c) })
		}
	})
	tb.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return "https://" + l.Addr().String()
}

// serve serves a connection until the client closes it.
func serve(c net.Conn) {
	defer c.Close()
	fr := http2.NewFramer(c, c)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil || fr.WriteSettings() != nil {
		return
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
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
		case *http2.MetaHeadersFrame:
			block.Reset()
			for _, h := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/json"}, {Name: "content-length", Value: "2"}} {
				_ = enc.WriteField(h) //nolint:errcheck // a buffer takes it
			}
			if err = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true}); err == nil {
				err = fr.WriteData(f.StreamID, true, []byte("{} and more"))
			}
		}
		if err != nil {
			return
		}
	}
}
