package enforcement

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"federator.dev/federator/test/kube"
)

// process is the federator command, serving.
type process struct {
	log      string // file, of all restarts
	logStart int64  // where that of this life begins
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the process has ended
	err      error         // how, once it has
}

// configuration is that of the chart, but for the addresses of members and repositories.
const configuration = `sources:
  clusterAPI: {kubeconfig: %s, namespaces: [fleet]}
network: {allow: [127.0.0.0/8]}
query:
  listen: 127.0.0.1:0
  tls: {certFile: %s, keyFile: %s}
policies:
  hub: true
  library: true
  namespace: federator
  secretNamespaces: [federator]
  allowFile: true
  webhook: {listen: 127.0.0.1:0, secretFile: %s}
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0}
log: {format: text, level: info}
`

// hookSecret is the secret of webhooks.
const hookSecret = "the secret of all git hosts"

// startFederator serves in a directory, and waits until it listens. The hub is reached
// through its proxy.
func startFederator(ctx context.Context, dir string, hub *kube.ControlPlane) (*process, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "federator.yaml")
	secret := filepath.Join(dir, "webhook")
	text := fmt.Sprintf(configuration, hub.KubeconfigFile(), filepath.Join(shared.dir, "tls.crt"), filepath.Join(shared.dir, "tls.key"), secret)
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o600), os.WriteFile(secret, []byte(hookSecret+"\n"), 0o600)); err != nil {
		return nil, err
	}
	p := &process{log: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	p.logStart = info.Size()
	p.cmd = exec.Command(filepath.Join(shared.dir, "bin", "federator"), "serve", "--config", config)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	err = kube.Until(ctx, timeout, func() error {
		for _, server := range []string{"serve", "query", "webhook"} {
			if _, err := p.address(server); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, p.stop(), errors.New(p.tail(20)))
	}
	return p, nil
}

var listeningLine = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// address returns the address of one of the process's servers.
func (p *process) address(server string) (string, error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return "", err
	}
	for _, m := range listeningLine.FindAllSubmatch(text[p.logStart:], -1) {
		if string(m[1]) == server {
			return string(m[2]), nil
		}
	}
	return "", fmt.Errorf("server %s does not listen", server)
}

// stop ends the process regularly, if it has not ended, and waits for it.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return p.err
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-late.C:
		p.kill()
		return errors.New("a SIGTERM has not ended it")
	}
}

// kill ends the process like a crash, which is not a failure of the test.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.ended
	p.err = nil
}

// tail returns the end of the log.
func (p *process) tail(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
