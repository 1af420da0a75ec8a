package git

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// SSH serves the repositories below a directory to one key.
type SSH struct {
	Address    string // host:port
	KnownHosts []byte

	root     string
	config   *ssh.ServerConfig
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once closed
}

// NewKey returns a new private key as ssh-keygen writes it, and its public half.
func NewKey() (private string, public ssh.PublicKey, err error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return "", nil, err
	}
	public, err = ssh.NewPublicKey(pub)
	return string(pem.EncodeToMemory(block)), public, err
}

// ServeSSH serves what is below a directory to holders of a key.
func ServeSSH(root string, authorized ssh.PublicKey) (*SSH, error) {
	private, public, err := NewKey()
	if err != nil {
		return nil, err
	}
	host, err := ssh.ParsePrivateKey([]byte(private))
	if err != nil {
		return nil, err
	}
	s := &SSH{root: root, conns: map[net.Conn]bool{}, config: &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if string(key.Marshal()) != string(authorized.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return &ssh.Permissions{}, nil
		},
	}}
	s.config.AddHostKey(host)
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.Address = s.listener.Addr().String()
	_, port, _ := net.SplitHostPort(s.Address)
	s.KnownHosts = fmt.Appendf(nil, "[127.0.0.1]:%s %s", port, ssh.MarshalAuthorizedKey(public))
	s.wg.Go(s.accept)
	return s, nil
}

// Close ends all sessions and waits for them.
func (s *SSH) Close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *SSH) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.serve(conn) })
	}
}

func (s *SSH) serve(conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	if s.conns == nil {
		s.mu.Unlock()
		return
	}
	s.conns[conn] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()
	c, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.Close()
	wg.Go(func() { ssh.DiscardRequests(requests) })
	for offered := range channels {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		wg.Go(func() { s.session(channel, requests) })
	}
}

// session runs what the first exec request asks for.
func (s *SSH) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for req := range requests {
		var exec struct{ Command string }
		if req.Type != "exec" || ssh.Unmarshal(req.Payload, &exec) != nil {
			_ = req.Reply(false, nil)
			continue
		}
		_ = req.Reply(true, nil)
		s.run(channel, exec.Command)
		return
	}
}

// run runs a command, sends its exit status and closes the channel.
func (s *SSH) run(channel ssh.Channel, command string) {
	end := func(code uint32) {
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
		channel.Close()
	}
	quoted, ok := strings.CutPrefix(command, "git-upload-pack ")
	if !ok {
		fmt.Fprintln(channel.Stderr(), "fatal: only git-upload-pack is served")
		end(128)
		return
	}
	path := filepath.Join(s.root, filepath.FromSlash("/"+strings.Trim(quoted, "'")))
	cmd := exec.Command("git", "-c", "safe.directory=*", "upload-pack", path)
	cmd.Env = environ()
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		end(1)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer in.Close()
		_, _ = io.Copy(in, channel)
	}()
	if cmd.Wait() != nil {
		end(128)
	} else {
		end(0)
	}
	<-done // the channel is closed
}
