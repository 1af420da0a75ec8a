package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
)

// configuration has small budgets and short times, so that a short run comes to what is
// beyond them.
const configuration = `sources:
  clusterAPI: {kubeconfig: %[1]s/hub.kubeconfig, namespaces: [good, evil]}
kinds: [{kind: "*"}, {kind: Event}]
network: {allow: [127.0.0.0/8]}
budget: {bytes: 33554432, objects: 30000, responseBytes: 8388608}
discoveryInterval: 2s
giveUpAfter: 3s
index: {logBytes: 8388608, revisionsFile: %[1]s/revisions}
query:
  listen: 127.0.0.1:0
  tls: {certFile: %[1]s/tls.crt, keyFile: %[1]s/tls.key}
  clientCAFile: %[1]s/ca.crt
  allowTTL: 1s
  denyTTL: 1s
  maxWatches: 60
  timeout: 20s
policies: {dirs: [%[1]s/policies], hub: true, allowFile: true, namespace: default}
listen: {serve: 127.0.0.1:0, admin: 127.0.0.1:0, pprof: true}
log: {format: text, level: info}
`

// budget is how many bytes of heap a member may have, and eventShare how many of them
// Events, by default.
const (
	budget     = 32 << 20
	eventShare = budget / 10
)

// maxWatches is that of the configuration.
const maxWatches = 60

// process is the federator command, serving.
type process struct {
	log   string // file
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has
	err   error         // how, once it has
	admin *http.Client
}

// startFederator serves in a directory, and waits until it listens.
func startFederator(ctx context.Context, binary, dir string) (*process, error) {
	p := &process{log: filepath.Join(dir, "log"), ended: make(chan struct{}), admin: &http.Client{Timeout: patience, Transport: &http.Transport{}}}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(binary, "serve", "--config", filepath.Join(dir, "federator.yaml"))
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + os.TempDir(), "PATH=" + os.Getenv("PATH"), "GOTRACEBACK=all", "GOMEMLIMIT=1GiB"}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	err = kube.Until(ctx, patience, func() error {
		if !p.lives() {
			return nil // it will not get better
		}
		_, err1 := p.address("query")
		_, err2 := p.address("admin")
		_, err3 := p.address("serve")
		return errors.Join(err1, err2, err3)
	})
	if err != nil || !p.lives() {
		return nil, errors.Join(err, p.stop(), errors.New(p.tail(20)))
	}
	return p, nil
}

var listening = regexp.MustCompile(`server=(\w+) address=(\S+)`)

// address returns where one of the process's servers listens.
func (p *process) address(server string) (string, error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return "", err
	}
	for _, m := range listening.FindAllSubmatch(text, -1) {
		if string(m[1]) == server {
			return string(m[2]), nil
		}
	}
	return "", fmt.Errorf("server %s does not listen", server)
}

func (p *process) lives() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stopWithin bounds how long an orderly end may take on a busy machine.
const stopWithin = 45 * time.Second

// stop ends the process in order, if it has not ended, and waits for it.
func (p *process) stop() error {
	p.admin.CloseIdleConnections()
	if !p.lives() {
		return fmt.Errorf("the process has ended: %w", p.err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(stopWithin)
	defer late.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-late.C:
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
		return fmt.Errorf("a SIGTERM has not ended it within %s", stopWithin)
	}
}

// tail returns the end of the log.
func (p *process) tail(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		lines[i] = l[:min(len(l), 400)]
	}
	return strings.Join(lines, "\n")
}

// ask asks the admin endpoint.
func (p *process) ask(ctx context.Context, path string) ([]byte, error) {
	addr, err := p.address("admin")
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %.300s", path, resp.StatusCode, body)
	}
	return body, err
}

// members returns what the manager knows, by name.
func (p *process) members(ctx context.Context) (map[string]clusterinformers.MemberStatus, error) {
	body, err := p.ask(ctx, "/members?details=true")
	if err != nil {
		return nil, err
	}
	var a struct {
		Members []clusterinformers.MemberStatus `json:"members"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, err
	}
	out := map[string]clusterinformers.MemberStatus{}
	for _, m := range a.Members {
		out[m.Name] = m
	}
	return out, nil
}

// usage is what the process holds.
type usage struct {
	heap       int64 // bytes, after a collection
	goroutines int
	files      int
	peak       int64 // resident bytes, at most so far
}

var (
	heapLine      = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)`)
	goroutineLine = regexp.MustCompile(`^goroutine profile: total (\d+)`)
	peakLine      = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB`)
)

// usage measures; the collection has a second turn for what finalizers kept.
func (p *process) usage(ctx context.Context) (u usage, err error) {
	for range 2 {
		heap, err := p.ask(ctx, "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			return u, err
		}
		u.heap = number(heapLine, heap)
	}
	goroutines, err := p.ask(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return u, err
	}
	u.goroutines = int(number(goroutineLine, goroutines))
	proc := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	files, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return u, err
	}
	u.files = len(files)
	status, err := os.ReadFile(proc + "/status")
	u.peak = number(peakLine, status) << 10
	return u, err
}

func number(at *regexp.Regexp, text []byte) int64 {
	m := at.FindSubmatch(text)
	if m == nil {
		return -1
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// logged returns the first line of the log with all of some words, as an error.
func (p *process) logged(words ...string) error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return fmt.Errorf("logged: %.1500s", line)
		}
	}
	return nil
}
