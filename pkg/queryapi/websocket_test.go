package queryapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	rbacv1 "k8s.io/api/rbac/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/test/queryserver"
)

// dial opens a WebSocket as a browser does, which can send no headers: the token is
// one of the protocols. It also returns the protocol that was chosen.
func dial(t *testing.T, address, path, token string, roots *x509.CertPool) (*websocket.Conn, []string, error) {
	t.Helper()
	config := &websocket.Config{
		Location: &url.URL{Scheme: "wss", Host: address}, Origin: &url.URL{Scheme: "https", Host: "headlamp.example"},
		Version: websocket.ProtocolVersionHybi13, TlsConfig: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}},
		Protocol: []string{"base64.binary.k8s.io", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))},
	}
	config.Location.Path, config.Location.RawQuery, _ = strings.Cut(path, "?")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := config.DialContext(ctx)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return conn, conn.Config().Protocol, conn.SetDeadline(time.Now().Add(patience))
}

type message struct {
	Type   string
	Object map[string]any
}

func receive(t *testing.T, conn *websocket.Conn) (m message) {
	t.Helper()
	var text string
	if err := websocket.Message.Receive(conn, &text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%q is not one event: %v", text, err)
	}
	return m
}

// answered returns how many requests were answered with a code.
func (s *server) answered(t *testing.T, code string) (n float64) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == "federator_query_requests_total" && l.GetName() == "code" && l.GetValue() == code {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

func TestWebSocket_WatchesOverWebSocketsAreThoseOfAnAPIServer(t *testing.T) {
	account := fresh("wanda")
	allow(t, queryserver.UserOf(account), "", members("watch", "namespaces"))
	allow(t, queryserver.UserOf(account), "", rbacv1.PolicyRule{APIGroups: []string{""}, Verbs: []string{"watch"}, Resources: []string{"namespaces"}})
	token := tokenFor(t, account, "federator")
	s := start(t, nil)
	address, err := url.Parse(hub.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	hubRoots := x509.NewCertPool()
	hubRoots.AppendCertsFromPEM(hub.RESTConfig().CAData)
	real, realProtocol, err := dial(t, address.Host, "/api/v1/namespaces?watch=true", tokenFor(t, account, ""), hubRoots)
	if err != nil {
		t.Fatal(err)
	}
	ours, protocol, err := dial(t, s.Address, "/fleet/api/v1/namespaces?watch=true&allowWatchBookmarks=true&timeoutSeconds=2", token, s.Roots)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(protocol, realProtocol) {
		t.Errorf("protocol %q, an API server chooses %q", protocol, realProtocol)
	}
	want := receive(t, real)
	for range memberNames {
		got := receive(t, ours)
		if got.Type != want.Type || got.Object["kind"] != want.Object["kind"] || got.Object["apiVersion"] != want.Object["apiVersion"] ||
			got.Object["metadata"].(map[string]any)["name"] != "shop" {
			t.Errorf("%v, an API server sends %v with %v", got, want.Type, slices.Collect(maps.Keys(want.Object)))
		}
	}
	// Its time ends it as it ends every watch: with a bookmark.
	if last := receive(t, ours); last.Type != "BOOKMARK" {
		t.Errorf("%v is the last", last)
	}
	var text string
	if err := websocket.Message.Receive(ours, &text); err == nil {
		t.Errorf("%q after the end", text)
	}
	if _, _, err := dial(t, s.Address, "/fleet/api/v1/namespaces?watch=true", "nobody", s.Roots); err == nil {
		t.Error("a stranger may watch")
	}
	if _, _, err := dial(t, s.Address, "/fleet/api/v1/pods?watch=true", token, s.Roots); err == nil {
		t.Error("what is not granted may be watched")
	}
	until(t, "it is counted", func() bool { return s.answered(t, "101") > 0 })
}

func TestWebSocket_CountsAsAWatch(t *testing.T) {
	var index *aggregate.Index
	s := start(t, func(o *queryapi.Options) {
		local(o)
		o.Fairness.MaxWatches = 1
		index = o.Index
	})
	conn, _, err := dial(t, s.Address, "/fleet/api/v1/pods?watch=1", s.Token(), s.Roots)
	if err != nil {
		t.Fatal(err)
	}
	for range memberNames {
		receive(t, conn)
	}
	if _, _, err := dial(t, s.Address, "/fleet/api/v1/pods?watch=1", s.Token(), s.Roots); err == nil {
		t.Error("more watches than are allowed")
	}
	index.RemoveMember(memberNames[0])
	if m := receive(t, conn); m.Type != "DELETED" {
		t.Errorf("%v of a member that left", m)
	}
	// A client that goes makes room for the next.
	conn.Close()
	until(t, "there is room", func() bool {
		next, _, err := dial(t, s.Address, "/fleet/api/v1/pods?watch=1", s.Token(), s.Roots)
		return err == nil && next != nil
	})
	if err := s.End(); err != nil {
		t.Errorf("with a WebSocket open: %v", err)
	}
}

// A client that sends pings and reads nothing holds neither the watch nor the server.
func TestWebSocket_ClientsThatOnlySendAreClosed(t *testing.T) {
	s := start(t, local)
	conn, err := tls.Dial("tcp", s.Address, &tls.Config{RootCAs: s.Roots, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /fleet/api/v1/pods?watch=1&fieldSelector=metadata.name%%3Dnone HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nOrigin: https://x\r\n"+
		"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", s.Address, s.Token())
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "101") {
		t.Fatalf("%q, %v", line, err)
	}
	ping := append([]byte{0x89, 0x80 | 125, 0, 0, 0, 0}, make([]byte, 125)...)
	pings := bytes.Repeat(ping, 500)
	for sent := 0; ; { // until the server cannot answer
		if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Write(pings)
		if sent += n; err != nil {
			break
		}
		if sent > 256<<20 {
			t.Fatal("the server takes all pings")
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- s.End() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the client keeps the server from ending")
	}
}

// TestWebSocket_PagesOfOthersDoNotWatchByCertificate: a browser shows the client certificate of its
// user for every page that opens a WebSocket, and the page may read what comes.
func TestWebSocket_PagesOfOthersDoNotWatchByCertificate(t *testing.T) {
	s := start(t, func(o *queryapi.Options) { o.Authentication.ClientCAFile = caFile(t, hub.RESTConfig().CAData) })
	name := fresh("carla")
	allow(t, name, "", members("watch", "pods"))
	cert := clientCert(t, name, time.Hour)
	open := func(origin string, protocols ...string) error {
		config := &websocket.Config{
			Location: &url.URL{Scheme: "wss", Host: s.Address, Path: "/fleet/api/v1/pods", RawQuery: "watch=true"},
			Origin:   &url.URL{Scheme: "https", Host: origin}, Version: websocket.ProtocolVersionHybi13, Protocol: protocols,
			TlsConfig: &tls.Config{RootCAs: s.Roots, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{cert}},
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, err := config.DialContext(ctx)
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := open(s.Address); err != nil {
		t.Errorf("a page of the server itself: %v", err)
	}
	if err := open("evil.example"); err == nil {
		t.Error("a page of another origin watches as the user who opens it")
	}
	account := fresh("wanda")
	allow(t, queryserver.UserOf(account), "", members("watch", "pods"))
	if _, _, err := dial(t, s.Address, "/fleet/api/v1/pods?watch=true", tokenFor(t, account, "federator"), s.Roots); err != nil {
		t.Errorf("a page of another origin with a token: %v", err)
	}
}
