package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// simulators are processes of simulated members, with one kubeconfig.
type simulators struct {
	processes  []*simulator
	kubeconfig string
	dir        string
}

// simulator is one process, which does what it is told on its standard input.
type simulator struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	stopped bool // by a signal
	gone    bool
}

// simulators starts members, in as many processes as it takes.
func (b *bench) simulators(ctx context.Context, members, kinds, pods, nodes int) (*simulators, error) {
	s := &simulators{}
	var err error
	if s.dir, err = os.MkdirTemp(b.dir, "scale-"); err != nil {
		return nil, err
	}
	per := min(max(b.scaleOpts.perProcess, 1), 3000)
	for first := 0; first < members; first += per {
		args := []string{
			"--first", strconv.Itoa(first), "--members", strconv.Itoa(min(per, members-first)), "--kinds", strconv.Itoa(kinds),
			"--pods", strconv.Itoa(pods), "--nodes", strconv.Itoa(nodes),
		}
		if err := s.add(ctx, b, args...); err != nil {
			return nil, errors.Join(err, s.stop())
		}
	}
	return s, s.writeKubeconfig()
}

// add starts one process more.
func (s *simulators) add(ctx context.Context, b *bench, args ...string) error {
	bin := filepath.Join(b.dir, "simfleet")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./test/sim/cmd/simfleet").CombinedOutput(); err != nil {
		return fmt.Errorf("build simfleet: %w\n%s", err, out)
	}
	file := filepath.Join(s.dir, fmt.Sprint(len(s.processes), ".kubeconfig"))
	p := &simulator{cmd: exec.CommandContext(ctx, bin, append([]string{"--kubeconfig", file, "--corpus", b.corpus}, args...)...)}
	p.cmd.Env = append(os.Environ(), "GOGC=50") // it shares the machine with what is measured
	p.cmd.Stderr = b.out
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() || !strings.HasPrefix(p.out.Text(), "READY") {
		return errors.New("simfleet did not get ready")
	}
	b.progress("   %s", p.out.Text())
	return nil
}

// writeKubeconfig merges those of the processes.
func (s *simulators) writeKubeconfig() error {
	s.kubeconfig = filepath.Join(s.dir, "kubeconfig")
	return mergeKubeconfigs(s.kubeconfig, func(yield func(string) bool) {
		for i := range s.processes {
			if !yield(filepath.Join(s.dir, fmt.Sprint(i, ".kubeconfig"))) {
				return
			}
		}
	})
}

// mergeKubeconfigs writes a kubeconfig with the contexts of others.
func mergeKubeconfigs(path string, files iter.Seq[string]) error {
	all := clientcmdapi.NewConfig()
	for file := range files {
		one, err := clientcmd.LoadFromFile(file)
		if err != nil {
			return err
		}
		maps.Copy(all.Clusters, one.Clusters)
		maps.Copy(all.AuthInfos, one.AuthInfos)
		maps.Copy(all.Contexts, one.Contexts)
		all.CurrentContext = one.CurrentContext
	}
	return clientcmd.WriteToFile(*all, path)
}

// tell has every process do the same.
func (s *simulators) tell(format string, args ...any) error {
	var errs []error
	for _, p := range s.processes {
		_, err := fmt.Fprintf(p.in, format+"\n", args...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// simStats are what the simulators use, and what they were asked for.
type simStats struct{ RSS, CPU, Watches, BytesPerWatch, Reads, Requests float64 }

// stats sums what the processes say; BytesPerWatch is the mean.
func (s *simulators) stats() (all simStats, err error) {
	above := 0.0
	for _, p := range s.processes {
		if _, err := fmt.Fprintln(p.in, "stats"); err != nil {
			return all, err
		}
		if !p.out.Scan() {
			return all, errors.New("simfleet has ended")
		}
		var got simStats
		if err := json.Unmarshal(p.out.Bytes(), &got); err != nil {
			return all, err
		}
		all.RSS, all.CPU, all.Watches = all.RSS+got.RSS, all.CPU+got.CPU, all.Watches+got.Watches
		all.Reads, all.Requests = all.Reads+got.Reads, all.Requests+got.Requests
		above += got.BytesPerWatch * got.Watches
	}
	all.BytesPerWatch = above / max(all.Watches, 1)
	return all, nil
}

// note says what the simulators use.
func (s *simulators) note() (string, error) {
	got, err := s.stats()
	return fmt.Sprintf("%d simulators: RSS %.0f MiB, %.0f CPU-s, %.0f watches of %.0f B each", len(s.processes), got.RSS/mib, got.CPU, got.Watches, got.BytesPerWatch), err
}

// blackHole stops the processes: connections stay, and nothing answers.
func (s *simulators) blackHole() error { return s.signal(syscall.SIGSTOP) }

// resume ends a black hole.
func (s *simulators) resume() error { return s.signal(syscall.SIGCONT) }

func (s *simulators) signal(sig os.Signal) error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.cmd.Process.Signal(sig))
		p.stopped = sig == syscall.SIGSTOP
	}
	return errors.Join(errs...)
}

// kill ends the processes at once: connections are reset, and new ones refused.
func (s *simulators) kill() {
	for _, p := range s.processes {
		if !p.gone {
			_ = p.cmd.Process.Kill() // it may have ended
			_ = p.cmd.Wait()         //nolint:errcheck // it was killed
			p.gone = true
		}
	}
}

// stop ends what still runs.
func (s *simulators) stop() error {
	var errs []error
	for _, p := range s.processes {
		if p.gone {
			continue
		}
		if p.stopped {
			errs = append(errs, p.cmd.Process.Signal(syscall.SIGCONT))
		}
		late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
		errs = append(errs, p.cmd.Process.Signal(os.Interrupt), p.cmd.Wait())
		late.Stop()
		p.gone = true
	}
	return errors.Join(errs...)
}
