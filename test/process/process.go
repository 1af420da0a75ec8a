// Package process runs the federator command for tests, which end it and read its
// log.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Process is the federator command, serving.
type Process struct {
	LogFile string // of all processes of the directory

	start int64 // where the log of this one starts
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // how, once it has
}

// Serve starts the binary in a directory, with the configuration federator.yaml and the
// log file log there.
func Serve(binary, dir string, env ...string) (*Process, error) {
	p := &Process{LogFile: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	p.start = info.Size()
	p.cmd = exec.Command(binary, "serve", "--config", filepath.Join(dir, "federator.yaml"))
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = append([]string{"HOME=" + dir, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Err waits for the process to end and returns how it did.
func (p *Process) Err() error {
	<-p.ended
	return p.err
}

// Stop ends the process by SIGTERM, if it has not ended, waits for it and returns how it
// ended. Where it takes longer than within, it is ended in a way that tells why: the error has
// the stacks of its goroutines.
func (p *Process) Stop(within time.Duration) error {
	if !p.Alive() {
		return p.err
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-late.C:
		return fmt.Errorf("a SIGTERM has not ended it within %s:\n%s", within, p.stacks())
	}
}

// stacks ends the process and returns the stacks of its goroutines.
func (p *Process) stacks() []byte {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // fails if it has ended
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case <-p.ended:
	case <-late.C:
		p.Kill()
	}
	text, err := p.Log()
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, bytes.Index(text, []byte("SIGQUIT"))):]
}

// Kill ends the process like a crash, which is not a failure of the test: Err is nil then.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.ended
	p.err = nil
}

var listeningLine = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// Address returns where one of the process's servers listens.
func (p *Process) Address(server string) (string, error) {
	text, err := p.Log()
	if err != nil {
		return "", err
	}
	for _, m := range listeningLine.FindAllSubmatch(text, -1) {
		if string(m[1]) == server {
			return string(m[2]), nil
		}
	}
	return "", fmt.Errorf("server %s does not listen", server)
}

// Log returns what the process has logged.
func (p *Process) Log() ([]byte, error) {
	text, err := os.ReadFile(p.LogFile)
	return text[min(p.start, int64(len(text))):], err
}

// maxLine bounds a line of Tail, in bytes.
const maxLine = 1000

// Tail returns the last n lines of the log, of processes before it, too.
func (p *Process) Tail(n int) string {
	text, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		lines[i] = l[:min(len(l), maxLine)]
	}
	return strings.Join(lines, "\n")
}
