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

	"federator.dev/federator/pkg/queryapi/internal/part"
)

// serve streams a watch: as the response body, or as messages of a WebSocket where the
// client asks for one, as web pages do.
func (w *watchStream) serve(ctx context.Context, initial bool) error {
	if !wsstream.IsWebSocketRequest(w.r) {
		w.w.Header().Set("Content-Type", "application/json")
		switch {
		case w.ask != nil:
			w.w.Header().Set("Content-Type", part.ContentType)
		case w.format.protobuf:
			w.w.Header().Set("Content-Type", protobufWatchType)
		}
		w.w.WriteHeader(http.StatusOK)
		return w.stream(ctx, initial)
	}
	return OverWebSocket(ctx, w.w, w.r, w.options.WriteTimeout, func(ctx context.Context, messages http.ResponseWriter) error {
		w.w, w.controller = messages, http.NewResponseController(messages)
		return w.stream(ctx, initial)
	})
}

// OverWebSocket answers a request for a WebSocket, and has a watch served over it until it ends or the client closes
// the connection: each line that is written is a message.
func OverWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, writeTimeout time.Duration, serve func(context.Context, http.ResponseWriter) error) error {
	var err error
	socket := &socketWriter{ResponseWriter: w, writeTimeout: writeTimeout}
	websocket.Server{Handshake: chooseProtocol, Handler: func(conn *websocket.Conn) {
		utilflowcontrol.WatchInitialized(ctx) // whose sign is the header otherwise, which is written by now
		err = overWebSocket(ctx, socket, conn, serve)
	}}.ServeHTTP(socket, r)
	return err
}

// certificateCredential is the prefix of the credential ID of a client certificate.
const certificateCredential = "X509SHA256="

// CheckOrigin refuses WebSockets of pages of another origin with a client certificate: a
// browser presents it for every page, and lets the page read the WebSocket. A token is the
// page's own.
func CheckOrigin(r *http.Request, by user.Info) error {
	origin := r.Header.Get("Origin")
	if origin == "" || !wsstream.IsWebSocketRequest(r) {
		return nil
	}
	byCertificate := slices.ContainsFunc(by.GetExtra()[user.CredentialIDKey], func(id string) bool {
		return strings.HasPrefix(id, certificateCredential)
	})
	if u, err := url.Parse(origin); !byCertificate || err == nil && u.Host == r.Host {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("WebSockets from origin %.253q cannot use a client certificate: use a bearer token", origin),
	}}
}

// chooseProtocol accepts the first protocol that is offered: all are the same here. As
// kube-apiserver does it lets pages of any origin in that have a token.
func chooseProtocol(config *websocket.Config, _ *http.Request) error {
	config.Protocol = config.Protocol[:min(len(config.Protocol), 1)]
	return nil
}

func overWebSocket(ctx context.Context, socket *socketWriter, conn *websocket.Conn, serve func(context.Context, http.ResponseWriter) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, socket.endWrites)()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn) // clients send no messages; this responds to their pings
		cancel()
	}()
	defer func() {
		socket.endWrites()
		_ = conn.Close()
		<-closed
	}()
	return serve(ctx, &messageWriter{conn})
}

// socketWriter hijacks a connection whose every write has a deadline, including replies to
// pings: a client that sends pings and reads nothing would block it forever.
type socketWriter struct {
	http.ResponseWriter
	writeTimeout time.Duration // that one write may take
	conn         net.Conn      // once it is hijacked

	mu       sync.Mutex
	deadline time.Time // when all writing ends; zero while the watch continues
}

// closeTimeout bounds the writes of a watch that has ended.
const closeTimeout = 5 * time.Second

// Hijack implements http.Hijacker.
func (s *socketWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	s.conn = conn
	written := &deadlineConn{conn, s}
	return written, bufio.NewReadWriter(buffered.Reader, bufio.NewWriter(written)), nil
}

// endWrites sets the deadline of all further writes, including the present one.
func (s *socketWriter) endWrites() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(closeTimeout)
		_ = s.conn.SetWriteDeadline(s.deadline)
	}
}

// setDeadline sets the deadline of the next write.
func (s *socketWriter) setDeadline() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deadline.IsZero() {
		return nil // it is set, for good
	}
	return s.conn.SetWriteDeadline(time.Now().Add(s.writeTimeout))
}

// deadlineConn is the connection of a socket.
type deadlineConn struct {
	net.Conn
	socket *socketWriter
}

// Write implements net.Conn.
func (b *deadlineConn) Write(p []byte) (int, error) {
	if err := b.socket.setDeadline(); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}

// messageWriter writes each line as a message of text.
type messageWriter struct{ conn *websocket.Conn }

// Header implements http.ResponseWriter: it has been sent.
func (messageWriter) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter: it has been sent.
func (messageWriter) WriteHeader(int) {}

// FlushError implements what http.ResponseController looks for: nothing is held back.
func (messageWriter) FlushError() error { return nil }

// SetWriteDeadline implements what http.ResponseController looks for: each write has one.
func (messageWriter) SetWriteDeadline(time.Time) error { return nil }

// Write implements http.ResponseWriter. It is given whole lines.
func (m messageWriter) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if err := websocket.Message.Send(m.conn, string(line)); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}
