package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"federator.dev/federator/pkg/notify/sinks"
	"federator.dev/federator/test/kube/tcpproxy"
)

// start starts a server in this process, with JetStream in a directory of the test where it is not off.
func start(t *testing.T, opts server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.NoSigs, opts.NoLog = "127.0.0.1", true, true
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if opts.JetStream && opts.StoreDir == "" {
		opts.StoreDir = t.TempDir()
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("NATS does not start")
	}
	return s
}

func address(s *server.Server) string { return s.Addr().String() }

// stream creates a stream by a connection that the server accepts.
func stream(t *testing.T, url string, subjects []string, opts ...nats.Option) jetstream.Stream {
	t.Helper()
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "federator", Subjects: subjects})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// count returns how many messages a stream has.
func count(t *testing.T, st jetstream.Stream) int {
	t.Helper()
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs)
}

func sink(t *testing.T, opts sinks.NATSOptions) *sinks.NATS {
	t.Helper()
	if opts.Subject == "" {
		opts.Subject = "federator.hub-1"
	}
	n, err := sinks.NewNATS(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

var everything = []string{"federator.>"}

func TestNATS_StreamHasEachMessageOnce(t *testing.T) {
	s := start(t, server.Options{JetStream: true})
	st := stream(t, "nats://"+address(s), everything)
	var d dials
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + address(s)}, Dial: d.dial})
	for range 2 {
		if sent, err := n.Send(t.Context(), messages(3)); sent != 3 || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
	}
	if got := count(t, st); got != 3 {
		t.Errorf("the stream has %d messages, want 3", got)
	}
	m, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "federator.hub-1.violation.opened" || m.Header.Get("Nats-Msg-Id") != "v-0" || !strings.HasPrefix(m.Header.Get("Content-Type"), "application/cloudevents+json") {
		t.Errorf("subject %s, header %v", m.Subject, m.Header)
	}
	var event map[string]any
	if err := json.Unmarshal(m.Data, &event); err != nil || event["specversion"] != "1.0" || event["id"] != "v-0" || event["type"] != "dev.federator.violation.opened" {
		t.Errorf("event %s, %v", m.Data, err)
	}
	if fmt.Sprint(d.addresses) != "["+address(s)+"]" {
		t.Errorf("dialed %v, want one connection", d.addresses)
	}
}

// TestNATS_KeepsTheOrder: of a batch that is larger than what is in flight.
func TestNATS_KeepsTheOrder(t *testing.T) {
	const many = 10_000
	s := start(t, server.Options{JetStream: true})
	st := stream(t, "nats://"+address(s), everything)
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + address(s)}})
	all, began := messages(many), time.Now()
	if sent, err := n.Send(t.Context(), all); sent != many || err != nil {
		t.Fatalf("sent %d, %v", sent, err)
	}
	took := time.Since(began)
	t.Logf("%d messages acknowledged in %v: %.0f a second", many, took.Round(time.Millisecond), many/took.Seconds())
	if ids := stored(t, st); len(ids) != many || ids[0] != "v-0" || !inOrder(ids) {
		t.Errorf("the stream has %d messages, in order: %t", len(ids), inOrder(ids))
	}
}

// stored returns the IDs of a stream's messages.
func stored(t *testing.T, st jetstream.Stream) []string {
	t.Helper()
	n := count(t, st)
	c, err := st.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for len(ids) < n {
		batch, err := c.Fetch(min(n-len(ids), 1000), jetstream.FetchMaxWait(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			ids = append(ids, m.Headers().Get("Nats-Msg-Id"))
		}
		if batch.Error() != nil {
			t.Fatal(batch.Error())
		}
	}
	return ids
}

func inOrder(ids []string) bool {
	for i, id := range ids {
		if id != message(i).ID {
			return false
		}
	}
	return true
}

// TestNATS_LostConnection: what Send says was taken is in the stream, and nothing is twice after the rest is sent.
func TestNATS_LostConnection(t *testing.T) {
	const many = 3000
	s := start(t, server.Options{JetStream: true})
	st := stream(t, "nats://"+address(s), everything)
	link, err := tcpproxy.Listen(t.Context(), "127.0.0.1:0", address(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + link.Addr()}})
	all, next, cuts := messages(many), 0, 0
	send := func(batch []sinks.Message) error {
		sent, err := n.Send(t.Context(), batch)
		next += sent
		if got := count(t, st); got < next {
			t.Fatalf("%d are said to be taken, the stream has %d", next, got)
		}
		return err
	}
	for next < many {
		if err := send(all[next : next+1]); err != nil {
			t.Fatal(err)
		}
		link.ResetWithin(40_000) // of acknowledgements
		if send(all[next:]) != nil {
			cuts++
		}
	}
	if got := count(t, st); got != many || cuts < 3 {
		t.Errorf("the stream has %d messages after %d losses of the connection, want %d", got, cuts, many)
	}
}

func TestNATS_StreamMissing(t *testing.T) {
	s := start(t, server.Options{JetStream: true})
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + address(s)}})
	sent, err := n.Send(t.Context(), messages(3))
	want := `message "v-0": no stream takes subject federator.hub-1.violation.opened: `
	if sent != 0 || !errors.Is(err, jetstream.ErrNoStreamResponse) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("sent %d, %v", sent, err)
	}
	st := stream(t, "nats://"+address(s), []string{"federator.*.violation.*"})
	all := messages(4)
	all[2].Type = "dev.federator.halt.began"
	if sent, err = n.Send(t.Context(), all); sent != 2 || err == nil || !strings.Contains(err.Error(), "subject federator.hub-1.halt.began") {
		t.Errorf("sent %d, %v", sent, err)
	}
	all[2].Type = message(2).Type
	if sent, err = n.Send(t.Context(), all); sent != 4 || err != nil || count(t, st) != 4 {
		t.Errorf("sent %d, %v; the stream has %d", sent, err, count(t, st))
	}
}

// TestNATS_RefusedMessages: those before them are taken, and the connection serves on.
func TestNATS_RefusedMessages(t *testing.T) {
	s := start(t, server.Options{JetStream: true, MaxPayload: 4096})
	st := stream(t, "nats://"+address(s), everything)
	n := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + address(s)}})
	for i, c := range []struct {
		change func(*sinks.Message)
		want   string
	}{
		{func(m *sinks.Message) { m.Data = []byte(`{"a":"` + strings.Repeat("a", 5000) + `"}`) }, nats.ErrMaxPayload.Error()},
		{func(m *sinks.Message) { m.Type = "org.example.a" }, "type: "},
		{func(m *sinks.Message) { m.Type = "dev.federator." }, "type: "},
		{func(m *sinks.Message) { m.Type = "dev.federator.a.*" }, "type: "},
		{func(m *sinks.Message) { m.ID = "a\r\nb: c" }, "id: "},
	} {
		all := []sinks.Message{message(2 * i), message(1), message(2*i + 1)}
		all[1].ID = "bad"
		c.change(&all[1])
		if sent, err := n.Send(t.Context(), all); sent != 1 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("sent %d, %v, want %q", sent, err, c.want)
		}
		if got := count(t, st); got != i+1 {
			t.Errorf("the stream has %d messages, want %d", got, i+1)
		}
	}
}

// TestNATS_WaitIsBounded: somebody receives, and nobody acknowledges.
func TestNATS_WaitIsBounded(t *testing.T) {
	s := start(t, server.Options{})
	conn, err := nats.Connect("nats://" + address(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithCancel(t.Context())
	first := true
	if _, err := conn.Subscribe("federator.>", func(*nats.Msg) {
		if !first {
			cancel()
		}
		first = false
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	hasty := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + address(s)}, Timeout: 500 * time.Millisecond})
	if sent, err := hasty.Send(ctx, messages(1)); sent != 0 || err == nil || !strings.Contains(err.Error(), "no acknowledgement in time") {
		t.Errorf("sent %d, %v", sent, err)
	}
	patient := sink(t, sinks.NATSOptions{URLs: []string{"nats://" + address(s)}, Timeout: time.Hour})
	if sent, err := patient.Send(ctx, messages(300)); sent != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("sent %d, %v", sent, err)
	}
}
