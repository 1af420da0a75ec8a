package tunnel_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"federator.dev/federator/pkg/agent/internal/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen answers each connection, and returns the address.
func listen(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// echo answers what it is sent until that ends.
func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// connectProxy is a proxy of HTTP, for one user where it is named.
func connectProxy(t *testing.T, user string) string {
	return listen(t, func(c net.Conn) {
		from := bufio.NewReader(c)
		req, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		if user != "" && req.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(user)) {
			fmt.Fprint(c, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
			return
		}
		to, err := net.Dial("tcp", req.Host)
		if err != nil {
			fmt.Fprint(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
			return
		}
		defer to.Close()
		fmt.Fprint(c, "HTTP/1.1 200 Connection established\r\n\r\n")
		done := make(chan struct{})
		go func() { defer close(done); _, _ = io.Copy(c, to) }()
		_, _ = io.Copy(to, from)
		to.(*net.TCPConn).CloseWrite()
		<-done
	})
}

func dial(ctx context.Context, proxy, address string) (net.Conn, error) {
	u, err := url.Parse(proxy)
	if err != nil {
		return nil, err
	}
	return tunnel.Through(func(string) (*url.URL, error) { return u, nil }, (&net.Dialer{}).DialContext)(ctx, "tcp", address)
}

func says(t *testing.T, c net.Conn) {
	t.Helper()
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
}

func TestThrough_PassesOn(t *testing.T) {
	address := listen(t, echo)
	for _, proxy := range []string{"http://" + connectProxy(t, ""), "http://a:b@" + connectProxy(t, "a:b")} {
		c, err := dial(t.Context(), proxy, address)
		if err != nil {
			t.Fatalf("%s: %v", proxy, err)
		}
		says(t, c)
	}
}

func TestThrough_NoProxyIsDirect(t *testing.T) {
	address := listen(t, echo)
	c, err := tunnel.Through(func(string) (*url.URL, error) { return nil, nil }, (&net.Dialer{}).DialContext)(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	says(t, c)
}

// TestThrough_Refusals say what the proxy says, and neither user nor password.
func TestThrough_Refusals(t *testing.T) {
	answer := func(text string) string {
		return listen(t, func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, text)
			}
		})
	}
	greets := listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail\r\n") })
	for name, tc := range map[string]struct {
		proxy   string
		want    string
		refused bool
	}{
		"another user":      {"http://a:secret@" + connectProxy(t, "a:b"), "407", true},
		"no such address":   {"http://" + connectProxy(t, ""), "502", true},
		"not HTTP":          {"http://a:secret@" + answer("220 mail\r\n"), "its answer", false},
		"an endless answer": {"http://" + answer("HTTP/1.1 200 OK\r\nA: "+strings.Repeat("a", 1<<17)), "its answer", false},
		"no answer":         {"http://" + answer(""), "its answer", false},
		"more than that":    {"http://" + answer("HTTP/1.1 200 OK\r\n\r\nmore"), "more than its answer", false},
		"no proxy there":    {"http://a:secret@127.0.0.1:1", "refused", false},
		"a user alone":      {"http://secret@" + connectProxy(t, "a:b"), "407", true},
		"a user nowhere":    {"socks5://secret@127.0.0.1:1", "refused", false},
		"a user's scheme":   {"ftp://secret@127.0.0.1:1", "http, https or socks5", false},
		"another scheme":    {"ftp://a:secret@127.0.0.1:1", "http, https or socks5", false},
		"no host":           {"http://", "no host", false},
		"not SOCKS":         {"socks5://a:secret@" + greets, "socks", false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := dial(ctx, tc.proxy, "127.0.0.1:1")
		cancel()
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") || errors.Is(err, tunnel.ErrRefused) != tc.refused {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestThrough_ASilentProxyIsGivenUp when the context ends.
func TestThrough_ASilentProxyIsGivenUp(t *testing.T) {
	got := make(chan struct{})
	proxy := listen(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			close(got)
		}
		_, _ = io.Copy(io.Discard, c)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("no longer wanted")
	go func() { <-got; cancel(gone) }()
	if _, err := dial(ctx, "http://"+proxy, "127.0.0.1:1"); !errors.Is(err, gone) {
		t.Errorf("%v, want %v", err, gone)
	}
}
