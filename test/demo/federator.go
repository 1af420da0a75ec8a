package main

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

	"k8s.io/client-go/util/cert"
)

// federator is the real command, serving in a process of its own.
type federator struct {
	binary  string
	logFile string
	public  string // base URL of health and metrics
	admin   string // base URL of the admin endpoint
	query   string // base URL of the query API
	agents  string // address that agents connect to

	process
}

// process is a command that goes on.
type process struct {
	cmd   *exec.Cmd
	ended chan error // one value: how it ended
}

// start starts a command in a directory, which logs to a file.
func start(dir, logFile, binary string, args ...string) (process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	p := process{exec.Command(binary, args...), make(chan error, 1)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	// A Ctrl-C is for us: we end the process when we are done with it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return process{}, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, nil
}

// buildFederator builds the command.
func buildFederator(ctx context.Context, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "federator.dev/federator/cmd/federator")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build federator: %w\n%s", err, out)
	}
	return nil
}

// The members are on loopback here, and the policies on this machine, where real ones
// must not be.
const configuration = `sources:
  kubeconfig: hub.yaml
  clusterAPI: {namespaces: [fleet]}
  members: {namespaces: [fleet]}
agents: {listen: 127.0.0.1:0, hosts: [127.0.0.1]}
network: {allow: [127.0.0.0/8]}
query:
  listen: 127.0.0.1:0
  tls: {certFile: tls.crt, keyFile: tls.key}
policies: {hub: true, library: true, allowFile: true}
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0}
ui: {hubTokens: [{issuer: "https://kubernetes.default.svc.cluster.local", audience: "https://kubernetes.default.svc.cluster.local"}]}
`

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// startFederator serves in a directory with the hub's kubeconfig, and waits until the
// servers listen.
func startFederator(ctx context.Context, dir, binary string) (*federator, error) {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, err
	}
	f := &federator{binary: binary, logFile: filepath.Join(dir, "federator.log")}
	for name, text := range map[string][]byte{"federator.yaml": []byte(configuration), "tls.crt": crt, "tls.key": key} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err != nil {
		return nil, err
	}
	if f.process, err = start(dir, f.logFile, binary, "serve", "--config", "federator.yaml"); err != nil {
		return nil, err
	}
	if err := await(ctx, 20*time.Millisecond, func(context.Context) error { return f.listens() }); err != nil {
		return nil, errors.Join(err, f.complain(), f.stop())
	}
	return f, nil
}

// listens finds out of the log where the servers are.
func (f *federator) listens() error {
	text, err := os.ReadFile(f.logFile)
	if err != nil {
		return err
	}
	for _, m := range listening.FindAllStringSubmatch(string(text), -1) {
		switch m[1] {
		case "serve":
			f.public = "http://" + m[2]
		case "admin":
			f.admin = "http://" + m[2]
		case "query":
			f.query = "https://" + m[2]
		case "agents":
			f.agents = m[2]
		}
	}
	if f.public == "" || f.admin == "" || f.query == "" || f.agents == "" {
		return errors.New("federator does not listen yet")
	}
	return nil
}

// stop ends the process in order and waits for it. There may be none.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	err := <-p.ended
	p.ended <- err
	if !late.Stop() {
		err = errors.Join(errors.New("it did not stop"), err)
	}
	if err != nil {
		return fmt.Errorf("federator %s: %w", p.cmd.Args[1], err)
	}
	return nil
}

// complain returns the end of the log as an error.
func (f *federator) complain() error {
	text, err := os.ReadFile(f.logFile)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("federator's log ends:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
}
