package reading

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"golang.org/x/net/websocket"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// serve streams a watch: as the body of the response, or in the messages of a
// WebSocket where the client asks for one, as a web page does.
func (w *watching) serve(ctx context.Context, initial bool) error {
	if !wsstream.IsWebSocketRequest(w.r) {
		w.w.Header().Set("Content-Type", "application/json")
		if w.format.protobuf {
			w.w.Header().Set("Content-Type", protobufWatchType)
		}
		w.w.WriteHeader(http.StatusOK)
		return w.run(ctx, initial)
	}
	var err error
	websocket.Server{Handshake: choose, Handler: func(conn *websocket.Conn) {
		utilflowcontrol.WatchInitialized(ctx) // whose sign is the header otherwise, which is written by now
		err = w.overWebSocket(ctx, conn, initial)
	}}.ServeHTTP(w.w, w.r)
	return err
}

// choose answers with the first protocol that is offered: all say the same here. As
// kube-apiserver does it lets pages of any origin in: nothing that a browser adds by
// itself authenticates, but for a client certificate.
func choose(config *websocket.Config, _ *http.Request) error {
	config.Protocol = config.Protocol[:min(len(config.Protocol), 1)]
	return nil
}

// overWebSocket runs the watch until it ends or the client closes the connection.
func (w *watching) overWebSocket(ctx context.Context, conn *websocket.Conn, initial bool) error {
	ctx, cancel := context.WithCancel(ctx)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn) // clients have nothing to say; it answers their pings
		cancel()
	}()
	defer func() {
		_ = conn.Close()
		<-closed
	}()
	messages := &messages{conn}
	w.w, w.wire = messages, http.NewResponseController(messages)
	return w.run(ctx, initial)
}

// messages writes each line as a message of text.
type messages struct{ *websocket.Conn }

// Header implements http.ResponseWriter: it has been sent.
func (messages) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter: it has been sent.
func (messages) WriteHeader(int) {}

// FlushError implements what http.ResponseController looks for: nothing is held back.
func (messages) FlushError() error { return nil }

// Write implements http.ResponseWriter. It is given whole lines.
func (m messages) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if err := websocket.Message.Send(m.Conn, string(line)); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}
