package checkout

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"golang.org/x/crypto/ssh"
)

// sshTransport runs git-upload-pack on a remote over one SSH connection.
type sshTransport struct {
	client    *ssh.Client
	session   *ssh.Session
	stop      func() bool // stops closing the connection with the context
	in        io.WriteCloser
	out       io.Reader
	stderr    headBuffer
	requested bool
}

func openSSH(ctx context.Context, r Remote, auth Auth, dial func(context.Context, string, string) (net.Conn, error)) (*sshTransport, error) {
	signer, err := auth.signer()
	if err != nil {
		return nil, err
	}
	known, err := parseKnownHosts(auth.KnownHosts)
	if err != nil {
		return nil, err
	}
	address := r.address()
	algorithms := known.algorithms(address)
	if len(algorithms) == 0 {
		return nil, fail(ErrHostKey, "known hosts contain no key of %s", address)
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	t := &sshTransport{stop: context.AfterFunc(ctx, func() { conn.Close() })}
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: r.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: known.check, HostKeyAlgorithms: algorithms,
	})
	if err != nil {
		t.stop()
		conn.Close()
		return nil, handshakeError(err)
	}
	t.client = ssh.NewClient(c, channels, requests)
	if err := t.start(r.Path); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// handshakeError returns the error for a handshake that failed.
func handshakeError(err error) error {
	var known *Error
	var nothing *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &nothing) && strings.Contains(err.Error(), "for host key"):
		return fail(ErrHostKey, "the remote has no host key of a known type")
	case strings.Contains(err.Error(), "unable to authenticate"): // the library has no error type for it
		return fail(ErrDenied, "the remote does not accept the key")
	}
	return err
}

func (t *sshTransport) start(path string) error {
	var err error
	if t.session, err = t.client.NewSession(); err != nil {
		return err
	}
	if t.in, err = t.session.StdinPipe(); err != nil {
		return err
	}
	if t.out, err = t.session.StdoutPipe(); err != nil {
		return err
	}
	t.session.Stderr = &t.stderr
	return t.session.Start("git-upload-pack " + quote(path))
}

// quote quotes as git's sq_quote_buf does: servers without a shell only unquote that.
func quote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}

func (t *sshTransport) advertisement(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(t.out), nil
}

func (t *sshTransport) exchange(_ context.Context, request []byte) (io.ReadCloser, error) {
	t.requested = true
	if _, err := t.in.Write(request); err != nil {
		return nil, err
	}
	return io.NopCloser(t.out), nil
}

// stderrError returns the remote's standard error as an error.
func (t *sshTransport) stderrError() error {
	// The output has ended, so that this only waits for the exit status.
	err := t.session.Wait()
	text := t.stderr.String()
	switch {
	case text != "":
		return fail(ErrNotFound, "the remote reports: %s", text)
	case err != nil:
		return fail(ErrProtocol, "the response is empty: %v", err)
	}
	return fail(ErrProtocol, "the response is empty")
}

func (t *sshTransport) close() {
	if t.in != nil && !t.requested {
		_, _ = t.in.Write(pktline.FlushPkt) // so that the remote does not log an error
	}
	t.stop()
	if t.session != nil {
		t.session.Close()
	}
	t.client.Close()
	_ = t.client.Wait() // reports that the connection is closed
}

// headBuffer keeps the start of what is written. It is safe for concurrent use.
type headBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (h *headBuffer) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if room := maxDetail - len(h.text); room > 0 {
		h.text = append(h.text, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (h *headBuffer) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
