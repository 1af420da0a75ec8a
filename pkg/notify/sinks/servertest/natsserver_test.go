package servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"federator.dev/federator/pkg/notify/sinks"
)

// childEnv is set for a process that is a server: the directory of child.json.
const childEnv = "FEDERATOR_SERVERTEST_NATS"

type child struct {
	Port int
	Dir  string
}

// serveChild serves until it is killed, and prints its address.
func serveChild(dir string) {
	var c child
	text, err := os.ReadFile(filepath.Join(dir, "child.json"))
	if err = errors.Join(err, json.Unmarshal(text, &c)); err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: c.Port, JetStream: true, StoreDir: c.Dir, NoLog: true, SyncAlways: true})
	if err != nil {
		panic(err)
	}
	s.Start()
	if s.ReadyForConnections(30 * time.Second) {
		fmt.Println(address(s))
	}
	s.WaitForShutdown()
}

// startChild starts a process with a server, and returns its address and what kills it.
func startChild(t *testing.T, c child) (at string, kill func()) {
	t.Helper()
	text, err := json.Marshal(c)
	if err = errors.Join(err, os.WriteFile(filepath.Join(c.Dir, "child.json"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+c.Dir)
	out, err := cmd.StdoutPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // SIGKILL
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal("NATS does not start: ", err)
	}
	return strings.TrimSpace(line), kill
}

// TestNATS_ServerKilledAndBack: on its store, at its address.
func TestNATS_ServerKilledAndBack(t *testing.T) {
	c := child{Port: server.RANDOM_PORT, Dir: t.TempDir()}
	at, kill := startChild(t, c)
	stream(t, "nats://"+at, everything, nats.NoReconnect())
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + at}})
	if sent, err := n.Send(t.Context(), messages(300)); sent != 300 || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	kill()
	if sent, err := n.Send(t.Context(), messages(310)); sent != 0 || err == nil {
		t.Fatalf("sent %d to a server that is dead", sent)
	}
	tcp, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	c.Port = tcp.Port
	startChild(t, c)
	if sent, err := n.Send(t.Context(), messages(310)); sent != 310 || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	ids := stored(t, stream(t, "nats://"+at, everything, nats.NoReconnect()))
	if len(ids) != 310 || !inOrder(ids) {
		t.Errorf("the stream has %d messages, in order: %t", len(ids), inOrder(ids))
	}
}

func TestNATS_Credentials(t *testing.T) {
	s := start(t, server.Options{JetStream: true, Users: []*server.User{
		{Username: "ann", Password: "right"},
		{Username: "bob", Password: "right", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"federator.>"}}}},
	}})
	at := "nats://" + address(s)
	stream(t, at, everything, nats.UserInfo("ann", "right"))
	token := "nats://" + address(start(t, server.Options{JetStream: true, Authorization: "right"}))
	stream(t, token, everything, nats.Token("right"))
	for _, c := range []struct {
		opts sinks.NATSOptions
		want string // "": it is sent
	}{
		{sinks.NATSOptions{URLs: []string{at}, Username: "ann", Password: "right"}, ""},
		{sinks.NATSOptions{URLs: []string{at}, Username: "ann", Password: "hidden"}, "nats: Authorization Violation"},
		{sinks.NATSOptions{URLs: []string{at}}, "nats: Authorization Violation"},
		{sinks.NATSOptions{URLs: []string{at}, Username: "bob", Password: "right", Timeout: time.Hour}, "permissions violation"},
		{sinks.NATSOptions{URLs: []string{token}, Token: "right"}, ""},
		{sinks.NATSOptions{URLs: []string{token}, Token: "hidden"}, "nats: Authorization Violation"},
	} {
		sent, err := sink(t, c.opts).Send(t.Context(), messages(1))
		wantSent(t, sent, err, c.want)
	}
}

func wantSent(t *testing.T, sent int, err error, want string) {
	t.Helper()
	switch {
	case want == "" && (sent != 1 || err != nil):
		t.Errorf("sent %d, %v", sent, err)
	case want != "" && (sent != 0 || err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) || strings.Contains(err.Error(), "hidden")):
		t.Errorf("sent %d, error %v, want %q", sent, err, want)
	}
}

// account is an operator's account with a user, as `nsc` makes them.
func account(t *testing.T) (opts server.Options, creds []byte) {
	t.Helper()
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		p, err := create()
		if err != nil {
			t.Fatal(err)
		}
		public, err := p.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return p, public
	}
	operator, operatorID := pair(nkeys.CreateOperator)
	acc, accID := pair(nkeys.CreateAccount)
	_, systemID := pair(nkeys.CreateAccount)
	user, userID := pair(nkeys.CreateUser)
	encode := func(c interface {
		Encode(nkeys.KeyPair) (string, error)
	}, by nkeys.KeyPair,
	) string {
		text, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	claims := jwt.NewAccountClaims(accID)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	if err := errors.Join(resolver.Store(accID, encode(claims, operator)), resolver.Store(systemID, encode(jwt.NewAccountClaims(systemID), operator))); err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err = jwt.FormatUserConfig(encode(jwt.NewUserClaims(userID), acc), seed)
	if err != nil {
		t.Fatal(err)
	}
	op := jwt.NewOperatorClaims(operatorID)
	encode(op, operator)
	return server.Options{JetStream: true, TrustedOperators: []*jwt.OperatorClaims{op}, AccountResolver: resolver, SystemAccount: systemID}, creds
}

func TestNATS_CredsFile(t *testing.T) {
	opts, creds := account(t)
	_, others := account(t)
	at := "nats://" + address(start(t, opts))
	stream(t, at, everything, nats.UserCredentialBytes(creds))
	sent, err := sink(t, sinks.NATSOptions{URLs: []string{at}, Creds: creds}).Send(t.Context(), messages(1))
	wantSent(t, sent, err, "")
	sent, err = sink(t, sinks.NATSOptions{URLs: []string{at}, Creds: others}).Send(t.Context(), messages(1))
	wantSent(t, sent, err, "Authorization Violation")
}

func TestNATS_TLS(t *testing.T) {
	authority := newCA(t)
	s := start(t, server.Options{JetStream: true, TLS: true, TLSVerify: true, TLSConfig: authority.tls(), TLSTimeout: 10})
	plain := start(t, server.Options{JetStream: true})
	stream(t, "nats://"+address(plain), everything)
	cert, key := authority.issue()
	at := []string{"tls://" + address(s)}
	opts := sinks.NATSOptions{URLs: at, CA: authority.pem(), ClientCert: cert, ClientKey: key}
	sent, err := sink(t, opts).Send(t.Context(), messages(1))
	wantSent(t, sent, err, "no stream takes subject")
	// The server says that it wants TLS, on a loopback address.
	opts.URLs = []string{"nats://" + address(s)}
	sent, err = sink(t, opts).Send(t.Context(), messages(1))
	wantSent(t, sent, err, "no stream takes subject")
	for _, c := range []struct {
		opts sinks.NATSOptions
		want string
	}{
		{sinks.NATSOptions{URLs: at, ClientCert: cert, ClientKey: key}, "certificate signed by unknown authority"},
		{sinks.NATSOptions{URLs: at, CA: newCA(t).pem(), ClientCert: cert, ClientKey: key}, "certificate signed by unknown authority"},
		{sinks.NATSOptions{URLs: at, CA: authority.pem()}, "tls"},
		{sinks.NATSOptions{URLs: []string{"tls://localhost:" + strings.Split(address(s), ":")[1]}, CA: authority.pem(), ClientCert: cert, ClientKey: key}, "wanted to match localhost"},
		{sinks.NATSOptions{URLs: []string{"tls://" + address(plain)}, CA: authority.pem(), Password: "hidden"}, "secure connection not available"},
	} {
		sent, err := sink(t, c.opts).Send(t.Context(), messages(1))
		wantSent(t, sent, err, c.want)
	}
}

// TestNATS_DialsConfiguredServersOnly: others are gossiped, and the one that is configured dies.
func TestNATS_DialsConfiguredServersOnly(t *testing.T) {
	a := start(t, server.Options{ServerName: "a", Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: -1}})
	b := start(t, server.Options{ServerName: "b", Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: -1}, Routes: []*url.URL{{Scheme: "nats", Host: a.ClusterAddr().String()}}})
	gossiped(t, a, b)
	at := address(a)
	var d dials
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + at}, Dial: d.dial})
	if _, err := n.Send(t.Context(), messages(1)); err == nil || !strings.Contains(err.Error(), "no stream") {
		t.Fatalf("error %v", err)
	}
	a.Shutdown()
	a.WaitForShutdown()
	if _, err := n.Send(t.Context(), messages(1)); err == nil {
		t.Error("no error of a server that is gone")
	}
	if got, want := fmt.Sprint(d.addresses), fmt.Sprint([]string{at, at}); got != want {
		t.Errorf("dialed %s, want %s", got, want)
	}
}

// gossiped waits until a client of one server is told of the other.
func gossiped(t *testing.T, a, b *server.Server) {
	t.Helper()
	told := make(chan struct{}, 10)
	conn, err := nats.Connect("nats://"+address(a), nats.DiscoveredServersHandler(func(*nats.Conn) { told <- struct{}{} }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !strings.Contains(fmt.Sprint(conn.Servers()), address(b)) {
		select {
		case <-told:
		case <-ctx.Done():
			t.Fatalf("%s is not gossiped: %v", address(b), conn.Servers())
		}
	}
}
