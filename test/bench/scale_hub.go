package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"federator.dev/federator/test/process"
)

// hub is the federator command, serving, as it is installed.
type hub struct {
	*process.Process
	b             *bench
	public, admin string // base URLs
	started       time.Time
	profiling     sync.WaitGroup
}

type hubOptions struct {
	gogc    int
	library bool    // evaluate the shipped policies
	profile string  // name of profiles, if any are asked for
	updates float64 // a second, of the members
}

const hubConfig = `sources:
  contexts:
    path: %s
    names: ["*"]
    noExec: true
giveUpAfter: 1h
index:
  revisionsFile: %s
policies:
  library: %t
query:
  listen: ""
listen:
  serve: 127.0.0.1:0
  admin: 127.0.0.1:0
  pprof: true
log:
  level: info
`

// measured returns the binary to measure: the given one, or that of the tree.
func (b *bench) measured(ctx context.Context) (binary string, err error) {
	if b.scaleOpts.hub == "" {
		return b.buildFederator(ctx)
	}
	return filepath.Abs(b.scaleOpts.hub)
}

// startHub starts the command on the members.
func (b *bench) startHub(ctx context.Context, s *simulators, o hubOptions) (*hub, error) {
	binary, err := b.measured(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.dir, "hub-")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(hubConfig, s.kubeconfig, filepath.Join(dir, "revisions"), o.library)
	return b.serveHub(ctx, binary, dir, config, o)
}

// serveHub starts the command in a directory, where an earlier process may have served.
func (b *bench) serveHub(ctx context.Context, binary, dir, config string, o hubOptions) (h *hub, err error) {
	if err := os.WriteFile(filepath.Join(dir, "federator.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	h = &hub{b: b, started: time.Now()}
	if h.Process, err = process.Serve(binary, dir, "GOGC="+strconv.Itoa(o.gogc)); err != nil {
		return nil, err
	}
	err = h.poll(ctx, time.Minute, 20*time.Millisecond, func() error {
		var a, b string
		var errs error
		a, errs = h.Address("serve")
		b, err := h.Address("admin")
		h.public, h.admin = "http://"+a, "http://"+b
		return errors.Join(errs, err)
	})
	if err != nil {
		return nil, errors.Join(err, h.kill())
	}
	if path := b.profilePath(o.profile + "-cpu"); path != "" && o.profile != "" {
		h.profiling.Go(func() {
			if err := h.fetch(ctx, h.admin+"/debug/pprof/profile?seconds=30", path); err != nil {
				b.progress("   profile: %v", err)
			}
		})
	}
	return h, nil
}

// poll repeats what fails until it does not, as long as the process lives.
func (h *hub) poll(ctx context.Context, limit, every time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case !h.Alive():
			return fmt.Errorf("federator has ended: %w\n%s", h.Err(), h.Tail(20))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// kill ends the process and waits for profiles.
func (h *hub) kill() error {
	h.Kill()
	h.profiling.Wait()
	return nil
}

// settled waits until no scope is unknown or syncing, in any member.
func (h *hub) settled(ctx context.Context, members int) (time.Duration, error) {
	err := h.poll(ctx, settleLimit, 100*time.Millisecond, func() error { return h.ready(ctx) })
	if err != nil {
		return 0, fmt.Errorf("members do not sync: %w", err)
	}
	ready := time.Since(h.started)
	last := time.Now()
	err = h.poll(ctx, settleLimit, time.Second, func() error {
		last = time.Now()
		m, err := h.metrics(ctx)
		if err != nil {
			return err
		}
		waiting := m.sum("federator_index_scopes", `state="Unknown"`) + m.sum("federator_index_scopes", `state="Syncing"`)
		if n := m.sum("federator_index_members"); waiting > 0 || int(n) < members {
			ready = 0
			return fmt.Errorf("%.0f of %d members have joined, %.0f scopes are not settled", n, members, waiting)
		}
		return nil
	})
	if ready == 0 { // scopes were late
		ready = last.Sub(h.started)
	}
	h.b.progress("   settled after %.1f s", ready.Seconds())
	return ready, err
}

func (h *hub) ready(ctx context.Context) error {
	_, err := h.get(ctx, h.public+"/readyz")
	return err
}

// known waits until every verdict is, of the newest revision if nothing is updated.
func (h *hub) known(ctx context.Context, every time.Duration) (m *metricsPage, err error) {
	err = h.poll(ctx, settleLimit, every, func() error {
		if m, err = h.metrics(ctx); err != nil {
			return err
		}
		unknown := m.sum("federator_policy_verdicts", `state="Unknown"`)
		if m.sum("federator_policy_synced") != 1 || unknown > 0 || m.sum("federator_policy_verdicts") == 0 || m.sum("federator_policy_lag_seconds") > 10 {
			return fmt.Errorf("%.0f verdicts are unknown", unknown)
		}
		return nil
	})
	return m, err
}

// idle returns the share of a core that is used over a while.
func (h *hub) idle(ctx context.Context, d time.Duration) (float64, error) {
	h.profiling.Wait()
	before, err := h.usage()
	if err != nil {
		return 0, err
	}
	started := time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	after, err := h.usage()
	return (after.cpu - before.cpu) / time.Since(started).Seconds(), err
}

// liveHeap collects garbage and returns what is left. Profiles of it and of its
// goroutines are kept if they are asked for.
func (h *hub) liveHeap(ctx context.Context, name string) (float64, error) {
	path := h.b.profilePath(name + "-heap")
	if path == "" {
		path = os.DevNull
	}
	if err := h.fetch(ctx, h.admin+"/debug/pprof/heap?gc=1", path); err != nil {
		return 0, err
	}
	if path := h.b.profilePath(name + "-goroutines"); path != "" {
		if err := h.fetch(ctx, h.admin+"/debug/pprof/goroutine", path); err != nil {
			return 0, err
		}
	}
	m, err := h.metrics(ctx)
	if err != nil {
		return 0, err
	}
	return m.sum("go_memstats_heap_alloc_bytes"), nil
}

func (h *hub) get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return body, err
}

func (h *hub) fetch(ctx context.Context, url, path string) error {
	body, err := h.get(ctx, url)
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o644)
}

// usage is what a process uses, as the kernel says.
type usage struct {
	rss, peak   float64 // bytes
	cpu         float64 // seconds
	descriptors float64
}

func (h *hub) usage() (u usage, err error) {
	dir := fmt.Sprint("/proc/", h.PID())
	status, err := memoryStatus(dir)
	if err != nil {
		return u, err
	}
	u.rss, u.peak = status["VmRSS"], status["VmHWM"]
	open, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return u, err
	}
	u.descriptors = float64(len(open))
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const utime, stime = 11, 12 // from the state on
	for _, i := range []int{utime, stime} {
		ticks, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return u, err
		}
		u.cpu += ticks / 100 // USER_HZ
	}
	return u, nil
}

// metricsPage is a page of metrics.
type metricsPage struct {
	size    int
	samples []string
}

func (h *hub) metrics(ctx context.Context) (*metricsPage, error) {
	body, err := h.get(ctx, h.public+"/metrics")
	if err != nil {
		return nil, err
	}
	p := &metricsPage{size: len(body)}
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			p.samples = append(p.samples, line)
		}
	}
	return p, lines.Err()
}

// sum adds the samples of a metric that have a label.
func (p *metricsPage) sum(name string, label ...string) (total float64) {
	for _, line := range p.samples {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' || len(label) > 0 && !strings.Contains(rest, label[0]) {
			continue
		}
		if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += v
		}
	}
	return total
}
