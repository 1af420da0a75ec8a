package sinks_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"federator.dev/federator/pkg/notify/sinks"
)

// What needs a server of NATS is tested by the module servertest.

// TestNATS_DialsAllServersByDial: the library resolves no name, and dials nothing by itself.
func TestNATS_DialsAllServersByDial(t *testing.T) {
	refused := errors.New("the address is not allowed")
	dialed := map[string]int{}
	n, err := sinks.NewNATS(sinks.NATSOptions{
		URLs: []string{"tls://a.example.com", "tls://b.example.com:4333"}, Subject: "federator", Token: "hidden",
		Dial: func(_ context.Context, _, address string) (net.Conn, error) { dialed[address]++; return nil, refused },
	})
	closing(t, n, err)
	if sent, err := n.Send(t.Context(), messages(1)); sent != 0 || !errors.Is(err, refused) || strings.Contains(err.Error(), "hidden") {
		t.Errorf("sent %d, %v", sent, err)
	}
	if len(dialed) != 2 || dialed["a.example.com:4222"] != 1 || dialed["b.example.com:4333"] != 1 {
		t.Errorf("dialed %v", dialed)
	}
}

// TestNATS_ConnectEndsWithTheContext: a server that says nothing, or that is dialed for long, keeps nobody.
func TestNATS_ConnectEndsWithTheContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	for _, connects := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		n, err := sinks.NewNATS(sinks.NATSOptions{
			URLs: []string{"nats://" + silent.Addr().String()}, Subject: "federator", Timeout: time.Minute,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if cancel(); !connects {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return (&net.Dialer{}).DialContext(context.WithoutCancel(ctx), network, address)
			},
		})
		closing(t, n, err)
		start := time.Now()
		if sent, err := n.Send(ctx, messages(1)); sent != 0 || !errors.Is(err, context.Canceled) || time.Since(start) > 30*time.Second {
			t.Errorf("connects %t: sent %d, %v", connects, sent, err)
		}
	}
}

// TestNATS_BoundsWhatServersSay: an error is one line, and not as long as the server likes.
func TestNATS_BoundsWhatServersSay(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "INFO {\"server_id\":\"a\",\"headers\":true,\"max_payload\":1024}\r\n-ERR 'a\x1b[31m"+strings.Repeat("x", 10_000)+"'\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the client goes
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	n, err := sinks.NewNATS(sinks.NATSOptions{URLs: []string{"nats://" + ln.Addr().String()}, Subject: "federator"})
	closing(t, n, err)
	sent, err := n.Send(t.Context(), messages(1))
	if sent != 0 || err == nil || len(err.Error()) > 1024 || strings.Contains(err.Error(), "\x1b") || !strings.Contains(strings.ToLower(err.Error()), "xxxx") {
		t.Errorf("sent %d, %v", sent, err)
	}
}

func TestNATS_SendsNothingAfterClose(t *testing.T) {
	n, err := sinks.NewNATS(sinks.NATSOptions{URLs: []string{"tls://h"}, Subject: "federator"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Close(), n.Close()); err != nil {
		t.Error(err)
	}
	if sent, err := n.Send(t.Context(), messages(1)); sent != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("sent %d, %v", sent, err)
	}
}

func TestNewNATS_RefusesOptions(t *testing.T) {
	urls := []string{"tls://h"}
	for _, c := range []struct {
		opts  sinks.NATSOptions
		field string
	}{
		{sinks.NATSOptions{Subject: "f"}, "urls"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"tls://h", "nats://h"}}, "urls[1]"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"h:4222"}}, "urls[0]"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"wss://h"}}, "urls[0]"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"tls://hidden@h"}}, "urls[0]"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"tls://h,nats://i"}}, "urls[0]"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"tls://h?token=hidden"}}, "urls[0]"},
		{sinks.NATSOptions{Subject: "f", URLs: []string{"tls://:4222"}}, "urls[0]"},
		{sinks.NATSOptions{URLs: urls}, "subject"},
		{sinks.NATSOptions{URLs: urls, Subject: "a..b"}, "subject"},
		{sinks.NATSOptions{URLs: urls, Subject: "a.>"}, "subject"},
		{sinks.NATSOptions{URLs: urls, Subject: "a.*"}, "subject"},
		{sinks.NATSOptions{URLs: urls, Subject: "$JS"}, "subject"},
		{sinks.NATSOptions{URLs: urls, Subject: "a b"}, "subject"},
		{sinks.NATSOptions{URLs: urls, Subject: "f", Creds: []byte("hidden")}, "creds"},
		{sinks.NATSOptions{URLs: urls, Subject: "f", Token: "hidden", Username: "ann"}, "token"},
		{sinks.NATSOptions{URLs: urls, Subject: "f", Timeout: -1}, "timeout"},
		{sinks.NATSOptions{URLs: urls, Subject: "f", CA: []byte("hidden")}, "ca"},
		{sinks.NATSOptions{URLs: urls, Subject: "f", ClientKey: []byte("hidden")}, "clientCert"},
	} {
		_, err := sinks.NewNATS(c.opts)
		wantField(t, err, c.field)
	}
}
