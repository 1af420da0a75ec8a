package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// errPortTaken reports that a process ended because another had its port.
var errPortTaken = errors.New("port taken")

// errStopped reports that the fleet is stopping or has stopped.
var errStopped = errors.New("fleet is stopped")

// Process is one process of a control plane. It can be killed and started
// again with the same ports and data. Methods may be called from any
// goroutine; a Kill makes a Start under way fail.
type Process struct {
	name, path, log string
	args, env       []string
	spawner         *spawner
	ready           func(context.Context) error // one probe

	starting sync.Mutex // held through Start

	mu  sync.Mutex
	run *run // the latest, nil before the first
}

// run is one life of a process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is reaped
	err  error         // why it ended; read after done
}

// Name returns what the process is, such as "member-1/kube-apiserver".
func (p *Process) Name() string { return p.name }

// LogFile returns the path of the file with the process's output, all lives.
func (p *Process) LogFile() string { return p.log }

// PID returns the process id of the latest life, 0 before the first.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		return 0
	}
	return p.run.cmd.Process.Pid
}

// Running reports whether the process is alive.
func (p *Process) Running() bool {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// Start starts the process and waits until it answers. Its error carries the
// end of the log. A process that fails to get ready is killed.
func (p *Process) Start(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.Running() {
		return fmt.Errorf("%s: already running", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	defer log.Close() // the child has its own descriptor
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	r, err := p.spawn(log)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if err := p.awaitReady(ctx, r); err != nil {
		r.kill()
		tail := p.tail(from, 4<<10)
		if strings.Contains(tail, "address already in use") {
			err = errors.Join(errPortTaken, err)
		}
		return fmt.Errorf("%s: %w\n%s", p.name, err, tail)
	}
	return nil
}

// spawn begins a life. The fork happens under the lock so that stopping
// the fleet finds either no new life or one that it can end.
func (p *Process) spawn(log *os.File) (*run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr()
	r := &run{cmd: cmd, done: make(chan struct{})}
	err := p.spawner.start(cmd, func() {
		r.err = cmd.Wait()
		close(r.done)
	})
	if err != nil {
		return nil, err
	}
	p.run = r
	return r, nil
}

func (p *Process) awaitReady(ctx context.Context, r *run) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		select {
		case <-r.done:
			return fmt.Errorf("ended: %w", errors.Join(r.err, last))
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", errors.Join(context.Cause(ctx), last))
		case <-tick.C:
		}
		probe, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := p.ready(probe)
		cancel()
		if err == nil {
			return nil
		}
		last = err
	}
}

// Kill sends SIGKILL and waits until the process is gone; one that is not
// running is left alone.
func (p *Process) Kill() {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r != nil {
		r.kill()
	}
}

func (r *run) kill() {
	_ = r.cmd.Process.Kill() // ended already: reaped below all the same
	<-r.done
}

// tail returns the end of what the log has after the offset, at most so many bytes.
func (p *Process) tail(from, most int64) string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size()-most > from {
		from = st.Size() - most
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// spawner starts processes from one operating-system thread that lives as
// long as the fleet: on Linux a child is killed when the thread that started
// it ends, which also covers a parent that dies without cleaning up.
type spawner struct {
	requests chan spawnRequest
	owner    sync.WaitGroup
	reapers  sync.WaitGroup // one per living process

	mu     sync.Mutex
	closed bool
}

type spawnRequest struct {
	cmd   *exec.Cmd
	reply chan<- error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	s.owner.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for r := range s.requests {
			r.reply <- r.cmd.Start()
		}
	})
	return s
}

// start starts cmd and has reap run in a goroutine of the spawner's.
func (s *spawner) start(cmd *exec.Cmd, reap func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStopped
	}
	reply := make(chan error, 1)
	s.requests <- spawnRequest{cmd, reply} // the owner never waits for the lock
	if err := <-reply; err != nil {
		return err
	}
	s.reapers.Go(reap)
	return nil
}

// refuse has every later start fail.
func (s *spawner) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// close ends the thread once every child is reaped; refuse comes first.
func (s *spawner) close() {
	s.reapers.Wait()
	close(s.requests)
	s.owner.Wait()
}
