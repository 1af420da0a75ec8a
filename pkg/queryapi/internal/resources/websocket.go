package resources

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
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
	socket := &socket{ResponseWriter: w.w, stall: w.o.Stall}
	websocket.Server{Handshake: choose, Handler: func(conn *websocket.Conn) {
		utilflowcontrol.WatchInitialized(ctx) // whose sign is the header otherwise, which is written by now
		err = w.overWebSocket(ctx, socket, conn, initial)
	}}.ServeHTTP(socket, w.r)
	return err
}

// certificateID is what the credential of a user begins with who has shown a certificate.
const certificateID = "X509SHA256="

// ofAnotherPage refuses a WebSocket to a page of another origin where a client
// certificate says who asks: a browser shows it for every page, and lets the page read
// what a WebSocket brings. A token is the page's own.
func (q *request) ofAnotherPage() error {
	origin := q.r.Header.Get("Origin")
	if origin == "" || !wsstream.IsWebSocketRequest(q.r) {
		return nil
	}
	byCertificate := slices.ContainsFunc(q.caller.User().GetExtra()[user.CredentialIDKey], func(id string) bool {
		return strings.HasPrefix(id, certificateID)
	})
	if u, err := url.Parse(origin); !byCertificate || err == nil && u.Host == q.r.Host {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("a page of %.253q may not watch with the client certificate of its reader: it takes a token", origin),
	}}
}

// choose answers with the first protocol that is offered: all say the same here. As
// kube-apiserver does it lets pages of any origin in that have a token.
func choose(config *websocket.Config, _ *http.Request) error {
	config.Protocol = config.Protocol[:min(len(config.Protocol), 1)]
	return nil
}

// overWebSocket runs the watch until it ends or the client closes the connection.
func (w *watching) overWebSocket(ctx context.Context, socket *socket, conn *websocket.Conn, initial bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, socket.end)()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn) // clients have nothing to say; it answers their pings
		cancel()
	}()
	defer func() {
		socket.end()
		_ = conn.Close()
		<-closed
	}()
	messages := &messages{conn}
	w.w, w.wire = messages, http.NewResponseController(messages)
	return w.run(ctx, initial)
}

// socket hands out a connection whose every write is bounded in time, answers to pings
// included: a client that sends these and reads nothing would hold it for ever.
type socket struct {
	http.ResponseWriter
	stall time.Duration // that one write may take
	conn  net.Conn      // once it is hijacked

	mu   sync.Mutex
	last time.Time // when all writing ends; zero while the watch goes on
}

// ending is how long a client may take for the rest of a watch that has ended.
const ending = 5 * time.Second

// Hijack implements http.Hijacker.
func (s *socket) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s.conn = conn
	written := &bounded{conn, s}
	return written, bufio.NewReadWriter(buffered.Reader, bufio.NewWriter(written)), nil
}

// end bounds all that is still to be written, what is being written included.
func (s *socket) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() {
		s.last = time.Now().Add(ending)
		_ = s.conn.SetWriteDeadline(s.last)
	}
}

// allow sets the deadline of the next write.
func (s *socket) allow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() {
		return nil // it is set, for good
	}
	return s.conn.SetWriteDeadline(time.Now().Add(s.stall))
}

// bounded is the connection of a socket.
type bounded struct {
	net.Conn
	socket *socket
}

// Write implements net.Conn.
func (b *bounded) Write(p []byte) (int, error) {
	if err := b.socket.allow(); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}

// messages writes each line as a message of text.
type messages struct{ conn *websocket.Conn }

// Header implements http.ResponseWriter: it has been sent.
func (messages) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter: it has been sent.
func (messages) WriteHeader(int) {}

// FlushError implements what http.ResponseController looks for: nothing is held back.
func (messages) FlushError() error { return nil }

// SetWriteDeadline implements what http.ResponseController looks for: each write has one.
func (messages) SetWriteDeadline(time.Time) error { return nil }

// Write implements http.ResponseWriter. It is given whole lines.
func (m messages) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if err := websocket.Message.Send(m.conn, string(line)); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}
