package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"federator.dev/federator/test/kube"
)

// process is a federator that serves, or an agent.
type process struct {
	cmd       *exec.Cmd
	log       *lines
	addresses map[string]string // of its servers
	ended     chan struct{}     // closed when the process has
	err       error             // how, once it has
}

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// serving starts a command that serves, and waits until all its servers listen.
func serving(ctx context.Context, cmd *exec.Cmd) (*process, error) {
	return started(ctx, cmd, func(p *process) error {
		for _, m := range listening.FindAllStringSubmatch(p.log.String(), -1) {
			p.addresses[m[1]] = m[2]
		}
		for _, server := range []string{"serve", "admin", "query"} {
			if p.addresses[server] == "" {
				return fmt.Errorf("server %s does not listen", server)
			}
		}
		return nil
	})
}

// connected is of an agent that has found federator.
func connected(p *process) error {
	if !strings.Contains(p.log.String(), "connected to federator") {
		return errors.New("the agent is not connected")
	}
	return nil
}

// started starts a command that goes on, and waits until it is ready.
func started(ctx context.Context, cmd *exec.Cmd, ready func(*process) error) (*process, error) {
	p := &process{cmd: cmd, log: &lines{}, addresses: map[string]string{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	err := kube.Until(ctx, patience, func() error {
		select {
		case <-p.ended:
			return nil // said below
		default:
		}
		return ready(p)
	})
	select {
	case <-p.ended:
		err = fmt.Errorf("it has ended: %w", errors.Join(p.err, err))
	default:
	}
	if err != nil {
		return nil, errors.Join(err, p.stop(), errors.New(p.output()))
	}
	return p, nil
}

// start starts a command of a document that serves.
func (r *session) start(ctx context.Context, text string) (*process, error) {
	script := fmt.Sprintf(". %[1]s/env; cd \"$(cat %[1]s/cwd)\"; exec %[2]s", r.state, strings.TrimSpace(text))
	cmd := exec.Command("bash", "-c", script)
	cmd.Env = []string{}
	if strings.HasPrefix(text, "federator agent") {
		return started(ctx, cmd, connected)
	}
	return serving(ctx, cmd)
}

// stop ends the process in order, if it has not ended, and waits for it.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return p.err
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-late.C:
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
		return errors.New("a SIGTERM has not ended it")
	}
}

// output returns the end of what it has printed.
func (p *process) output() string {
	all := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	return strings.Join(all[max(0, len(all)-40):], "\n")
}
