package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/test/kube"
	"federator.dev/federator/test/process"
)

// configuration has small budgets and short times, so that a short run comes to what is
// beyond them.
const configuration = `sources:
  kubeconfig: %[1]s/hub.kubeconfig
  clusterAPI: {namespaces: [good, evil]}
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

// federator is the federator command, serving.
type federator struct {
	*process.Process
	admin *http.Client
}

// startFederator serves in a directory, and waits until it listens.
func startFederator(ctx context.Context, binary, dir string) (*federator, error) {
	served, err := process.Serve(binary, dir, "GOTRACEBACK=all", "GOMEMLIMIT=1GiB")
	if err != nil {
		return nil, err
	}
	p := &federator{Process: served, admin: &http.Client{Timeout: patience, Transport: &http.Transport{}}}
	err = kube.Until(ctx, patience, func() error {
		if !p.Alive() {
			return nil // it will not get better
		}
		_, err1 := p.Address("query")
		_, err2 := p.Address("admin")
		_, err3 := p.Address("serve")
		return errors.Join(err1, err2, err3)
	})
	if err != nil || !p.Alive() {
		return nil, errors.Join(err, p.stop(), errors.New(p.Tail(20)))
	}
	return p, nil
}

// stopWithin bounds how long an orderly end may take on a busy machine.
const stopWithin = 45 * time.Second

// stop ends the process in order and waits for it. That it has ended before is an error.
func (p *federator) stop() error {
	p.admin.CloseIdleConnections()
	if !p.Alive() {
		return fmt.Errorf("the process has ended: %w", p.Err())
	}
	return p.Stop(stopWithin)
}

// ask asks the admin endpoint.
func (p *federator) ask(ctx context.Context, path string) ([]byte, error) {
	addr, err := p.Address("admin")
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
func (p *federator) members(ctx context.Context) (map[string]clusterinformers.MemberStatus, error) {
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
func (p *federator) usage(ctx context.Context) (u usage, err error) {
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
	proc := fmt.Sprintf("/proc/%d", p.PID())
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
func (p *federator) logged(words ...string) error {
	text, err := p.Log()
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

// logSize is how many bytes have been logged.
func (p *federator) logSize() (int, error) {
	text, err := p.Log()
	return len(text), err
}
