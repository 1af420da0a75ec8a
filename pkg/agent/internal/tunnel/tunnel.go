// Package tunnel dials through proxies: those of HTTP by CONNECT (RFC 9110, section 9.3.6), and SOCKS5.
package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/proxy"
)

// Dial opens a connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// maxAnswer bounds what a proxy may answer before the tunnel is there.
const maxAnswer = 16 << 10

// ErrRefused is within the error of a proxy that does not let the connection through.
var ErrRefused = errors.New("the proxy refuses")

// shown is the URL of a proxy in errors: without its user, which may be a token that needs no password.
func shown(u *url.URL) string { return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() }

// Check reports what is wrong with the URL of a proxy. Neither its user nor its password is in an error.
func Check(u *url.URL) error {
	switch u.Scheme {
	case "http", "https", "socks5":
	default:
		return fmt.Errorf("proxy %s: http, https or socks5 is needed", shown(u))
	}
	if u.Hostname() == "" {
		return fmt.Errorf("proxy %s has no host", shown(u))
	}
	return nil
}

// Through returns a Dial that goes through the proxy that of names for an address, or there directly where it names none.
// direct dials the proxies, too.
func Through(of func(address string) (*url.URL, error), direct Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		u, err := of(address)
		if err != nil || u == nil {
			if err != nil {
				return nil, fmt.Errorf("proxy for %s: %w", address, err)
			}
			return direct(ctx, network, address)
		}
		if err := Check(u); err != nil {
			return nil, err
		}
		if u.Scheme == "socks5" {
			return socks(ctx, u, direct, network, address)
		}
		conn, err := connect(ctx, u, direct, address)
		if err != nil {
			return nil, fmt.Errorf("proxy %s: %w", shown(u), err)
		}
		return conn, nil
	}
}

// forward is a Dial for package proxy.
type forward Dial

func (f forward) Dial(network, address string) (net.Conn, error) {
	return nil, errors.New("without a context")
}

func (f forward) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

func socks(ctx context.Context, u *url.URL, direct Dial, network, address string) (net.Conn, error) {
	var auth *proxy.Auth
	if u.User != nil {
		password, _ := u.User.Password()
		auth = &proxy.Auth{User: u.User.Username(), Password: password}
	}
	d, err := proxy.SOCKS5("tcp", hostPort(u), auth, forward(direct))
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", shown(u), err)
	}
	conn, err := d.(proxy.ContextDialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", shown(u), err)
	}
	return conn, nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func connect(ctx context.Context, u *url.URL, direct Dial, address string) (_ net.Conn, err error) {
	conn, err := direct(ctx, "tcp", hostPort(u))
	if err != nil {
		return nil, err
	}
	// A proxy that is silent is given up when the context ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx) // the deadline is set, or about to be
		}
		if err != nil {
			_ = conn.Close() // the error says why
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
		}
	}()
	through := conn
	if u.Scheme == "https" {
		through = tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
	}
	return through, ask(through, u, address)
}

// ask has a proxy connect to an address.
func ask(conn net.Conn, u *url.URL, address string) error {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if u.User != nil {
		password, _ := u.User.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	// Federator says nothing before the agent does: what comes after the answer would not be its.
	read := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	resp, err := http.ReadResponse(read, req)
	if err != nil {
		return fmt.Errorf("its answer: %w", err)
	}
	_ = resp.Body.Close() // of an answer to CONNECT it is the tunnel, or is not read
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w %s: %.200q", ErrRefused, address, strings.TrimSpace(resp.Status))
	case read.Buffered() > 0:
		return errors.New("it says more than its answer")
	}
	return nil
}
