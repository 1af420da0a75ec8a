package servertest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"federator.dev/federator/pkg/notify/sinks"
)

// TestNATS_MessageThatIsTooLarge: it is said to be what is wrong, not the server: who sends gives it up, and goes on.
func TestNATS_MessageThatIsTooLarge(t *testing.T) {
	s := start(t, server.Options{JetStream: true, MaxPayload: 64 << 10})
	url := "nats://" + address(s)
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "federator", Subjects: []string{"federator.>"}, MaxMsgSize: 8 << 10}); err != nil {
		t.Fatal(err)
	}
	n := sink(t, sinks.NATSOptions{URLs: []string{url}, Subject: "federator"})
	for name, size := range map[string]int{"for the server": 128 << 10, "for the stream": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			large, err := json.Marshal(map[string]string{"text": strings.Repeat("a", size)})
			if err != nil {
				t.Fatal(err)
			}
			message := func(id string, data []byte) sinks.Message {
				return sinks.Message{ID: strings.ReplaceAll(name, " ", "-") + id, Type: "dev.federator.violation.opened", Source: "/federator/test", Time: time.Now(), Data: data}
			}
			sent, err := n.Send(t.Context(), []sinks.Message{message("-1", nil), message("-2", large), message("-3", nil)})
			var field *sinks.FieldError
			if sent != 1 || !errors.As(err, &field) || field.Field != "data" {
				t.Errorf("%d were sent: %v", sent, err)
			}
		})
	}
}
